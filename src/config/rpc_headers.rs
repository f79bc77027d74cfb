//! `[[chain.rpc_headers]]`: what goes with every call to the nodes of one origin, such as a provider's key.
//!
//! No problem shows a value.

use http::HeaderName;

use crate::config::written::{Shown, quoted, valid, valid_url};
use crate::config::{files::secret_or_file, notes::Content, reader::Reader};
use crate::domain::{NotAHeaderValue, RpcHeader, RpcUrl, Secret, SecretSource, rpc_url::header_value};

/// How many headers there may be.
const HEADERS_MAX: usize = 64;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Headers that say how a call is sent: they are ours to write.
const OURS: &[&str] = &[
    "connection",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the headers for these nodes; nothing of them is checked against nodes that are wrong themselves.
pub(super) fn read(reader: &mut Reader, nodes: Option<&[RpcUrl]>) -> Option<Vec<RpcHeader<SecretSource>>> {
    let mut taken: Vec<(String, String)> = Vec::new();
    reader.tables("chain.rpc_headers", HEADERS_MAX, |reader| {
        reader.mask(Shown::Host, &["url"]);
        let header = read_all!(reader: RpcHeader {
            /// Scheme, host and port of one of rpc_urls.
            /// Example: "http://127.0.0.1:8545"
            origin: reader.required_text("url", |text| origin(text, nodes)),
            /// The header's name.
            /// Example: "x-api-key"
            name: reader.required_text("name", name),
            /// Its value.
            /// Example: "the provider's key"
            /// Instead of value, a file that holds it.
            value: secret_or_file(reader, ["value", "value_file"], secret, Content::HeaderValue),
        } then {
            if !reader.is_any_given(&["value", "value_file"]) {
                reader.report(&["value"], "is missing; write value or value_file");
            }
        })?;
        let place = (header.origin.clone(), header.name.clone());
        if taken.contains(&place) {
            reader.report(&["name"], format!("is {} a second time for this url", quoted(&header.name)));
        }
        taken.push(place);
        Some(header)
    })
}

fn origin(text: &str, nodes: Option<&[RpcUrl]>) -> Result<String, String> {
    const ONE_OF_THEM: &str = "scheme, host and port of one of chain.rpc_urls, and nothing else";
    let url = valid_url(text, RpcUrl::parse(text), ONE_OF_THEM)?;
    let whole = url.reveal();
    let has_more = whole.path() != "/" || whole.query().is_some() || !whole.username().is_empty();
    if has_more || whole.password().is_some() {
        return Err(format!("has more than {url}; write {ONE_OF_THEM}"));
    }
    if nodes.is_some_and(|nodes| nodes.iter().all(|node| node.origin() != url.origin())) {
        return Err(format!("is {url}, where no node is; write {ONE_OF_THEM}"));
    }
    Ok(url.origin().to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| text.len() <= NAME_BYTES_MAX);
    let wanted = format_args!("a header's name of 1 to {NAME_BYTES_MAX} characters");
    let name = valid(text, name.map(|name| name.as_str().to_owned()), wanted)?;
    if OURS.contains(&name.as_str()) || name.starts_with("content-") {
        return Err(format!("is {}, which says how a call is sent; write another header", quoted(text)));
    }
    Ok(name)
}

/// What is wrong shows nothing of it.
fn secret(text: &str) -> Result<Secret, String> {
    header_value(text).map_err(|NotAHeaderValue| format!("can't be sent: {NotAHeaderValue}"))
}
