//! Host names of tenants: what a configuration may write, and what a request's authority stands for (RFC 9110, section
//! 4.2; RFC 3986, section 3.2.2).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::{borrow::Cow, fmt};

/// The longest host name (RFC 1035, section 2.3.4), in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The longest label of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// The longest port.
const PORT_DIGITS_MAX: usize = 5;

/// Which hosts are a tenant's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This host alone, in normal form.
    Exact(Box<str>),
    /// Every host below this one, at any depth, but not the host itself: `*.example` is `Below("example")`.
    Below(Box<str>),
    /// Every host: `*`.
    Any,
}

impl HostPattern {
    /// Reads `api.example`, `*.example`, an IP address, or `*`; `None` for all else.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let Some(name) = text.strip_prefix("*.") else { return Some(Self::Exact(normal(text)?.into())) };
        // Nothing lies below an address, so this can only be a mistake.
        let is_usable = read_name(name).is_some() && name.parse::<Ipv4Addr>().is_err();
        is_usable.then(|| Self::Below(name.to_ascii_lowercase().into()))
    }

    /// True if it takes every host that the other one takes.
    pub fn covers(&self, other: &Self) -> bool {
        let lies_below =
            |name: &str, suffix: &str| name.strip_suffix(suffix).is_some_and(|before| before.ends_with('.'));
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Below(suffix), Self::Exact(name)) => lies_below(name, suffix),
            (Self::Below(suffix), Self::Below(name)) => name == suffix || lies_below(name, suffix),
            (Self::Exact(_) | Self::Below(_), Self::Below(_) | Self::Any) => false,
        }
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
/// Nothing when it is not a host. Borrows what is in normal form already.
pub fn of_authority(authority: &str) -> Option<Cow<'_, str>> {
    let (host, port) = split(authority)?;
    if !is_port(port) {
        return None;
    }
    normal(host.strip_suffix('.').unwrap_or(host))
}

/// The port of an authority, where it names one.
pub fn port_of(authority: &str) -> Option<u16> {
    let (_, port) = split(authority)?;
    port.strip_prefix(':').filter(|_| is_port(port))?.parse().ok()
}

/// Host and port as they are written, the port with its colon.
fn split(authority: &str) -> Option<(&str, &str)> {
    // The text is short: a loop finds the place sooner than a search that is made for long ones.
    let bytes = authority.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b']') {
        Some(end) => authority.split_at_checked(end + 1),
        None => match bytes.iter().position(|byte| *byte == b':') {
            Some(colon) => authority.split_at_checked(colon),
            None => Some((authority, "")),
        },
    }
}

/// A name or an address in normal form.
fn normal(host: &str) -> Option<Cow<'_, str>> {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
        return Some(format!("[{address}]").into());
    }
    let has_capitals = read_name(host)?;
    Some(if has_capitals { host.to_ascii_lowercase().into() } else { host.into() })
}

/// What follows a host: nothing, or a colon and a port, which may be empty (RFC 3986, section 3.2.3).
fn is_port(text: &str) -> bool {
    let Some(digits) = text.strip_prefix(':') else { return text.is_empty() };
    let is_number = digits.len() <= PORT_DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.is_empty() || (is_number && digits.parse::<u16>().is_ok())
}

/// True if a name has capitals; nothing if it is no host name. Underscores are no part of host names, but names with them are
/// in use.
fn read_name(name: &str) -> Option<bool> {
    let (mut label_bytes, mut has_capitals) = (0, false);
    for byte in name.bytes() {
        has_capitals |= byte.is_ascii_uppercase();
        label_bytes = match byte {
            b'.' if label_bytes > 0 => 0,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' if label_bytes < LABEL_BYTES_MAX => {
                label_bytes + 1
            }
            _ => return None,
        };
    }
    (label_bytes > 0 && name.len() <= NAME_BYTES_MAX).then_some(has_capitals)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{HostPattern, of_authority, port_of};

    #[test]
    fn a_pattern_covers_what_it_takes_and_nothing_beside_it() {
        for (pattern, inside, outside) in [
            ("*", "* *.example a.example 127.0.0.1", ""),
            ("a.example", "a.example A.Example", "b.example x.a.example *.a.example * example"),
            (
                "*.example",
                "a.example b.a.example *.example *.a.example",
                "example aexample * *.com a.example.com *.aexample",
            ),
        ] {
            let covers = |other: &str| {
                HostPattern::parse(pattern).unwrap().covers(&HostPattern::parse(other).unwrap())
            };
            inside.split(' ').for_each(|other| assert!(covers(other), "{pattern} {other}"));
            outside.split_terminator(' ').for_each(|other| assert!(!covers(other), "{pattern} {other}"));
        }
    }

    #[test]
    fn a_pattern_is_a_host_a_wildcard_below_one_or_everything() {
        for (text, pattern) in [
            ("*", HostPattern::Any),
            ("*.Acme.dev", HostPattern::Below("acme.dev".into())),
            ("API.acme.example", HostPattern::Exact("api.acme.example".into())),
            ("localhost", HostPattern::Exact("localhost".into())),
            ("my_service", HostPattern::Exact("my_service".into())),
            ("10.0.0.1", HostPattern::Exact("10.0.0.1".into())),
            ("[0:0::1]", HostPattern::Exact("[::1]".into())),
        ] {
            assert_eq!(HostPattern::parse(text), Some(pattern), "{text}");
        }
    }

    #[test]
    fn what_no_authority_can_name_is_not_a_pattern() {
        let long_label = "a".repeat(64);
        let long_name = vec!["a".repeat(49); 6].join(".");
        for text in [
            "",
            ".",
            "*.",
            "**",
            "*a.example",
            "a.*.example",
            "*.*.example",
            "a..b",
            "a.example.",
            ".a",
            "*.10.0.0.1",
            "*.[::1]",
            "[::1",
            "::1",
            "[fe80::1%eth0]",
            "[10.0.0.1]",
            "a.example:80",
            "http://a.example",
            "a/b",
            "a b",
            "b\u{fc}cher.example",
            "user@a.example",
            "a%2eb",
            &long_label,
            &long_name,
        ] {
            assert!(HostPattern::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn case_port_and_final_dot_do_not_change_the_host() {
        for (authority, host) in [
            ("API.Example", "api.example"),
            ("api.example.", "api.example"),
            ("api.example:443", "api.example"),
            ("api.example.:8000", "api.example"),
            ("api.example:", "api.example"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[2001:DB8:0::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(of_authority(authority).as_deref(), Some(host), "{authority}");
        }
    }

    #[test]
    fn a_port_is_a_number_behind_the_host() {
        for (authority, port) in [
            ("api.example:8443", Some(8_443)),
            ("[::1]:80", Some(80)),
            ("api.example", None),
            ("api.example:", None),
            ("[::1]", None),
            ("api.example:+80", None),
            ("api.example:65536", None),
            ("api.example:80:80", None),
        ] {
            assert_eq!(port_of(authority), port, "{authority}");
        }
    }

    #[test]
    fn a_malformed_authority_is_no_host() {
        for authority in [
            "",
            ".",
            ":80",
            "*",
            "*.example",
            "a.example..",
            "a..example",
            ".a.example",
            "a.example:80:80",
            "a.example:+80",
            "a.example:-1",
            "a.example:65536",
            "a.example:000080",
            "a.example:8o",
            "a.example: 80",
            " a.example",
            "a.example ",
            "a.example\t",
            "a.example\r\nX-Agent-Id: 1",
            "a.example\0",
            "a.example/x",
            "a.example?x",
            "a.example#x",
            "user@a.example",
            "user:pass@a.example",
            "a.example,b.example",
            "a.example;x",
            "a.example\\x",
            "a%2eexample",
            "\u{ff41}.example",
            "[::1",
            "::1",
            "[::1]x",
            "[::1].",
            "x[::1]",
            "[[::1]]",
            "[::1]]",
            "[::1]:x",
            "[]",
            "[a.example]",
            "[10.0.0.1]",
            "[::1%25eth0]",
        ] {
            assert_eq!(of_authority(authority), None, "{authority:?}");
        }
    }

    #[test]
    fn a_name_in_lower_case_is_not_copied() {
        for authority in ["api.example", "api.example:443", "10.0.0.1", "api.example."] {
            assert!(matches!(of_authority(authority), Some(Cow::Borrowed(_))), "{authority}");
        }
    }

    proptest! {
        #[test]
        fn no_authority_is_too_strange_to_be_judged(authority in any::<String>()) {
            let _ = of_authority(&authority);
            let _ = HostPattern::parse(&authority);
        }

        #[test]
        fn the_normal_form_of_a_host_stands_for_itself(authority in "[a-zA-Z0-9._:\\[\\]*-]{0,20}") {
            if let Some(host) = of_authority(&authority) {
                prop_assert_eq!(of_authority(&host), Some(host.clone()));
                prop_assert_eq!(HostPattern::parse(&host), Some(HostPattern::Exact((*host).into())));
            }
        }

        #[test]
        fn a_pattern_is_written_as_it_is_read(text in "(\\*\\.)?[a-z0-9._*-]{1,20}") {
            if let Some(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Some(pattern));
            }
        }
    }
}
