//! Pages of other origins: preflights, and the headers that let a page read an answer (Fetch standard, "CORS protocol").
//! A tenant's rules replace those of its upstreams: upstreams' own CORS headers are dropped.

use crate::domain::CorsRules;
use crate::http1::{Fields, Lines, name::Name, writing::write_decimal};

/// The beginning of the headers' names.
const PREFIX: &[u8] = b"access-control-";

/// The header that makes an OPTIONS request a preflight.
const METHOD: &[u8] = b"access-control-request-method";

/// True if a header is one of those that are written here.
pub(in crate::gateway) fn is_ours(name: &[u8]) -> bool {
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The method that a preflight asks about; `None` if the request is none.
pub(in crate::gateway) fn preflight<'a>(method: &str, fields: &'a impl Fields) -> Option<&'a str> {
    if method != "OPTIONS" || !fields.has(Name::Origin) {
        return None;
    }
    let (_, asked) = fields.all().find(|(name, _)| name.eq_ignore_ascii_case(METHOD))?;
    std::str::from_utf8(asked).ok()
}

/// Writes the headers of every answer. `origin` is the page's, if it is allowed.
pub(in crate::gateway) fn write(rules: &CorsRules, origin: Option<&[u8]>, lines: &mut impl Lines) {
    if let Some(origin) = origin {
        let all: Option<&[u8]> = rules.origins.is_none().then_some(b"*");
        lines.set("Access-Control-Allow-Origin", all.unwrap_or(origin));
        lines.set("Access-Control-Expose-Headers", rules.exposed.as_bytes());
        if rules.credentials {
            lines.set("Access-Control-Allow-Credentials", b"true");
        }
    }
    if rules.origins.is_some() {
        lines.set("Vary", b"Origin");
    }
}

/// Writes the further headers of an answer to a preflight.
pub(in crate::gateway) fn write_preflight(rules: &CorsRules, lines: &mut impl Lines) {
    lines.set("Access-Control-Allow-Methods", rules.methods.as_bytes());
    lines.set("Access-Control-Allow-Headers", rules.headers.as_bytes());
    lines.line("Access-Control-Max-Age", |out| write_decimal(rules.max_age.as_secs(), out));
}
