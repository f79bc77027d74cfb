//! Header names of the contract ("Rate-limit headers"), and how an allowance is written into them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::quota::{Allowance, MINUTE_MICROS, RetryAfter};
use crate::http1::writing::{Lines, write_decimal};

/// Maximum requests per window.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub(crate) const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// The policy that limits an agent, in the IETF's fields (draft-ietf-httpapi-ratelimit-headers).
pub(crate) const OF_AGENT: &str = "agent";

/// The policy that limits a client network.
pub(crate) const OF_CLIENT: &str = "client";

/// The window that the gateway's limits count, in seconds.
const WINDOW_SECS: u64 = MINUTE_MICROS / 1_000_000;

/// Every answer of ours that has a body has this type.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The seconds after which a client may come back to a fault or to a full gateway: so often the service asks node and store again.
pub(crate) const COME_BACK: HeaderValue = HeaderValue::from_static("1");

/// Answers hold keys and moments: nothing of them may be kept on the way.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How the contract and HTTP's own documents spell a header name; HTTP compares names without regard to case.
pub(crate) fn contract_spelling(name: &HeaderName) -> Option<&'static str> {
    match name.as_str() {
        "x-ratelimit-limit" => Some("X-RateLimit-Limit"),
        "x-ratelimit-remaining" => Some("X-RateLimit-Remaining"),
        "retry-after" => Some("Retry-After"),
        "allow" => Some("Allow"),
        "ratelimit" => Some("RateLimit"),
        "ratelimit-policy" => Some("RateLimit-Policy"),
        "www-authenticate" => Some("WWW-Authenticate"),
        "link" => Some("Link"),
        "x-request-id" => Some("X-Request-Id"),
        _ => None,
    }
}

/// Writes the headers of a success.
pub(crate) fn write_allowance(headers: &mut HeaderMap, allowance: Allowance) {
    headers.insert(RATE_LIMIT, allowance.limit.into());
    headers.insert(RATE_REMAINING, allowance.remaining.into());
}

/// Writes the IETF's fields of a limit that is used up, beside the contract's.
pub(crate) fn write_spent(headers: &mut HeaderMap, of: &str, limit: u32, retry_after: RetryAfter) {
    headers.set("ratelimit-policy", policy(of, limit).as_bytes());
    headers.set("ratelimit", format!("\"{of}\";r=0;t={}", retry_after.seconds()).as_bytes());
}

/// The header values that answers give of one quota.
#[derive(Debug, Clone)]
pub(crate) struct QuotaHeaders {
    limit: String,
    policy: String,
    /// The beginning of the field that says how much is left.
    left: String,
}

impl QuotaHeaders {
    /// For a policy of so many requests a minute.
    pub(crate) fn new(of: &str, limit: u32) -> Self {
        Self { limit: limit.to_string(), policy: policy(of, limit), left: format!("\"{of}\";r=") }
    }

    /// Writes the headers of an admitted request, as the contract and the IETF spell them.
    pub(crate) fn write(&self, remaining: u32, lines: &mut impl Lines) {
        lines.set("X-RateLimit-Limit", self.limit.as_bytes());
        lines.line("X-RateLimit-Remaining", |out| write_decimal(remaining.into(), out));
        lines.set("RateLimit-Policy", self.policy.as_bytes());
        lines.line("RateLimit", |out| {
            out.extend_from_slice(self.left.as_bytes());
            write_decimal(remaining.into(), out);
        });
    }
}

fn policy(of: &str, limit: u32) -> String {
    format!("\"{of}\";q={limit};w={WINDOW_SECS}")
}
