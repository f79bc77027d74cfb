//! What names a request in logs, here and behind: the client's `X-Request-Id` when it is harmless, else one of ours.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};

use crate::ports::clock::{Entropy, NoEntropy};
use crate::wire::headers::REQUEST_ID;

/// The longest id that is taken over, in bytes.
const ID_BYTES_MAX: usize = 128;

/// An id, safe to log and to send.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    pub(super) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(super) const fn value(&self) -> &HeaderValue {
        &self.0
    }
}

/// Makes ids: unique across processes by chance, and within one by counting. They are no secrets.
pub(super) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let random = entropy.key_bytes()?;
        let (process, _) = random.split_first_chunk().unwrap_or((&[0; 8], &[]));
        Ok(Self { process: u64::from_be_bytes(*process), next: AtomicU64::new(0) })
    }

    /// The request's own id, or a new one.
    pub(super) fn of(&self, headers: &HeaderMap) -> RequestId {
        let mut shown = headers.get_all(REQUEST_ID).iter();
        match (shown.next(), shown.next()) {
            (Some(one), None) if is_harmless(one.as_bytes()) => RequestId(one.clone()),
            _ => self.new_id(),
        }
    }

    fn new_id(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let text = format!("{:016x}{number:016x}", self.process);
        // Hex digits are always a header value.
        RequestId(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("none")))
    }
}

fn is_harmless(id: &[u8]) -> bool {
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b':' | b'~')
    };
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{ID_BYTES_MAX, REQUEST_ID, RequestIds};
    use crate::os::Os;

    fn ids() -> RequestIds {
        RequestIds::new(&Os::new()).unwrap()
    }

    fn shown(ids: &RequestIds, values: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
        }
        ids.of(&headers).as_str().to_owned()
    }

    #[test]
    fn a_harmless_id_is_taken_over_and_any_other_is_replaced() {
        let ids = ids();
        assert_eq!(shown(&ids, &[b"0193-aB_c.d"]), "0193-aB_c.d");
        let long = vec![b'a'; ID_BYTES_MAX + 1];
        for bad in [
            vec![&b""[..]],
            vec![b"a b"],
            vec![b"a\"b"],
            vec!["\u{e9}".as_bytes()],
            vec![&long],
            vec![b"a", b"a"],
        ] {
            assert_eq!(shown(&ids, &bad).len(), 32, "{bad:?}");
        }
    }

    #[test]
    fn no_two_ids_are_the_same() {
        let (one, other) = (ids(), ids());
        let all = [shown(&one, &[]), shown(&one, &[]), shown(&other, &[]), shown(&other, &[])];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
