//! The compiled contracts are what their sources compile to.

#![expect(clippy::print_stdout, reason = "it says why it does not run")]

#[path = "support/limit.rs"]
mod limit;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::limit::{Failure, within};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A compiler that is not done then has hung.
const COMPILES_WITHIN: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let compiler = Path::new(ROOT).join("tools/node_modules/solc").is_dir();
    let required = std::env::var_os("TG_REQUIRE_SERVERS").is_some_and(|value| value == "1");
    if !compiler && !required {
        println!("the Solidity compiler is not installed: make test installs it");
    }
    let name = "the_artifacts_are_what_the_sources_compile_to";
    let trial = Trial::test(name, || {
        within(COMPILES_WITHIN, name.to_owned(), recompile).map_err(|failure| match failure {
            Failure::Panicked(message) => Failed::from(message),
            Failure::Hung => Failed::from(format!("not done within {COMPILES_WITHIN:?}")),
        })
    });
    let trial = trial.with_ignored_flag(!compiler && !required);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn recompile() {
    match Command::new("node").args(["contracts/compile.mjs", "--check"]).current_dir(ROOT).output() {
        Ok(check) => assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr)),
        Err(error) => panic!("node: {error}"),
    }
}
