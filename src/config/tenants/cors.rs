//! The keys of one tenant about pages of other origins.

use http::HeaderName;

use crate::config::{reader::Reader, tenants::route::method, written::valid};
use crate::domain::{AcceptedCredentials, CorsRules, WebOrigin};

/// How many items each list may have.
const ITEMS_MAX: usize = 64;

/// Stands for every origin.
const ANY: &str = "*";

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Headers with agents' credentials, the content type of their bodies, and those of MCP.
const HEADERS: &str = "Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, X-API-Key, X-Agent-Id, X-Agent-Nonce, X-Agent-Signature, X-Agent-Timestamp";

/// Headers of requests that are signed themselves.
const OF_MESSAGES: [&str; 3] = ["Content-Digest", "Signature", "Signature-Input"];

/// Headers of answers that are ours, and those of MCP.
const OURS: &str = "Last-Event-ID, Link, MCP-Protocol-Version, Mcp-Session-Id, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-Request-Id";

/// Reads the rules; none without origins. The outer `None` is a problem.
pub(super) fn read(
    reader: &mut Reader,
    credentials: Option<AcceptedCredentials>,
) -> Option<Option<CorsRules>> {
    let count = 0..=ITEMS_MAX;
    keys! { reader:
        /// Up to 64 origins as browsers write them, such as "https://app.example", or "*" alone for all.
        origins = reader.texts("cors.origins", &[], &count, origin);
        /// Up to 64 methods that pages may use, beside those that need no leave.
        methods = reader.texts("cors.methods", &METHODS, &count, method);
    }
    let has_messages = credentials.is_some_and(AcceptedCredentials::has_messages);
    let of_messages: &[&str] = if has_messages { &OF_MESSAGES } else { &[] };
    let headers: Vec<&str> = HEADERS.split(", ").chain(of_messages.iter().copied()).collect();
    keys! { reader:
        /// Up to 64 headers that pages may send.
        /// Where requests are signed themselves, Content-Digest, Signature and Signature-Input are among them too.
        headers = reader.texts("cors.headers", &headers, &count, header);
        /// Up to 64 headers of answers that pages may read, beside the gateway's own and those of MCP.
        exposed = reader.texts("cors.exposed_headers", &[], &count, header);
        /// true: pages may use cookies. Not for all origins.
        credentials = reader.boolean("cors.credentials", false);
        /// How long browsers may remember this, up to 24h.
        max_age = reader.duration("cors.max_age", "10m", ["0s", "24h"]);
    }
    let (origins, credentials) = (origins?, credentials?);
    let is_any = origins.iter().any(|origin| &**origin == ANY);
    if is_any && origins.len() > 1 {
        reader.report(&["cors.origins"], "has \"*\" beside others; write it alone");
        return None;
    }
    if is_any && credentials {
        reader.report(&["cors.credentials"], "can't be true for every origin; name the origins");
        return None;
    }
    let ours = std::iter::once(OURS.into()).chain(has_messages.then(|| "Accept-Signature".into()));
    let exposed: Vec<Box<str>> = ours.chain(exposed?).collect();
    Some((!origins.is_empty()).then_some(CorsRules {
        origins: (!is_any).then_some(origins),
        methods: methods?.join(", ").into(),
        headers: headers?.join(", ").into(),
        exposed: exposed.join(", ").into(),
        credentials,
        max_age: max_age?,
    }))
}

/// An origin as browsers write it, or any.
fn origin(text: &str) -> Result<Box<str>, String> {
    let is_one = WebOrigin::parse(text).is_ok_and(|origin| origin.as_str() == text) && !text.contains(ANY);
    let wanted = "an origin as browsers do, such as \"https://app.example\", or \"*\" for all";
    valid(text, (is_one || text == ANY).then(|| text.into()), wanted)
}

fn header(text: &str) -> Result<Box<str>, String> {
    let is_name = HeaderName::from_bytes(text.as_bytes()).is_ok();
    valid(text, is_name.then(|| text.into()), "a header name, such as \"X-Total-Count\"")
}
