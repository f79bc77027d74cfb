//! The headers by which proxies say how a request came, and which of them trusted proxies set.
//!
//! A proxy that sets one overwrites it, or appends to it, in every request. A header that it does not set passes it as a
//! stranger wrote it.

/// The beginning of the names under which proxies tell how a request came, in lower case.
pub const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Other names under which proxies tell the client's address, in lower case.
pub const OF_PROXIES: [&str; 6] = [
    "cf-connecting-ip",
    "fastly-client-ip",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-real-ip",
];

/// The header that says for whom a proxy speaks.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

/// The headers that trusted proxies set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedHeaders(
    /// In lower case.
    Vec<Box<str>>,
);

impl TrustedHeaders {
    /// None: the headers of a peer that is not trusted.
    pub const NONE: Self = Self(Vec::new());

    /// These names, in any case.
    pub fn new(names: &[&str]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase().into()).collect())
    }

    /// True for a header by which proxies say how a request came.
    pub fn may_name(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let rest = name.strip_prefix(FORWARDED_PREFIX);
        let is_token = |rest: &str| !rest.is_empty() && rest.bytes().all(is_plain);
        name == "forwarded" || rest.is_some_and(is_token) || OF_PROXIES.contains(&&*name)
    }

    /// True for a header that is trusted. Other spellings of its name are other headers: a proxy that sets `X-Real-IP` does
    /// not set `X_Real_IP`.
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A byte of a header name that needs no other spelling.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::TrustedHeaders;

    #[test]
    fn headers_of_proxies_may_be_trusted_and_no_others() {
        for name in ["Forwarded", "X-Forwarded-For", "x-forwarded-port", "X-Real-IP", "CF-Connecting-IP"] {
            assert!(TrustedHeaders::may_name(name), "{name}");
        }
        for name in [
            "",
            "X-Forwarded-",
            "X-Forwarded",
            "X_Forwarded_For",
            "X-Forwarded-A_B",
            "X-Agent-Id",
            "Host",
            "Via",
        ] {
            assert!(!TrustedHeaders::may_name(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_trusted_in_any_case_and_in_no_other_spelling() {
        let trusted = TrustedHeaders::new(&["X-Real-IP"]);
        assert!(trusted.has(b"X-Real-IP") && trusted.has(b"x-real-ip"));
        assert!(!trusted.has(b"X_Real_IP") && !trusted.has(b"X-Real") && !trusted.has(b"Forwarded"));
        assert!(!TrustedHeaders::NONE.has(b"X-Real-IP"));
    }
}
