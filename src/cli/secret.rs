//! Secrets: from a file or the environment, and into a file. Never in an argument, where every user of the machine could
//! read them.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use zeroize::Zeroizing;

use crate::cli::{Failure, KEY_UNSURE};
use crate::domain::api_key::{ApiKeyFormat, KEY_HEX_DIGITS};
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

/// A file for an API key that is not made yet, under a name of its own until it holds the key. Without one it goes again.
pub(super) struct KeyFile {
    path: PathBuf,
    is_replaced: bool,
    beside: PathBuf,
    file: File,
    has_key: bool,
}

impl KeyFile {
    /// Creates a file that its owner alone can read. One that is at the path is left alone; if the API key in it is to be
    /// replaced, until the new one is kept.
    pub(super) fn create(path: &Path, is_replaced: bool) -> Result<Self, Failure> {
        let failure =
            |why: &dyn fmt::Display| Failure::new(format!("cannot create {}: {why}", path.display()));
        let is_key = || files::text(path, SECRET_BYTES_MAX).is_ok_and(|text| is_api_key(text.trim_end()));
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(failure(&"it is a folder"));
        }
        if path.symlink_metadata().is_ok() && !(is_replaced && is_key()) {
            return Err(failure(&"it exists, and is no API key that may be replaced"));
        }
        // A link leads to the new file too.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = path.with_added_extension(format!("new-{:x}", RandomState::new().hash_one(())));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let file = file.map_err(|cause| failure(&cause))?;
        Ok(Self { path, is_replaced, beside, file, has_key: false })
    }

    /// Keeps a key, in place of what was at the path.
    pub(super) fn keep(mut self, key: &str) -> Result<(), Failure> {
        let kept = writeln!(self.file, "{key}").and_then(|()| self.file.sync_all());
        let path = self.path.display();
        kept.map_err(|cause| {
            Failure::new(format!("a key was made and can't be kept in {path}: {cause}")).with_key_unsure()
        })?;
        self.has_key = true;
        let flags = if self.is_replaced { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = renameat_with(CWD, &self.beside, CWD, &self.path, flags);
        renamed.map_err(|cause| {
            let beside = self.beside.display();
            Failure::new(format!("the new key is in {beside}, which can't be renamed to {path}: {cause}"))
                .with_code(KEY_UNSURE)
        })
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        if !self.has_key {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// True for an API key of any service, and for no private key.
fn is_api_key(text: &str) -> bool {
    text.len().checked_sub(KEY_HEX_DIGITS).and_then(|length| text.get(..length)).is_some_and(|prefix| {
        let is_name = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_name && !["", "0x", "0X"].contains(&prefix) && ApiKeyFormat::new(prefix).parse(text).is_some()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::KeyFile;

    #[test]
    fn a_new_key_replaces_no_file_that_came_meanwhile_and_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.key");
        let file = KeyFile::create(&path, false).unwrap();
        let beside = file.beside.clone();
        fs::write(&path, "another's").unwrap();
        let failure = file.keep("svc_live_v1_new").unwrap_err();
        assert!(failure.message.contains(beside.to_str().unwrap()), "{}", failure.message);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        assert_eq!(fs::read_to_string(&beside).unwrap(), "svc_live_v1_new\n");
        let slash = format!("{}/", folder.path().join("none").display());
        assert!(
            KeyFile::create(slash.as_ref(), false).is_err() && KeyFile::create(slash.as_ref(), true).is_err()
        );
    }
}
