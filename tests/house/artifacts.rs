//! The compiled contracts, the owner's page and the documentation of the API are what their sources compile to.

use std::{fs, path::Path, process::Command};

use alloy::primitives::keccak256;

use crate::skip::skip;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The compiler is JavaScript and takes 15 s of a processor: sources and artifacts that it has agreed to in this clone are as they were.
#[test]
fn the_artifacts_are_what_the_sources_compile_to() {
    let (mut files, stamp) = (Vec::new(), Path::new(ROOT).join("target/compiled-contracts"));
    files_below(&Path::new(ROOT).join("contracts"), &mut files);
    files.extend(fs::read(Path::new(ROOT).join("tools/package-lock.json")).unwrap());
    let inputs = keccak256(files).to_string();
    if fs::read_to_string(&stamp).is_ok_and(|agreed| agreed == inputs) {
        return;
    }
    if recompile("solc", "contracts/compile.mjs") {
        fs::write(stamp, inputs).unwrap();
    }
}

/// Adds names and contents of all files of a folder.
fn files_below(folder: &Path, all: &mut Vec<u8>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        all.extend_from_slice(entry.as_os_str().as_encoded_bytes());
        if entry.is_dir() { files_below(&entry, all) } else { all.extend(fs::read(entry).unwrap()) }
    }
}

#[test]
fn the_owners_page_is_what_its_sources_compile_to() {
    recompile("typescript", "console/build.mjs");
}

#[test]
fn the_documentation_is_what_the_description_of_the_api_says() {
    recompile("", "console/docs.mjs");
}

/// Compiles again and compares, with the compiler of this package; false if that is not installed.
fn recompile(package: &str, script: &str) -> bool {
    let is_there = package.is_empty() || Path::new(ROOT).join("tools/node_modules").join(package).is_dir();
    if !is_there || Command::new("node").arg("--version").output().is_err() {
        skip(if is_there { "node" } else { package });
        return false;
    }
    let check = Command::new("node").args([script, "--check"]).current_dir(ROOT).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    true
}
