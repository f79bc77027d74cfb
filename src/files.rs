//! Files that are read whole: configurations, certificates, keys and other secrets, lists of agents.
//!
//! Their content is wiped when it is dropped, and no error shows anything of it. Reading blocks on the disk, and on
//! nothing else: pipes and devices are refused.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::domain::{AGENTS_MAX, Agents, Secret, SecretSource, tiers::parse_list};

/// The longest list of agents, in bytes.
const AGENTS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest PEM file, in bytes: several times the authorities that a system believes.
pub(crate) const PEM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest file with a secret, in bytes.
pub(crate) const SECRET_BYTES_MAX: usize = 16 * 1024;

/// The longest path that is shown whole, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// How files looked, each when it was first looked at: equal when none of them has been written, exchanged or removed.
#[derive(Debug, Default, Hash)]
pub(crate) struct Fingerprints(BTreeMap<PathBuf, u64>);

impl Fingerprints {
    /// Looks at a file, to be called before it is read.
    pub(crate) fn add(&mut self, file: &Path) {
        if !self.0.contains_key(file) {
            self.0.insert(file.to_owned(), fingerprint(file));
        }
    }

    /// Files as they are now.
    pub(crate) fn now(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| (file.clone(), fingerprint(file))).collect())
    }

    pub(crate) fn into_files(self) -> Vec<PathBuf> {
        self.0.into_keys().collect()
    }
}

/// A hash of everything by which a file that can't be read differs from one that can, and one content from another.
fn fingerprint(file: &Path) -> u64 {
    let seen = fs::metadata(file).map_err(|error| error.kind());
    let seen = seen.map(|seen| {
        let times = [seen.mtime(), seen.mtime_nsec(), seen.ctime(), seen.ctime_nsec()];
        (seen.dev(), seen.ino(), seen.len(), times, seen.mode(), seen.uid(), seen.gid())
    });
    fingerprint_of(&seen)
}

/// A hash of what was seen: equal when none of it has changed.
pub(crate) fn fingerprint_of(seen: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(seen)
}

/// A path for people, on one line and bounded: whoever writes a tenant's file chooses it.
pub(crate) fn shown(path: &Path) -> String {
    let path = path.to_string_lossy();
    let mut shown: String = path.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if path.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// The bytes of a file, or its problem, without its path.
pub(crate) fn bytes(path: &Path, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    // To open some devices does something, and to open a pipe waits for whoever writes into it.
    regular(&fs::metadata(path).map_err(unreadable)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    // It may have been exchanged meanwhile.
    let found = file.metadata().map_err(unreadable)?;
    regular(&found)?;
    let expected = usize::try_from(found.len()).unwrap_or(bytes_max);
    whole(file, expected, bytes_max)
}

/// The text that a command is given at a path, which may be a pipe.
pub(crate) fn text_or_pipe(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, String> {
    text_from(File::open(path).map_err(unreadable)?, bytes_max)
}

/// The text that is read to its end.
pub(crate) fn text_from(from: impl Read, bytes_max: usize) -> Result<Zeroizing<String>, String> {
    as_text(&whole(from, bytes_max, bytes_max)?)
}

fn whole(file: impl Read, expected: usize, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    // A buffer that grows leaves copies behind that are not wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(expected.min(bytes_max) + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > bytes_max { Err(format!("is longer than {bytes_max} bytes")) } else { Ok(bytes) }
}

fn as_text(bytes: &[u8]) -> Result<Zeroizing<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8 text")?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn unreadable(error: io::Error) -> String {
    format!("can't be read: {error}")
}

fn regular(found: &Metadata) -> Result<(), String> {
    if found.is_file() { Ok(()) } else { Err("is not a regular file".to_owned()) }
}

/// The text of a file.
pub(crate) fn text(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, String> {
    as_text(&bytes(path, bytes_max)?)
}

/// The secret in a file, without a line end behind it.
pub(crate) fn secret_in(path: &Path) -> Result<Secret, String> {
    match text(path, SECRET_BYTES_MAX)?.trim_end_matches(['\r', '\n']) {
        "" => Err("holds no secret".to_owned()),
        secret => Ok(Secret::new(secret)),
    }
}

/// A secret, or the one in its file. A problem has the file's path in front.
pub(crate) fn secret(source: &SecretSource) -> Result<Secret, String> {
    match source {
        SecretSource::Text(secret) => Ok(secret.clone()),
        SecretSource::File(path) => secret_in(path).map_err(|problem| format!("{}: {problem}", shown(path))),
    }
}

/// The agents that a file lists. A problem has the file's path in front.
pub(crate) fn agents(path: &Path) -> Result<Agents, String> {
    let read = || {
        let bytes = bytes(path, AGENTS_BYTES_MAX)?;
        parse_list(std::str::from_utf8(&bytes).map_err(|_| "is not UTF-8 text")?, AGENTS_MAX)
    };
    read().map_err(|problem| format!("{}: {problem}", shown(path)))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{SECRET_BYTES_MAX, bytes, secret, shown, text};
    use crate::domain::SecretSource;

    fn read(path: &Path, bytes: &[u8]) -> Result<String, String> {
        fs::write(path, bytes).unwrap();
        secret(&SecretSource::File(path.to_owned())).map(|secret| secret.reveal().to_owned())
    }

    #[test]
    fn a_line_end_behind_a_secret_does_not_count_and_a_blank_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        assert_eq!(read(&path, b" pass word \r\n").unwrap(), " pass word ");
        let longest = vec![b'x'; SECRET_BYTES_MAX];
        assert_eq!(read(&path, &longest).unwrap().as_bytes(), longest);
    }

    #[test]
    fn a_file_without_a_secret_is_named_and_nothing_of_it_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let long = "SECRET".repeat(SECRET_BYTES_MAX);
        for (bytes, problem) in [
            (&b""[..], "holds no secret"),
            (b"\r\n", "holds no secret"),
            (b"SECRET\xff", "is not UTF-8 text"),
            (long.as_bytes(), "is longer than 16384 bytes"),
        ] {
            assert_eq!(read(&path, bytes).unwrap_err(), format!("{}: {problem}", path.display()));
        }
    }

    #[test]
    fn a_file_is_read_whole_up_to_its_limit_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"ab\xff").unwrap();
        assert_eq!(*bytes(&path, 3).unwrap(), b"ab\xff");
        assert_eq!(bytes(&path, 2).unwrap_err(), "is longer than 2 bytes");
        assert_eq!(text(&path, 3).unwrap_err(), "is not UTF-8 text");
        let missing = folder.path().join("missing");
        assert!(bytes(&missing, 3).unwrap_err().starts_with("can't be read: "));
    }

    #[test]
    fn pipes_devices_and_folders_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [folder.path(), &pipe, &socket, Path::new("/dev/zero"), Path::new("/dev/tty")] {
            assert_eq!(bytes(path, 3).unwrap_err(), "is not a regular file", "{path:?}");
        }
    }

    #[test]
    fn a_path_is_shown_on_one_line_and_cut() {
        assert_eq!(shown(Path::new("/a/b\n ERROR forged\u{1b}[31m")), "/a/b\\n ERROR forged\\u{1b}[31m");
        let long = shown(Path::new(&"x".repeat(100_000)));
        assert_eq!(long, format!("{}…", "x".repeat(200)));
    }
}
