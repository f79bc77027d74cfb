//! Secrets: from a file or the environment, and into a file. Never in an argument, where every user of the machine could
//! read them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::cli::Failure;
use crate::files::{self, SECRET_BYTES_MAX};

/// Reads the secret in the file that `--NAME-file` names, or in a variable when none is named.
pub(super) fn read(file: Option<&Path>, name: &str, variable: &str) -> Result<Zeroizing<String>, Failure> {
    match file {
        Some(file) => text(file),
        None => std::env::var(variable).map(Zeroizing::new).map_err(|_| {
            Failure::new(format!("no {name}: name its file with --{name}-file, or set {variable}"))
        }),
    }
}

/// Reads a file.
pub(super) fn text(file: &Path) -> Result<Zeroizing<String>, Failure> {
    files::text_or_pipe(file, SECRET_BYTES_MAX)
        .map_err(|problem| Failure::new(format!("{}: {problem}", file.display())))
}

/// Reads a file, or for `-` a line of standard input. A terminal asks for it, does not show it and takes any length.
pub(super) fn line(file: &Path, prompt: &str) -> Result<Zeroizing<String>, Failure> {
    if file != Path::new("-") {
        return text(file);
    }
    if io::stdin().is_terminal() {
        return Ok(Zeroizing::new(rpassword::prompt_password(prompt)?));
    }
    let mut line = Zeroizing::new(String::with_capacity(SECRET_BYTES_MAX));
    io::stdin().lock().take(SECRET_BYTES_MAX as u64).read_line(&mut line)?;
    Ok(line)
}

/// Creates a file that its owner alone can read. One that exists is left alone.
pub(super) fn create(file: &Path) -> Result<File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    created.map_err(|cause| Failure::new(format!("cannot create {}: {cause}", file.display())))
}
