//! Header names of the contract ("Rate-limit headers"), and how an allowance is written into them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::quota::{Allowance, MINUTE_MICROS, RetryAfter};
use crate::http1::writing::{Lines, write_decimal};

/// Maximum requests per window.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// The owner of a limit, as the name of its policy in the IETF's fields (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone, Copy)]
pub enum LimitOf {
    /// An agent.
    Agent,
    /// A client's network.
    Client,
}

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

/// Writes the IETF's fields of a limit that is used up, beside the contract's.
pub fn write_spent(headers: &mut HeaderMap, of: LimitOf, limit: u32, retry_after: RetryAfter) {
    headers.set("ratelimit-policy", of.policy(limit).as_bytes());
    headers.line("ratelimit", |out| {
        out.extend_from_slice(of.left());
        out.extend_from_slice(b"0;t=");
        write_decimal(retry_after.seconds(), out);
    });
}

/// The header values that answers give of one quota.
#[derive(Debug, Clone)]
pub struct QuotaHeaders {
    of: LimitOf,
    limit: String,
    policy: String,
}

impl QuotaHeaders {
    /// For a quota of so many requests a minute.
    #[must_use]
    pub fn new(of: LimitOf, limit: u32) -> Self {
        Self { of, limit: limit.to_string(), policy: of.policy(limit) }
    }

    /// Writes the headers of an admitted request, as the contract and the IETF spell them.
    pub fn write(&self, remaining: u32, lines: &mut impl Lines) {
        lines.set("X-RateLimit-Limit", self.limit.as_bytes());
        lines.line("X-RateLimit-Remaining", |out| write_decimal(remaining.into(), out));
        lines.set("RateLimit-Policy", self.policy.as_bytes());
        lines.line("RateLimit", |out| {
            out.extend_from_slice(self.of.left());
            write_decimal(remaining.into(), out);
        });
    }
}

impl LimitOf {
    /// The beginning of the field that says how much is left.
    const fn left(self) -> &'static [u8] {
        match self {
            Self::Agent => b"\"agent\";r=",
            Self::Client => b"\"client\";r=",
        }
    }

    fn policy(self, limit: u32) -> String {
        let name = match self {
            Self::Agent => "agent",
            Self::Client => "client",
        };
        format!("\"{name}\";q={limit};w={WINDOW_SECS}")
    }
}
