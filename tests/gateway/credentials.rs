//! Where a credential is looked for, that there is exactly one, and what a request without a usable one gets.

use alloy::primitives::{U256, hex};
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::{signed, signed_with, without};
use crate::rig::refusals::is_unauthenticated;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::agents::unknown_key;
use crate::support::client::Answer;
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    header_names_and_the_scheme_have_no_case,
    without_a_credential_it_is_401_with_a_challenge,
    a_foreign_token_is_no_credential,
    a_foreign_token_goes_through_untouched,
    the_same_credential_header_twice_is_401_in_any_order,
    credentials_joined_by_a_comma_are_401,
    a_key_in_both_headers_is_401,
    a_tenant_may_take_keys_alone,
    a_tenant_may_take_signatures_alone,
    a_refused_credential_reaches_no_upstream,
    credentials_in_query_cookie_or_body_count_for_nothing,
    a_contract_wallets_signature_passes_once_where_wallets_are_asked_and_nowhere_else,
];

/// Cases that the store has a part in.
pub(crate) const STORED: &[Case] = cases![
    a_key_and_a_signature_together_are_400,
    an_owners_signature_passes_once,
    a_replayed_signature_is_400_also_at_another_tenant_and_at_the_api,
    a_strangers_signature_is_401_and_burns_nothing,
    each_signature_header_that_stands_twice_is_401,
    a_revoked_key_is_401_at_once,
    a_rotated_key_is_401_at_once_and_the_new_one_passes,
];

fn ask(stage: &Stage, request: &Request) -> Answer {
    stage.site().gateway.ask(request)
}

fn header_names_and_the_scheme_have_no_case(stage: &Stage) {
    let (_, key) = stage.agent(4);
    for (name, value) in [
        ("authorization", format!("bearer {key}")),
        ("AUTHORIZATION", format!("BEARER {key}")),
        ("aUtHoRiZaTiOn", format!("bEaReR {key}")),
        ("Authorization", format!("Bearer  {key}")),
        ("x-api-key", key.clone()),
        ("X-Api-Key", key.clone()),
        ("X-API-KEY", key.clone()),
        ("X-API-Key", format!(" \t{key}\t ")),
    ] {
        let path = agents_path();
        let answer = ask(stage, &Request::get(ACME, &path).with(name, &value));
        assert_eq!(answer.status, 200, "{name}: {value:?}: {}", answer.text());
        let seen = stage.site().upstream.only(&path);
        assert!(!String::from_utf8_lossy(&seen.head).contains(&key), "{name}: the upstream has seen the key");
    }
    let (agent, _) = stage.agent(4);
    let headers = signed(&agent.draft());
    let lower: Vec<_> = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
    assert_eq!(ask(stage, &Request::get(ACME, &agents_path()).with_all(&lower)).status, 200);
}

fn without_a_credential_it_is_401_with_a_challenge(stage: &Stage) {
    let path = agents_path();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FOO"] {
        is_unauthenticated(&ask(stage, &Request::new(method, ACME, &path).body(b"")));
    }
    assert_eq!(ask(stage, &Request::new("HEAD", ACME, &path)).status, 401);
    stage.site().is_unseen(&path);
}

/// Values that do not begin as our keys do.
const FOREIGN: &[(&str, &str)] = &[
    ("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
    ("Authorization", "Bearer sk-abc"),
    ("Authorization", "Basic c3ZjX2xpdmVfdjFfOng="),
    ("Authorization", "Digest username=\"x\""),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer SVC_LIVE_V1_abc"),
    ("X-API-Key", "another"),
    ("X-API-Key", ""),
    ("Authorization", ""),
];

fn a_foreign_token_is_no_credential(stage: &Stage) {
    let path = agents_path();
    for (name, value) in FOREIGN {
        is_unauthenticated(&ask(stage, &Request::get(ACME, &path).with(name, value)));
    }
    stage.site().is_unseen(&path);
}

fn a_foreign_token_goes_through_untouched(stage: &Stage) {
    let (_, key) = stage.agent(4);
    for (name, value) in FOREIGN {
        let path = public_path();
        assert_eq!(ask(stage, &Request::get(ACME, &path).with(name, value)).status, 200);
        assert_eq!(stage.site().upstream.only(&path).all(name), [*value]);
    }
    // A foreign token beside our key in the other header is the upstream's business.
    let path = agents_path();
    let request = Request::get(ACME, &path).with("Authorization", "Bearer sk-abc").key(&key);
    assert_eq!(ask(stage, &request).status, 200);
    let seen = stage.site().upstream.only(&path);
    assert_eq!(seen.all("authorization"), ["Bearer sk-abc"]);
    assert_eq!(seen.all("x-api-key"), [""; 0]);
}

fn the_same_credential_header_twice_is_401_in_any_order(stage: &Stage) {
    let (_, good) = stage.agent(4);
    let (_, other) = stage.agent(4);
    let bad = unknown_key(1);
    let path = agents_path();
    let bearer = |key: &str| format!("Bearer {key}");
    for [first, second] in [[&good, &good], [&good, &other], [&good, &bad], [&bad, &good], [&bad, &bad]] {
        let twice = Request::get(ACME, &path).key(first).key(second);
        is_unauthenticated(&ask(stage, &twice));
        let apart = Request::get(ACME, &path).key(first).with("X-Between", "x").with("x-api-key", second);
        is_unauthenticated(&ask(stage, &apart));
        let twice = Request::get(ACME, &path)
            .with("Authorization", &bearer(first))
            .with("authorization", &bearer(second));
        is_unauthenticated(&ask(stage, &twice));
    }
    for foreign in ["Bearer sk-abc", "Basic eDp5", ""] {
        for [first, second] in [[bearer(&good), foreign.to_owned()], [foreign.to_owned(), bearer(&good)]] {
            let mixed =
                Request::get(ACME, &path).with("Authorization", &first).with("Authorization", &second);
            is_unauthenticated(&ask(stage, &mixed));
        }
        for [first, second] in [[good.as_str(), foreign], [foreign, good.as_str()]] {
            is_unauthenticated(&ask(stage, &Request::get(ACME, &path).key(first).key(second)));
        }
    }
    stage.site().is_unseen(&path);
}

fn credentials_joined_by_a_comma_are_401(stage: &Stage) {
    let (_, good) = stage.agent(4);
    let (_, other) = stage.agent(4);
    let path = agents_path();
    for (name, value) in [
        ("Authorization", format!("Bearer {good}, Bearer {other}")),
        ("Authorization", format!("Bearer {good},Bearer {good}")),
        ("Authorization", format!("Bearer {good}, Basic eDp5")),
        ("Authorization", format!("Basic eDp5, Bearer {good}")),
        ("Authorization", format!("Bearer sk-abc, Bearer {good}")),
        ("Authorization", format!("Bearer {good},")),
        ("Authorization", format!("Bearer {good}, {other}")),
        ("X-API-Key", format!("{good}, {other}")),
        ("X-API-Key", format!("{good},{good}")),
        ("X-API-Key", format!("another, {good}")),
        ("X-API-Key", format!(",{good}")),
    ] {
        is_unauthenticated(&ask(stage, &Request::get(ACME, &path).with(name, &value)));
    }
    stage.site().is_unseen(&path);
}

fn a_key_in_both_headers_is_401(stage: &Stage) {
    let (_, good) = stage.agent(4);
    let bad = unknown_key(2);
    let path = agents_path();
    for [bearer, plain] in [[&good, &good], [&good, &bad], [&bad, &good]] {
        let bearer = format!("Bearer {bearer}");
        let request = Request::get(ACME, &path);
        is_unauthenticated(&ask(stage, &request.clone().with("Authorization", &bearer).key(plain)));
        is_unauthenticated(&ask(stage, &request.key(plain).with("Authorization", &bearer)));
    }
    stage.site().is_unseen(&path);
}

fn a_key_and_a_signature_together_are_400(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let path = agents_path();
    let headers = signed(&agent.draft());
    for (name, value) in [("X-API-Key", key.clone()), ("Authorization", format!("Bearer {key}"))] {
        let request = Request::get(ACME, &path);
        ask(stage, &request.clone().with(name, &value).with_all(&headers)).error(400, "VALIDATION_ERROR");
        ask(stage, &request.clone().with_all(&headers).with(name, &value)).error(400, "VALIDATION_ERROR");
        // Already with one of the four, or an invalid key.
        ask(stage, &request.with(name, &value).with("X-Agent-Signature", "0x"))
            .error(400, "VALIDATION_ERROR");
    }
    stage.site().is_unseen(&path);
    let answer = ask(stage, &Request::get(ACME, &path).with_all(&headers));
    assert_eq!((answer.status, answer.allowance()), (200, (2_700, 2_699)), "nothing was spent");
}

fn an_owners_signature_passes_once(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let path = agents_path();
    let request = Request::get(ACME, &path).with_all(&signed(&draft));
    let answer = ask(stage, &request);
    assert_eq!((answer.status, answer.allowance()), (200, (166, 165)));
    let details = json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string() });
    ask(stage, &request).is_error(400, "REPLAY_DETECTED", details);
    stage.site().upstream.only(&path);
}

fn a_replayed_signature_is_400_also_at_another_tenant_and_at_the_api(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let details = json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string() });
    let headers = signed(&draft);
    assert_eq!(ask(stage, &Request::get(ACME, &agents_path()).with_all(&headers)).status, 200);
    let elsewhere = Request::get("beta.test", &agents_path()).with_all(&headers);
    ask(stage, &elsewhere).is_error(400, "REPLAY_DETECTED", details.clone());
    let service = &stage.site().gateway.service;
    service.verify_signature(&draft.body()).is_error(400, "REPLAY_DETECTED", details);
    let draft = agent.draft();
    service.verify_signature(&draft.body()).success(200);
    let answer = ask(stage, &Request::get(ACME, &agents_path()).with_all(&signed(&draft)));
    answer.error(400, "REPLAY_DETECTED");
}

fn a_strangers_signature_is_401_and_burns_nothing(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let path = agents_path();
    let details = json!({
        "agentId": agent.text(),
        "owner": ALICE.address.to_checksum(None),
        "recoveredSigner": BOB.address.to_checksum(None),
    });
    let answer = ask(stage, &Request::get(ACME, &path).with_all(&signed(&draft.clone().by(BOB))));
    answer.is_error(401, "SIGNATURE_INVALID", details);
    stage.site().is_unseen(&path);
    let answer = ask(stage, &Request::get(ACME, &path).with_all(&signed(&draft)));
    assert_eq!((answer.status, answer.allowance()), (200, (166, 165)));
}

fn each_signature_header_that_stands_twice_is_401(stage: &Stage) {
    let (agent, _) = stage.agent(3);
    let draft = agent.draft();
    let headers = signed(&draft);
    let path = agents_path();
    for (name, value) in &headers {
        for (first, second) in [(value.as_str(), value.as_str()), (value, "1"), ("1", value)] {
            let others = without(&headers, name);
            let request = Request::get(ACME, &path);
            let apart =
                request.clone().with(name, first).with_all(&others).with(&name.to_lowercase(), second);
            let together = request.with_all(&others).with(name, first).with(name, second);
            for twice in [apart, together] {
                is_unauthenticated(&ask(stage, &twice));
            }
        }
    }
    stage.site().is_unseen(&path);
    assert_eq!(ask(stage, &Request::get(ACME, &path).with_all(&headers)).status, 200, "nothing was spent");
}

fn a_contract_wallets_signature_passes_once_where_wallets_are_asked_and_nowhere_else(stage: &Stage) {
    let (world, asking) = (stage.world(), Site::of(stage).set("signature.contracts", true).start());
    let wallet = Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key };
    let id = world.agent(3).id;
    world.chain().transfer(ALICE, wallet, id);
    let agent = world.known_agent(id, wallet);
    for padding in [0, 1, 4096 - 65] {
        let (path, draft) = (agents_path(), agent.draft());
        let signature = [&draft.signature()[..], &vec![0x5a; padding]].concat();
        let headers = signed_with(&draft, &hex::encode_prefixed(&signature));
        let request = Request::get(ACME, &path).with_all(&headers);
        let refused = ask(stage, &request);
        if padding == 0 {
            refused.error(401, "SIGNATURE_INVALID");
        } else {
            assert_eq!(refused.error(400, "VALIDATION_ERROR")["field"], json!("signature"));
        }
        assert_eq!(asking.gateway.ask(&request).status, 200, "{padding}");
        asking.gateway.ask(&request).error(400, "REPLAY_DETECTED");
        let seen = asking.upstream.only(&path);
        assert_eq!(seen.all("x-agent-owner"), [wallet.address.to_checksum(None)]);
        assert_eq!(seen.all("x-agent-signature"), [""; 0]);
    }
    let stranger = signed(&agent.draft().by(BOB));
    let answer = asking.gateway.ask(&Request::get(ACME, &agents_path()).with_all(&stranger));
    answer.error(401, "SIGNATURE_INVALID");
}

fn a_tenant_may_take_keys_alone(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let path = agents_path();
    let draft = agent.draft();
    is_unauthenticated(&ask(stage, &Request::get("keys.test", &path).with_all(&signed(&draft))));
    stage.site().is_unseen(&path);
    assert_eq!(ask(stage, &Request::get("keys.test", &path).key(&key)).status, 200);
    assert_eq!(
        ask(stage, &Request::get(ACME, &path).with_all(&signed(&draft))).status,
        200,
        "nothing was spent"
    );
}

fn a_tenant_may_take_signatures_alone(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let path = agents_path();
    is_unauthenticated(&ask(stage, &Request::get("signatures.test", &path).key(&key)));
    let bearer = Request::get("signatures.test", &path).with("Authorization", &format!("Bearer {key}"));
    is_unauthenticated(&ask(stage, &bearer));
    stage.site().is_unseen(&path);
    let request = Request::get("signatures.test", &path).with_all(&signed(&agent.draft()));
    assert_eq!(ask(stage, &request).status, 200);
}

fn a_revoked_key_is_401_at_once(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let request = Request::get(ACME, &agents_path()).key(&key);
    assert_eq!(ask(stage, &request).status, 200);
    stage.site().gateway.service.revoke(&agent.signed()).success(200);
    ask(stage, &request).error(401, "INVALID_API_KEY");
}

fn a_rotated_key_is_401_at_once_and_the_new_one_passes(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let request = |key: &str| Request::get(ACME, &agents_path()).key(key);
    assert_eq!(ask(stage, &request(&key)).status, 200);
    let rotated = stage.site().gateway.service.rotate(&agent.signed()).success(200);
    ask(stage, &request(&key)).error(401, "INVALID_API_KEY");
    let answer = ask(stage, &request(rotated["apiKey"].as_str().unwrap()));
    assert_eq!((answer.status, answer.allowance()), (200, (2_700, 2_698)), "the budget is the agent's");
}

fn a_refused_credential_reaches_no_upstream(stage: &Stage) {
    let path = agents_path();
    let (unstaked, key) = stage.agent(0);
    let missing = stage.world().known_agent(U256::from(777_777_777_u64), ALICE);
    let requests = [
        Request::get(ACME, &path).key(&unknown_key(3)),
        Request::get(ACME, &path).key("svc_live_v1_short"),
        Request::get(ACME, &path).key(&key),
        Request::get(ACME, &path).with_all(&signed(&unstaked.draft())),
        Request::get(ACME, &path).with_all(&signed(&missing.draft())),
        Request::get(ACME, &path).with_all(&signed_with(&unstaked.draft(), "0x00")),
    ];
    for (request, status) in requests.iter().zip([401, 400, 403, 403, 404, 400]) {
        let answer = ask(stage, request);
        assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
    }
    stage.site().is_unseen(&path);
}

fn credentials_in_query_cookie_or_body_count_for_nothing(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let path = agents_path();
    let requests = [
        Request::get(ACME, &format!("{path}?api_key={key}&apiKey={key}&access_token={key}")),
        Request::get(ACME, &path).with("Cookie", &format!("X-API-Key={key}")),
        Request::get(ACME, &path).with("Proxy-Authorization", &format!("Bearer {key}")),
        Request::get(ACME, &path).with("X_API_Key", &key),
        Request::get(ACME, &path).with("Authorization", &key),
        Request::get(ACME, &path).with("Authorization", &format!("Token {key}")),
        Request::new("POST", ACME, &path).body(format!("{{\"apiKey\":\"{key}\"}}").as_bytes()),
    ];
    for request in requests {
        is_unauthenticated(&ask(stage, &request));
    }
    stage.site().is_unseen(&path);
}
