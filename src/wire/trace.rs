//! The headers of a trace (W3C Trace Context).

use crate::domain::RemoteSpan;
use crate::http1::{Fields, name::Name};

/// The header with what other systems keep of a trace.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The span of the client that a request belongs to, if its only `traceparent` is correct (section 3.2).
pub(crate) fn remote_span(fields: &impl Fields) -> Option<RemoteSpan<'_>> {
    let mut parts = std::str::from_utf8(fields.only(Name::Traceparent)?).ok()?.split('-');
    let [version, trace, span, flags] =
        [2, 32, 16, 2].map(|len| parts.next().filter(|part| is_hex(part, len)));
    // Later versions may say more behind the flags.
    let is_valid = version? != "ff" && (version? != "00" || parts.next().is_none());
    let has_digits = |part: &&str| part.bytes().any(|byte| byte != b'0');
    let (trace, span) = (trace.filter(has_digits)?, span.filter(has_digits)?);
    let is_sampled = u8::from_str_radix(flags?, 16).ok()? & 1 == 1;
    is_valid.then_some(RemoteSpan { trace, span, is_sampled })
}

/// The state that other systems keep of a request's trace.
pub(crate) fn state_of(fields: &impl Fields) -> String {
    let states = fields.all().filter(|(name, _)| carries_state(name));
    let states: Vec<_> = states.filter_map(|(_, value)| std::str::from_utf8(value).ok()).collect();
    states.join(",")
}

/// True if a header carries a trace.
pub(crate) fn carries_trace(id: Name, name: &[u8]) -> bool {
    id == Name::Traceparent || carries_state(name)
}

const fn carries_state(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(TRACESTATE.as_bytes())
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::remote_span;

    #[test]
    fn only_a_valid_traceparent_names_a_trace() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let found = |values: &[String]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("traceparent", HeaderValue::from_str(value).unwrap());
            }
            remote_span(&headers).map(|remote| remote.trace.to_owned())
        };
        for valid in ["00-T-P-01", "00-T-P-00", "cc-T-P-01-what-comes-later"] {
            let value = valid.replace('T', trace).replace('P', parent);
            assert_eq!(found(&[value]).as_deref(), Some(trace), "{valid}");
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
            assert_eq!(found(&[value]), None, "{bad}");
        }
        let value = format!("00-{trace}-{parent}-01");
        assert_eq!(found(&[value.clone(), value]), None, "there are two");
    }
}
