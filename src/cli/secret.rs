//! Secrets: from a file or the environment, and into a file. Never in an argument, where every user of the machine could
//! read them.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{borrow::Cow, fmt, os::unix::ffi::OsStrExt as _};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use zeroize::Zeroizing;

use crate::cli::{Failure, KEY_UNSURE, complain};
use crate::domain::{ApiKeyFormat, KEY_HEX_DIGITS};
use crate::files::{self, SECRET_BYTES_MAX};

/// The path that stands for standard input.
const STDIN: &str = "-";

/// Rights to read for others than a file's owner.
const READABLE_BY_OTHERS: u32 = 0o044;

/// True once standard input was read: it holds one secret.
static IS_STDIN_READ: AtomicBool = AtomicBool::new(false);

/// Reads the secret in the file that `--NAME-file` names, or in a variable when none is named.
pub(super) fn read(file: Option<&Path>, name: &str, variable: &str) -> Result<Zeroizing<String>, Failure> {
    let Some(file) = file else {
        let nowhere = format!("no {name}: name its file with --{name}-file, or set {variable}");
        return std::env::var(variable).map(Zeroizing::new).map_err(|_| nowhere.into());
    };
    let text = text(file, &format!("Paste the {name}: "))?;
    let is_shared = |found: fs::Metadata| found.is_file() && found.mode() & READABLE_BY_OTHERS != 0;
    // A keystore is encrypted.
    if !text.starts_with('{') && file.metadata().is_ok_and(is_shared) {
        let file = file.display();
        complain(format_args!("warning: others may read {file}; keep it from them: chmod 600 {file}"));
    }
    Ok(text)
}

/// The place of a secret, for people.
pub(super) fn place(file: &Path) -> Cow<'_, str> {
    if file == Path::new(STDIN) { "standard input".into() } else { file.to_string_lossy() }
}

/// Reads a file, or for `-` standard input. A terminal asks for it, does not show it and takes any length.
pub(super) fn text(file: &Path, prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let place = place(file);
    let failure = |problem: String| Failure::new(format!("{place}: {problem}"));
    if file != Path::new(STDIN) {
        let next = "name a file that you can read, or - for standard input";
        return files::text_or_pipe(file, SECRET_BYTES_MAX).map_err(|why| failure(format!("{why}; {next}")));
    }
    if IS_STDIN_READ.swap(true, Ordering::Relaxed) {
        return Err(Failure::unusable("standard input holds one secret: name a file for the other"));
    }
    if io::stdin().is_terminal() {
        return Ok(Zeroizing::new(rpassword::prompt_password(prompt)?));
    }
    files::text_from(io::stdin().lock(), SECRET_BYTES_MAX).map_err(failure)
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
        is_name
            && !["", "0x", "0X"].contains(&prefix)
            && ApiKeyFormat::new(prefix).digest(text.as_bytes()).is_some()
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
