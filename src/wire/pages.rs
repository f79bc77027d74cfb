//! Security headers for HTML pages.

use http::{HeaderValue, header};

use crate::wire::answers::Answer;

/// The answer with the headers that keep it to itself, and a policy for what it may run and load (CSP).
pub(crate) fn guarded(mut answer: Answer, policy: HeaderValue) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
