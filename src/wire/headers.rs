//! Header names of the contract ("Rate-limit headers"), and how an allowance is written into them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::quota::{Allowance, RetryAfter};

/// Maximum requests per window.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// Where a proxy writes whom it speaks for.
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

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
