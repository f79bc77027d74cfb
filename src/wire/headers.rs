//! Header names of the contract ("Rate-limit headers"), and how an allowance is written into them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::quota::{Allowance, MINUTE_MICROS, RetryAfter};

/// Maximum requests per window.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// Where a proxy writes whom it speaks for.
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The IETF's description of a quota (draft-ietf-httpapi-ratelimit-headers).
pub const RATE_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The IETF's description of what is left of it.
pub const RATE: HeaderName = HeaderName::from_static("ratelimit");

/// What names a request in logs, ours and others'.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

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

/// Writes the headers of a 429.
pub fn write_limited(headers: &mut HeaderMap, limit: u32, retry_after: RetryAfter) {
    write_allowance(headers, Allowance { limit, remaining: 0 });
    headers.insert(http::header::RETRY_AFTER, retry_after.seconds().into());
}

/// Writes the IETF's fields beside the contract's. `retry_after` is when something is left again, if nothing is now.
pub fn write_ietf(headers: &mut HeaderMap, allowance: Allowance, retry_after: Option<RetryAfter>) {
    headers.insert(RATE_POLICY, policy(allowance.limit));
    headers.insert(RATE, left(allowance.remaining, retry_after));
}

/// What every answer says of one quota.
#[derive(Debug, Clone)]
pub struct QuotaHeaders {
    limit: HeaderValue,
    policy: HeaderValue,
}

impl QuotaHeaders {
    /// For a quota of so many requests a minute.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.into(), policy: policy(limit) }
    }

    /// The headers of a success that somebody else's answer is given, as the contract and the IETF spell them.
    #[must_use]
    pub fn with_remaining(&self, remaining: u32) -> [(&'static str, HeaderValue); 4] {
        [
            ("X-RateLimit-Limit", self.limit.clone()),
            ("X-RateLimit-Remaining", remaining.into()),
            ("RateLimit-Policy", self.policy.clone()),
            ("RateLimit", left(remaining, None)),
        ]
    }
}

fn policy(limit: u32) -> HeaderValue {
    value(format!("\"agent\";q={limit};w={WINDOW_SECS}"))
}

fn left(remaining: u32, retry_after: Option<RetryAfter>) -> HeaderValue {
    match retry_after {
        Some(retry_after) => value(format!("\"agent\";r={remaining};t={}", retry_after.seconds())),
        None => value(format!("\"agent\";r={remaining}")),
    }
}

/// Digits and fixed ASCII are always a header value.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether a header says something about limits, by any of the names in use.
#[must_use]
pub fn is_about_limits(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-ratelimit-") || name.starts_with("x-rate-limit-") || name.starts_with("ratelimit")
}
