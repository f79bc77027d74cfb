//! The header names that the gateway's rules know.

/// A header name as an id: rules compare ids instead of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Name {
    /// Any name that no rule knows.
    Other,
    /// `Authorization`
    Authorization,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Cookie`
    Cookie,
    /// `Date`
    Date,
    /// `Expect`
    Expect,
    /// `Forwarded`
    Forwarded,
    /// `Host`
    Host,
    /// `HTTP2-Settings`
    Http2Settings,
    /// `Keep-Alive`
    KeepAlive,
    /// `Origin`
    Origin,
    /// `Proxy-Authenticate`
    ProxyAuthenticate,
    /// `Proxy-Authorization`
    ProxyAuthorization,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `TE`
    Te,
    /// `Traceparent`
    Traceparent,
    /// `Trailer`
    Trailer,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Upgrade`
    Upgrade,
    /// `Via`
    Via,
    /// `X-Agent-Id`
    AgentId,
    /// `X-Agent-Nonce`
    AgentNonce,
    /// `X-Agent-Signature`
    AgentSignature,
    /// `X-Agent-Timestamp`
    AgentTimestamp,
    /// `X-API-Key`
    ApiKey,
    /// `X-Forwarded-For`
    ForwardedFor,
    /// `X-Forwarded-Host`
    ForwardedHost,
    /// `X-Forwarded-Proto`
    ForwardedProto,
    /// `X-Request-Id`
    RequestId,
}

impl Name {
    /// Every name but [`Name::Other`].
    pub const KNOWN: [Self; 29] = [
        Self::Authorization,
        Self::Connection,
        Self::ContentLength,
        Self::Cookie,
        Self::Date,
        Self::Expect,
        Self::Forwarded,
        Self::Host,
        Self::Http2Settings,
        Self::KeepAlive,
        Self::Origin,
        Self::ProxyAuthenticate,
        Self::ProxyAuthorization,
        Self::ProxyConnection,
        Self::Te,
        Self::Traceparent,
        Self::Trailer,
        Self::TransferEncoding,
        Self::Upgrade,
        Self::Via,
        Self::AgentId,
        Self::AgentNonce,
        Self::AgentSignature,
        Self::AgentTimestamp,
        Self::ApiKey,
        Self::ForwardedFor,
        Self::ForwardedHost,
        Self::ForwardedProto,
        Self::RequestId,
    ];

    /// The name in lower case; empty for [`Name::Other`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Other => "",
            Self::Authorization => "authorization",
            Self::Connection => "connection",
            Self::ContentLength => "content-length",
            Self::Cookie => "cookie",
            Self::Date => "date",
            Self::Expect => "expect",
            Self::Forwarded => "forwarded",
            Self::Host => "host",
            Self::Http2Settings => "http2-settings",
            Self::KeepAlive => "keep-alive",
            Self::Origin => "origin",
            Self::ProxyAuthenticate => "proxy-authenticate",
            Self::ProxyAuthorization => "proxy-authorization",
            Self::ProxyConnection => "proxy-connection",
            Self::Te => "te",
            Self::Traceparent => "traceparent",
            Self::Trailer => "trailer",
            Self::TransferEncoding => "transfer-encoding",
            Self::Upgrade => "upgrade",
            Self::Via => "via",
            Self::AgentId => "x-agent-id",
            Self::AgentNonce => "x-agent-nonce",
            Self::AgentSignature => "x-agent-signature",
            Self::AgentTimestamp => "x-agent-timestamp",
            Self::ApiKey => "x-api-key",
            Self::ForwardedFor => "x-forwarded-for",
            Self::ForwardedHost => "x-forwarded-host",
            Self::ForwardedProto => "x-forwarded-proto",
            Self::RequestId => "x-request-id",
        }
    }

    /// The id of a name, in any case.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        // No two known names of the same length end with the same letter.
        let candidate = match (text.len(), text.last().map_or(0, u8::to_ascii_lowercase)) {
            (2, b'e') => Self::Te,
            (3, b'a') => Self::Via,
            (4, b'e') => Self::Date,
            (4, b't') => Self::Host,
            (6, b'e') => Self::Cookie,
            (6, b't') => Self::Expect,
            (6, b'n') => Self::Origin,
            (7, b'r') => Self::Trailer,
            (7, b'e') => Self::Upgrade,
            (9, b'd') => Self::Forwarded,
            (9, b'y') => Self::ApiKey,
            (10, b'n') => Self::Connection,
            (10, b'e') => Self::KeepAlive,
            (10, b'd') => Self::AgentId,
            (11, b't') => Self::Traceparent,
            (12, b'd') => Self::RequestId,
            (13, b'n') => Self::Authorization,
            (13, b'e') => Self::AgentNonce,
            (14, b'h') => Self::ContentLength,
            (14, b's') => Self::Http2Settings,
            (15, b'r') => Self::ForwardedFor,
            (16, b't') => Self::ForwardedHost,
            (16, b'n') => Self::ProxyConnection,
            (17, b'g') => Self::TransferEncoding,
            (17, b'e') => Self::AgentSignature,
            (17, b'p') => Self::AgentTimestamp,
            (17, b'o') => Self::ForwardedProto,
            (18, b'e') => Self::ProxyAuthenticate,
            (19, b'n') => Self::ProxyAuthorization,
            _ => return Self::Other,
        };
        if is_same(text, candidate.as_str().as_bytes()) { candidate } else { Self::Other }
    }
}

/// True if a text is a known name of the same length, in any case.
fn is_same(text: &[u8], known: &[u8]) -> bool {
    let (Some(last), Some(known_last)) = (text.last_chunk::<8>(), known.last_chunk::<8>()) else {
        return text.eq_ignore_ascii_case(known);
    };
    // Eight bytes at once, the last eight first: they overlap the ones before.
    let words = text.as_chunks::<8>().0.iter().zip(known.as_chunks::<8>().0);
    is_same_word(last, known_last) && words.fold(true, |same, (word, known)| same & is_same_word(word, known))
}

fn is_same_word(word: &[u8; 8], known: &[u8; 8]) -> bool {
    let (word, known) = (u64::from_le_bytes(*word), u64::from_le_bytes(*known));
    // Of the bytes of known names only letters have the bit 0x40. A letter's case is the bit below it.
    let case = (known & u64::from_le_bytes([0x40; 8])) >> 1;
    (word ^ known) & !case == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::Name;

    #[test]
    fn every_known_name_is_known_in_any_case() {
        for name in Name::KNOWN {
            let text = name.as_str();
            assert_eq!(Name::of(text.as_bytes()), name);
            assert_eq!(Name::of(text.to_uppercase().as_bytes()), name);
        }
    }

    #[test]
    fn a_name_that_differs_in_one_byte_is_another() {
        for text in Name::KNOWN.map(|name| name.as_str().as_bytes()) {
            for at in 0..text.len() {
                for byte in 0..=u8::MAX {
                    let mut other = text.to_vec();
                    other[at] = byte;
                    let is_same = other.eq_ignore_ascii_case(text);
                    assert_eq!(Name::of(&other) == Name::of(text), is_same, "{}", other.escape_ascii());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_other_name_is_other(text in any::<Vec<u8>>()) {
            let found = Name::KNOWN.into_iter().find(|name| name.as_str().as_bytes().eq_ignore_ascii_case(&text));
            prop_assert_eq!(Name::of(&text), found.unwrap_or(Name::Other));
        }
    }
}
