//! `[assertion]`: what upstreams can check by themselves about the agent of a request.

use std::path::PathBuf;

use url::Url;

use crate::config::files::{both_or_neither, noted_file};
use crate::config::{notes::Content, written::valid};

/// The longest name of an issuer, in characters: it stands in each assertion.
const ISSUER_CHARS_MAX: usize = 256;

settings! {
    /// The signer of assertions.
    AssertionSettings(reader) {
        /// The claim iss: a URL, or a name of up to 256 ASCII characters. Upstreams compare it.
        /// Example: "https://gate.example"
        /// A PEM file with private keys for P-256 in PKCS#8 or SEC1, up to 16 KiB. The first signs; the public parts of all are at
        /// /.well-known/jwks.json. To rotate: add the new key as the second, wait 10 minutes, put it first, wait 10 more, take the old
        /// one out.
        /// Example: "/etc/tiergate/assertion.pem"
        issuer: Option<Issuer> = {
            let paths @ [issuer, key_file] = ["assertion.issuer", "assertion.key_file"];
            let name = reader.text(issuer, None, name);
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
