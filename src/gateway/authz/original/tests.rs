//! Calls over HTTP/1: each part stands once and well-formed, and those of other dialects are none.

use super::Original;
use crate::gateway::rule::Dialect;
use crate::http1::{SpanFields, Spans, head::read_request};
use crate::serve::Request;

type Part = (&'static str, &'static str);

const FORWARD: [Part; 4] = [
    ("X-Forwarded-Method", "GET"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "acme.test"),
    ("X-Forwarded-Uri", "/public/x"),
];

const NGINX: [Part; 3] =
    [("Host", "acme.test"), ("X-Original-Method", "GET"), ("X-Original-URI", "/public/x")];

const ENVOY: [Part; 1] = [("Host", "acme.test")];

/// The request that a call asks about, as a line: its method, target, host, and `tls`. `?`: it can't be read. `query` is that of the
/// call, whose path ends with `/public/x` for Envoy.
fn asked(dialect: Dialect, query: &str, parts: &[(&str, &str)]) -> String {
    let service = if dialect == Dialect::Forward { "Host: service\r\n" } else { "" };
    let parts: String = parts.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET /call{query} HTTP/1.1\r\n{service}{parts}\r\n");
    let mut spans = Spans::default();
    let Ok(read) = read_request(head.as_bytes(), &mut spans) else { return "unread".to_owned() };
    let call =
        Request::new(&read, SpanFields { head: head.as_bytes(), spans: &spans }, [127, 0, 0, 1].into());
    let target = if dialect == Dialect::Envoy { "/public/x" } else { "" };
    Original::from_call(dialect, &call, target).map_or_else(
        |_| "?".to_owned(),
        |original| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let (method, target) = (text(original.method()), text(original.target()));
            let tls = if original.is_tls { " tls" } else { "" };
            format!("{method} {target} {}{tls}", original.authority())
        },
    )
}

fn with(parts: &[Part], name: &str, value: &'static str) -> Vec<Part> {
    parts.iter().map(|part| if part.0 == name { (part.0, value) } else { *part }).collect()
}

const WHOLE: [(Dialect, &[Part], &str); 3] = [
    (Dialect::Forward, &FORWARD, "GET /public/x acme.test tls"),
    (Dialect::Nginx, &NGINX, "GET /public/x acme.test"),
    (Dialect::Envoy, &ENVOY, "GET /public/x acme.test"),
];

// threat: The client writes what is judged
// threat: Two hosts in one line
#[test]
fn each_part_stands_once() {
    for (dialect, parts, wanted) in WHOLE {
        assert_eq!(asked(dialect, "", parts), wanted);
        for (at, part) in parts.iter().enumerate() {
            let mut missing = parts.to_vec();
            missing.remove(at);
            assert!(["?", "unread"].contains(&&*asked(dialect, "", &missing)), "{dialect:?} {part:?}");
            for other in [part.1, "/agents/x", "PUT", "http", "beta.test", ""] {
                for twice in [[parts, &[(part.0, other)]].concat(), [&[(part.0, other)], parts].concat()] {
                    assert!(["?", "unread"].contains(&&*asked(dialect, "", &twice)), "{dialect:?} {twice:?}");
                }
            }
        }
    }
    for (dialect, parts, wanted) in &WHOLE[1..] {
        for (scheme, tls) in [("http", ""), ("ws", ""), ("https", " tls"), ("wss", " tls")] {
            let parts = [*parts, &[("X-Forwarded-Proto", scheme)]].concat();
            assert_eq!(asked(*dialect, "", &parts), format!("{wanted}{tls}"));
            assert_eq!(asked(*dialect, "", &[&parts[..], &[("X-Forwarded-Proto", "http")]].concat()), "?");
        }
    }
}

/// The tests of `http1::head` and `domain::host` hold which methods, hosts and targets there are.
#[test]
fn a_part_is_well_formed() {
    let methods = ["", "G T", "GE\tT", "GET,POST", "G\"T", "GET /public/x HTTP/1.1"];
    let hosts =
        ["", "user@acme.test", "acme.test, beta.test", "acme.test/x", "acme test", "acme.test:x", "[::1"];
    let schemes = ["", "HTTP", "ftp", "https, http", "https://", "javascript"];
    for (dialect, name, values) in [
        (Dialect::Forward, "X-Forwarded-Method", &methods[..]),
        (Dialect::Nginx, "X-Original-Method", &methods),
        (Dialect::Forward, "X-Forwarded-Host", &hosts),
        (Dialect::Forward, "X-Forwarded-Proto", &schemes),
        (Dialect::Forward, "X-Forwarded-Uri", &["", "public/x", "/public/x#", "http://acme.test/x", "/a b"]),
        (Dialect::Nginx, "X-Original-URI", &["", "public/x", "/public/x#", "http://acme.test/x", "/a b"]),
    ] {
        for value in values {
            let parts = if dialect == Dialect::Forward { &FORWARD[..] } else { &NGINX };
            assert_eq!(asked(dialect, "", &with(parts, name, value)), "?", "{name}: {value:?}");
        }
    }
}

// threat: The client writes what is judged
#[test]
fn a_whole_url_from_nginx_stands_alone_and_is_one() {
    let by_url = |url| asked(Dialect::Nginx, "", &[("Host", "service"), NGINX[1], ("X-Original-URL", url)]);
    assert_eq!(by_url("http://acme.test/public/x"), "GET /public/x acme.test");
    assert_eq!(by_url("https://acme.test:8443/x?y=/z"), "GET /x?y=/z acme.test:8443 tls");
    assert_eq!(by_url("wss://[::1]:80/agents/x?/public/"), "GET /agents/x?/public/ [::1]:80 tls");
    let wrong = "/public/x //acme.test/public/x http:/public/x http:///public/x http://acme.test \
                 http://acme.test?/public/x http://acme.test#/public/x http://acme.test/public/x#y \
                 http://user@acme.test/public/x http://acme.test\\@evil.test/public/x HTTP://acme.test/public/x \
                 ftp://acme.test/public/x";
    for url in wrong.split(' ').chain(["", "http://acme.test /x", "http://acme.test/x, http://acme.test/y"]) {
        assert_eq!(by_url(url), "?", "{url}");
    }
    let url = ("X-Original-URL", "http://acme.test/public/x");
    assert_eq!(asked(Dialect::Nginx, "", &[&NGINX[..], &[url]].concat()), "?");
    assert_eq!(asked(Dialect::Nginx, "", &[&NGINX[..2], &[url, url]].concat()), "?");
}

// threat: The target that is judged is not the one that is forwarded
#[test]
fn headers_of_other_dialects_and_queries_of_calls_say_nothing() {
    let others = [
        ("X-Forwarded-Prefix", "/agents/x"),
        ("X-Forwarded-Path", "/agents/x"),
        ("X-Forwarded-Server", "beta.test"),
        ("X-Rewrite-URL", "/agents/x"),
        ("X-Envoy-Original-Path", "/agents/x"),
        ("X-HTTP-Method-Override", "PUT"),
        ("X-Auth-Request-Redirect", "/agents/x"),
        ("Forwarded", "for=192.0.2.1;host=beta.test;proto=https"),
        ("X-Forwarded-For", "192.0.2.1"),
    ];
    for (dialect, parts, wanted) in WHOLE {
        let of_forward =
            FORWARD.iter().filter(|part| dialect != Dialect::Forward && part.0 != "X-Forwarded-Proto");
        let of_nginx = NGINX[1..].iter().filter(|_| dialect != Dialect::Nginx);
        for decoy in others.iter().chain(of_forward).chain(of_nginx) {
            assert_eq!(asked(dialect, "", &[parts, &[*decoy]].concat()), wanted, "{dialect:?} {decoy:?}");
        }
        for query in ["?", "?/agents/x", "?X-Forwarded-Uri=/agents/x&X-Original-URI=/agents/x&tenant=beta"] {
            let own = wanted.replace("/public/x", &format!("/public/x{query}"));
            let wanted = if dialect == Dialect::Envoy { &*own } else { wanted };
            assert_eq!(asked(dialect, query, parts), wanted, "Envoy sends the request's own query");
        }
    }
}
