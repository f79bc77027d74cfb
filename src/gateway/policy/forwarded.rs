//! `X-Forwarded-*` and `Forwarded` (RFC 7239): how a request came.
//!
//! The words of an untrusted peer are replaced. Of a trusted proxy those are kept and added to that it sets: what else it
//! passes on was written by a stranger.
//!
//! `Via` (RFC 9110, section 7.6.3): each gateway that forwards a request adds its name, and refuses a request that has its
//! name already. Otherwise a gateway whose upstream leads back to it would forward to itself without end.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::domain::TrustedHeaders;
use crate::http1::{Fields, Lines, name::Name};
use crate::wire::{RequestIds, client_ip::is_trusted};

/// The proxies that are believed, and which of their headers.
pub(crate) struct Believed {
    /// Their networks.
    pub(crate) proxies: Vec<IpNet>,
    /// The headers that they set.
    pub(crate) headers: TrustedHeaders,
    /// True if proxies speak the PROXY protocol, which hides them and says nothing of TLS.
    pub(crate) has_proxy_protocol: bool,
}

/// The headers of a peer that is not trusted.
static NONE: TrustedHeaders = TrustedHeaders::NONE;

impl Believed {
    /// The headers that a peer is trusted to set.
    pub(in crate::gateway) fn of(&self, peer: IpAddr) -> &TrustedHeaders {
        if is_trusted(peer, &self.proxies) { &self.headers } else { &NONE }
    }

    /// The scheme by which the client asked. `None` if that is not known: a proxy may have ended TLS, and does not say so.
    pub(in crate::gateway) fn scheme(
        &self,
        fields: &impl Fields,
        peer: IpAddr,
        is_tls: bool,
    ) -> Option<&'static str> {
        let is_plain = || !self.has_proxy_protocol && !is_trusted(peer, &self.proxies);
        let own = || if is_tls { Some("https") } else { is_plain().then_some("http") };
        known_proto(fields, self.of(peer)).or_else(own)
    }
}

/// The scheme that a proxy names and is trusted to set. Several proxies name it one after the other: they must agree.
fn known_proto(fields: &impl Fields, believed: &TrustedHeaders) -> Option<&'static str> {
    if !believed.has(Name::ForwardedProto.as_str().as_bytes()) {
        return None;
    }
    let values = fields.values(Name::ForwardedProto);
    let mut hops = values.flat_map(|value| value.split(|byte| *byte == b',')).map(scheme_of);
    let scheme = hops.next()?;
    scheme.filter(|_| hops.all(|hop| hop == scheme))
}

/// The scheme of HTTP that a proxy means. Some write that of a WebSocket, whose handshake is HTTP.
fn scheme_of(text: &[u8]) -> Option<&'static str> {
    let is = |scheme: &str| text.trim_ascii().eq_ignore_ascii_case(scheme.as_bytes());
    match () {
        () if is("https") || is("wss") => Some("https"),
        () if is("http") || is("ws") => Some("http"),
        () => None,
    }
}

/// How a request came.
pub(in crate::gateway) struct Arrival<'a> {
    /// The address of the client, or of a proxy before us, as text.
    pub(in crate::gateway) peer: &'a str,
    /// The headers that it is trusted to set.
    pub(in crate::gateway) believed: &'a TrustedHeaders,
    pub(in crate::gateway) is_tls: bool,
    /// The version of HTTP, as `Via` has it.
    pub(in crate::gateway) version: &'static str,
}

/// Writes how a request for this host came.
pub(in crate::gateway) fn write(
    fields: &impl Fields,
    arrival: &Arrival<'_>,
    host: &[u8],
    lines: &mut impl Lines,
) {
    let Arrival { peer, believed, is_tls, .. } = *arrival;
    let scheme = if is_tls { "https" } else { "http" };
    let is_believed = |name: Name| believed.has(name.as_str().as_bytes());
    let before = |name: Name, out: &mut Vec<u8>| {
        let is_believed = is_believed(name);
        for value in fields.values(name).filter(|_| is_believed) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    };
    lines.line("X-Forwarded-For", |out| {
        before(Name::ForwardedFor, out);
        out.extend_from_slice(peer.as_bytes());
    });
    lines.set("X-Forwarded-Proto", known_proto(fields, believed).unwrap_or(scheme).as_bytes());
    let known = fields.only(Name::ForwardedHost).filter(|_| is_believed(Name::ForwardedHost));
    lines.set("X-Forwarded-Host", known.unwrap_or(host));
    lines.line("Forwarded", |out| {
        before(Name::Forwarded, out);
        // IPv6 addresses are quoted (RFC 7239, section 4).
        let (open, close): (&[u8], &[u8]) = if peer.contains(':') { (b"\"[", b"]\"") } else { (b"", b"") };
        let parts =
            [b"for=", open, peer.as_bytes(), close, b";host=\"", host, b"\";proto=", scheme.as_bytes()];
        parts.into_iter().for_each(|part| out.extend_from_slice(part));
    });
}

/// The gateway's name in `Via`.
pub(in crate::gateway) struct Via(Box<str>);

impl Via {
    /// Under the configured name; else one that no other process has.
    pub(in crate::gateway) fn new(configured: Option<Box<str>>, ids: &RequestIds) -> Self {
        Self(configured.unwrap_or_else(|| format!("tiergate-{}", ids.process).into()))
    }

    /// True if a request has passed a gateway of this name.
    pub(in crate::gateway) fn has_passed(&self, fields: &impl Fields) -> bool {
        let name = self.0.as_bytes();
        let hops = fields.values(Name::Via).flat_map(|line| line.split(|byte| *byte == b','));
        // Behind a protocol and a blank.
        let mut hops = hops.filter(|hop| hop.len() > name.len() + 1);
        hops.any(|hop| {
            let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|other| other.eq_ignore_ascii_case(name))
        })
    }

    /// Adds this gateway to those that a request of this version of HTTP has passed.
    pub(in crate::gateway) fn write(&self, fields: &impl Fields, version: &str, lines: &mut impl Lines) {
        lines.line("Via", |out| {
            for line in fields.values(Name::Via).filter(|line| !line.is_empty()) {
                out.extend_from_slice(line);
                out.extend_from_slice(b", ");
            }
            [version, " ", &self.0].into_iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        });
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::{Arrival, Believed, TrustedHeaders, Via, write};

    fn told(peer: &str, believed: &[&str], inbound: &[(&'static str, &str)]) -> [String; 4] {
        let mut headers = HeaderMap::new();
        for (name, value) in inbound {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let believed = &TrustedHeaders::new(believed);
        let arrival = Arrival { peer, believed, is_tls: true, version: "1.1" };
        let mut told = HeaderMap::new();
        write(&headers, &arrival, b"api.example:8443", &mut told);
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"].map(|name| {
            let mut values = told.get_all(name).iter();
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
        assert_eq!(told("192.0.2.1", &[], FORGED), expected);
        assert_eq!(told("192.0.2.1", &[], &[]), expected);
    }

    #[test]
    fn the_headers_that_a_trusted_proxy_sets_are_kept_and_added_to() {
        let all = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"];
        let [chain, proto, host, forwarded] = told("2001:db8::1", &all, FORGED);
        assert_eq!(chain, "1.2.3.4, 5.6.7.8, 2001:db8::1");
        assert_eq!((proto.as_str(), host.as_str()), ("http", "other.example"));
        assert_eq!(forwarded, "for=1.2.3.4, for=\"[2001:db8::1]\";host=\"api.example:8443\";proto=https");
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn a_header_that_a_trusted_proxy_does_not_set_is_a_strangers_and_replaced() {
        let ours = told("192.0.2.1", &[], FORGED);
        let all = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"];
        let theirs = told("192.0.2.1", &all, FORGED);
        for (at, set) in all.iter().enumerate() {
            let mut expected = ours.clone();
            expected[at].clone_from(&theirs[at]);
            assert_ne!(expected, ours, "{set}");
            assert_eq!(told("192.0.2.1", &[set], FORGED), expected, "{set}");
        }
    }

    #[test]
    fn the_scheme_that_trusted_proxies_agree_on_is_told_however_they_write_it() {
        let set = ["X-Forwarded-Proto"];
        let proto = |values: &[&str]| {
            let lines: Vec<_> = values.iter().map(|value| ("X-Forwarded-Proto", *value)).collect();
            told("192.0.2.1", &set, &lines)[1].clone()
        };
        for http in [&["http"][..], &["ws"], &["HTTP"], &["http", "ws"], &["http,http"]] {
            assert_eq!(proto(http), "http", "{http:?}");
        }
        // Ours is told where they do not agree.
        for ours in [&["wss"][..], &["https", "https"], &["http", "https"], &["http, gopher"], &["http,"]] {
            assert_eq!(proto(ours), "https", "{ours:?}");
        }
    }

    #[test]
    fn the_scheme_is_unknown_where_a_proxy_may_have_ended_tls_and_does_not_say_so() {
        let believed = |set: &[&str], has_proxy_protocol| Believed {
            proxies: vec!["10.0.0.0/8".parse().unwrap()],
            headers: TrustedHeaders::new(set),
            has_proxy_protocol,
        };
        let (plain, tls) = (false, true);
        let (proxy, stranger) = ("10.0.0.1", "192.0.2.1");
        for (set, has_proxy_protocol, peer, is_tls, said, scheme) in [
            (&["X-Forwarded-Proto"][..], false, proxy, plain, "https", Some("https")),
            (&["X-Forwarded-Proto"], false, proxy, tls, "http", Some("http")),
            (&["X-Forwarded-Proto"], false, proxy, plain, "gopher", None),
            (&["X-Forwarded-Proto"], false, proxy, plain, "wss", Some("https")),
            (&["X-Forwarded-Proto"], false, proxy, tls, "WS", Some("http")),
            (&["X-Forwarded-Proto"], false, proxy, plain, "HTTPS", Some("https")),
            (&["X-Forwarded-Proto"], false, proxy, plain, "https, https", Some("https")),
            (&["X-Forwarded-Proto"], false, proxy, plain, "https, http", None),
            (&["X-Forwarded-Proto"], false, proxy, plain, "", None),
            (&["X-Forwarded-Proto"], false, stranger, plain, "wss", Some("http")),
            (&["X-Forwarded-Proto"], false, stranger, plain, "https", Some("http")),
            (&["X-Forwarded-Proto"], false, stranger, tls, "http", Some("https")),
            (&["X-Forwarded-For"], false, proxy, plain, "https", None),
            (&["X-Forwarded-For"], false, proxy, tls, "http", Some("https")),
            (&[], true, stranger, plain, "https", None),
            (&[], true, stranger, tls, "http", Some("https")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-proto", said.parse().unwrap());
            let found = believed(set, has_proxy_protocol).scheme(&headers, peer.parse().unwrap(), is_tls);
            assert_eq!(found, scheme, "{set:?} {peer} {is_tls} {said}");
        }
    }

    fn of(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (http::header::VIA, line.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_that_passed_this_name_is_told_from_all_others() {
        let via = Via("inner".into());
        for passed in [
            vec!["1.1 inner"],
            vec!["HTTP/2.0 INNER"],
            vec!["1.0 edge, 1.1\tinner (it)"],
            vec!["1.1 edge", "1.1 x,,2.0  inner"],
        ] {
            assert!(via.has_passed(&of(&passed)), "{passed:?}");
        }
        for other in [
            vec![],
            vec![""],
            vec!["inner"],
            vec!["1.1 inner-2"],
            vec!["1.1 edge (inner)"],
            vec!["1.1 edge inner"],
        ] {
            assert!(!via.has_passed(&of(&other)), "{other:?}");
        }
    }

    #[test]
    fn a_name_is_added_behind_those_that_are_there() {
        for (there, expected) in [
            (vec![], "1.1 inner"),
            (vec![""], "1.1 inner"),
            (vec!["1.0 a, 1.1 b", "2.0 c"], "1.0 a, 1.1 b, 2.0 c, 1.1 inner"),
        ] {
            let mut lines = HeaderMap::new();
            Via("inner".into()).write(&of(&there), "1.1", &mut lines);
            assert_eq!(lines["via"], expected);
        }
    }
}
