//! The pages do not lie: their commands run and print what they say, their links lead somewhere, and their tables are
//! those of the program. Neither do the files under `deploy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::skip::skip;

#[cfg(feature = "dev-chain")]
mod commands;
mod deploy;
#[cfg(feature = "dev-chain")]
mod integrate;
mod links;
mod packaging;
#[cfg(feature = "dev-chain")]
#[path = "../../support/dev.rs"]
mod started;
mod tables;

/// A file of the repository, by its path from the root.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a tool of others to its end. Without it the test is skipped, and there is no output.
fn tool(name: &str, arguments: &[&str], folder: &Path) -> Option<Output> {
    let installed = root().join("tools/servers").join(name).join(name);
    let program = if installed.exists() { installed } else { name.into() };
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    if output.is_err() {
        skip(name);
    }
    output.ok()
}

/// The files below a folder whose names end so, without what is built or installed there.
fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && !["target", "tools"].contains(&name) {
            found.extend(files(&path, suffix));
        } else if path.is_file() && name.ends_with(suffix) {
            found.push(path);
        }
    }
    found
}
