//! Who an upstream is told is asking: what the gateway says, and nothing that a client wrote.

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::identity::{expected, identity, told};
use crate::rig::refusals::{is_unseen, refused};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upstream_is_told_of_the_agent_what_the_chain_says,
    with_a_signature_it_is_told_the_same,
    a_mismatch_is_told_and_a_tenant_may_refuse_it,
    an_origin_that_is_no_url_is_refused,
    forged_identity_is_gone_on_every_route,
    forged_identity_named_in_connection_is_ours_still,
];

fn an_upstream_is_told_of_the_agent_what_the_chain_says(stage: &Stage) {
    for tier in 1..=4 {
        let (agent, key) = stage.agent(tier);
        let path = agents_path();
        assert_eq!(stage.house().gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200);
        assert_eq!(told(&stage.house().upstream.only(&path)), expected(&agent, tier));
    }
}

fn with_a_signature_it_is_told_the_same(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let path = agents_path();
    let request = Request::get(ACME, &path).with_all(&signed(&agent.draft()));
    assert_eq!(stage.house().gateway.ask(&request).status, 200);
    let seen = stage.house().upstream.only(&path);
    assert_eq!(told(&seen), expected(&agent, 3), "and nothing of the signature");
}

fn a_mismatch_is_told_and_a_tenant_may_refuse_it(stage: &Stage) {
    let agent = stage.world().agent(4);
    let house = stage.house();
    let key = agent.generate_for(&house.gateway.service, "https://app.test/agent");
    for (origin, mismatch) in
        [(Some("https://app.test"), "false"), (Some("https://evil.test"), "true"), (None, "false")]
    {
        let path = agents_path();
        let with_origin = |host: &str| {
            let request = Request::get(host, &path).key(&key);
            origin.map_or(request.clone(), |origin| request.with("Origin", origin))
        };
        assert_eq!(house.gateway.ask(&with_origin(ACME)).status, 200);
        let seen = house.upstream.only(&path);
        assert_eq!(seen.header("x-agent-endpoint-mismatch"), Some(mismatch), "{origin:?}");
        assert_eq!(seen.header("origin"), origin, "the upstream needs it for its own checks");
        let answer = house.gateway.ask(&with_origin("declared.test"));
        if mismatch == "true" {
            refused(&answer, 403);
            assert_eq!(house.upstream.seen_at(&path).len(), 1);
        } else {
            assert_eq!(answer.status, 200);
        }
    }
}

/// The API refuses such an `origin` too. `null` is how browsers write that there is none.
fn an_origin_that_is_no_url_is_refused(stage: &Stage) {
    let agent = stage.world().agent(4);
    let house = stage.house();
    let key = agent.generate_for(&house.gateway.service, "https://app.test/agent");
    for origin in ["", "app.test", "https://app.test https://evil.test", "file://", "https://"] {
        let path = agents_path();
        let answer =
            house.gateway.ask(&Request::get("declared.test", &path).key(&key).with("Origin", origin));
        assert!(matches!(answer.status, 400 | 403), "{origin:?}: {} {}", answer.status, answer.text());
        is_unseen(&house.upstream, &path);
    }
    let path = agents_path();
    let twice = Request::get("declared.test", &path).key(&key);
    let twice = twice.with("Origin", "https://app.test").with("Origin", "https://evil.test");
    assert!(matches!(house.gateway.ask(&twice).status, 400 | 403), "two origins are no match");
    is_unseen(&house.upstream, &path);
}

const FORGED: &[&str] = &[
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
    "X-Agent-Staked-Amount",
    "X-Agent-Endpoint-Mismatch",
    "X-Agent-Anything",
    "X-Agent-",
    "x_agent_",
    "X-Agent-Trust*Score",
];

fn forged_identity_is_gone_on_every_route(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let forge = |request: Request| FORGED.iter().fold(request, |request, name| request.with(name, "forged"));
    let path = agents_path();
    let answer = stage.house().gateway.ask(&forge(Request::get(ACME, &path).key(&key)));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(told(&stage.house().upstream.only(&path)), expected(&agent, 3));
    let path = public_path();
    assert_eq!(stage.house().gateway.ask(&forge(Request::get(ACME, &path))).status, 200);
    let seen = stage.house().upstream.only(&path);
    assert_eq!(identity(&seen), []);
    assert!(!String::from_utf8_lossy(&seen.head).contains("forged"));
    // Also those of a signature, which a public route does not look at.
    let path = public_path();
    let request = Request::get(ACME, &path).with("X-Agent-Id", "1").with("X_Agent_Id", "1");
    assert_eq!(stage.house().gateway.ask(&request).status, 200);
    assert_eq!(identity(&stage.house().upstream.only(&path)), []);
}

/// A client may have hop-by-hop headers removed; ours are not among what it may name.
fn forged_identity_named_in_connection_is_ours_still(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let house = stage.house();
    for options in [
        "x-agent-id, x-agent-owner, x-agent-tier, x-agent-staked-amount, x-agent-endpoint-mismatch",
        "X-Agent-Tier",
        "x-api-key, authorization, x-forwarded-for, host",
        "keep-alive, X_Agent_Id",
    ] {
        let path = agents_path();
        let request =
            Request::get(ACME, &path).key(&key).with("Connection", options).with("X-Agent-Tier", "4");
        let answer = house.gateway.ask(&request);
        if answer.status == 200 {
            let seen = house.upstream.only(&path);
            assert_eq!(told(&seen), expected(&agent, 3), "{options}");
            assert!(seen.header("x-forwarded-for").is_some() && seen.header("host").is_some(), "{options}");
        } else {
            assert_eq!(answer.status, 400, "{options}: {}", answer.text());
            is_unseen(&house.upstream, &path);
        }
    }
}
