//! The compiled contracts, the owner's page and the documentation of the API are what their sources compile to.

#[path = "support/limit.rs"]
mod limit;
#[path = "support/skip.rs"]
#[expect(dead_code, reason = "a case of this harness is ignored instead")]
mod skip;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::limit::{Failure, within};
use crate::skip::are_servers_required;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A compiler that is not done then has hung.
const COMPILES_WITHIN: Duration = Duration::from_secs(300);

/// One compile: the test's name, the compiler's package if there is one, and the script.
const COMPILED: [(&str, Option<&str>, &str); 3] = [
    ("the_artifacts_are_what_the_sources_compile_to", Some("solc"), "contracts/compile.mjs"),
    ("the_owners_page_is_what_its_sources_compile_to", Some("typescript"), "console/build.mjs"),
    ("the_documentation_is_what_the_description_of_the_api_says", None, "console/docs.mjs"),
];

fn main() -> ExitCode {
    let trials = COMPILED.map(|(name, package, script)| {
        let is_there = match package {
            Some(package) => Path::new(ROOT).join("tools/node_modules").join(package).is_dir(),
            None => Command::new("node").arg("--version").output().is_ok(),
        };
        let trial = Trial::test(name, move || {
            within(COMPILES_WITHIN, name.to_owned(), move || recompile(script)).map_err(|failure| {
                match failure {
                    Failure::Panicked(message) => Failed::from(message),
                    Failure::Hung => Failed::from(format!("not done within {COMPILES_WITHIN:?}")),
                }
            })
        });
        match is_there || are_servers_required() {
            true => trial,
            false => {
                let missing = package.unwrap_or("node");
                trial.with_kind(format!("{missing} is not installed")).with_ignored_flag(true)
            }
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn recompile(script: &str) {
    match Command::new("node").args([script, "--check"]).current_dir(ROOT).output() {
        Ok(check) => assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr)),
        Err(error) => panic!("node: {error}"),
    }
}
