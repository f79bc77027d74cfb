//! Header names of the contract ("Rate-limit headers"), and how an allowance is written into them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::quota::{Allowance, MINUTE_MICROS, RetryAfter};
use crate::http1::writing::{Lines, write_decimal};

/// Maximum requests per window.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// The beginning of the IETF's field for the quota that is left (draft-ietf-httpapi-ratelimit-headers).
const LEFT: &[u8] = b"\"agent\";r=";

/// The window that the gateway's limits count, in seconds.
const WINDOW_SECS: u64 = MINUTE_MICROS / 1_000_000;

/// Every answer of ours that has a body has this type.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers hold keys and moments: nothing of them may be kept on the way.
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How the contract and HTTP's own documents spell a header name; HTTP compares names without regard to case.
#[must_use]
pub fn contract_spelling(name: &HeaderName) -> Option<&'static str> {
    match name.as_str() {
        "x-ratelimit-limit" => Some("X-RateLimit-Limit"),
        "x-ratelimit-remaining" => Some("X-RateLimit-Remaining"),
        "retry-after" => Some("Retry-After"),
        "allow" => Some("Allow"),
        "ratelimit" => Some("RateLimit"),
        "ratelimit-policy" => Some("RateLimit-Policy"),
        "www-authenticate" => Some("WWW-Authenticate"),
        "x-request-id" => Some("X-Request-Id"),
        _ => None,
    }
}

/// Writes the headers of a success.
pub fn write_allowance(headers: &mut HeaderMap, allowance: Allowance) {
    headers.insert(RATE_LIMIT, allowance.limit.into());
    headers.insert(RATE_REMAINING, allowance.remaining.into());
}

/// Writes the IETF's fields beside the contract's. `retry_after` is when something is left again, if nothing is now.
pub fn write_ietf(headers: &mut HeaderMap, allowance: Allowance, retry_after: Option<RetryAfter>) {
    headers.set("ratelimit-policy", policy(allowance.limit).as_bytes());
    headers.line("ratelimit", |out| {
        out.extend_from_slice(LEFT);
        write_decimal(allowance.remaining.into(), out);
        if let Some(retry_after) = retry_after {
            out.extend_from_slice(b";t=");
            write_decimal(retry_after.seconds(), out);
        }
    });
}

/// The header values that answers give of one quota.
#[derive(Debug, Clone)]
pub struct QuotaHeaders {
    limit: String,
    policy: String,
}

impl QuotaHeaders {
    /// For a quota of so many requests a minute.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.to_string(), policy: policy(limit) }
    }

    /// Writes the headers of an admitted request, as the contract and the IETF spell them.
    pub fn write(&self, remaining: u32, lines: &mut impl Lines) {
        lines.set("X-RateLimit-Limit", self.limit.as_bytes());
        lines.line("X-RateLimit-Remaining", |out| write_decimal(remaining.into(), out));
        lines.set("RateLimit-Policy", self.policy.as_bytes());
        lines.line("RateLimit", |out| {
            out.extend_from_slice(LEFT);
            write_decimal(remaining.into(), out);
        });
    }
}

fn policy(limit: u32) -> String {
    format!("\"agent\";q={limit};w={WINDOW_SECS}")
}
