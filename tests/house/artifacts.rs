//! The compiled contracts, the owner's page and the documentation of the API are what their sources compile to.

use std::{path::Path, process::Command};

use crate::skip::skip;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_artifacts_are_what_the_sources_compile_to() {
    recompile("solc", "contracts/compile.mjs");
}

#[test]
fn the_owners_page_is_what_its_sources_compile_to() {
    recompile("typescript", "console/build.mjs");
}

#[test]
fn the_documentation_is_what_the_description_of_the_api_says() {
    recompile("", "console/docs.mjs");
}

/// Compiles again and compares, with the compiler of this package.
fn recompile(package: &str, script: &str) {
    if Command::new("node").arg("--version").output().is_err() {
        return skip("node");
    }
    if !Path::new(ROOT).join("tools/node_modules").join(package).is_dir() && !package.is_empty() {
        return skip(package);
    }
    let check = Command::new("node").args([script, "--check"]).current_dir(ROOT).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
