//! `[gateway]`: how requests are forwarded. `[mcp]`: how messages of the Model Context Protocol are read. `[assertion]`: what
//! upstreams can check by themselves about the agent of a request.

use std::path::PathBuf;

use url::Url;

use crate::config::written::{plain, unless_zero, valid};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{LargeBodies, McpRules};

/// The longest name of a deployment, in bytes.
const VIA_BYTES_MAX: usize = 64;

/// The most that the library keeps of a body which is read before it is forwarded.
const MCP_BODY_BYTES: std::ops::RangeInclusive<i64> = 1_024..=65_536;

/// The longest name of an issuer, in characters: it stands in each assertion.
const ISSUER_CHARS_MAX: usize = 256;

settings! {
    /// How requests are forwarded.
    GatewaySettings(reader) {
        /// How many requests may be under way at once, of all tenants together, up to 1000000; 0 = as many as the process has room for.
        in_flight_max: Option<u32> =
            reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000)).map(unless_zero),
        /// Optional. The name of this deployment in the header Via: 1 to 64 characters of A-Z, a-z, 0-9, -, _ and . A request that has
        /// passed a gateway of this name is refused (508). Give replicas one name, and another to each deployment in front of or
        /// behind this one. Without it each process has a name of its own.
        /// Example: "edge"
        via: Option<Box<str>> = Some(reader.text("gateway.via", None, |text| {
            plain(text, &(1..=VIA_BYTES_MAX), &['-', '_', '.']).map(Box::from)
        })),
    }
}

/// Reads how messages of MCP are read.
pub(super) fn mcp(reader: &mut Reader) -> Option<McpRules> {
    read_all!(reader: McpRules {
        /// The longest message that is read before its call is decided about, 1024 to 65536 bytes.
        body_bytes_max: reader.integer("mcp.max_body", 65_536, &MCP_BODY_BYTES),
        /// The fate of longer ones: "refuse" (413), or "headers": those of clients of 2026-07-28 and later pass by what their headers
        /// say, and the server has to compare the two.
        large_bodies: reader.word(
            "mcp.large_bodies",
            "refuse",
            &[("refuse", LargeBodies::Refuse), ("headers", LargeBodies::Headers)],
        ),
    })
}

/// Reads the issuer of assertions. The outer `None` is a problem.
pub(super) fn issuer(reader: &mut Reader) -> Option<Option<Issuer>> {
    let paths @ [issuer, key_file] = ["assertion.issuer", "assertion.key_file"];
    let name = reader.text(issuer, None, name);
    let key_file = reader.file(key_file, Content::SigningKeys);
    let found = reader.both_or_neither(paths, name, key_file);
    found.map(|found| found.map(|(name, key_file)| Issuer { name, key_file }))
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
