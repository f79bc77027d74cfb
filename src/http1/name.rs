//! The header names that the gateway's rules know.

/// Names that rules know, each as an id and in lower case.
macro_rules! names {
    ($($id:ident $text:literal,)*) => {
        /// A header name as an id: rules compare ids instead of text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub(crate) enum Name {
            /// A name that no rule knows.
            Other,
            $(
                #[doc = concat!("`", $text, "`")]
                $id,
            )*
        }

        impl Name {
            /// The names but [`Name::Other`].
            pub(crate) const KNOWN: [Self; [$($text),*].len()] = [$(Self::$id),*];

            /// The name in lower case; empty for [`Name::Other`].
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    Self::Other => "",
                    $(Self::$id => $text,)*
                }
            }
        }
    };
}

names! {
    Authorization "authorization",
    CacheControl "cache-control",
    Connection "connection",
    ContentLength "content-length",
    Cookie "cookie",
    Date "date",
    Expect "expect",
    Forwarded "forwarded",
    Host "host",
    Http2Settings "http2-settings",
    KeepAlive "keep-alive",
    Origin "origin",
    ProxyAuthenticate "proxy-authenticate",
    ProxyAuthorization "proxy-authorization",
    ProxyConnection "proxy-connection",
    Te "te",
    Traceparent "traceparent",
    Trailer "trailer",
    TransferEncoding "transfer-encoding",
    Upgrade "upgrade",
    Via "via",
    AgentId "x-agent-id",
    AgentNonce "x-agent-nonce",
    AgentSignature "x-agent-signature",
    AgentTimestamp "x-agent-timestamp",
    ApiKey "x-api-key",
    AuthzUpgrade "x-authz-upgrade",
    ForwardedFor "x-forwarded-for",
    ForwardedHost "x-forwarded-host",
    ForwardedProto "x-forwarded-proto",
    RequestId "x-request-id",
}

/// The known name of each length that ends with each letter, of whose code the lowest five bits count.
#[expect(clippy::indexing_slicing, reason = "an index out of bounds fails the build")]
static CANDIDATES: [[Name; 32]; 32] = {
    let (mut table, mut known) = ([[Name::Other; 32]; 32], Name::KNOWN.as_slice());
    while let [name, rest @ ..] = known {
        let text = name.as_str().as_bytes();
        let place = &mut table[text.len()][(text[text.len() - 1] & 31) as usize];
        assert!(matches!(place, Name::Other), "two names of one length end with one letter");
        (*place, known) = (*name, rest);
    }
    table
};

impl Name {
    /// The id of a name, in any case.
    pub(crate) fn of(text: &[u8]) -> Self {
        let last = text.last().map_or(0, |last| usize::from(last & 31));
        let candidate = CANDIDATES.get(text.len()).and_then(|of_length| of_length.get(last));
        let known = candidate.filter(|name| is_same(text, name.as_str().as_bytes()));
        known.copied().unwrap_or(Self::Other)
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
