//! Forwarding headers, request ids, and headers of one hop.

use std::collections::BTreeSet;

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::Then;
use crate::rig::{scripts, site::Site, tenants::Tenant};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_strangers_forwarding_headers_are_replaced,
    a_request_id_is_accepted_or_made_and_given_back,
    headers_of_one_hop_end_here,
    the_host_is_the_clients_or_the_upstreams_as_configured,
];

/// Each with a word that is looked for.
const FORGED: &[(&str, &str)] = &[
    ("X-Forwarded-For", "9.9.9.9, 8.8.8.8"),
    ("x-forwarded-for", "9.9.9.9"),
    ("X_Forwarded_For", "9.9.9.9"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "golden.test"),
    ("Forwarded", "for=9.9.9.9;proto=https;host=golden.test"),
];

/// How they are written, and that those of trusted proxies are continued, is in the tests of `policy::forwarded`.
// threat: Forged identity or forwarding headers
fn a_strangers_forwarding_headers_are_replaced(stage: &Stage) {
    let (site, path) = (stage.site(), public_path());
    let request =
        FORGED.iter().fold(Request::get(ACME, &path), |request, (name, value)| request.with(name, value));
    let mut wire = site.gateway.connect();
    let peer = wire.own_address().ip().to_string();
    assert_eq!(request.ask_on(&mut wire).status, 200);
    let seen = site.upstream.only(&path);
    let told = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].map(|name| seen.all(name));
    assert_eq!(told, [vec![&*peer], vec!["http"], vec![ACME]]);
    let head = String::from_utf8_lossy(&seen.head).into_owned();
    assert!(!["9.9.9.9", "https", "golden.test"].iter().any(|forged| head.contains(forged)), "{head}");
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
    let headers =
        [("Connection", "X-Hop, keep-alive"), ("Keep-Alive", "timeout=5"), ("X-Hop", "1"), ("X-Stays", "2")];
    site.upstream.on(&path, scripts::bytes(scripts::answer("200 OK", &headers, b"ok"), Then::Goes));
    let answer = site.gateway.ask(&request);
    assert_eq!((answer.status, answer.text().as_str(), answer.header("x-stays")), (200, "ok", Some("2")));
    assert_eq!(answer.header("x-hop"), None);
    assert_ne!(answer.header("keep-alive"), Some("timeout=5"));
    let seen = site.upstream.only(&path);
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "x-hop", "x-other-hop", "upgrade"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert!(seen.header("te").is_none_or(|te| te == "trailers"), "{seen:?}");
    assert_eq!(seen.header("x-stays"), Some("3"));
    // From HTTP/2 to HTTP/2.
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = Site::of(stage).h2c(&upstream).start();
    let ended =
        [("proxy-authorization", "Basic eDp5"), ("trailer", "x-checksum"), ("http2-settings", "AAMAAABk")];
    let request = Message::request(Method::GET, ACME, &path).with("te", "trailers").with("x-stays", "3");
    let request = ended.iter().fold(request, |request, (name, value)| request.with(name, value));
    assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200);
    let seen = upstream.only(&path);
    assert_eq!(ended.map(|(name, _)| seen.header(name)), [None; 3]);
    assert_eq!((seen.header("te"), seen.header("x-stays")), (Some("trailers"), Some("3")));
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
