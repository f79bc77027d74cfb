//! Host names of tenants: what a configuration may write, and what a request's authority stands for (RFC 9110, section
//! 4.2; RFC 3986, section 3.2.2).

use std::fmt;

/// The longest host name (RFC 1035, section 2.3.4), in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The longest label of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Which hosts are a tenant's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host alone, in normal form.
    Exact(Box<str>),
    /// Every host below this one, at any depth, but not the host itself: `*.example` is `Below("example")`.
    Below(Box<str>),
    /// Every host: `*`.
    Any,
}

impl HostPattern {
    /// Reads `api.example`, `*.example`, an IP address, or `*`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a phrase.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.starts_with('[') {
            let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let address = inner.and_then(|inner| inner.parse::<std::net::Ipv6Addr>().ok());
            return match address {
                Some(address) if !below => Ok(Self::Exact(format!("[{address}]").into())),
                Some(_) | None => Err("is not a host"),
            };
        }
        if !is_name(name) {
            return Err("is not a host");
        }
        let name = name.to_ascii_lowercase().into();
        Ok(if below { Self::Below(name) } else { Self::Exact(name) })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(out, "{name}"),
            Self::Below(name) => write!(out, "*.{name}"),
            Self::Any => write!(out, "*"),
        }
    }
}

/// The host of an authority (`Host` header or `:authority`) in normal form: lower case, without port or a final dot.
/// Nothing when it is not a host.
#[must_use]
pub fn of_authority(authority: &str) -> Option<String> {
    let (host, port) = match authority.rfind(']') {
        Some(end) => authority.split_at_checked(end + 1)?,
        None => match authority.find(':') {
            Some(colon) => authority.split_at_checked(colon)?,
            None => (authority, ""),
        },
    };
    let port_is_well_formed = match port.strip_prefix(':') {
        Some(digits) => digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    if !port_is_well_formed {
        return None;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    match HostPattern::parse(host) {
        Ok(HostPattern::Exact(name)) => Some(name.into()),
        Ok(HostPattern::Below(_) | HostPattern::Any) | Err(_) => None,
    }
}

/// Underscores are no part of host names, but names with them are in use.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}
