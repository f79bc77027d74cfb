//! Other gateways are told what the gateway itself would do: each credential, route and fault gets the same status, body, limits
//! and identity in every dialect.

use std::net::IpAddr;

use alloy::primitives::{U256, hex};
use serde_json::{Value, json};

use crate::parity::forget_nonces;
use crate::rig::authz::{Asked, DIALECTS, Decision, Dialect, Told, Verdict};
use crate::rig::case::{Case, cases};
use crate::rig::checks::Check;
use crate::rig::credentials::{replaced, signed, signed_with, without};
use crate::rig::identity::{everyone_is_gold, expected, graded, told as identity_at};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, PAGE, Stage, agents_path, public_path, unique};
use crate::support::agents::{LIMITS, unknown_key};
use crate::support::client::Answer;
use crate::support::relay::Relay;
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::wire::Wire;

pub(crate) const CASES: &[Case] = cases![
    keys_and_signatures_of_every_form_mean_the_same,
    routes_mean_the_same,
    agents_of_every_tier_pass_with_the_same_identity,
    the_source_of_a_tier_and_a_stake_that_is_not_read_mean_the_same,
    an_origin_means_the_same,
    pages_of_other_origins_read_the_same,
    documents_are_shown_by_our_gateway_alone,
    an_announced_length_means_the_same_where_it_is_told,
    a_dead_chain_means_the_same,
    nonces_that_may_be_lost_mean_the_same,
];

/// Cases that the store has a part in.
pub(crate) const STORED: &[Case] = cases![
    keys_of_every_state_mean_the_same,
    an_agent_has_one_limit_whoever_asks,
    a_client_of_a_public_route_has_one_limit_whoever_asks,
    a_signature_passes_once_whoever_asks,
];

/// Asks our own gateway.
#[track_caller]
pub(crate) fn direct(asked: &Asked, told: &Told) -> Answer {
    asked.site.gateway.ask(&told.direct())
}

/// The refusal of our own gateway, which every dialect must say too.
#[track_caller]
pub(crate) fn refused_alike(asked: &Asked, told: &Told) -> Verdict {
    let wanted = Verdict::of(&direct(asked, told));
    assert!(wanted.status >= 400, "{told:?}: {wanted:?}");
    for dialect in DIALECTS {
        let said = asked.ask(dialect, told);
        assert_eq!(said.refusal(), wanted, "{dialect:?}: {told:?}");
        is_challenged(&said.answer);
    }
    let raw = Check::raw(told).ask(asked.authz).decision();
    assert_eq!(raw.refusal(), wanted, "{told:?}");
    wanted
}

#[track_caller]
fn is_challenged(answer: &Answer) {
    assert!(answer.status != 401 || answer.header("www-authenticate").is_some(), "{answer:?}");
}

#[track_caller]
fn kind(verdict: &Verdict) -> (u16, &str) {
    (verdict.status, verdict.body["errorType"].as_str().unwrap())
}

fn get(headers: &[(String, String)]) -> Told {
    Told::get(ACME, &agents_path()).with_all(headers)
}

fn keys_and_signatures_of_every_form_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (agent, good) = stage.asked_agent(3);
    let path = agents_path();
    let told = || Told::get(ACME, &path);
    let (prefix, secret) = good.split_at("svc_live_v1_".len());
    let unknown = unknown_key(30);
    for key in [
        prefix.to_owned(),
        format!("{prefix}{}", &secret[1..]),
        format!("{prefix}{}", secret.to_uppercase()),
        format!("{prefix}{}", "x".repeat(500)),
    ] {
        assert_eq!(kind(&refused_alike(asked, &told().key(&key))), (400, "VALIDATION_ERROR"));
        let bearer = told().with("Authorization", &format!("Bearer {key}"));
        assert_eq!(refused_alike(asked, &bearer).status, 400);
    }
    for unproven in [
        told(),
        told().key(&unknown),
        told().key("another service's"),
        told().with("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
        told().with("Authorization", &format!("Basic {good}")),
        told().key(&format!("{good},{unknown}")),
        told().key(&good).with("Authorization", &format!("Bearer {good}")),
        told().with("X-Agent-Id", &agent.text()),
    ] {
        assert_eq!(kind(&refused_alike(asked, &unproven)), (401, "INVALID_API_KEY"), "{unproven:?}");
    }
    // Gateways that strip by names of their own leave other spellings on the request.
    for dialect in [Dialect::Envoy, Dialect::Grpc] {
        let said = asked.ask(dialect, &told().with("X_Api_Key", &good));
        assert_eq!(said.error(), (401, "INVALID_API_KEY".to_owned()), "{dialect:?}");
    }
    // Envoy joins them, and every other gateway leaves them apart.
    let twice = told().key(&good).key(&good);
    assert_eq!(kind(&refused_alike(asked, &twice)), (401, "INVALID_API_KEY"));

    let draft = agent.draft();
    let headers = signed(&draft);
    refused_alike(asked, &told().key(&good).with_all(&headers));
    for (name, _) in &headers[1..] {
        assert_eq!(refused_alike(asked, &get(&without(&headers, name))).status, 400, "{name}");
        for value in ["", "x", "-1", "1, 1"] {
            assert_eq!(refused_alike(asked, &get(&replaced(&headers, name, value))).status, 400, "{name}");
        }
    }
    let forged = signed(&draft.clone().by(BOB));
    assert_eq!(kind(&refused_alike(asked, &get(&forged))), (401, "SIGNATURE_INVALID"));
    let broken = signed_with(&draft, &hex::encode_prefixed([0xff; 65]));
    assert_eq!(kind(&refused_alike(asked, &get(&broken))), (401, "SIGNATURE_INVALID"));
    for secs in [0, unix_seconds() - 3_600, unix_seconds() + 3_600] {
        let late = signed(&agent.draft().timestamp(secs));
        assert_eq!(kind(&refused_alike(asked, &get(&late))), (400, "REPLAY_DETECTED"));
    }
    let nobody = stage.world().known_agent(U256::from(888_888_886_u64), ALICE);
    assert_eq!(kind(&refused_alike(asked, &get(&signed(&nobody.draft())))), (404, "AGENT_NOT_FOUND"));
    // Neither was spent by any of that.
    asked.ask(Dialect::Grpc, &get(&headers)).passes();
    asked.ask(Dialect::Forward, &told().key(&good)).passes();

    let keys_alone = Told::get("keys.test", &path).with_all(&signed(&agent.draft()));
    assert_eq!(refused_alike(asked, &keys_alone).status, 401);
    assert_eq!(refused_alike(asked, &Told::get("signatures.test", &path).key(&good)).status, 401);
}

fn keys_of_every_state_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let service = &asked.site.gateway.service;
    let (revoked, revoked_key) = stage.asked_agent(4);
    service.revoke(&revoked.signed()).success(200);
    let (rotated, rotated_key) = stage.asked_agent(4);
    service.rotate(&rotated.signed()).success(200);
    let (burned, burned_key) = stage.asked_agent(4);
    stage.world().chain().burn(ALICE, burned.id);
    let (_, unstaked_key) = stage.asked_agent(0);
    for (key, wanted) in [
        (unknown_key(31), (401, "INVALID_API_KEY")),
        (revoked_key, (401, "INVALID_API_KEY")),
        (rotated_key, (401, "INVALID_API_KEY")),
        (burned_key, (404, "AGENT_NOT_FOUND")),
        (unstaked_key, (403, "TIER_BLOCKED")),
    ] {
        assert_eq!(kind(&refused_alike(asked, &Told::get(ACME, &agents_path()).key(&key))), wanted);
    }
}

fn routes_mean_the_same(stage: &Stage) {
    let asked = stage.asked();
    let (_, silver) = stage.asked_agent(2);
    let with_key = |host: &str, path: &str| Told::get(host, &format!("{path}{}", unique())).key(&silver);
    for (told, wanted) in [
        (with_key(ACME, "/denied/"), (403, "FORBIDDEN")),
        (with_key(ACME, "/denied/..%2Fpublic/"), (403, "FORBIDDEN")),
        (with_key(ACME, "/gold/"), (403, "TIER_BLOCKED")),
        (with_key("golden.test", "/agents/"), (403, "TIER_BLOCKED")),
        (Told::new("POST", ACME, "/read/x"), (401, "INVALID_API_KEY")),
        (Told::get(ACME, "/agents/?path=/public/x"), (401, "INVALID_API_KEY")),
        (Told::get(ACME, "/socket/x").with("Upgrade", "websocket"), (401, "INVALID_API_KEY")),
        (Told::new("get", ACME, "/public/x"), (405, "METHOD_NOT_ALLOWED")),
        (Told::new("TRACE", ACME, "/public/x"), (405, "METHOD_NOT_ALLOWED")),
        (Told::get(ACME, "/posted/x"), (405, "METHOD_NOT_ALLOWED")),
        (with_key(ACME, "/.well-known/openid-configuration/"), (404, "NOT_FOUND")),
        (Told::new("POST", ACME, "/register"), (404, "NOT_FOUND")),
        (Told::new("POST", ACME, "/register").key(&unknown_key(32)), (401, "INVALID_API_KEY")),
    ] {
        assert_eq!(kind(&refused_alike(asked, &told)), wanted, "{told:?}");
    }
    for (method, path) in [("GET", "/public/"), ("PUT", "/public/"), ("GET", "/read/"), ("HEAD", "/read/")] {
        let target = format!("{path}{}?x=%2F", unique());
        for dialect in DIALECTS {
            let decision = asked.ask(dialect, &Told::new(method, ACME, &target));
            assert_eq!(decision.passes().identity, [], "nobody is known on a public route");
            assert_eq!(decision.answer.header("x-ratelimit-limit"), None);
        }
    }
    for dialect in DIALECTS {
        asked.ask(dialect, &with_key("golden.test", "/silver/")).passes();
    }
}

fn agents_of_every_tier_pass_with_the_same_identity(stage: &Stage) {
    let asked = stage.asked();
    for tier in 2..=4 {
        let (agent, key) = stage.asked_agent(tier);
        let wanted = expected(&agent, tier);
        let path = agents_path();
        let answer = direct(asked, &Told::get(ACME, &path).key(&key));
        assert_eq!((answer.status, answer.allowance().0), (200, LIMITS[tier - 1]));
        assert_eq!(identity_at(&asked.site.upstream.only(&path)), wanted);
        for dialect in DIALECTS {
            for told in [
                Told::get(ACME, &path).key(&key),
                Told::get(ACME, &path).with("Authorization", &format!("bearer {key}")),
                Told::get(ACME, &path).with_all(&signed(&agent.draft())),
            ] {
                let decision = asked.ask(dialect, &told);
                assert_eq!(decision.passes().identity, wanted, "{dialect:?}: {told:?}");
                strips_credentials(&decision, &told);
            }
        }
        assert_eq!(asked.site.upstream.seen_at(&path).len(), 1, "the others forward themselves");
    }
}

/// What is not set is stripped, as each decision is checked for.
fn the_source_of_a_tier_and_a_stake_that_is_not_read_mean_the_same(stage: &Stage) {
    for has_vault in [false, true] {
        let asked = Asked::start(everyone_is_gold(Site::of(stage), has_vault).agent(2));
        let forged = Told::get(ACME, &agents_path())
            .of_tenant("t")
            .key(asked.site.key())
            .with("X-Agent-Staked-Amount", "1")
            .with("X-Agent-Tier-Source", "forged");
        let wanted = graded(asked.site.agent(), has_vault);
        assert_eq!(direct(&asked, &forged).status, 200);
        assert_eq!(identity_at(&asked.site.upstream.only(&forged.target)), wanted);
        for dialect in DIALECTS {
            assert_eq!(asked.ask(dialect, &forged).passes().identity, wanted, "{dialect:?}");
        }
    }
}

/// The gateway strips each header of a request that proves who calls.
#[track_caller]
fn strips_credentials(decision: &Decision, told: &Told) {
    if matches!(decision.dialect, Dialect::Forward | Dialect::Nginx) {
        return; // Its configuration does.
    }
    for (name, _) in &told.headers {
        let name = name.to_ascii_lowercase();
        let is_replaced = decision.identity.iter().any(|(ours, _)| *ours == name);
        assert!(is_replaced || decision.stripped.contains(&name), "{name}: {decision:?}");
    }
}

fn an_agent_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let (agent, key) = stage.asked_agent(2);
    let limit = LIMITS[1];
    let path = agents_path();
    let told = || Told::get(ACME, &path).key(&key);
    let mut left = limit;
    let mut spend = |answer: &Answer| {
        left -= 1;
        let number = |name| answer.header(name).unwrap().parse::<u32>().unwrap();
        assert_eq!((number("x-ratelimit-limit"), number("x-ratelimit-remaining")), (limit, left));
    };
    for _ in 0..3 {
        spend(&direct(asked, &told()));
        for dialect in DIALECTS {
            spend(&asked.ask(dialect, &told()).passes().answer);
        }
    }
    spend(&asked.ask(Dialect::Grpc, &get(&signed(&agent.draft()))).passes().answer);
    let limited = refused_alike(asked, &told());
    assert_eq!(kind(&limited), (429, "RATE_LIMITED"));
    let tier = json!({ "agentId": agent.text(), "tier": 2, "limit": limit, "retryAfter": "some" });
    assert_eq!(limited.body["details"], tier);
    refused_alike(asked, &get(&signed(&agent.draft())));
    // Another tenant's limit is its own.
    asked.ask(Dialect::Envoy, &Told::get("beta.test", &path).key(&key)).passes();
}

fn a_client_of_a_public_route_has_one_limit_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let path = format!("/limited/{}", unique());
    let own: IpAddr = Wire::open(asked.site.gateway.address).own_address().ip();
    let told = |client| Told::get("limited.test", &path).from(client);
    let mut left = 8;
    let mut spend = |answer: &Answer| {
        left -= 1;
        let left: u32 = left;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
    };
    spend(&direct(asked, &told(own)));
    for dialect in DIALECTS {
        spend(&asked.ask(dialect, &told(own)).passes().answer);
    }
    for _ in 0..3 {
        spend(&direct(asked, &told(own)));
    }
    let limited = refused_alike(asked, &told(own));
    assert_eq!(kind(&limited), (429, "RATE_LIMITED"));
    for (at, dialect) in DIALECTS.into_iter().enumerate() {
        let other = format!("198.51.100.{at}").parse().unwrap();
        let answer = asked.ask(dialect, &told(other)).passes().answer.clone();
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("7"), "each client has its own limit");
    }
}

fn a_signature_passes_once_whoever_asks(stage: &Stage) {
    let asked = stage.asked();
    let (agent, _) = stage.asked_agent(3);
    for dialect in DIALECTS {
        let told = get(&signed(&agent.draft()));
        asked.ask(dialect, &told).passes();
        assert_eq!(kind(&refused_alike(asked, &told)), (400, "REPLAY_DETECTED"), "{dialect:?}");
    }
}

fn an_origin_means_the_same(stage: &Stage) {
    let asked = stage.asked();
    let agent = stage.world().agent(4);
    let key = agent.generate_for(&asked.site.gateway.service, "https://app.test/agent");
    for (origin, mismatch) in
        [(Some("https://app.test"), "false"), (Some("https://evil.test"), "true"), (None, "false")]
    {
        let path = agents_path();
        let told = |host: &str| {
            let told = Told::get(host, &path).key(&key);
            origin.map_or(told.clone(), |origin| told.with("Origin", origin))
        };
        for dialect in DIALECTS {
            let identity = asked.ask(dialect, &told(ACME)).passes().identity.clone();
            assert_eq!(identity[4].1, mismatch, "{dialect:?} {origin:?}");
            assert_eq!(asked.ask(dialect, &told("declared.test")).passes, mismatch == "false");
        }
        if mismatch == "true" {
            assert_eq!(refused_alike(asked, &told("declared.test")).status, 403);
        }
    }
    for origin in ["", "app.test", "https://app.test https://evil.test", "file://"] {
        let told = Told::get("declared.test", &agents_path()).key(&key).with("Origin", origin);
        assert_eq!(kind(&refused_alike(asked, &told)), (400, "VALIDATION_ERROR"), "{origin}");
    }
}

fn pages_of_other_origins_read_the_same(stage: &Stage) {
    let asked = stage.asked();
    let host = "pages.test";
    let of_page = |told: Told| told.with("Origin", PAGE);
    let refused = refused_alike(asked, &of_page(Told::get(host, &agents_path())));
    assert_eq!(refused.status, 401);
    let named = |verdict: &Verdict, name: &str| verdict.headers.iter().any(|(header, _)| header == name);
    assert!(named(&refused, "access-control-allow-origin") && named(&refused, "vary"), "{refused:?}");
    let elsewhere = Told::get(host, &agents_path()).with("Origin", "https://evil.test");
    assert!(!named(&refused_alike(asked, &elsewhere), "access-control-allow-origin"));

    let (_, key) = stage.asked_agent(4);
    for dialect in DIALECTS {
        let decision = asked.ask(dialect, &of_page(Told::get(host, &agents_path()).key(&key)));
        assert_eq!(decision.passes().answer.header("access-control-allow-origin"), Some(PAGE));
    }

    // A preflight's answer lets no request pass. Where any 2xx may be leave, the gateway in front answers preflights.
    let preflight = of_page(Told::new("OPTIONS", host, &agents_path()));
    let preflight = preflight.with("Access-Control-Request-Method", "POST");
    let wanted = direct(asked, &preflight);
    assert_eq!(wanted.status, 204);
    let said = asked.ask(Dialect::Grpc, &preflight);
    assert_eq!(said.refusal(), Verdict::of(&wanted));
    for name in ["access-control-allow-methods", "access-control-allow-headers", "access-control-max-age"] {
        assert_eq!(said.answer.header(name), wanted.header(name), "{name}");
    }
    for dialect in [Dialect::Forward, Dialect::Nginx, Dialect::Envoy] {
        assert_eq!(asked.ask(dialect, &preflight).error(), (403, "FORBIDDEN".to_owned()), "{dialect:?}");
    }
}

/// The documents are answers with 200, which another gateway takes for leave. It shows its own.
fn documents_are_shown_by_our_gateway_alone(stage: &Stage) {
    let asked = stage.asked();
    assert_eq!(direct(asked, &Told::get(ACME, "/.well-known/tiergate")).status, 200);
    for path in ["/.well-known/tiergate", "/.well-known/oauth-protected-resource/agents/x"] {
        let told = Told::get(ACME, path);
        for dialect in DIALECTS {
            let said = asked.ask(dialect, &told);
            assert_eq!(said.error(), (401, "INVALID_API_KEY".to_owned()), "{dialect:?} {path}");
            let challenge = said.answer.header("www-authenticate").unwrap();
            assert!(!challenge.contains("resource_metadata"), "{challenge}");
            assert_eq!(said.answer.header("link"), None, "it leads to no document that is not shown");
        }
    }
}

/// Over HTTP a gateway announces the length of its own call.
fn an_announced_length_means_the_same_where_it_is_told(stage: &Stage) {
    let asked = stage.asked();
    let told = Told::new("POST", "short.test", &public_path());
    let fits = told.clone().with("content-length", "1000");
    asked.ask(Dialect::Grpc, &fits).passes();
    let longer = told.with("content-length", "1001");
    let wanted = Verdict::of(&asked.site.gateway.ask(&longer.direct()));
    assert_eq!(wanted.status, 413);
    assert_eq!(asked.ask(Dialect::Grpc, &longer).refusal(), wanted);
}

fn a_dead_chain_means_the_same(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let site = Site::of(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    // Each dialect's refusal is that of the chain, and not of the time that a decision may take.
    let asked = Asked::start(site.set("authz.timeout", "25s").agent(4));
    let site = &asked.site;
    let told = || Told::get(ACME, &agents_path()).of_tenant("t");
    let by_key = told().key(site.key());
    for dialect in DIALECTS {
        asked.ask(dialect, &by_key).passes();
    }
    relay.close();
    until("the chain is missed", SOON, || (direct(&asked, &by_key).status != 200).then_some(()));
    assert_eq!(kind(&refused_alike(&asked, &by_key)), (503, "RPC_ERROR"));
    let by_signature = told().with_all(&signed(&site.agent().draft()));
    assert_eq!(refused_alike(&asked, &by_signature).status, 503);
    for dialect in DIALECTS {
        asked.ask(dialect, &Told::get(ACME, &public_path()).of_tenant("t")).passes();
    }
}

fn nonces_that_may_be_lost_mean_the_same(stage: &Stage) {
    let site = Site::of(stage).set("signature.max_ahead", "30m").set("signature.nonce_retention", "35m");
    let mut asked = Asked::start(site.agent(4));
    asked.site.gateway.service.kill();
    let accepted_from = unix_seconds() + 1_000;
    forget_nonces(&asked.site.gateway.service.data().join("tiergate.redb"), accepted_from);
    asked.site.gateway.launch("");
    let told = |secs| {
        let draft = asked.site.agent().draft().timestamp(secs);
        Told::get(ACME, &agents_path()).of_tenant("t").with_all(&signed(&draft))
    };
    let early = told(accepted_from - 1);
    let wanted = direct(&asked, &early);
    assert_eq!(wanted.status, 400);
    for dialect in DIALECTS {
        let said = asked.ask(dialect, &early).answer;
        let error = |answer: &Answer| serde_json::from_slice::<Value>(&answer.body).unwrap()["error"].clone();
        assert_eq!((said.status, error(&said)), (400, error(&wanted)), "{dialect:?}");
        let wait_secs: u64 = said.header("retry-after").unwrap().parse().unwrap();
        assert!((accepted_from - unix_seconds()..=1_000).contains(&wait_secs), "{dialect:?}: {wait_secs}");
        asked.ask(dialect, &told(accepted_from)).passes();
    }
}
