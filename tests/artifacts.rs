//! The compiled contracts are what their sources compile to.

#![expect(clippy::print_stdout, reason = "it says why it does not run")]

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() -> ExitCode {
    let compiler = Path::new(ROOT).join("tools/node_modules/solc").is_dir();
    let required = std::env::var_os("TIERGATE_REQUIRE_SERVERS").is_some_and(|value| value == "1");
    if !compiler && !required {
        println!("the Solidity compiler is not installed: make test installs it");
    }
    let trial = Trial::test("the_artifacts_are_what_the_sources_compile_to", recompile);
    let trial = trial.with_ignored_flag(!compiler && !required);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn recompile() -> Result<(), Failed> {
    let check = Command::new("node").args(["contracts/compile.mjs", "--check"]).current_dir(ROOT).output()?;
    if check.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&check.stderr).into_owned().into())
}
