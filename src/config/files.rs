//! Files that a key names. Whether they exist is found out by whoever opens them.

use std::path::PathBuf;

use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::written::{Shown, quoted};
use crate::domain::secret::{Secret, SecretSource};
use crate::domain::tenant::KeyPair;

/// The path of a file; a relative one is relative to the working directory of the process.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("is {}; write the path of a file", quoted(text)));
    }
    Ok(PathBuf::from(text))
}

/// A file that is noted for those who look into it.
pub(super) fn noted_file(
    reader: &mut Reader,
    path: &'static str,
    content: impl FnOnce(PathBuf) -> Content,
) -> Option<PathBuf> {
    let named = reader.optional_text(path, file)?;
    reader.note_file(&[path], content(named.clone()));
    Some(named)
}

/// A certificate chain and its key under two paths that are both there or both not. The outer `None` is a problem.
pub(super) fn key_pair(
    reader: &mut Reader,
    cert_path: &'static str,
    key_path: &'static str,
) -> Option<Option<KeyPair>> {
    let given = (reader.is_given(cert_path), reader.is_given(key_path));
    let cert = reader.optional_text(cert_path, file);
    let key = reader.optional_text(key_path, file);
    match given {
        (false, false) => return Some(None),
        (true, true) => {
            let pair = KeyPair { cert: cert?, key: key? };
            reader.note_file(&[cert_path, key_path], Content::Pair(pair.clone()));
            return Some(Some(pair));
        }
        (true, false) => reader.report(&[key_path, cert_path], TOGETHER),
        (false, true) => reader.report(&[cert_path, key_path], TOGETHER),
    }
    None
}

/// A secret under one path, or its file under another; both are a problem.
pub(super) fn secret_or_file(
    reader: &mut Reader,
    [text_path, file_path]: [&'static str; 2],
    parse: impl FnOnce(&str) -> Result<Secret, String>,
    content: impl FnOnce(PathBuf) -> Content,
) -> Option<SecretSource> {
    reader.mask(Shown::Never, &[text_path]);
    if reader.is_given(text_path) && reader.is_given(file_path) {
        reader.report(&[text_path, file_path], format!("stands beside {file_path}; write one of them"));
    }
    let text = reader.optional_text(text_path, parse).map(SecretSource::Text);
    let file = noted_file(reader, file_path, content).map(SecretSource::File);
    text.or(file)
}

/// The problem is placed at the one that is missing.
const TOGETHER: &str = "cert and key go together; write both or neither";
