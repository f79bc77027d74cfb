//! Who is at the other end of the connection: as limits per client IP see it, by the headers that proxies set, and by its trace.
//!
//! A proxy that sets a header overwrites it, or appends to it, in every request. A header that it does not set passes it as a
//! stranger wrote it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A client IP as limits see it: an IPv4 address, or the /64 network of an IPv6 address, because one subscriber holds
/// at least that many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNet(IpAddr);

impl ClientNet {
    /// Nobody: a request that counts for another than the network that it comes from.
    pub const NOBODY: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// The client that this address belongs to.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(IpAddr::V4(v4)),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }

    /// The address, or the first one of the network: how stores write it.
    pub const fn address(self) -> IpAddr {
        self.0
    }
}

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

/// The span of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSpan<'a> {
    /// The id of its trace, 32 hex digits.
    pub trace: &'a str,
    /// Its own id, 16 hex digits.
    pub span: &'a str,
    /// True if the client records the trace.
    pub is_sampled: bool,
}

#[cfg(test)]
mod tests {
    use super::{ClientNet, TrustedHeaders};

    fn net(text: &str) -> ClientNet {
        ClientNet::of(text.parse().unwrap())
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn an_ipv6_subscriber_is_one_client_whatever_address_of_its_network_it_uses() {
        assert_eq!(net("2001:db8:1:2::1"), net("2001:db8:1:2:ffff::9"));
        assert_ne!(net("2001:db8:1:2::1"), net("2001:db8:1:3::1"));
    }

    #[test]
    fn an_ipv4_address_is_one_client_however_it_is_written() {
        assert_eq!(net("192.0.2.1"), net("::ffff:192.0.2.1"));
        assert_ne!(net("192.0.2.1"), net("192.0.2.2"));
    }

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
