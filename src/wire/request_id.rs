//! Ids of requests in logs, here and at upstreams: the client's `X-Request-Id` when it is harmless, else one of ours.

use std::sync::atomic::{AtomicU64, Ordering};

use alloy::hex;

use crate::http1::{Fields, name::Name};
use crate::ports::{Entropy, NoEntropy};

/// The longest id that is taken over, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Hex digits in a row that may be a key.
const HEX_RUN_MIN: usize = 64;

/// Makes ids: unique across processes by chance, and within one by counting. They are no secrets.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// The first half of each id: a text that no other process has.
    pub(crate) process: String,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids that no other process makes.
    pub(crate) fn new(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let random = entropy.key_bytes()?;
        let (process, _) = random.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        Ok(Self { process: hex::encode(process), next: AtomicU64::new(0) })
    }

    /// The request's own id, or a new one; safe to log and to send.
    pub(crate) fn of(&self, fields: &impl Fields) -> String {
        let own = fields.only(Name::RequestId).filter(|id| is_harmless(id));
        let text = own.and_then(|id| std::str::from_utf8(id).ok());
        text.map_or_else(|| self.new_id(), str::to_owned)
    }

    fn new_id(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = String::with_capacity(32);
        text.push_str(&self.process);
        text.push_str(hex::Buffer::<8>::new().format(&number.to_be_bytes()));
        text
    }
}

fn is_harmless(id: &[u8]) -> bool {
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b':' | b'~')
    };
    let may_be_key = || id.split(|byte| !byte.is_ascii_hexdigit()).any(|digits| digits.len() >= HEX_RUN_MIN);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain) && !may_be_key()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{ID_BYTES_MAX, RequestIds};
    use crate::os::Os;

    fn ids() -> RequestIds {
        RequestIds::new(&Os::new()).unwrap()
    }

    fn shown(ids: &RequestIds, values: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-request-id", HeaderValue::from_bytes(value).unwrap());
        }
        ids.of(&headers)
    }

    // threat: Keys in paths, and forged lines, in the log
    #[test]
    fn a_harmless_id_is_taken_over_and_any_other_is_replaced() {
        let ids = ids();
        let digits = "0123456789abcdef".repeat(4);
        for good in ["0193-aB_c.d", &digits[1..]] {
            assert_eq!(shown(&ids, &[good.as_bytes()]), good);
        }
        let (long, key) = (vec![b'x'; ID_BYTES_MAX + 1], format!("svc_live_v1_{digits}"));
        for bad in [
            vec![&b""[..]],
            vec![b"a b"],
            vec![b"a\"b"],
            vec!["\u{e9}".as_bytes()],
            vec![&long],
            vec![key.as_bytes()],
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
