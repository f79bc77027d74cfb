//! The headers that repeat parts of a message (revision 2026-07-28), for those who do not read it.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::http1::Fields;
use crate::mcp::Problem;

/// The beginning and the end of a value that is written in Base64.
const MARKER: (&str, &str) = ("=?base64?", "?=");

/// The headers about one message. A header that stands twice has no value that everybody reads alike.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirror<'a> {
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<Cow<'a, str>>,
    /// `Mcp-Method`.
    pub(crate) method: Option<Cow<'a, str>>,
    /// `Mcp-Name`.
    pub(crate) name: Option<Cow<'a, str>>,
}

impl<'a> Mirror<'a> {
    pub(crate) fn read(fields: &'a impl Fields) -> Result<Self, Problem> {
        let mut mirror = Self::default();
        for (name, value) in fields.all() {
            let place = match name.len() {
                20 if name.eq_ignore_ascii_case(b"mcp-protocol-version") => &mut mirror.version,
                10 if name.eq_ignore_ascii_case(b"mcp-method") => &mut mirror.method,
                8 if name.eq_ignore_ascii_case(b"mcp-name") => &mut mirror.name,
                _ => continue,
            };
            if place.replace(decoded(value)?).is_some() {
                return Err("a header of MCP stands twice");
            }
        }
        Ok(mirror)
    }
}

fn decoded(value: &[u8]) -> Result<Cow<'_, str>, Problem> {
    const WRONG: Problem = "a header of MCP is neither visible ASCII nor Base64 between markers";
    let text = std::str::from_utf8(value).map_err(|_| WRONG)?;
    if let Some(rest) = text.strip_prefix(MARKER.0) {
        let bytes = rest.strip_suffix(MARKER.1).and_then(|base64| STANDARD.decode(base64).ok());
        return bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Into::into).ok_or(WRONG);
    }
    let is_visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_visible { Ok(text.into()) } else { Err(WRONG) }
}

#[cfg(test)]
pub(super) mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Mirror, decoded};

    pub(in crate::mcp) fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn names_have_any_case_and_stand_once() {
        let lines =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "ping"), ("MCP-NAME", "=?base64?w6Q=?=")];
        let given = headers(&lines);
        let mirror = Mirror::read(&given).unwrap();
        let texts = [mirror.version, mirror.method, mirror.name].map(Option::unwrap);
        assert_eq!(texts, ["2026-07-28", "ping", "ä"]);
        assert_eq!(
            Mirror::read(&headers(&[("mcp-param-x", "1"), ("mcp-session-id", "a")])),
            Ok(Mirror::default())
        );
        for (name, value) in lines {
            assert!(Mirror::read(&headers(&[(name, value), (name, value)])).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_is_visible_ascii_or_base64_between_markers() {
        for (value, text) in [
            ("search", "search"),
            ("file:///a b", "file:///a b"),
            ("=?base64?c2VhcmNo?=", "search"),
            ("=?base64??=", ""),
            ("=?base64?ICA=?=", "  "),
            ("=?base64?PT9iYXNlNjQ/?=", "=?base64?"),
            ("=?BASE64?c2VhcmNo?=", "=?BASE64?c2VhcmNo?="),
            ("", ""),
        ] {
            assert_eq!(decoded(value.as_bytes()).as_deref(), Ok(text), "{value}");
        }
        for wrong in [
            "ä",
            "a\tb",
            "=?base64?c2VhcmNo",
            "=?base64?c2VhcmNo=?=",
            "=?base64?c2Vhcm-_?=",
            "=?base64?/w==?=",
            "=?base64? c2VhcmNo?=",
        ] {
            assert!(decoded(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
