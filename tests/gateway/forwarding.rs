//! Forwarding headers, request ids, and headers of one hop.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::rig::case::{Case, cases};
use crate::rig::scripts;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Seen, Then};
use crate::support::client::Answer;
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_strangers_forwarding_headers_are_replaced,
    without_any_the_peer_and_the_host_are_told,
    a_trusted_proxys_forwarding_headers_are_continued,
    headers_that_a_trusted_balancer_only_passes_on_are_replaced,
    a_balancer_that_does_not_set_x_forwarded_for_is_the_client,
    a_trusted_proxy_that_says_nothing_is_the_client,
    a_request_id_is_accepted_or_made_and_given_back,
    headers_of_one_hop_end_here,
    headers_of_one_hop_of_an_answer_end_here,
    other_headers_go_through_in_order,
    answers_go_through_as_they_are,
    the_host_is_the_clients_or_the_upstreams_as_configured,
    head_requests_and_empty_answers_have_no_body,
];

/// One element of `Forwarded` (RFC 7239), as parameters without case and quotes.
fn element(text: &str) -> BTreeSet<(String, String)> {
    let pairs = text.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name.to_lowercase(), value.trim_matches('"').to_lowercase())).collect()
}

fn elements(seen: &Seen) -> Vec<BTreeSet<(String, String)>> {
    seen.all("forwarded").iter().flat_map(|line| line.split(',')).map(element).collect()
}

fn hops(seen: &Seen) -> Vec<String> {
    let lines = seen.all("x-forwarded-for");
    lines.iter().flat_map(|line| line.split(',')).map(|hop| hop.trim().to_owned()).collect()
}

fn set(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const FORGED: &[(&str, &str)] = &[
    ("X-Forwarded-For", "9.9.9.9, 8.8.8.8"),
    ("x-forwarded-for", "7.7.7.7"),
    ("X_Forwarded_For", "6.6.6.6"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "golden.test"),
    ("Forwarded", "for=9.9.9.9;proto=https;host=golden.test"),
    ("Forwarded", "for=\"[2001:db8::1]\""),
];

fn a_strangers_forwarding_headers_are_replaced(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let request =
        FORGED.iter().fold(Request::get(ACME, &path), |request, (name, value)| request.with(name, value));
    let mut wire = site.gateway.connect();
    let peer = wire.own_address().ip().to_string();
    assert_eq!(request.ask_on(&mut wire).status, 200);
    let seen = site.upstream.only(&path);
    assert_eq!(hops(&seen), [peer.as_str()]);
    assert_eq!(
        (seen.header("x-forwarded-proto"), seen.header("x-forwarded-host")),
        (Some("http"), Some(ACME))
    );
    assert_eq!(elements(&seen), [set(&[("for", &peer), ("proto", "http"), ("host", ACME)])]);
    let head = String::from_utf8_lossy(&seen.head).into_owned();
    for forged in ["9.9.9.9", "8.8.8.8", "7.7.7.7", "golden.test", "2001:db8"] {
        assert!(!head.contains(forged), "{forged}: {head}");
    }
}

fn without_any_the_peer_and_the_host_are_told(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let mut wire = site.gateway.connect();
    let peer = wire.own_address().ip().to_string();
    assert_eq!(Request::get("ACME.test:8000", &path).ask_on(&mut wire).status, 200);
    let seen = site.upstream.only(&path);
    assert_eq!(hops(&seen), [peer.as_str()]);
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("ACME.test:8000"));
    assert_eq!(elements(&seen), [set(&[("for", &peer), ("proto", "http"), ("host", "acme.test:8000")])]);
    assert_eq!(seen.header("host"), Some("ACME.test:8000"));
}

/// Sends from an address that the shared gateway trusts.
fn from_proxy(stage: &Stage, request: &Request) -> Answer {
    let proxy: IpAddr = "127.0.0.2".parse().unwrap();
    request.ask_on(&mut Wire::open_from(proxy, stage.site().gateway.address))
}

fn a_trusted_proxys_forwarding_headers_are_continued(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let request = Request::get(ACME, &path)
        .with("X-Forwarded-For", "9.9.9.9, 203.0.113.7")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "shop.example")
        .with("Forwarded", "for=203.0.113.7;proto=https;host=shop.example");
    assert_eq!(from_proxy(stage, &request).status, 200);
    let seen = site.upstream.only(&path);
    assert_eq!(hops(&seen), ["9.9.9.9", "203.0.113.7", "127.0.0.2"]);
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.example"));
    let elements = elements(&seen);
    assert_eq!(elements[0], set(&[("for", "203.0.113.7"), ("proto", "https"), ("host", "shop.example")]));
    let own = elements.last().unwrap();
    assert!(elements.len() == 2 && own.contains(&("for".to_owned(), "127.0.0.2".to_owned())), "{elements:?}");
}

/// A stranger's request comes through a balancer that appends to `X-Forwarded-For` and passes on the rest.
fn headers_that_a_trusted_balancer_only_passes_on_are_replaced(stage: &Stage) {
    let further =
        ["X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Real-IP", "CF-Connecting-IP"];
    for way in ["relay", "library"] {
        let site = Site::of(stage).way(way);
        let site = site.set("listen.trusted_proxies", vec!["127.0.0.0/8"]).start();
        let path = public_path();
        let request = Request::get(ACME, &path)
            .with("X-Forwarded-For", "9.9.9.9, 203.0.113.7")
            .with("X-Forwarded-Proto", "https")
            .with("X-Forwarded-Host", "evil.example")
            .with("Forwarded", "for=9.9.9.9;proto=https;host=evil.example");
        let request = further.iter().fold(request, |request, name| request.with(name, "evil.example"));
        let mut wire = site.gateway.connect();
        let peer = wire.own_address().ip().to_string();
        assert_eq!(request.ask_on(&mut wire).status, 200);
        let seen = site.upstream.only(&path);
        assert_eq!(hops(&seen), ["9.9.9.9", "203.0.113.7", peer.as_str()], "{way}");
        let told = [seen.header("x-forwarded-proto"), seen.header("x-forwarded-host")];
        assert_eq!(told, [Some("http"), Some(ACME)], "{way}");
        assert_eq!(elements(&seen), [set(&[("for", &peer), ("proto", "http"), ("host", ACME)])], "{way}");
        let head = String::from_utf8_lossy(&seen.head).into_owned();
        assert!(!head.contains("evil.example"), "{way}: {head}");
    }
}

fn a_balancer_that_does_not_set_x_forwarded_for_is_the_client(stage: &Stage) {
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let site =
        site.set("listen.trusted_headers", vec!["Forwarded"]).set("abuse.failures_per_minute", 1).start();
    let path = public_path();
    let request =
        Request::get(ACME, &path).with("X-Forwarded-For", "9.9.9.9").with("Forwarded", "for=9.9.9.9");
    let mut wire = site.gateway.connect();
    let peer = wire.own_address().ip().to_string();
    assert_eq!(request.ask_on(&mut wire).status, 200);
    let seen = site.upstream.only(&path);
    assert_eq!(hops(&seen), [peer.as_str()]);
    assert_eq!(elements(&seen).len(), 2, "what it sets is continued");
    // Both count as one client, whatever they say of themselves.
    let with = |client: &str| {
        let request = Request::get(ACME, "/agents").key(&format!("svc_live_v1_{}", "0".repeat(64)));
        site.gateway.ask(&request.with("X-Forwarded-For", client)).status
    };
    assert_eq!(["192.0.2.1", "192.0.2.2"].map(with), [401, 429]);
}

fn a_trusted_proxy_that_says_nothing_is_the_client(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    assert_eq!(from_proxy(stage, &Request::get(ACME, &path)).status, 200);
    let seen = site.upstream.only(&path);
    assert_eq!(hops(&seen), ["127.0.0.2"]);
    assert_eq!(
        (seen.header("x-forwarded-proto"), seen.header("x-forwarded-host")),
        (Some("http"), Some(ACME))
    );
}

fn a_request_id_is_accepted_or_made_and_given_back(stage: &Stage) {
    let site = stage.site();
    let mut made = BTreeSet::new();
    for given in [Some("0b7a1c3e-1111-4222-8333-444455556666"), Some("abc_DEF-123.x"), None, None] {
        let path = public_path();
        let request = Request::get(ACME, &path);
        let answer = site.gateway.ask(&given.map_or(request.clone(), |id| request.with("X-Request-Id", id)));
        let seen = site.upstream.only(&path);
        let id = seen.header("x-request-id").unwrap_or_else(|| panic!("no id: {seen:?}")).to_owned();
        assert_eq!(answer.header("x-request-id"), Some(id.as_str()), "the client is told the same");
        match given {
            Some(given) => assert_eq!(id, given),
            None => assert!(id.len() >= 16 && made.insert(id), "each is another"),
        }
    }
    let refused = site.gateway.ask(&Request::get(ACME, "/agents/x").with("X-Request-Id", "mine-1"));
    assert_eq!((refused.status, refused.header("x-request-id")), (401, Some("mine-1")));
    let refused = site.gateway.ask(&Request::get("unknown.test", "/x"));
    assert!(refused.header("x-request-id").is_some(), "also when nobody is asked: {refused:?}");
}

fn headers_of_one_hop_end_here(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let request = Request::get(ACME, &path)
        .with("Connection", "keep-alive, X-Hop, x-other-hop")
        .with("Keep-Alive", "timeout=5")
        .with("Proxy-Connection", "keep-alive")
        .with("Proxy-Authorization", "Basic eDp5")
        .with("TE", "trailers, deflate")
        .with("X-Hop", "1")
        .with("X-Other-Hop", "2")
        .with("X-Stays", "3");
    assert_eq!(site.gateway.ask(&request).status, 200);
    let seen = site.upstream.only(&path);
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "x-hop", "x-other-hop", "upgrade"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert!(seen.header("te").is_none_or(|te| te == "trailers"), "{seen:?}");
    assert_eq!(seen.header("x-stays"), Some("3"));
}

fn headers_of_one_hop_of_an_answer_end_here(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let headers =
        [("Connection", "X-Hop, keep-alive"), ("Keep-Alive", "timeout=5"), ("X-Hop", "1"), ("X-Stays", "2")];
    site.upstream.on(&path, scripts::bytes(scripts::answer("200 OK", &headers, b"ok"), Then::Goes));
    let answer = site.gateway.ask(&Request::get(ACME, &path));
    assert_eq!((answer.status, answer.text().as_str(), answer.header("x-stays")), (200, "ok", Some("2")));
    assert_eq!(answer.header("x-hop"), None);
    assert_ne!(answer.header("keep-alive"), Some("timeout=5"));
}

fn other_headers_go_through_in_order(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let sent = [
        ("Accept", "application/json"),
        ("X-Many", "1"),
        ("Cookie", "a=b; c=d"),
        ("X-Many", "2, 3"),
        ("X-Empty", ""),
        ("X-Utf8", "\u{e9}\u{20ac}"),
        ("User-Agent", "agent/1.0 (x; y)"),
        ("X_Underscore", "stays"),
        ("X-Many", "4"),
        ("Content-Type", "application/x-strange; a=\"b\""),
        ("If-None-Match", "\"x\""),
        ("Range", "bytes=0-1"),
        ("Accept-Encoding", "gzip, br"),
    ];
    let request =
        sent.iter().fold(Request::get(ACME, &path), |request, (name, value)| request.with(name, value));
    assert_eq!(site.gateway.ask(&request).status, 200);
    let seen = site.upstream.only(&path);
    for (name, _) in sent {
        let wanted: Vec<&str> =
            sent.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect();
        assert_eq!(seen.all(name), wanted, "{name}");
    }
}

fn answers_go_through_as_they_are(stage: &Stage) {
    let site = stage.site();
    for (status, number) in
        [("201 Made", 201), ("302 There", 302), ("404 No", 404), ("418 Tea", 418), ("599 X", 599)]
    {
        let path = public_path();
        let headers = [
            ("Content-Type", "text/x-strange"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("Location", "http://acme.test/x"),
            ("Cache-Control", "max-age=60"),
            ("ETag", "\"x\""),
            ("Content-Encoding", "gzip"),
            ("WWW-Authenticate", "Custom x"),
        ];
        let body = b"\x1f\x8b not really \0 gzip";
        site.upstream.on(&path, scripts::bytes(scripts::answer(status, &headers, body), Then::Goes));
        let answer = site.gateway.ask(&Request::get(ACME, &path));
        assert_eq!((answer.status, answer.body.as_slice()), (number, body.as_slice()));
        for (name, value) in headers {
            let same =
                |(header, held): &&(String, String)| header.eq_ignore_ascii_case(name) && held == value;
            assert_eq!(answer.headers.iter().filter(same).count(), 1, "{name}: {value} in {answer:?}");
        }
    }
}

fn the_host_is_the_clients_or_the_upstreams_as_configured(stage: &Stage) {
    let site = Site::of(stage);
    let own = |upstream| Tenant::new("own", "own.test", upstream).public().set("host_header", "upstream");
    let Site { gateway, upstream, .. } = &site.also(own).start();
    let own = upstream.address.to_string();
    for (host, wanted) in [(ACME, ACME), ("own.test", own.as_str())] {
        let path = public_path();
        assert_eq!(gateway.ask(&Request::get(host, &path)).status, 200);
        let seen = upstream.only(&path);
        assert_eq!(seen.all("host"), [wanted]);
        assert_eq!(seen.header("x-forwarded-host"), Some(host), "the host that the client asked for");
    }
}

fn head_requests_and_empty_answers_have_no_body(stage: &Stage) {
    let site = stage.site();
    let mut wire = site.gateway.connect();
    for (method, status) in
        [("HEAD", "200 OK"), ("HEAD", "404 No"), ("GET", "204 Empty"), ("GET", "304 Same"), ("GET", "200 OK")]
    {
        let (path, next) = (public_path(), public_path());
        let has_no_length = status.starts_with("204");
        let length = if has_no_length { "" } else { "Content-Length: 5\r\n" };
        let body = if method == "GET" && status.starts_with("200") { "hello" } else { "" };
        let bytes = format!("HTTP/1.1 {status}\r\n{length}\r\n{body}");
        site.upstream.on(&path, scripts::bytes(bytes, Then::Goes));
        wire.send(&Request::new(method, ACME, &path).bytes());
        let head = wire.head().unwrap();
        assert!(status.starts_with(&head.status.to_string()), "{head:?}");
        if method == "GET" {
            assert_eq!(wire.body(head).unwrap().text(), body);
        }
        let answer = Request::get(ACME, &next).ask_on(&mut wire);
        assert_eq!(answer.json()["target"], serde_json::json!(next), "the next answer is its own");
    }
}
