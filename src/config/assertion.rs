//! `[assertion]`: what upstreams can check by themselves about the agent of a request.

use std::path::PathBuf;

use url::Url;

use crate::config::files::{both_or_neither, noted_file};
use crate::config::notes::Content;
use crate::config::written::valid;

/// The longest name of an issuer, in characters: it stands in each assertion.
const ISSUER_CHARS_MAX: usize = 256;

settings! {
    /// The signer of assertions.
    AssertionSettings(reader) {
        /// Its name and keys; `None`: no tenant may ask for assertions.
        issuer: Option<Issuer> = {
            let paths @ [issuer, key_file] = ["assertion.issuer", "assertion.key_file"];
            let name = reader.optional_text(issuer, name);
            let key_file = noted_file(reader, key_file, Content::SigningKeys);
            let found = both_or_neither(reader, paths, name, key_file);
            found.map(|found| found.map(|(name, key_file)| Issuer { name, key_file }))
        },
    }
}

/// A name, and the keys behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The claim `iss`.
    pub name: Box<str>,
    /// The file of the private keys.
    pub key_file: PathBuf,
}

/// A StringOrURI (RFC 7519, section 2): with a colon it is a URI.
fn name(text: &str) -> Result<Box<str>, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_uri = !text.contains(':') || Url::parse(text).is_ok();
    let is_name = is_plain && is_uri && (1..=ISSUER_CHARS_MAX).contains(&text.len());
    let wanted = format_args!("a URL, or a name of 1 to {ISSUER_CHARS_MAX} ASCII characters");
    valid(text, is_name.then(|| text.into()), wanted)
}
