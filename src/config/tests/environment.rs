//! Overrides from the environment.

use super::{MINIMAL, minimal_with, parse, problems};

#[test]
fn a_comma_inside_an_item_is_kept_in_an_array() {
    let urls = "[\n\"https://a.example/x,y\",\n\"https://b.example\",\n]";
    let settings = parse(MINIMAL, &[("TIERGATE__CHAIN__RPC_URLS", urls)]).unwrap();
    let read: Vec<_> = settings.fixed.chain.pool.urls.iter().map(|url| url.reveal().as_str()).collect();
    assert_eq!(read, ["https://a.example/x,y", "https://b.example/"]);
}

#[test]
fn an_empty_text_is_an_empty_list() {
    let file = minimal_with(&[("listen.trusted_proxies", "[\"10.0.0.0/8\"]")]);
    let settings = parse(&file, &[("TIERGATE__LISTEN__TRUSTED_PROXIES", "")]).unwrap();
    assert!(settings.fixed.listen.trusted_proxies.is_empty());
}

#[test]
fn a_broken_array_is_refused() {
    for text in ["[1, 2", "[1, 2] # three", "[1]\nx = 2", "[1][2]"] {
        let found = problems(MINIMAL, &[("TIERGATE__TIERS__REQUESTS_PER_MINUTE", text)]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
}

#[test]
fn a_relation_that_does_not_hold_names_the_variable_that_broke_it() {
    for (name, value) in [
        ("TIERGATE__SIGNATURE__MAX_AGE", "24h"),
        ("TIERGATE__SIGNATURE__MAX_AHEAD", "1h"),
        ("TIERGATE__SIGNATURE__NONCE_RETENTION", "1m"),
        ("TIERGATE__LISTEN__API", "127.0.0.1:8082"),
        ("TIERGATE__LISTEN__GATEWAY", "127.0.0.1:8082"),
        ("TIERGATE__LISTEN__ADMIN", "127.0.0.1:8080"),
    ] {
        let file = minimal_with(&[("signature.nonce_retention", "\"1h\"")]);
        let found = problems(&file, &[(name, value)]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found[0].starts_with(&format!("{name}: ")), "{found:?}");
    }
}

#[test]
fn a_variable_of_ours_that_means_nothing_is_refused_and_those_of_kubernetes_are_none_of_ours() {
    const NOTHING: &str = "TIERGATE__SECTION__KEY overrides a key, and other names of ours mean nothing";
    const API: &str = "did you mean TIERGATE__LISTEN__API?";
    const LEVEL: &str = "did you mean TIERGATE__LOG__LEVEL?";
    for (name, value, said) in [
        ("TIERGATE__LISTEN__APY", "x", Some(API)),
        ("TIERGATE__LISTEN__api", "x", Some(API)),
        ("tiergate__listen__api", "x", Some(API)),
        ("TIERGATE_LISTEN_API", "tcp://127.0.0.1:8080", Some(API)),
        ("TIERGATE_LOG_LEVEL", "x", Some(LEVEL)),
        ("TIERGATE_LOG", "x", Some(NOTHING)),
        ("TIERGATE__LISTEN", "x", Some(NOTHING)),
        ("TIERGATE__", "x", Some(NOTHING)),
        ("TIERGATE__TENANTS", "x", Some(NOTHING)),
        ("TIERGATE__TENANTS__ID", "x", Some(NOTHING)),
        ("TIERGATE_LISTEN_TCP_API", "x", Some(NOTHING)),
        ("TIERGATE_PORT", "8080", Some(NOTHING)),
        ("Tiergate_Surprise", "x", Some(NOTHING)),
        ("TIERGATE__LISTEN__SERVICE_HOST", "tcp://10.96.0.1", Some(NOTHING)),
        ("TIERGATES", "x", None),
        ("PATH", "x", None),
        ("TIERGATE_SERVICE_HOST", "10.96.0.1", None),
        ("TIERGATE_SERVICE_PORT_HTTP", "8080", None),
        ("TIERGATE_API_SERVICE_HOST", "10.96.0.1", None),
        ("TIERGATE_PORT", "tcp://10.96.0.1:8080", None),
        ("TIERGATE_PORT_8080_TCP", "tcp://10.96.0.1:8080", None),
        ("TIERGATE_PORT_8080_TCP_PROTO", "tcp", None),
    ] {
        let said = said.map(|said| format!("{name}: is not a known variable; {said}"));
        assert_eq!(problems(MINIMAL, &[(name, value)]), said.as_slice(), "{name}");
    }
}

#[test]
fn the_variables_of_the_command_line_are_known() {
    let mut found = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli")).unwrap() {
        let path = file.unwrap().path();
        let source = if path.is_file() { std::fs::read_to_string(path).unwrap() } else { String::new() };
        let texts = source.split('"').filter(|text| {
            let letters = text.strip_prefix("TIERGATE_").unwrap_or_default();
            letters.ends_with(|last: char| last.is_ascii_uppercase()) && !letters.contains(' ')
        });
        for name in texts {
            found += 1;
            assert_eq!(problems(MINIMAL, &[(name, "x")]), [""; 0], "{name}");
        }
    }
    assert!(found >= 6, "{found}");
}
