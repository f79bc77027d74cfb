//! The identity headers that an upstream sees: the gateway sets them, and no client can.

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::identity::{everyone_is_gold, expected, graded, identity, identity_of, told};
use crate::rig::refusals::{is_malformed, refused};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upstream_is_told_of_the_agent_what_the_chain_says,
    with_a_signature_it_is_told_the_same,
    a_mismatch_is_told_and_a_tenant_may_refuse_it,
    an_origin_that_is_no_url_is_refused,
    forged_identity_is_gone_on_every_route,
    forged_identity_is_gone_over_http_2,
    forged_identity_in_trailers_is_gone,
    forged_identity_named_in_connection_is_ours_still,
    the_source_of_a_tier_is_told_and_a_stake_only_where_a_vault_is_read_not_even_a_forged_one,
    no_header_overrides_the_path_that_was_judged,
    proxies_that_are_trusted_alone_say_how_a_request_came,
];

fn an_upstream_is_told_of_the_agent_what_the_chain_says(stage: &Stage) {
    for tier in 1..=4 {
        let (agent, key) = stage.agent(tier);
        let path = agents_path();
        assert_eq!(stage.site().gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200);
        assert_eq!(told(&stage.site().upstream.only(&path)), expected(&agent, tier));
    }
}

fn with_a_signature_it_is_told_the_same(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let path = agents_path();
    let request = Request::get(ACME, &path).with_all(&signed(&agent.draft()));
    assert_eq!(stage.site().gateway.ask(&request).status, 200);
    let seen = stage.site().upstream.only(&path);
    assert_eq!(told(&seen), expected(&agent, 3), "and nothing of the signature");
}

fn a_mismatch_is_told_and_a_tenant_may_refuse_it(stage: &Stage) {
    let agent = stage.world().agent(4);
    let site = stage.site();
    let key = agent.generate_for(&site.gateway.service, "https://app.test/agent");
    for (origin, mismatch) in
        [(Some("https://app.test"), "false"), (Some("https://evil.test"), "true"), (None, "false")]
    {
        let path = agents_path();
        let with_origin = |host: &str| {
            let request = Request::get(host, &path).key(&key);
            origin.map_or(request.clone(), |origin| request.with("Origin", origin))
        };
        assert_eq!(site.gateway.ask(&with_origin(ACME)).status, 200);
        let seen = site.upstream.only(&path);
        assert_eq!(seen.header("x-agent-endpoint-mismatch"), Some(mismatch), "{origin:?}");
        assert_eq!(seen.header("origin"), origin, "the upstream needs it for its own checks");
        let answer = site.gateway.ask(&with_origin("declared.test"));
        if mismatch == "true" {
            refused(&answer, 403);
            site.are_unseen(&[]);
            assert_eq!(site.upstream.seen_at(&path).len(), 1);
        } else {
            assert_eq!(answer.status, 200);
        }
    }
}

/// The API refuses such an `origin` too. `null` is how browsers write that there is none.
fn an_origin_that_is_no_url_is_refused(stage: &Stage) {
    let agent = stage.world().agent(4);
    let site = stage.site();
    let key = agent.generate_for(&site.gateway.service, "https://app.test/agent");
    let path = agents_path();
    let request = || Request::get("declared.test", &path).key(&key);
    for origin in ["", "app.test", "https://app.test https://evil.test", "file://", "https://"] {
        site.gateway.ask(&request().with("Origin", origin)).error(400, "VALIDATION_ERROR");
    }
    let twice = request().with("Origin", "https://app.test").with("Origin", "https://evil.test");
    site.gateway.ask(&twice).error(400, "VALIDATION_ERROR");
    site.is_unseen(&path);
}

pub(crate) const FORGED: &[&str] = &[
    "X-Agent-Owner",
    "x-agent-owner",
    "X-AGENT-OWNER",
    "X_Agent_Owner",
    "x_agent_owner",
    "X-Agent_Owner",
    "X.Agent.Owner",
    "X~Agent~Owner",
    "X!Agent!Owner",
    "X'Agent'Owner",
    "X-Agent-Tier",
    "X_AGENT_TIER",
    "X-Agent-Tier-Source",
    "X_Agent_Tier_Source",
    "X-Agent-Staked-Amount",
    "X-Agent-Endpoint-Mismatch",
    "X-Agent-Assertion",
    "x_agent_assertion",
    "X.Agent.Assertion",
    "X-Agent-Domain",
    "X_Agent_Domain",
    "X-Agent-Anything",
    "X-Agent-",
    "x_agent_",
    "X-Agent-Trust*Score",
];

fn forged_identity_is_gone_on_every_route(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let forge = |request: Request| FORGED.iter().fold(request, |request, name| request.with(name, "forged"));
    let path = agents_path();
    let answer = stage.site().gateway.ask(&forge(Request::get(ACME, &path).key(&key)));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(told(&stage.site().upstream.only(&path)), expected(&agent, 3));
    let path = public_path();
    assert_eq!(stage.site().gateway.ask(&forge(Request::get(ACME, &path))).status, 200);
    let seen = stage.site().upstream.only(&path);
    assert_eq!(identity(&seen), []);
    assert!(!String::from_utf8_lossy(&seen.head).contains("forged"));
    // Also those of a signature, which a public route does not look at.
    let path = public_path();
    let request = Request::get(ACME, &path).with("X-Agent-Id", "1").with("X_Agent_Id", "1");
    assert_eq!(stage.site().gateway.ask(&request).status, 200);
    assert_eq!(identity(&stage.site().upstream.only(&path)), []);
}

fn forged_identity_is_gone_over_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = Site::of(stage).h2c(&upstream).agent(4).start();
    for (path, wanted) in [(agents_path(), expected(site.agent(), 4)), (public_path(), Vec::new())] {
        let request = Message::request(http::Method::POST, ACME, &path).body(b"hello");
        let request = if wanted.is_empty() { request } else { request.with("x-api-key", site.key()) };
        let request = FORGED.iter().fold(request, |request, name| {
            let name = name.to_lowercase();
            request.with(&name, "forged").trailer(&name, "forged")
        });
        let answer = h2c::ask(site.gateway.address, &request.with("x-note", "stays")).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = upstream.only(&path);
        assert_eq!((identity_of(&seen), seen.header("x-note")), (wanted, Some("stays")));
    }
}

fn forged_identity_in_trailers_is_gone(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let site = stage.site();
    let trailers: String =
        FORGED.iter().chain(&["X-Agent-Id"]).map(|name| format!("{name}: forged\r\n")).collect();
    for (path, key, wanted) in [
        (agents_path(), format!("X-API-Key: {key}\r\n"), expected(&agent, 4)),
        (public_path(), String::new(), Vec::new()),
    ] {
        let names = FORGED.join(", ");
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\n{key}\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
        );
        assert_eq!(site.gateway.ask_raw(request.as_bytes()).status, 200);
        let seen = site.upstream.whole(&path);
        assert_eq!((told(&seen), seen.body.as_slice()), (wanted, b"hello".as_slice()));
    }
}

/// A client may have hop-by-hop headers removed; ours are not among what it may name.
fn forged_identity_named_in_connection_is_ours_still(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let site = stage.site();
    let request = |path: &str, options: &str| {
        Request::get(ACME, path).key(&key).with("Connection", options).with("X-Agent-Tier", "4")
    };
    for options in [
        "x-agent-id, x-agent-owner, x-agent-tier, x-agent-tier-source, x-agent-staked-amount, x-agent-endpoint-mismatch, x-agent-domain",
        "X-Agent-Tier",
        "keep-alive, X_Agent_Id",
    ] {
        let path = agents_path();
        assert_eq!(site.gateway.ask(&request(&path, options)).status, 200, "{options}");
        let seen = site.upstream.only(&path);
        assert_eq!(told(&seen), expected(&agent, 3), "{options}");
    }
    let path = agents_path();
    is_malformed(&site.gateway.ask(&request(&path, "x-api-key, authorization, x-forwarded-for, host")));
    site.is_unseen(&path);
}

/// Where the stake is one source of several it is told beside the source that counted.
fn the_source_of_a_tier_is_told_and_a_stake_only_where_a_vault_is_read_not_even_a_forged_one(stage: &Stage) {
    for (has_vault, way) in [(false, "relay"), (false, "library"), (true, "relay")] {
        let site = everyone_is_gold(Site::of(stage), has_vault).way(way).agent(2).start();
        let wanted = graded(site.agent(), has_vault);
        let path = agents_path();
        let request = Request::get(ACME, &path).key(site.key());
        let request = FORGED.iter().fold(request, |request, name| request.with(name, "forged"));
        let answer = site.gateway.ask(&request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(told(&site.upstream.only(&path)), wanted, "{way}");
    }
}

/// Headers by which some server takes another path, or another proxy, than it was asked for.
const OVERRIDING: &[&str] = &[
    "X-Original-URL",
    "x_original_url",
    "X.Original.Url",
    "X-Rewrite-URL",
    "X_REWRITE_URL",
    "X-Original-URI",
    "Proxy",
    "PROXY",
];

/// Headers in which proxies tell how a request came.
const OF_PROXIES: &[&str] = &[
    "X-Real-IP",
    "X_Real_IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "x_forwarded_ssl",
];

/// Checks that an upstream sees nothing of these headers, on any route and by any way.
#[track_caller]
fn upstreams_never_see(stage: &Stage, names: &[&str]) {
    const FORGED: &str = "/admin-forged";
    let upstream = H2Upstream::start(H2Upstream::ok);
    let h2c = Site::of(stage).h2c(&upstream).agent(4).start();
    for path in [agents_path(), public_path()] {
        let request =
            Message::request(http::Method::POST, ACME, &path).with("x-api-key", h2c.key()).body(b"x");
        let request = names.iter().fold(request, |request, name| {
            let name = name.to_lowercase();
            request.with(&name, FORGED).trailer(&name, FORGED)
        });
        assert_eq!(h2c::ask(h2c.gateway.address, &request).unwrap().status, 200);
        let seen = upstream.only(&path);
        let all: Vec<_> =
            seen.headers.iter().chain(&seen.trailers).filter(|(_, value)| *value == FORGED).collect();
        assert!(all.is_empty(), "HTTP/2: {all:?}");
    }
    for way in ["relay", "library"] {
        let site = Site::of(stage).way(way).agent(4).start();
        for path in [agents_path(), public_path()] {
            let lines: String = names.iter().map(|name| format!("{name}: {FORGED}\r\n")).collect();
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {ACME}\r\nX-API-Key: {}\r\nTransfer-Encoding: chunked\r\n{lines}\r\n1\r\nx\r\n0\r\n{lines}\r\n",
                site.key()
            );
            assert_eq!(site.gateway.ask_raw(request.as_bytes()).status, 200);
            let seen = site.upstream.whole(&path);
            let text = format!("{}{:?}", String::from_utf8_lossy(&seen.head), seen.trailers);
            assert!(!text.contains(FORGED), "{way}: {text}");
        }
    }
}

fn no_header_overrides_the_path_that_was_judged(stage: &Stage) {
    upstreams_never_see(stage, OVERRIDING);
}

fn proxies_that_are_trusted_alone_say_how_a_request_came(stage: &Stage) {
    upstreams_never_see(stage, OF_PROXIES);
    let (set, passed_on): (Vec<&str>, Vec<&str>) =
        OF_PROXIES.iter().partition(|name| !name.contains('_') && **name != "True-Client-IP");
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let site = site.set("listen.trusted_headers", set.clone()).start();
    let path = public_path();
    let all = set.iter().chain(&passed_on).chain(OVERRIDING);
    let request = all.fold(Request::get(ACME, &path), |request, name| request.with(name, "told"));
    assert_eq!(site.gateway.ask(&request).status, 200);
    let seen = site.upstream.only(&path);
    let told: Vec<_> =
        seen.headers.iter().filter(|(_, value)| value == "told").map(|(name, _)| name.as_str()).collect();
    assert_eq!(told, set, "and neither another header nor another spelling of these");
}
