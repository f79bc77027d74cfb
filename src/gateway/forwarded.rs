//! What an upstream is told of how the request came: `X-Forwarded-*` and `Forwarded` (RFC 7239).
//!
//! What an untrusted peer wrote there is replaced; what a trusted proxy wrote is kept and added to.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::wire::headers::FORWARDED_FOR;

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How a request came to us.
pub(super) struct Arrival<'a> {
    /// Who sent it: a client, or a proxy before us.
    pub(super) peer: IpAddr,
    /// Whether that is a proxy that is believed.
    pub(super) peer_is_trusted: bool,
    /// Whether it came over TLS.
    pub(super) is_tls: bool,
    /// The host that it is for, as it was written.
    pub(super) host: &'a [u8],
}

/// Writes how the request came.
pub(super) fn write(headers: &mut HeaderMap, arrival: &Arrival<'_>) {
    let peer = arrival.peer.to_canonical();
    let proto = if arrival.is_tls { "https" } else { "http" };
    if !arrival.peer_is_trusted {
        for name in [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, http::header::FORWARDED] {
            headers.remove(&name);
        }
    }
    let chain = joined(headers, &FORWARDED_FOR, &peer.to_string());
    let path = joined(headers, &http::header::FORWARDED, &element(peer, proto, arrival.host));
    headers.insert(FORWARDED_FOR, value(chain));
    if !matches!(only(headers, &FORWARDED_PROTO), Some(b"http" | b"https")) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if only(headers, &FORWARDED_HOST).is_none() {
        headers.insert(FORWARDED_HOST, value(arrival.host.to_vec()));
    }
    headers.insert(http::header::FORWARDED, value(path));
}

/// What was made of header values, addresses and hosts is one.
fn value(text: Vec<u8>) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// The value of a header that stands once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).map(HeaderValue::as_bytes)
}

/// What stands there already, in its order, and one more.
fn joined(headers: &HeaderMap, name: &HeaderName, last: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(last.len());
    for value in headers.get_all(name) {
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b", ");
    }
    text.extend_from_slice(last.as_bytes());
    text
}

/// One element of `Forwarded`. IPv6 addresses and hosts with ports are quoted (RFC 7239, section 4).
fn element(peer: IpAddr, proto: &str, host: &[u8]) -> String {
    let from = match peer {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let host = String::from_utf8_lossy(host);
    format!("for={from};host=\"{host}\";proto={proto}")
}

#[cfg(test)]
mod tests {
    use super::{Arrival, HeaderMap, HeaderName, write};

    fn told(peer: &str, peer_is_trusted: bool, inbound: &[(&'static str, &str)]) -> [String; 4] {
        let mut headers = HeaderMap::new();
        for (name, value) in inbound {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let arrival =
            Arrival { peer: peer.parse().unwrap(), peer_is_trusted, is_tls: true, host: b"api.example:8443" };
        write(&mut headers, &arrival);
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"].map(|name| {
            let mut values = headers.get_all(name).iter();
            let value = values.next().unwrap().to_str().unwrap().to_owned();
            assert!(values.next().is_none(), "{name} stands once");
            value
        })
    }

    const FORGED: &[(&str, &str)] = &[
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-For", "5.6.7.8"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "other.example"),
        ("Forwarded", "for=1.2.3.4"),
    ];

    #[test]
    fn what_an_untrusted_peer_wrote_is_replaced() {
        let forwarded = "for=192.0.2.1;host=\"api.example:8443\";proto=https";
        let expected = ["192.0.2.1", "https", "api.example:8443", forwarded].map(str::to_owned);
        assert_eq!(told("192.0.2.1", false, FORGED), expected);
        assert_eq!(told("::ffff:192.0.2.1", false, &[]), expected);
    }

    #[test]
    fn what_a_trusted_proxy_wrote_is_kept_and_added_to() {
        let [chain, proto, host, forwarded] = told("2001:db8::1", true, FORGED);
        assert_eq!(chain, "1.2.3.4, 5.6.7.8, 2001:db8::1");
        assert_eq!((proto.as_str(), host.as_str()), ("http", "other.example"));
        assert_eq!(forwarded, "for=1.2.3.4, for=\"[2001:db8::1]\";host=\"api.example:8443\";proto=https");
    }
}
