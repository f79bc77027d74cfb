//! Files that a key names. Whether they exist is found out by whoever opens them.

use std::path::PathBuf;

use crate::config::written::{Shown, valid};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{KeyPair, Secret, SecretSource};

/// The path of a file; a relative one is relative to the working directory of the process.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    path(text, "file")
}

/// The path of a file or a folder, relative to the same.
pub(super) fn path(text: &str, of: &str) -> Result<PathBuf, String> {
    let is_path = !text.is_empty() && !text.contains('\0');
    valid(text, is_path.then(|| text.into()), format_args!("the path of a {of}"))
}

/// A file that is noted for those who look into it.
pub(super) fn noted_file(
    reader: &mut Reader,
    path: &'static str,
    content: impl FnOnce(PathBuf) -> Content,
) -> Option<PathBuf> {
    let named = reader.text(path, None, file)?;
    reader.note_file(&[path], content(named.clone()));
    Some(named)
}

/// A certificate chain and its key under two paths that are both there or both not. The outer `None` is a problem.
pub(super) fn key_pair(
    reader: &mut Reader,
    cert_path: &'static str,
    key_path: &'static str,
) -> Option<Option<KeyPair>> {
    let cert = reader.text(cert_path, None, file);
    let key = reader.text(key_path, None, file);
    let found = both_or_neither(reader, [cert_path, key_path], cert, key)?;
    let pair = found.map(|(cert, key)| KeyPair { cert, key });
    if let Some(pair) = &pair {
        reader.note_file(&[cert_path, key_path], Content::Pair(pair.clone()));
    }
    Some(pair)
}

/// The values of two keys that go together. The outer `None` is a problem, placed at the key that is missing.
pub(super) fn both_or_neither<A, B>(
    reader: &mut Reader,
    paths @ [one, other]: [&'static str; 2],
    value: Option<A>,
    other_value: Option<B>,
) -> Option<Option<(A, B)>> {
    let missing_first = match paths.map(|path| reader.is_given(path)) {
        [false, false] => return Some(None),
        [true, true] => return value.zip(other_value).map(Some),
        [true, false] => [other, one],
        [false, true] => paths,
    };
    let [name, other_name] = paths.map(|path| path.rsplit('.').next().unwrap_or_default());
    let phrase = format!("{name} and {other_name} go together; write both or neither");
    reader.report(&missing_first, phrase);
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
    let text = reader.text(text_path, None, parse).map(SecretSource::Text);
    let file = noted_file(reader, file_path, content).map(SecretSource::File);
    text.or(file)
}
