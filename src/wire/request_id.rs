//! Ids of requests in logs, here and at upstreams: the client's `X-Request-Id` when it is harmless, else one of ours. Beside
//! it the id of the trace that the client's `traceparent` names.

use std::sync::atomic::{AtomicU64, Ordering};

use alloy::hex;

use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::ports::clock::{Entropy, NoEntropy};

/// The longest id that is taken over, in bytes.
const ID_BYTES_MAX: usize = 128;

/// An id, safe to log and to send.
#[derive(Debug, Clone)]
pub struct RequestId(String);

impl RequestId {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes ids: unique across processes by chance, and within one by counting. They are no secrets.
#[derive(Debug)]
pub struct RequestIds {
    /// The first half of each id.
    process: String,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids that no other process makes.
    ///
    /// # Errors
    ///
    /// When there is no randomness.
    pub fn new(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let random = entropy.key_bytes()?;
        let (process, _) = random.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        Ok(Self { process: hex::encode(process), next: AtomicU64::new(0) })
    }

    /// The request's own id, or a new one.
    pub fn of(&self, fields: &impl Fields) -> RequestId {
        let own = fields.only(Name::RequestId).filter(|id| is_harmless(id));
        let text = own.and_then(|id| std::str::from_utf8(id).ok());
        text.map_or_else(|| self.new_id(), |text| RequestId(text.to_owned()))
    }

    /// A text that no other process has.
    #[must_use]
    pub fn process(&self) -> &str {
        &self.process
    }

    fn new_id(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = String::with_capacity(32);
        text.push_str(&self.process);
        text.push_str(hex::Buffer::<8>::new().format(&number.to_be_bytes()));
        RequestId(text)
    }
}

/// The id of the client's trace (W3C Trace Context, section 3.2), if it is valid.
pub fn trace_id(fields: &impl Fields) -> Option<&str> {
    let mut values = fields.all().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
    let (_, value) = values.next().filter(|_| values.next().is_none())?;
    let mut parts = std::str::from_utf8(value).ok()?.trim().split('-');
    let [version, trace, parent, flags] =
        [2, 32, 16, 2].map(|len| parts.next().filter(|part| is_hex(part, len)));
    // Later versions may say more behind the flags.
    let is_valid = version? != "ff" && (version? != "00" || parts.next().is_none()) && flags.is_some();
    let has_digits = |part: &str| part.bytes().any(|byte| byte != b'0');
    trace.filter(|trace| is_valid && has_digits(trace) && parent.is_some_and(has_digits))
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
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

    use super::{ID_BYTES_MAX, RequestIds, trace_id};
    use crate::os::Os;

    fn ids() -> RequestIds {
        RequestIds::new(&Os::new()).unwrap()
    }

    fn shown(ids: &RequestIds, values: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-request-id", HeaderValue::from_bytes(value).unwrap());
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
    fn only_a_valid_traceparent_names_a_trace() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let told = |values: &[String]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("traceparent", HeaderValue::from_str(value).unwrap());
            }
            trace_id(&headers).map(str::to_owned)
        };
        for valid in ["00-T-P-01", "00-T-P-00", "cc-T-P-01-what-comes-later"] {
            let value = valid.replace('T', trace).replace('P', parent);
            assert_eq!(told(&[value]).as_deref(), Some(trace), "{valid}");
        }
        let (upper, zeros) = (trace.to_uppercase(), "0".repeat(32));
        for bad in [
            "",
            "00",
            "00-T-P",
            "ff-T-P-01",
            "00-T-P-01-x",
            "00-U-P-01",
            "00-Z-P-01",
            "00-T-0000000000000000-01",
        ] {
            let value =
                bad.replace('T', trace).replace('P', parent).replace('U', &upper).replace('Z', &zeros);
            assert_eq!(told(&[value]), None, "{bad}");
        }
        let value = format!("00-{trace}-{parent}-01");
        assert_eq!(told(&[value.clone(), value]), None, "there are two");
    }

    #[test]
    fn no_two_ids_are_the_same() {
        let (one, other) = (ids(), ids());
        let all = [shown(&one, &[]), shown(&one, &[]), shown(&other, &[]), shown(&other, &[])];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
