//! The headers of an upstream's answer that its client does not see; what we say to caches beside it; and pages of other origins:
//! preflights, and the headers that let a page read an answer (Fetch standard, "CORS protocol"). A tenant's rules for pages
//! replace those of its upstreams: upstreams' own CORS headers are dropped.

use crate::domain::CorsRules;
use crate::http1::{Fields, Lines, Options, name::Name, writing::write_decimal};

/// The headers that tell agents apart, and `Origin`, of which the upstream learns whether it is the declared one. A signature
/// covers the headers beside it.
pub(in crate::gateway) const PROOFS: &[u8] = b"Authorization, Origin, X-API-Key, X-Agent-Signature";

/// The same where requests may be signed themselves.
pub(in crate::gateway) const PROOFS_AND_MESSAGES: &[u8] =
    b"Authorization, Origin, Signature, X-API-Key, X-Agent-Signature";

/// The headers that tell bots apart, and `Origin`, which any answer may depend on.
pub(in crate::gateway) const PROOFS_OF_BOTS: &[u8] = b"Origin, Signature, Signature-Agent, Signature-Input";

/// True if a header of a message is for one hop only (RFC 9110, section 7.6.1). `Connection` names others; those that frame
/// or route the message, or are for caches, stay even if it names them.
pub(in crate::gateway) fn is_of_one_hop(options: &Options<'_>, id: Name, name: &[u8]) -> bool {
    let always = matches!(id, Name::KeepAlive | Name::ProxyConnection);
    let never = matches!(id, Name::CacheControl | Name::ContentLength | Name::Host | Name::TransferEncoding);
    always || (!never && options.name(name))
}

/// Keeps an answer to an agent or a bot from everybody else: it is for requests with the same of these `proofs`. As HTTP has it for
/// `Authorization` (RFC 9111, section 3.5), no shared cache may store it unless the upstream says that one may.
pub(in crate::gateway) fn write_sharing(fields: &impl Fields, proofs: &[u8], lines: &mut impl Lines) {
    let (mut is_shared, mut is_private) = (false, false);
    for value in fields.values(Name::CacheControl) {
        for directive in value.split(|byte| *byte == b',') {
            let name = directive.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
            is_shared |= [&b"public"[..], b"s-maxage"].iter().any(|one| name.eq_ignore_ascii_case(one));
            // With an argument `private` is about some headers.
            let is_whole = name.len() == directive.trim_ascii().len();
            is_private |=
                is_whole && [&b"private"[..], b"no-store"].iter().any(|one| name.eq_ignore_ascii_case(one));
        }
    }
    lines.set("Vary", proofs);
    if !is_private && !is_shared {
        lines.set("Cache-Control", b"private");
    }
}

/// True if a header says something about limits, by any of the names in use.
pub(in crate::gateway) fn is_about_limits(name: &[u8]) -> bool {
    match name.first() {
        Some(b'x' | b'X') => begins(name, b"x-ratelimit-") || begins(name, b"x-rate-limit-"),
        Some(b'r' | b'R') => begins(name, b"ratelimit"),
        _ => false,
    }
}

/// True if a header is about pages of other origins.
pub(in crate::gateway) fn is_about_pages(name: &[u8]) -> bool {
    begins(name, b"access-control-")
}

fn begins(name: &[u8], with: &[u8]) -> bool {
    name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
}

/// The method that a preflight asks about; `None` if the request is none.
pub(in crate::gateway) fn preflight<'a>(method: &str, fields: &'a impl Fields) -> Option<&'a str> {
    if method != "OPTIONS" || !fields.has(Name::Origin) {
        return None;
    }
    let is_method = |name: &[u8]| name.eq_ignore_ascii_case(b"access-control-request-method");
    let (_, asked) = fields.all().find(|(name, _)| is_method(name))?;
    std::str::from_utf8(asked).ok()
}

/// Writes the headers about pages of every answer. `origin` is the page's, if it is allowed.
pub(in crate::gateway) fn write_cors(rules: &CorsRules, origin: Option<&[u8]>, lines: &mut impl Lines) {
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

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::{PROOFS, is_about_limits, write_sharing};

    /// The lines that are added beside this `Cache-Control`.
    fn added(cache_control: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in cache_control {
            headers.append("cache-control".parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let mut out = Vec::new();
        write_sharing(&headers, PROOFS, &mut out);
        let vary = [b"Vary: ", PROOFS, b"\r\n"].concat();
        String::from_utf8(out.strip_prefix(&*vary).unwrap().to_owned()).unwrap()
    }

    // threat: Shared caches
    #[test]
    fn no_shared_cache_may_store_an_agents_answer_unless_the_upstream_says_so() {
        for said in [
            &[][..],
            &["max-age=60"],
            &["no-cache"],
            &["must-revalidate, max-age=0"],
            &["private=\"set-cookie\""],
            &["x-public, publicly"],
            &["", ","],
        ] {
            assert_eq!(added(said), "Cache-Control: private\r\n", "{said:?}");
        }
        for said in [
            &["public"][..],
            &["max-age=60,PUBLIC"],
            &["max-age=1", "s-maxage = 60"],
            &["private"],
            &["max-age=60, No-Store"],
            &["public", "private"],
        ] {
            assert_eq!(added(said), "", "{said:?}");
        }
    }

    #[test]
    fn every_name_in_use_for_limits_is_known_in_any_case() {
        for name in ["X-RateLimit-Limit", "x-rate-limit-reset", "RateLimit", "ratelimit-policy"] {
            assert!(is_about_limits(name.as_bytes()), "{name}");
        }
        for name in ["x-rate", "rate", "retry-after", "", "x"] {
            assert!(!is_about_limits(name.as_bytes()), "{name}");
        }
    }
}
