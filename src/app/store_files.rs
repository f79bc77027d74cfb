//! The files that the settings of the store name: passwords, certificates and keys, read and checked, each problem with
//! the key that names the file. Blocks.
//!
//! Must not say what is in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::config::store::StoreSettings;
use crate::config::store::redis_keys::RedisSettings;
use crate::domain::freshness::UnixSeconds;
use crate::domain::secret::{Secret, SecretSource};
use crate::domain::tenant::{KeyPair, UpstreamTls};
use crate::tls::upstream::UpstreamIdentity;

/// The longest file with a password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4_096;

/// Everything that is wrong with them. A certificate that is not valid at this time is a warning in the log.
pub(crate) fn problems(store: &StoreSettings, now: UnixSeconds) -> Vec<String> {
    let StoreSettings::Redis(redis) = store else { return Vec::new() };
    let passwords = [
        ("store.redis.password_file", &redis.password),
        ("store.redis.sentinel_password_file", &redis.sentinel_password),
    ];
    let passwords = passwords.into_iter().filter_map(|(key, found)| {
        let problem = password(found.as_ref()?).err()?;
        Some(format!("{key}: {problem}"))
    });
    passwords.chain(tls_problems(redis, now)).collect()
}

/// A password, wherever it is.
///
/// # Errors
///
/// What is wrong with its file, with its path.
pub(super) fn password(password: &SecretSource) -> Result<Secret, String> {
    match password {
        SecretSource::Text(password) => Ok(password.clone()),
        SecretSource::File(path) => {
            password_in(path).map_err(|problem| format!("{}: {problem}", path.display()))
        }
    }
}

/// What is wrong with a file that should hold a password, with its path.
pub(super) fn problem_of(path: &Path) -> Option<String> {
    password(&RedisPassword::File(path.to_owned())).err()
}

/// What a file holds, without the line end behind it.
fn password_in(path: &Path) -> Result<Secret, String> {
    let unreadable = |error: io::Error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return "is not UTF-8 text".to_owned();
        }
        format!("can't be read: {error}")
    };
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(read).is_ok_and(|read| read > PASSWORD_BYTES_MAX) {
        return Err(format!("is longer than {PASSWORD_BYTES_MAX} bytes"));
    }
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("holds no password".to_owned()),
        password => Ok(Secret::new(password)),
    }
}

/// They are held to what upstreams' files are held to: the client of Redis finds the rest out only when it connects.
fn tls_problems(redis: &RedisSettings, now: UnixSeconds) -> Vec<String> {
    let load = |rules: UpstreamTls| UpstreamIdentity::load(&rules, now).err().unwrap_or_default();
    let ca = load(UpstreamTls { ca: redis.ca.clone(), client: None, server_name: None });
    let pair = load(UpstreamTls { ca: None, client: redis.identity.clone(), server_name: None });
    let ca = ca.into_iter().map(|problem| format!("store.redis.ca: {problem}"));
    let pair = pair.into_iter().map(|problem| {
        let key = key_of(redis.identity.as_ref(), &problem);
        format!("{key}: {problem}")
    });
    ca.chain(pair).collect()
}

/// Which of two files a problem is of; it begins with the path.
fn key_of(pair: Option<&KeyPair>, problem: &str) -> &'static str {
    let is_of_key = pair.is_some_and(|pair| problem.starts_with(&format!("{}: ", pair.key.display())));
    if is_of_key { "store.redis.key" } else { "store.redis.cert" }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{PASSWORD_BYTES_MAX, password_in};

    fn read(folder: &Path, bytes: &[u8]) -> Result<String, String> {
        let path = folder.join("password");
        fs::write(&path, bytes).unwrap();
        password_in(&path).map(|password| password.reveal().to_owned())
    }

    #[test]
    fn a_line_end_behind_a_password_does_not_count_and_a_blank_does() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path(), b" pass word \r\n").unwrap(), " pass word ");
        let longest = vec![b'x'; usize::try_from(PASSWORD_BYTES_MAX).unwrap()];
        assert_eq!(read(folder.path(), &longest).unwrap().as_bytes(), longest);
    }

    #[test]
    fn a_file_without_a_password_is_named_and_nothing_of_it_shown() {
        let folder = tempfile::tempdir().unwrap();
        let long = "SECRET".repeat(1_000);
        for (bytes, problem) in [
            (&b""[..], "holds no password"),
            (b"\r\n", "holds no password"),
            (b"SECRET\xff", "is not UTF-8 text"),
            (long.as_bytes(), "is longer than 4096 bytes"),
        ] {
            assert_eq!(read(folder.path(), bytes).unwrap_err(), problem);
        }
        let missing = password_in(&folder.path().join("missing")).unwrap_err();
        assert!(missing.starts_with("can't be read: "), "{missing}");
    }
}
