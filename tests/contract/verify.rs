//! `POST /verify`: the verification result field by field, and the key's scope.

use std::net::{TcpListener, TcpStream};

use alloy::primitives::{I256, U256};
use serde_json::{Value, json};

use crate::support::agents::{THRESHOLDS, unknown_key};
use crate::support::harness::{Case, cases};
use crate::support::process::own_ip;
use crate::support::signing::{ALICE, BOB, DEPLOYER};
use crate::support::time::unix_seconds;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    an_agent_without_stake_is_403_with_what_it_lacks,
    unknown_fields_are_ignored,
    urls_of_owners_and_applications_are_never_fetched,
];

/// About what the chain says of an agent.
pub(crate) const PROFILES: &[Case<World>] = cases![
    a_fresh_agent_has_every_field_with_zeros_and_nulls,
    a_profile_shows_what_every_registry_says,
    a_negative_score_has_its_sign_and_a_fractional_average,
    a_total_beyond_64_bits_keeps_every_digit,
    only_the_latest_validation_is_shown,
    texts_from_the_chain_come_through_as_they_are,
];

/// About keys and what is kept with them.
pub(crate) const KEYS: &[Case<World>] = cases![
    the_agent_defaults_to_the_owner_of_the_key,
    naming_the_keys_own_agent_is_fine_in_any_spelling,
    an_unknown_key_is_401,
    a_key_of_another_agent_is_401,
    an_invalid_key_of_an_agent_without_stake_is_401_not_403,
    the_mismatch_is_true_only_when_both_sides_are_known_and_differ,
    rotating_replaces_the_declared_endpoint,
];

fn a_fresh_agent_has_every_field_with_zeros_and_nulls(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let before = unix_seconds();
    let answer = service.verify(&key);
    let body = answer.success(200);
    let timestamp = body["timestamp"].as_u64().unwrap();
    assert!((before..=unix_seconds()).contains(&timestamp), "in seconds: {timestamp}");
    let expected = json!({
        "valid": true,
        "agentId": agent.text(),
        "owner": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "trustTier": 4,
        "stakedAmount": "500000000000000000000000",
        "reputation": { "totalScore": "0", "feedbackCount": 0, "averageRating": null },
        "validation": {
            "count": 0, "latestPassed": null, "latestEvidence": null, "latestValidator": null,
        },
        "metadataURI": "ipfs://card",
        "timestamp": timestamp,
        "endpointMismatch": false,
        "organizations": [],
    });
    assert_eq!(body, expected, "these fields and no others");
    assert_eq!(answer.allowance(), (2_700, 2_699));
}

fn a_profile_shows_what_every_registry_says(world: &World) {
    let (service, chain, agent) = (world.service(), world.chain(), world.agent(3));
    chain.stake(agent.id, U256::from(1));
    for score in [5, 4] {
        chain.feedback(agent.id, I256::unchecked_from(score));
    }
    chain.validate(BOB, agent.id, true, "ipfs://evidence");
    let harbour = chain.organization("Harbour");
    let market = chain.organization("Night Market");
    chain.set_verified(harbour, true);
    chain.join(harbour, agent.id);
    chain.join(market, agent.id);
    let body = service.verify(&agent.generate(service)).success(200);
    assert_eq!(body["owner"], json!(agent.owner.address.to_checksum(None)));
    assert_eq!(body["trustTier"], json!(3));
    assert_eq!(body["stakedAmount"], json!("100000000000000000000001"));
    assert_eq!(body["reputation"], json!({ "totalScore": "9", "feedbackCount": 2, "averageRating": 4.5 }));
    let validation = json!({
        "count": 1,
        "latestPassed": true,
        "latestEvidence": "ipfs://evidence",
        "latestValidator": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    });
    assert_eq!(body["validation"], validation);
    let organizations = json!([
        { "orgId": harbour.to_string(), "name": "Harbour", "verified": true },
        { "orgId": market.to_string(), "name": "Night Market", "verified": false },
    ]);
    assert_eq!(body["organizations"], organizations);
}

fn a_negative_score_has_its_sign_and_a_fractional_average(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    for score in [-4, 1, -2, 0] {
        world.chain().feedback(agent.id, I256::unchecked_from(score));
    }
    let body = service.verify(&agent.generate(service)).success(200);
    let expected = json!({ "totalScore": "-5", "feedbackCount": 4, "averageRating": -1.25 });
    assert_eq!(body["reputation"], expected);
}

fn a_total_beyond_64_bits_keeps_every_digit(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    world.chain().feedback(agent.id, I256::MIN);
    let body = service.verify(&agent.generate(service)).success(200);
    assert_eq!(
        body["reputation"]["totalScore"],
        json!("-57896044618658097711785492504343953926634992332820282019728792003956564819968")
    );
    assert!(body["reputation"]["averageRating"].as_f64().unwrap() < -5.7e76);
}

fn only_the_latest_validation_is_shown(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    world.chain().validate(BOB, agent.id, true, "first");
    world.chain().validate(DEPLOYER, agent.id, false, "");
    let body = service.verify(&agent.generate(service)).success(200);
    let expected = json!({
        "count": 2,
        "latestPassed": false,
        "latestEvidence": "",
        "latestValidator": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
    });
    assert_eq!(body["validation"], expected);
}

fn texts_from_the_chain_come_through_as_they_are(world: &World) {
    let text = "\"quoted\" \\ \u{1}\r\nX-Injected: 1\r\n\r\n\u{202e}üñï🙂";
    let (service, chain) = (world.service(), world.chain());
    let id = chain.mint(ALICE, text);
    chain.stake(id, THRESHOLDS[3]);
    chain.validate(BOB, id, true, text);
    chain.join(chain.organization(text), id);
    let answer = service.verify_signature(&world.known_agent(id, ALICE).signed());
    let body = answer.success(200);
    assert_eq!(answer.header("x-injected"), None);
    assert_eq!(body["metadataURI"], json!(text));
    assert_eq!(body["validation"]["latestEvidence"], json!(text));
    assert_eq!(body["organizations"][0]["name"], json!(text));
}

fn the_agent_defaults_to_the_owner_of_the_key(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    for body in [json!({ "apiKey": key }), json!({ "apiKey": key, "agentId": null })] {
        assert_eq!(service.post("/verify", &body).success(200)["agentId"], json!(agent.text()));
    }
}

fn naming_the_keys_own_agent_is_fine_in_any_spelling(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    for zeros in ["", "0", "00"] {
        let named = format!("{zeros}{}", agent.id);
        let answer = service.post("/verify", &json!({ "apiKey": key, "agentId": named }));
        assert_eq!(answer.success(200)["agentId"], json!(agent.text()), "the canonical form");
    }
}

fn an_unknown_key_is_401(world: &World) {
    let service = world.service();
    let key = unknown_key(1);
    service.verify(&key).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
    let named = service.post("/verify", &json!({ "apiKey": key, "agentId": "007" }));
    named.is_error(401, "INVALID_API_KEY", json!({ "agentId": "7" }));
}

fn a_key_of_another_agent_is_401(world: &World) {
    let (service, agent, other) = (world.service(), world.agent(3), world.agent(3));
    let key = agent.generate(service);
    for named in [other.text(), "0".to_owned(), U256::MAX.to_string()] {
        let answer = service.post("/verify", &json!({ "apiKey": key, "agentId": named }));
        answer.is_error(401, "INVALID_API_KEY", json!({ "agentId": named }));
    }
    assert_eq!(service.verify(&key).allowance(), (166, 165), "nothing of the budget was spent");
}

fn an_agent_without_stake_is_403_with_what_it_lacks(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    let key = agent.generate(service);
    let details = json!({
        "agentId": agent.text(),
        "currentTier": 0,
        "requiredTier": 1,
        "requiredStake": "1000000000000000000000",
    });
    service.verify(&key).is_error(403, "TIER_BLOCKED", details);
}

fn an_invalid_key_of_an_agent_without_stake_is_401_not_403(world: &World) {
    let (service, agent, other) = (world.service(), world.agent(0), world.agent(0));
    let key = agent.generate(service);
    let named = service.post("/verify", &json!({ "apiKey": key, "agentId": other.text() }));
    named.is_error(401, "INVALID_API_KEY", json!({ "agentId": other.text() }));
}

fn the_mismatch_is_true_only_when_both_sides_are_known_and_differ(world: &World) {
    let (service, agent, undeclared) = (world.service(), world.agent(4), world.agent(4));
    let key = agent.generate_for(service, "https://App.Example/hook?x=1");
    let mismatch = |key: &str, origin: Value| {
        let body = json!({ "apiKey": key, "origin": origin });
        service.post("/verify", &body).success(200)["endpointMismatch"].as_bool().unwrap()
    };
    for same in [
        Value::Null,
        json!("https://app.example"),
        json!("https://app.example:443/elsewhere#x"),
        json!("HTTPS://APP.EXAMPLE"),
    ] {
        assert!(!mismatch(&key, same.clone()), "{same}");
    }
    for other in [
        "http://app.example",
        "https://app.example:8443",
        "https://sub.app.example",
        "https://app.example.evil.example",
        "https://app.example.",
        "http://127.0.0.1",
    ] {
        assert!(mismatch(&key, json!(other)), "{other}");
    }
    let undeclared = undeclared.generate(service);
    assert!(!mismatch(&undeclared, json!("https://anywhere.example")), "nothing was declared");
    assert!(!mismatch(&undeclared, Value::Null));
}

fn rotating_replaces_the_declared_endpoint(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    agent.generate_for(service, "https://one.example");
    let mismatches = |key: &str| {
        ["https://one.example", "https://two.example"].map(|origin| {
            let body = json!({ "apiKey": key, "origin": origin });
            service.post("/verify", &body).success(200)["endpointMismatch"].as_bool().unwrap()
        })
    };
    let mut body = agent.signed();
    body["declaredEndpoint"] = json!("https://two.example/x");
    let rotated = service.rotate(&body).success(200);
    assert_eq!(mismatches(rotated["apiKey"].as_str().unwrap()), [true, false]);
    let undeclared = service.rotate(&agent.signed()).success(200);
    assert_eq!(mismatches(undeclared["apiKey"].as_str().unwrap()), [false, false], "nothing declared now");
}

fn unknown_fields_are_ignored(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let body = json!({ "apiKey": agent.generate(service), "extra": [1, { "agentId": "0" }], "nonce": 7 });
    assert_eq!(service.post("/verify", &body).success(200)["agentId"], json!(agent.text()));
}

fn urls_of_owners_and_applications_are_never_fetched(world: &World) {
    let canary = TcpListener::bind((own_ip(), 0)).unwrap();
    let url = format!("http://{}/hook", canary.local_addr().unwrap());
    let (service, chain) = (world.service(), world.chain());
    let id = chain.mint(ALICE, &url);
    chain.stake(id, THRESHOLDS[3]);
    chain.validate(BOB, id, true, &url);
    let key = world.known_agent(id, ALICE).generate_for(service, &url);
    for _ in 0..20 {
        let body = service.post("/verify", &json!({ "apiKey": key, "origin": url })).success(200);
        assert_eq!(body["metadataURI"], json!(url));
    }
    // Whoever came before us is accepted before us.
    let us = TcpStream::connect(canary.local_addr().unwrap()).unwrap();
    assert_eq!(canary.accept().unwrap().1, us.local_addr().unwrap(), "somebody came");
}
