//! `POST /verify` and `/verify/signature`: the verification result field by field, and the key's scope. Which credentials count is in the
//! table of `gateway/entry_points.rs`.

use std::net::{TcpListener, TcpStream};

use alloy::primitives::{I256, U256};
use serde_json::{Value, json};

use crate::support::agents::{THRESHOLDS, unknown_key};
use crate::support::harness::{Case, cases};
use crate::support::signing::{ALICE, BOB, DEPLOYER};
use crate::support::{process::own_ip, time::unix_seconds, world::World};

pub(crate) const CASES: &[Case<World>] = cases![urls_of_owners_and_applications_are_never_fetched];

/// About what the chain says of an agent.
pub(crate) const PROFILES: &[Case<World>] = cases![
    a_fresh_agent_has_every_field_with_zeros_and_nulls,
    a_profile_shows_what_every_registry_says,
    texts_from_the_chain_come_through_as_they_are,
];

/// About keys and what is kept with them.
pub(crate) const KEYS: &[Case<World>] = cases![
    a_key_counts_for_its_own_agent_in_any_spelling_and_for_no_other,
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
    let key = agent.generate(service);
    chain.stake(agent.id, U256::from(1));
    for score in [-4, 1, -2, 0] {
        chain.feedback(agent.id, I256::unchecked_from(score));
    }
    chain.validate(DEPLOYER, agent.id, false, "");
    chain.validate(BOB, agent.id, true, "ipfs://evidence");
    let harbour = chain.organization("Harbour");
    let market = chain.organization("Night Market");
    chain.set_verified(harbour, true);
    chain.join(harbour, agent.id);
    chain.join(market, agent.id);
    let body = service.verify(&key).success(200);
    assert_eq!(body["owner"], json!(agent.owner.address.to_checksum(None)));
    assert_eq!(body["trustTier"], json!(3));
    assert_eq!(body["stakedAmount"], json!("100000000000000000000001"));
    assert_eq!(body["reputation"], json!({ "totalScore": "-5", "feedbackCount": 4, "averageRating": -1.25 }));
    let validation = json!({
        "count": 2,
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
    // A total beyond 64 bits keeps every digit.
    let other = world.agent(3);
    chain.feedback(other.id, I256::MIN);
    let reputation = service.verify_signature(&other.signed()).success(200)["reputation"].clone();
    assert_eq!(reputation["totalScore"], json!(I256::MIN.to_string()));
    assert!(reputation["averageRating"].as_f64().unwrap() < -5.7e76);
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

fn a_key_counts_for_its_own_agent_in_any_spelling_and_for_no_other(world: &World) {
    let (service, agent, other) = (world.service(), world.agent(3), world.agent(3));
    let key = agent.generate(service);
    let ask = |key: &str, named: Value| service.post("/verify", &json!({ "apiKey": key, "agentId": named }));
    for named in
        [Value::Null, json!(agent.text()), json!(format!("0{}", agent.id)), json!(format!("00{}", agent.id))]
    {
        assert_eq!(ask(&key, named).success(200)["agentId"], json!(agent.text()), "the canonical form");
    }
    // Also where its agent would be refused for want of stake.
    let unstaked = world.agent(0).generate(service);
    for named in [other.text(), "0".to_owned(), U256::MAX.to_string()] {
        for key in [&key, &unstaked, &unknown_key(1)] {
            let details = json!({ "agentId": named });
            ask(key, json!(named)).is_error(401, "INVALID_API_KEY", details);
        }
    }
    assert_eq!(service.verify(&key).allowance(), (166, 161), "nothing more of the budget was spent");
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

// threat: `declaredEndpoint` makes the service call somebody
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
