//! The identity headers that an upstream sees: the gateway sets them, and no client can.

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::identity::{everyone_is_gold, expected, graded, identity_headers, identity_of};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{refusals::is_malformed, site::Site};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    nothing_that_a_client_forges_reaches_an_upstream_by_any_way,
    forged_identity_named_in_connection_is_ours_still,
    the_source_of_a_tier_is_told_and_a_stake_only_where_a_vault_is_read_not_even_a_forged_one,
    proxies_that_are_trusted_alone_say_how_a_request_came,
];

/// Identity, paths and proxies as a client may write them. A property of `policy::requests` tries other spellings.
pub(crate) const FORGED: &[&str] = &[
    "X-Agent-Owner",
    "x_agent_owner",
    "X.Agent.Owner",
    "X-Agent-Tier",
    "X_AGENT_TIER",
    "X-Agent-Tier-Source",
    "X-Agent-Staked-Amount",
    "X-Agent-Endpoint-Mismatch",
    "X-Agent-Assertion",
    "X_Agent_Domain",
    "X-Agent-Anything",
    "X-Agent-",
];

/// Headers by which some server takes another path, or another proxy, than it was asked for.
const OVERRIDING: &[&str] = &["X-Original-URL", "x_rewrite_url", "X.Original.URI", "Proxy"];

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

/// In heads and in trailers, for agents and for everybody.
// threat: Forged identity or forwarding headers
fn nothing_that_a_client_forges_reaches_an_upstream_by_any_way(stage: &Stage) {
    const WORD: &str = "/admin-forged";
    let upstream = H2Upstream::start(H2Upstream::ok);
    let names = || FORGED.iter().chain(OVERRIDING).chain(OF_PROXIES);
    for way in ["relay", "library", "h2c"] {
        let site = Site::of(stage).way(way).agent(4);
        let site = if way == "h2c" { site.h2c(&upstream) } else { site }.start();
        for (path, key, wanted) in [
            (agents_path(), site.key(), expected(site.agent(), 4)),
            // A public route looks at no credential.
            (public_path(), "", Vec::new()),
        ] {
            if way == "h2c" {
                let request = Message::request(http::Method::POST, ACME, &path).body(b"hello");
                let request = if key.is_empty() { request } else { request.with("x-api-key", key) };
                let request = names().fold(request, |request, name| {
                    let name = name.to_lowercase();
                    request.with(&name, WORD).trailer(&name, WORD)
                });
                let answer = h2c::ask(site.gateway.address, &request.with("x-note", "stays")).unwrap();
                assert_eq!(answer.status, 200, "{}", answer.text());
                let seen = upstream.only(&path);
                assert_eq!((identity_of(&seen), seen.header("x-note")), (wanted, Some("stays")));
                let mut all = seen.headers.iter().chain(&seen.trailers);
                assert_eq!(all.find(|(_, value)| *value == WORD), None);
                continue;
            }
            let lines: String = names().map(|name| format!("{name}: {WORD}\r\n")).collect();
            let key = if key.is_empty() { "X_Agent_Id: 1".to_owned() } else { format!("X-API-Key: {key}") };
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\n{key}\r\n{lines}\r\n5\r\nhello\r\n0\r\nX-Agent-Id: 1\r\n{lines}\r\n"
            );
            assert_eq!(site.gateway.ask_raw(request.as_bytes()).status, 200);
            let seen = site.upstream.whole(&path);
            assert_eq!(
                (identity_headers(&seen), seen.body.as_slice()),
                (wanted, b"hello".as_slice()),
                "{way}"
            );
            let text = format!("{}{:?}", String::from_utf8_lossy(&seen.head), seen.trailers);
            assert!(!text.contains(WORD), "{way}: {text}");
        }
    }
}

/// A client may have hop-by-hop headers removed; ours are not among what it may name.
// threat: Forged identity or forwarding headers
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
        assert_eq!(identity_headers(&seen), expected(&agent, 3), "{options}");
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
        assert_eq!(identity_headers(&site.upstream.only(&path)), wanted, "{way}");
    }
}

// threat: Forged identity or forwarding headers
fn proxies_that_are_trusted_alone_say_how_a_request_came(stage: &Stage) {
    let (set, passed_on): (Vec<&str>, Vec<&str>) =
        OF_PROXIES.iter().partition(|name| !name.contains('_') && **name != "True-Client-IP");
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let site = site.set("listen.trusted_headers", set.clone()).start();
    let path = public_path();
    let all = set.iter().chain(&passed_on).chain(OVERRIDING);
    let request = all.fold(Request::get(ACME, &path), |request, name| request.with(name, "told"));
    assert_eq!(site.gateway.ask(&request).status, 200);
    let seen = site.upstream.only(&path);
    let identity_headers: Vec<_> =
        seen.headers.iter().filter(|(_, value)| value == "told").map(|(name, _)| name.as_str()).collect();
    assert_eq!(identity_headers, set, "and neither another header nor another spelling of these");
}
