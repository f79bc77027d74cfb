//! Requests that a page of another site has its visitor's browser send. The page reads no answer, but what it sends would count
//! as its visitor's.
//!
//! `Sec-Fetch-Site` decides, which no page can set. Browsers leave it out toward `http://`, and old ones always: then
//! `Origin` has to name the host that was asked. A request without both is no browser's.

use crate::http1::{Fields, name::Name};

/// True if a browser sent the request for a page of another site; or without the type of body that no page of another site
/// can send unasked.
pub(crate) fn is_of_another_site(fields: &impl Fields) -> bool {
    let (mut is_of_browser, mut is_own) = (false, true);
    let (mut has_kind, mut is_json) = (false, true);
    for (name, value) in fields.all() {
        if name.eq_ignore_ascii_case(b"sec-fetch-site") {
            is_of_browser = true;
            is_own &= matches!(value, b"same-origin" | b"none");
        } else if name.eq_ignore_ascii_case(b"content-type") {
            let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
            has_kind = true;
            is_json &= media_type.trim_ascii().eq_ignore_ascii_case(b"application/json");
        }
    }
    if !is_of_browser {
        let host = fields.only(Name::Host);
        for origin in fields.values(Name::Origin) {
            is_of_browser = true;
            is_own &= host.zip(host_of(origin)).is_some_and(|(host, named)| named.eq_ignore_ascii_case(host));
        }
    }
    is_of_browser && !(is_own && has_kind && is_json)
}

/// Host and port of an origin; `None` if it has none.
fn host_of(origin: &[u8]) -> Option<&[u8]> {
    origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::is_of_another_site;

    fn is_refused(lines: &[(&str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        is_of_another_site(&headers)
    }

    const HOST: (&str, &str) = ("host", "api.example:8443");
    const JSON: (&str, &str) = ("content-type", "application/json");

    // threat: An owner is kept from revoking
    #[test]
    fn requests_of_other_sites_pages_are_told_by_what_the_browser_says_of_them() {
        for site in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(is_refused(&[HOST, JSON, ("sec-fetch-site", site)]), "{site}");
            let own = [("origin", "https://api.example:8443"), ("sec-fetch-site", "same-origin")];
            assert!(is_refused(&[HOST, JSON, ("sec-fetch-site", site), own[0], own[1]]), "{site}");
        }
        for origin in ["https://evil.example", "null", "", "https://api.example", "api.example:8443"] {
            assert!(is_refused(&[HOST, JSON, ("origin", origin)]), "{origin}");
            assert!(is_refused(&[HOST, JSON, ("origin", "http://api.example:8443"), ("origin", origin)]));
        }
        assert!(is_refused(&[JSON, ("origin", "null")]), "without a host");
    }

    #[test]
    fn own_pages_pass_with_json_alone_and_other_programs_always() {
        let own: [&[(&str, &str)]; 4] = [
            &[("origin", "https://API.example:8443")],
            &[("origin", "http://api.example:8443")],
            // Behind a proxy that names another host.
            &[("origin", "https://shown.example"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
        ];
        for own in own {
            assert!(!is_refused(&[own, &[HOST, JSON]].concat()), "{own:?}");
            assert!(!is_refused(
                &[own, &[HOST, ("content-type", "Application/JSON ; charset=utf-8")]].concat()
            ));
            for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
                assert!(is_refused(&[own, &[HOST, ("content-type", kind)]].concat()), "{kind}");
            }
            assert!(is_refused(&[own, &[HOST]].concat()));
            assert!(is_refused(&[own, &[HOST, JSON, ("content-type", "text/plain")]].concat()));
        }
        assert!(!is_refused(&[HOST]) && !is_refused(&[HOST, ("content-type", "text/plain")]));
        assert!(!is_refused(&[HOST, ("sec-fetch-mode", "cors")]), "Node.js sends this");
    }
}
