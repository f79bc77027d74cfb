//! Where the chain's JSON-RPC is answered. Providers put keys in paths, queries and user info, so such a URL is a secret
//! of which only the origin may be shown; so are the headers that go to them.

use std::fmt;

use url::Url;

use crate::domain::secret::Secret;

/// An absolute http(s) URL, user info and path allowed. `Debug` and `Display` show its origin only.
#[derive(Clone, PartialEq, Eq)]
pub struct RpcUrl {
    url: Url,
    origin: String,
}

impl RpcUrl {
    /// Parses a URL; `None` when the text is not absolute, of another scheme, with a fragment, or would have to be repaired.
    /// See [`public_part`] for what may be shown of it then.
    pub fn parse(text: &str) -> Option<Self> {
        let url = authority(text).and_then(|_| Url::parse(text).ok())?;
        let origin = url.origin().ascii_serialization();
        url.fragment().is_none().then_some(Self { origin, url })
    }

    /// Scheme, host and port (the port only when it is not the scheme's own): what logs and answers may show.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The whole URL without slashes at its end, of one that anybody may know.
    #[must_use]
    pub fn base(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// The whole URL, for the one place that connects to it.
    pub const fn reveal(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for RpcUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.origin)
    }
}

impl fmt::Debug for RpcUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RpcUrl({})", self.origin)
    }
}

/// What may be shown of a text that was meant as a URL and is none: scheme and host at most, and the host only when
/// nothing behind it makes it look like a piece of user info.
pub fn public_part(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().and_then(bare_host).filter(|_| !tail.contains('@'));
    Some(format!("{scheme}://{}", host.unwrap_or("…")))
}

/// The host of `host[:port]`, when it is spelled like one.
fn bare_host(authority: &str) -> Option<&str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let spelled_like_a_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')),
    };
    let acceptable =
        !host.is_empty() && spelled_like_a_host && port.bytes().all(|byte| byte.is_ascii_digit());
    acceptable.then_some(host)
}

/// The authority of an http(s) URL that needs no repair. The URL parser repairs what browsers repair (`http:example`,
/// backslashes, surrounding blanks), and may end up at another host than the author meant.
pub(super) fn authority(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    let is_http = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let authority = rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty() && is_http);
    authority.filter(|_| !text.bytes().any(|byte| byte <= b' ' || byte == b'\\' || byte == 0x7f))
}

/// A header that goes with every call to the nodes of one origin, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcHeader<V> {
    /// Scheme, host and port of the nodes that it goes to, as `RpcUrl::origin` writes them. It goes nowhere else.
    pub origin: String,
    /// Its name, in lower case.
    pub name: String,
    /// Its value, or where that is.
    pub value: V,
}

/// The longest value, in bytes.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;

/// Why a text is no header's value. Says nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not 1 to {HEADER_BYTES_MAX} characters of printable ASCII without blanks around them")]
pub struct NotAHeaderValue;

/// A header's value that can be sent.
pub fn header_value(text: &str) -> Result<Secret, NotAHeaderValue> {
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let acceptable = !text.is_empty() && text.len() <= HEADER_BYTES_MAX && text.trim() == text && printable;
    if acceptable { Ok(Secret::new(text)) } else { Err(NotAHeaderValue) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::{HEADER_BYTES_MAX, RpcUrl, header_value, public_part};

    #[test]
    fn debug_and_display_show_the_origin_only() {
        for (text, origin) in [
            ("https://node.example/v3/SECRET", "https://node.example"),
            ("https://SECRET@node.example:8443/?key=SECRET", "https://node.example:8443"),
            ("HTTP://user:SECRET@127.0.0.1:80/", "http://127.0.0.1"),
            ("http://[::1]:8545/SECRET", "http://[::1]:8545"),
        ] {
            let url = RpcUrl::parse(text).unwrap();
            assert_eq!(url.origin(), origin);
            assert_eq!(
                format!("{url} {url:?} {url:#?}"),
                format!("{origin} RpcUrl({origin}) RpcUrl({origin})")
            );
            assert!(url.reveal().as_str().contains("SECRET") || origin == "http://127.0.0.1");
        }
    }

    #[test]
    fn what_is_revealed_is_what_was_given() {
        let text = "https://user:pass@node.example/v3/key?x=1";
        assert_eq!(RpcUrl::parse(text).unwrap().reveal().as_str(), text);
    }

    #[test]
    fn only_absolute_http_urls_that_need_no_repair_are_accepted() {
        for text in [
            "",
            "node.example",
            "node.example:8545",
            "//node.example",
            "ws://node.example",
            "file:///tmp/node.ipc",
            "http:node.example",
            "http:///node.example",
            "http://",
            "http://?x",
            "http://node.example:99999",
            "http://no de.example",
            " http://node.example",
            "http://node.example\n",
            "http://node.example\\@other.example",
            "http://user:1#pass@node.example",
        ] {
            assert!(RpcUrl::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn of_a_text_that_is_no_url_scheme_and_host_are_shown_at_most() {
        for (text, shown) in [
            ("ws://node.example/SECRET", Some("ws://node.example")),
            ("ws://u:SECRET@node.example:1/SECRET", Some("ws://node.example")),
            ("http://[::1]:99999/SECRET", Some("http://[::1]")),
            ("http://[::1]/SECRET", Some("http://[::1]")),
            ("http://user:SEC/RET@node.example", Some("http://…")),
            ("http://user:1/SECRET@node.example", Some("http://…")),
            ("http://user:SECRET", Some("http://…")),
            ("http://SEC%52ET:99999", Some("http://…")),
            ("http:// SECRET", Some("http://…")),
            ("key=http://node.example", None),
            ("SECRET", None),
        ] {
            assert_eq!(public_part(text).as_deref(), shown, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_shown_ends_at_the_host(text in any::<String>()) {
            for text in [text.clone(), format!("http://{text}")] {
                let _ = RpcUrl::parse(&text);
                let shown = public_part(&text).unwrap_or_default();
                let host = shown.split_once("://").map_or("", |(_, host)| host);
                prop_assert!(!host.contains(['/', '@', '?', '#']));
            }
        }
    }

    #[test]
    fn a_headers_value_is_printable_and_has_no_blanks_around_it() {
        for text in ["k", "Bearer abc.def", "~!\"#$%&'()*", &"k".repeat(HEADER_BYTES_MAX)] {
            assert_eq!(header_value(text).unwrap().reveal(), text);
        }
        for text in
            ["", " ", " k", "k ", "k\n", "a\r\nb: c", "\0", "k\t", "ü", &"k".repeat(HEADER_BYTES_MAX + 1)]
        {
            let why = header_value(text).unwrap_err();
            assert!(!format!("{why} {why:?}").contains(&format!("{text:?}")), "{text:?}");
        }
    }
}
