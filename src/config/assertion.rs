//! `[assertion]`: what upstreams can check by themselves about the agent of a request.

use std::path::PathBuf;

use url::Url;

use crate::config::files::noted_file;
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::written::quoted;

/// The longest name of an issuer, in characters: it stands in each assertion.
const ISSUER_CHARS_MAX: usize = 256;

/// The signer of assertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertionSettings {
    /// Its name and keys; `None`: no tenant may ask for assertions.
    pub issuer: Option<Issuer>,
}

/// A name, and the keys behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The claim `iss`.
    pub name: Box<str>,
    /// The file of the private keys.
    pub key_file: PathBuf,
}

impl AssertionSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let [issuer, key_file] = ["assertion.issuer", "assertion.key_file"];
        let given = [issuer, key_file].map(|path| reader.is_given(path));
        let name = reader.optional_text(issuer, name);
        let file = noted_file(reader, key_file, Content::SigningKeys);
        match given {
            [false, false] => return Some(Self { issuer: None }),
            [true, true] => return Some(Self { issuer: Some(Issuer { name: name?, key_file: file? }) }),
            [true, false] => reader.report(&[key_file, issuer], TOGETHER),
            [false, true] => reader.report(&[issuer, key_file], TOGETHER),
        }
        None
    }
}

/// A StringOrURI (RFC 7519, section 2): with a colon it is a URI.
fn name(text: &str) -> Result<Box<str>, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_uri = !text.contains(':') || Url::parse(text).is_ok();
    if is_plain && is_uri && text.len() <= ISSUER_CHARS_MAX {
        return Ok(text.into());
    }
    Err(format!("is {}; write a URL, or a name of 1 to {ISSUER_CHARS_MAX} ASCII characters", quoted(text)))
}

/// The problem is placed at the one that is missing.
const TOGETHER: &str = "issuer and key_file go together; write both or neither";
