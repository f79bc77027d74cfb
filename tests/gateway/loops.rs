//! `Via`: upstreams see which gateways a request has passed, and a gateway refuses what has passed it before.

use http::Method;
use serde_json::Value;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{gateway::Gateway, scripts, site::Site, tenants::Tenant, upstream::Then};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upstream_sees_which_gateways_a_request_has_passed,
    a_request_that_has_passed_before_is_508_by_every_way_and_costs_nothing,
    gateways_that_lead_to_each_other_forward_a_request_once_each_and_replicas_once,
    deployments_in_a_chain_are_no_loop,
];

/// Headers that ask for a WebSocket.
const UPGRADE: [(&str, &str); 2] = [("Connection", "Upgrade"), ("Upgrade", "websocket")];

fn upgrade(path: &str) -> Request {
    UPGRADE.iter().fold(Request::get(ACME, path), |request, (name, value)| request.with(name, value))
}

fn an_upstream_sees_which_gateways_a_request_has_passed(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).set("gateway.via", "edge").way(way);
        let site =
            site.tenant(|tenant| tenant.route("/open/*", "access = \"public\"\nupgrades = true")).start();
        let seen = |request: &Request, path: &str| {
            assert_eq!(site.gateway.ask(request).status, 200);
            site.upstream.only(path).all("via").join(" | ")
        };
        let path = public_path();
        assert_eq!(seen(&Request::get(ACME, &path), &path), "1.1 edge");
        let path = public_path();
        let passed = Request::get(ACME, &path).with("Via", "1.0 a (b, c)").with("via", "2.0 other:80, 1.1 d");
        assert_eq!(seen(&passed, &path), "1.0 a (b, c), 2.0 other:80, 1.1 d, 1.1 edge");
        // A client can't have it taken out.
        let path = public_path();
        assert_eq!(seen(&Request::get(ACME, &path).with("Connection", "via"), &path), "1.1 edge");
        let path = public_path().replace("public", "open");
        assert_eq!(seen(&upgrade(&path), &path), "1.1 edge");
        let path = public_path();
        let old = format!("GET {path} HTTP/1.0\r\nHost: {ACME}\r\n\r\n");
        assert_eq!(site.gateway.ask_raw(old.as_bytes()).status, 200);
        assert_eq!(site.upstream.only(&path).all("via"), ["1.0 edge"]);
        let path = public_path();
        let answer = Message::request(Method::GET, ACME, &path).with("via", "1.1 a").with("via", "1.1 b");
        assert_eq!(h2c::ask(site.gateway.address, &answer).unwrap().status, 200);
        assert_eq!(site.upstream.only(&path).all("via"), ["1.1 a, 1.1 b, 2.0 edge"]);
    }
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = Site::of(stage).set("gateway.via", "edge").h2c(&upstream).start();
    let path = public_path();
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
    assert_eq!(upstream.only(&path).header("via"), Some("1.1 edge"));
}

// threat: A gateway forwards to itself
fn a_request_that_has_passed_before_is_508_by_every_way_and_costs_nothing(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).set("gateway.via", "edge").way(way).agent(1);
        let site = site.tenant(|tenant| tenant.route("/socket/*", "upgrades = true")).start();
        let path = agents_path();
        for via in ["1.1 edge", "2.0 other, 1.1 EDGE (x)"] {
            let passed = Request::get(ACME, &path).key(site.key()).with("Via", via);
            assert_eq!(site.gateway.ask(&passed).error(508, "LOOP_DETECTED"), Value::Null);
        }
        let socket = upgrade(&path.replace("agents", "socket")).with("Via", "1.1 edge");
        assert_eq!(site.gateway.ask(&socket).error(508, "LOOP_DETECTED"), Value::Null);
        let h2 = Message::request(Method::POST, ACME, &path).with("via", "1.1 a").with("via", "1.1 edge");
        assert_eq!(h2c::ask(site.gateway.address, &h2).unwrap().status, 508);
        let grpc = h2c::ask(site.gateway.address, &h2.with("content-type", "application/grpc")).unwrap();
        assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("13")));
        // The only request of a minute is left.
        assert_eq!(site.gateway.ask(&site.by_key()).status, 200);
        site.is_unseen(&path);
        until("they are counted", SOON, || (outcomes(&site.gateway) == [2.0, 5.0]).then_some(()));
    }
}

/// How many requests the gateway has forwarded and refused.
fn outcomes(gateway: &Gateway) -> [f64; 2] {
    let samples = gateway.service.samples();
    ["forwarded", "refused"].map(|outcome| {
        let outcome = format!("outcome=\"{outcome}\"");
        samples.sum("tiergate_gateway_requests_total", &[&outcome, "tenant=\"t\""])
    })
}

/// A gateway whose upstream is another one with these keys, whose upstream is the first.
fn circle(stage: &Stage, names: [Option<&str>; 2]) -> (Site, Gateway) {
    let [edge, inner] = names;
    let site = Site::of(stage).in_files();
    let site = match edge {
        Some(name) => site.set("gateway.via", name),
        None => site,
    };
    let site = site.start();
    // Its tenant comes later.
    let twin = site.gateway.twin(|settings| match inner {
        Some(name) => settings.set("gateway.via", name).set("gateway.allow_empty", true),
        None => settings.set("gateway.allow_empty", true),
    });
    for (gateway, next) in [(&twin, site.gateway.address), (&site.gateway, twin.address)] {
        gateway.put("t.toml", &Tenant::new("t", ACME, next).public().text());
    }
    for gateway in [&twin, &site.gateway] {
        until("the tenant leads to the other", SOON, || {
            let applied = gateway.service.samples().get("tiergate_config_reloads_total{result=\"applied\"}");
            (applied >= 1.0).then_some(())
        });
    }
    (site, twin)
}

// threat: A gateway forwards to itself
fn gateways_that_lead_to_each_other_forward_a_request_once_each_and_replicas_once(stage: &Stage) {
    for (names, counted) in
        [([None, None], [[1.0, 1.0], [1.0, 0.0]]), ([Some("edge"), Some("edge")], [[1.0, 0.0], [0.0, 1.0]])]
    {
        let (site, twin) = circle(stage, names);
        let answer = site.gateway.ask(&Request::get(ACME, &public_path()));
        assert_eq!(answer.error(508, "LOOP_DETECTED"), Value::Null);
        until("who has passed it on and who has refused it is counted", SOON, || {
            ([&site.gateway, &twin].map(outcomes) == counted).then_some(())
        });
    }
}

// threat: A gateway forwards to itself
fn deployments_in_a_chain_are_no_loop(stage: &Stage) {
    let (site, inner) = circle(stage, [Some("edge"), Some("inner")]);
    inner.put("t.toml", &Tenant::new("t", ACME, site.upstream.address).public().text());
    let ask = |path: &str| site.gateway.ask(&Request::get(ACME, path)).status;
    until("the chain has an end", SOON, || (ask(&public_path()) == 200).then_some(()));
    let path = public_path();
    site.upstream.on(&path, scripts::bytes(scripts::answer("200 OK", &[], b"ok"), Then::Goes));
    assert_eq!(ask(&path), 200);
    assert_eq!(site.upstream.only(&path).all("via").join(" | "), "1.1 edge, 1.1 inner");
}
