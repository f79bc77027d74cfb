//! The headers of an upstream's answer that its client does not see.

use crate::http1::name::Name;
use crate::http1::options::Options;

/// True if a header of an upstream's answer is for one hop only (RFC 9110, section 7.6.1). Headers that frame the answer
/// stay, even if `Connection` names them.
pub(in crate::gateway) fn is_of_one_hop(options: &Options<'_>, id: Name, name: &[u8]) -> bool {
    let always = matches!(id, Name::KeepAlive | Name::ProxyConnection);
    let never = matches!(id, Name::ContentLength | Name::TransferEncoding);
    always || (!never && options.name(name))
}

/// True if a header says something about limits, by any of the names in use.
pub(in crate::gateway) fn is_about_limits(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|name| name.eq_ignore_ascii_case(with));
    match name.first() {
        Some(b'x' | b'X') => begins(b"x-ratelimit-") || begins(b"x-rate-limit-"),
        Some(b'r' | b'R') => begins(b"ratelimit"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_about_limits;

    #[test]
    fn every_name_in_use_for_limits_is_known_in_any_case() {
        for name in ["X-RateLimit-Limit", "x-rate-limit-reset", "RateLimit", "ratelimit-policy"] {
            assert!(is_about_limits(name.as_bytes()), "{name}");
        }
        for name in ["x-rate", "rate", "retry-after", "", "x"] {
            assert!(!is_about_limits(name.as_bytes()), "{name}");
        }
    }
}
