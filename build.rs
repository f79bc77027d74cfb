//! Tells the program its version, with the commit that it is built from and the features that are compiled in.
//!
//! The commit is `BUILD_COMMIT`, or that of the git checkout in a release build. Debug builds don't ask git: every commit
//! would compile the library and all tests again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let given = env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(checkout).flatten());
    let in_version = commit.as_ref().map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    let features = if env::var_os("CARGO_FEATURE_DEV_CHAIN").is_some() { "dev-chain" } else { "none" };
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Not with our prefix: cargo sets it also for the programs that it runs, and the program refuses unknown variables.
    println!("cargo::rustc-env=BUILD_REVISION={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=BUILD_FEATURES={features}");
    println!("cargo::rustc-env=BUILD_VERSION={version} ({in_version}features: {features})");
}

/// The commit that is checked out here. A checkout further up is not ours.
fn checkout() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    // Git writes a line to this file whenever the commit changes. Without the file this runs before every build.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
