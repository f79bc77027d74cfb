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

/// One upstream: `host:port`, or with `http://`, `https://` or `h2c://` in front. The port is optional behind a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// How it is spoken to.
    pub scheme: UpstreamScheme,
    /// A name or an IP address; IPv6 without brackets.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
}

impl Upstream {
    /// Reads an upstream.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a phrase.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const PHRASE: &str = "is not an upstream";
        let (scheme, rest, default_port) = if let Some(rest) = text.strip_prefix("http://") {
            (UpstreamScheme::Http, rest, Some(80))
        } else if let Some(rest) = text.strip_prefix("https://") {
            (UpstreamScheme::Https, rest, Some(443))
        } else if let Some(rest) = text.strip_prefix("h2c://") {
            (UpstreamScheme::H2c, rest, Some(80))
        } else {
            (UpstreamScheme::Http, text, None)
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let port = match rest.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => Some(port.parse::<u16>().map_err(|_| PHRASE)?),
            Some(_) | None => default_port,
        };
        let port = port.filter(|port| *port != 0).ok_or(PHRASE)?;
        let host = crate::domain::host::of_authority(rest).ok_or(PHRASE)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').into();
        Ok(Self { scheme, host, port })
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
            write!(out, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}
