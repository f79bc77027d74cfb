//! A machine that lacks something is told so before anything is built: `scripts/need`, which every make target asks first.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output};
use std::{fs, path::Path};

/// What a shell script itself needs; no apt is among it.
const BASE: [&str; 9] = ["sh", "sed", "sort", "head", "cut", "id", "dirname", "grep", "uname"];

/// A machine whose path has these programs, and a compiler of this version.
fn machine(folder: &Path, rust: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    for program in BASE {
        let found = path.split(':').map(|place| Path::new(place).join(program)).find(|file| file.exists());
        symlink(found.unwrap(), folder.join(program)).unwrap();
    }
    for (program, says) in [("cargo", "cargo"), ("rustc", &format!("rustc {rust} (x)"))] {
        let file = folder.join(program);
        fs::write(&file, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

fn need(path: &str, tools: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/need");
    Command::new("/bin/sh").arg(script).args(tools).env("PATH", path).output().unwrap()
}

#[test]
fn a_machine_without_apt_is_told_in_one_sentence_of_all_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = machine(folder.path(), "1.95.0");
    assert!(need(&path, &["rust", "sed"]).status.success());
    let output = need(&path, &["rust", "sed", "no-such-tool", "c++-of-nobody"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said,
        "Tiergate needs what is not installed here; please install: no-such-tool, c++-of-nobody\n"
    );
}

#[test]
fn a_compiler_that_is_too_old_is_named_with_the_version_that_the_manifest_asks_for() {
    let manifest: toml::Table =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap().parse().unwrap();
    let version = manifest.get("package").unwrap().get("rust-version").unwrap().as_str().unwrap();
    for (rust, is_enough) in [("1.63.0", false), ("1.9.0", false), (version, true), ("1.100.0", true)] {
        let folder = tempfile::tempdir().unwrap();
        let output = need(&machine(folder.path(), rust), &["rust"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), is_enough, "{rust}: {said}");
        assert!(
            is_enough || said.ends_with(&format!("install: Rust {version} or newer\n")),
            "{rust}: {said}"
        );
    }
}

/// A minute of fuzzing at each change finds nothing where nothing has changed that it is about.
#[test]
fn what_is_fuzzed_was_fuzzed_as_it_is() {
    let root = env!("CARGO_MANIFEST_DIR");
    let inputs = Command::new(format!("{root}/scripts/fuzz")).arg("--inputs").output().unwrap();
    let fuzzed = fs::read_to_string(format!("{root}/fuzz/fuzzed.sha256")).unwrap();
    assert_eq!(
        String::from_utf8(inputs.stdout).unwrap(),
        fuzzed,
        "fuzz/ or what it includes has changed: make fuzz"
    );
}

/// Each exits before it builds: what it needs is the first thing that it asks for.
#[test]
fn every_check_of_a_change_asks_for_all_that_it_needs_before_it_builds() {
    let read = |file: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let run = read(".ci/run");
    let asks = run.lines().find_map(|line| line.strip_prefix("scripts/need ")).unwrap();
    let (before, _) = run.split_once("\nscripts/took ").unwrap();
    assert!(before.contains("scripts/need"), "it asks before it makes anything");
    let asked: Vec<&str> = asks.split(' ').collect();
    let conformance = read("scripts/conformance");
    let tools = conformance.lines().find_map(|line| line.strip_prefix("scripts/need ")).unwrap();
    assert!(tools.split(' ').all(|tool| asked.contains(&tool)), "scripts/conformance: {tools}");
    let instructions = read("scripts/instructions");
    let (_, list) = instructions.split_once("\"scripts/need\", \"").unwrap();
    let list = list.split_once("\"]").unwrap().0;
    assert!(list.split("\", \"").all(|tool| asked.contains(&tool)), "scripts/instructions: {list}");
    let needed = read("Makefile").lines().find_map(|line| line.strip_prefix("needed = ").map(str::to_owned));
    assert!(needed.unwrap().split(' ').all(|tool| asked.contains(&tool)));
}
