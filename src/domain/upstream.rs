//! Where requests are forwarded to.

use std::fmt;

/// How an upstream is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamScheme {
    /// HTTP/1.1 in the clear.
    Http,
    /// TLS; HTTP/2 or HTTP/1.1, whichever the upstream chooses.
    Https,
    /// HTTP/2 in the clear, with prior knowledge.
    H2c,
}

/// One upstream: `host:port`, or with `http://`, `https://` or `h2c://` in front. The port is optional behind a scheme. It may
/// end with ` weight=N`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// How it is spoken to.
    pub scheme: UpstreamScheme,
    /// A name or an IP address; IPv6 without brackets.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// Its share beside others, 1 to [`WEIGHT_MAX`].
    pub weight: u8,
}

/// The largest weight.
pub const WEIGHT_MAX: u8 = 100;

impl Upstream {
    /// Reads an upstream; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, weight) = match text.split_once(" weight=") {
            Some((text, weight)) => (text, weight.parse().ok()?),
            None => (text, 1),
        };
        let (scheme, rest, default_port) = match text.split_once("://") {
            Some(("http", rest)) => (UpstreamScheme::Http, rest, Some(80)),
            Some(("https", rest)) => (UpstreamScheme::Https, rest, Some(443)),
            Some(("h2c", rest)) => (UpstreamScheme::H2c, rest, Some(80)),
            Some(_) => return None,
            None => (UpstreamScheme::Http, text, None),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let port = match rest.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
            Some(_) | None => default_port,
        };
        let port = port.filter(|port| *port != 0)?;
        let host = crate::domain::host::of_authority(rest)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').into();
        Some(Self { scheme, host, port, weight }).filter(|_| (1..=WEIGHT_MAX).contains(&weight))
    }

    /// The same wherever it stands, whatever its share there.
    pub fn alone(&self) -> Self {
        Self { weight: 1, ..self.clone() }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            UpstreamScheme::Http => "http",
            UpstreamScheme::Https => "https",
            UpstreamScheme::H2c => "h2c",
        };
        if self.host.contains(':') {
            write!(out, "{scheme}://[{}]:{}", self.host, self.port)?;
        } else {
            write!(out, "{scheme}://{}:{}", self.host, self.port)?;
        }
        if self.weight == 1 { Ok(()) } else { write!(out, " weight={}", self.weight) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Upstream, UpstreamScheme};

    #[test]
    fn a_scheme_says_how_an_upstream_is_spoken_to_and_which_port_it_has() {
        for (text, scheme, host, port) in [
            ("127.0.0.1:9000", UpstreamScheme::Http, "127.0.0.1", 9000),
            ("Backend.internal:80", UpstreamScheme::Http, "backend.internal", 80),
            ("http://backend", UpstreamScheme::Http, "backend", 80),
            ("https://backend/", UpstreamScheme::Https, "backend", 443),
            ("https://backend.:8443", UpstreamScheme::Https, "backend", 8443),
            ("h2c://backend", UpstreamScheme::H2c, "backend", 80),
            ("[::1]:9000", UpstreamScheme::Http, "::1", 9000),
            ("https://[2001:DB8::1]", UpstreamScheme::Https, "2001:db8::1", 443),
        ] {
            assert_eq!(
                Upstream::parse(text),
                Some(Upstream { scheme, host: host.into(), port, weight: 1 }),
                "{text}"
            );
        }
        let heavy = Upstream::parse("h2c://backend weight=100").unwrap();
        assert_eq!((heavy.weight, heavy.to_string().as_str()), (100, "h2c://backend:80 weight=100"));
    }

    #[test]
    fn what_can_not_be_connected_to_is_refused() {
        for text in [
            "",
            "backend",
            "[::1]",
            "::1:80",
            ":80",
            "http://",
            "http://:80",
            "backend:",
            "http://backend:",
            "backend:0",
            "backend:65536",
            "backend:+80",
            "backend:80:80",
            "ftp://backend:21",
            "HTTP://backend",
            "http://backend/path",
            "http://backend//",
            "http://backend?x",
            "http://user@backend",
            "*:80",
            "*.backend:80",
            "back end:80",
            "[::1]x:80",
            "[a]:80",
            "unix:/run/backend.sock",
            "backend:80 weight=0",
            "backend:80 weight=101",
            "backend:80 weight=",
            "backend:80 weight=2 weight=2",
            "backend:80  weight=2",
        ] {
            assert!(Upstream::parse(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_upstream_is_read_as_it_is_written(
            text in "(http://|https://|h2c://)?([a-z.]{1,8}|\\[[0-9a-f:]{2,8}\\])(:[0-9]{1,5})?/?",
        ) {
            if let Some(upstream) = Upstream::parse(&text) {
                prop_assert_eq!(Upstream::parse(&upstream.to_string()), Some(upstream));
            }
        }

        #[test]
        fn no_text_is_too_strange_to_be_judged(text in any::<String>()) {
            let _ = Upstream::parse(&text);
        }
    }
}
