//! The contract's rules of authentication, 1 to 6, over every endpoint that takes a signature.

use alloy::primitives::{Address, U256};
use alloy::sol_types::Eip712Domain;
use serde_json::{Value, json};

use crate::support::agents::Agent;
use crate::support::client::with;
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service, status_of};
use crate::support::signing::{ALICE, BOB, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::world::World;

/// Far outside of the window, however busy the machine is.
const HOUR_SECS: u64 = 3_600;

/// Of every signature.
pub(crate) const SIGNATURES: &[Case<World>] = cases![
    rule_1_a_strangers_signature_is_401_and_names_owner_and_signer,
    rule_1_every_field_is_bound_by_the_signature,
    rule_1_the_domain_is_the_contracts_and_no_other,
    rule_1_the_domain_may_be_configured_and_counts_then,
    rule_1_a_signature_that_is_not_canonical_has_no_signer,
    rule_1_v_may_be_0_or_1_and_hex_may_be_upper_case,
    rule_2_a_timestamp_outside_the_window_is_a_replay_everywhere,
    rule_5_no_endpoint_shows_a_key_again,
];

/// About owners, whom the chain knows.
pub(crate) const OWNERS: &[Case<World>] = cases![
    rule_1_after_a_transfer_only_the_new_owners_signature_counts,
    rule_1_a_transfer_counts_for_verification_by_signature_at_once,
    rule_3_a_key_outlives_a_transfer_until_the_new_owner_replaces_it,
    rule_4_agent_0_and_unminted_agents_are_404,
    rule_4_a_burned_agent_is_404,
    rule_4_a_reminted_agent_is_its_new_owners,
];

/// About nonces, which the store keeps.
pub(crate) const NONCES: &[Case<World>] = cases![
    rule_1_a_strangers_signature_burns_neither_nonce_nor_budget,
    rule_2_a_nonce_is_used_up_for_every_endpoint,
];

fn rule_1_a_strangers_signature_is_401_and_names_owner_and_signer(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let details = json!({
        "agentId": agent.text(),
        "owner": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "recoveredSigner": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    });
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.draft().by(BOB).body());
        answer.is_error(401, "SIGNATURE_INVALID", details.clone());
    }
}

fn rule_1_after_a_transfer_only_the_new_owners_signature_counts(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    world.chain().transfer(ALICE, BOB, agent.id);
    let details = json!({
        "agentId": agent.text(),
        "owner": BOB.address.to_checksum(None),
        "recoveredSigner": ALICE.address.to_checksum(None),
    });
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.signed());
        answer.is_error(401, "SIGNATURE_INVALID", details.clone());
    }
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.draft().by(BOB).body());
        assert_eq!(answer.status, status_of(endpoint), "{endpoint:?}: {}", answer.text());
    }
}

fn rule_1_a_transfer_counts_for_verification_by_signature_at_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let mut owners = [ALICE, BOB];
    for _ in 0..4 {
        let [old, new] = owners;
        // The profile is cached with the old owner now.
        let body = agent.draft().by(old).body();
        assert_eq!(
            service.verify_signature(&body).success(200)["owner"],
            json!(old.address.to_checksum(None))
        );
        world.chain().transfer(old, new, agent.id);
        service.verify_signature(&agent.draft().by(old).body()).error(401, "SIGNATURE_INVALID");
        let body = service.verify_signature(&agent.draft().by(new).body()).success(200);
        assert_eq!(body["owner"], json!(new.address.to_checksum(None)), "the profile fits the signer");
        owners = [new, old];
    }
}

fn rule_1_every_field_is_bound_by_the_signature(world: &World) {
    let (service, agent, other) = (world.service(), world.agent(3), world.agent(3));
    let draft = agent.draft();
    let body = draft.body();
    for (field, value) in [
        ("agentId", json!(other.text())),
        ("nonce", json!((draft.nonce + U256::from(1)).to_string())),
        ("timestamp", json!(draft.timestamp - 1)),
    ] {
        let details = service.verify_signature(&with(&body, field, value)).error(401, "SIGNATURE_INVALID");
        let signer: Address = details["recoveredSigner"].as_str().unwrap().parse().unwrap();
        assert_ne!(signer, ALICE.address, "{field}");
    }
    service.verify_signature(&body).success(200);
}

fn rule_1_the_domain_is_the_contracts_and_no_other(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let draft = agent.draft();
    let right = &draft.domain;
    let others = [
        Eip712Domain { name: Some("Service verification".into()), ..right.clone() },
        Eip712Domain { version: Some("2".into()), ..right.clone() },
        Eip712Domain { chain_id: Some(U256::from(1)), ..right.clone() },
        Eip712Domain { chain_id: Some(U256::from(31_337)), ..right.clone() },
        Eip712Domain { verifying_contract: Some(world.chain().contracts.stake_vault), ..right.clone() },
        Eip712Domain { verifying_contract: None, ..right.clone() },
    ];
    for domain in others {
        let forged = Draft { domain: domain.clone(), ..draft.clone() };
        let answer = service.verify_signature(&forged.body());
        assert_eq!(answer.status, 401, "{domain:?}: {}", answer.text());
    }
    service.verify_signature(&draft.body()).success(200);
}

fn rule_1_the_domain_may_be_configured_and_counts_then(world: &World) {
    let settings = world
        .settings()
        .set("signature.domain_name", "Another Service")
        .set("signature.domain_version", "2")
        .set("signature.chain_id", 1)
        .set("signature.max_age", "200s")
        .set("signature.max_ahead", "0s");
    let (service, agent) = (Service::start(settings), world.agent(4));
    let own = |draft: Draft| {
        let domain = Eip712Domain {
            name: Some("Another Service".into()),
            version: Some("2".into()),
            chain_id: Some(U256::from(1)),
            ..draft.domain
        };
        Draft { domain, ..draft }.body()
    };
    service.verify_signature(&agent.signed()).error(401, "SIGNATURE_INVALID");
    service.verify_signature(&own(agent.draft())).success(200);
    let old = agent.draft().timestamp(unix_seconds() - 250);
    service.verify_signature(&own(old)).error(400, "REPLAY_DETECTED");
    let ahead = agent.draft().timestamp(unix_seconds() + 55);
    service.verify_signature(&own(ahead)).error(400, "REPLAY_DETECTED");
}

fn rule_1_a_signature_that_is_not_canonical_has_no_signer(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let draft = agent.draft();
    let good = draft.signature();
    let changed = |change: &dyn Fn(&mut [u8; 65])| {
        let mut signature = good;
        change(&mut signature);
        signature
    };
    let order: U256 = "0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141".parse().unwrap();
    let high_s = order - U256::from_be_slice(&good[32..64]);
    let malleated = changed(&|signature| {
        signature[32..64].copy_from_slice(&high_s.to_be_bytes::<32>());
        signature[64] = 55 - signature[64];
    });
    let details = json!({
        "agentId": agent.text(),
        "owner": ALICE.address.to_checksum(None),
        "recoveredSigner": null,
    });
    let forms = [
        malleated,
        changed(&|signature| signature[64] = 2),
        changed(&|signature| signature[64] = 26),
        changed(&|signature| signature[64] = 29),
        changed(&|signature| signature[64] = 35),
        changed(&|signature| signature[64] = 255),
        changed(&|signature| signature[..32].fill(0)),
        changed(&|signature| signature[32..64].fill(0)),
        changed(&|signature| signature[..32].fill(0xff)),
        changed(&|signature| signature[..64].copy_from_slice(&[order.to_be_bytes::<32>(); 2].concat())),
        [0; 65],
        [0xff; 65],
    ];
    for signature in forms {
        let answer = service.verify_signature(&draft.body_with(&signature));
        answer.is_error(401, "SIGNATURE_INVALID", details.clone());
    }
    service.verify_signature(&draft.body()).success(200);
}

fn rule_1_v_may_be_0_or_1_and_hex_may_be_upper_case(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let draft = agent.draft();
    let mut signature = draft.signature();
    signature[64] -= 27;
    service.verify_signature(&draft.body_with(&signature)).success(200);
    service.verify_signature(&draft.body()).error(400, "REPLAY_DETECTED");
    let body = agent.signed();
    let upper = body["signature"].as_str().unwrap()[2..].to_uppercase();
    service.verify_signature(&with(&body, "signature", json!(format!("0x{upper}")))).success(200);
}

fn rule_1_a_strangers_signature_burns_neither_nonce_nor_budget(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let draft = agent.draft();
    for _ in 0..5 {
        service.verify_signature(&draft.clone().by(BOB).body()).error(401, "SIGNATURE_INVALID");
    }
    let answer = service.verify_signature(&draft.body());
    answer.success(200);
    assert_eq!(answer.allowance(), (1, 0));
    let draft = agent.draft();
    service.rotate(&draft.clone().by(BOB).body()).error(401, "SIGNATURE_INVALID");
    service.rotate(&draft.body()).success(200);
}

fn rule_2_a_nonce_is_used_up_for_every_endpoint(world: &World) {
    let service = world.service();
    for used_at in SIGNED_ENDPOINTS {
        let agent = world.agent(4);
        let draft = agent.draft();
        let details = json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string() });
        let used = service.signed(used_at, &draft.body());
        assert_eq!(used.status, status_of(used_at), "{}", used.text());
        for endpoint in SIGNED_ENDPOINTS {
            let replayed = service.signed(endpoint, &draft.body());
            // Also to generate a key for an agent that has one: the nonce is looked at first.
            replayed.is_error(400, "REPLAY_DETECTED", details.clone());
        }
    }
}

fn rule_2_a_timestamp_outside_the_window_is_a_replay_everywhere(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    for endpoint in SIGNED_ENDPOINTS {
        for timestamp in [unix_seconds() - HOUR_SECS, unix_seconds() + HOUR_SECS] {
            let draft = agent.draft().timestamp(timestamp);
            let details =
                json!({ "agentId": agent.text(), "nonce": draft.nonce.to_string(), "field": "timestamp" });
            service.signed(endpoint, &draft.body()).is_error(400, "REPLAY_DETECTED", details);
        }
    }
}

fn rule_3_a_key_outlives_a_transfer_until_the_new_owner_replaces_it(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    service.verify(&key).success(200);
    world.chain().transfer(ALICE, BOB, agent.id);
    until("the new owner shows", SOON, || {
        let owner = service.verify(&key).success(200)["owner"].clone();
        (owner == json!(BOB.address.to_checksum(None))).then_some(())
    });
    service.rotate(&agent.signed()).error(401, "SIGNATURE_INVALID");
    service.rotate(&agent.draft().by(BOB).body()).success(200);
    service.verify(&key).error(401, "INVALID_API_KEY");
}

fn gone(world: &World, agent: &Agent) {
    for endpoint in SIGNED_ENDPOINTS {
        let answer = world.service().signed(endpoint, &agent.signed());
        answer.is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": agent.text() }));
    }
}

fn rule_4_agent_0_and_unminted_agents_are_404(world: &World) {
    for id in [U256::ZERO, U256::from(888_888_888_u64), U256::MAX] {
        gone(world, &world.known_agent(id, ALICE));
    }
    let zeros = with(&world.known_agent(U256::ZERO, ALICE).signed(), "agentId", json!("000"));
    world.service().verify_signature(&zeros).is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": "0" }));
}

fn rule_4_a_burned_agent_is_404(world: &World) {
    let agent = world.agent(4);
    world.service().verify_signature(&agent.signed()).success(200);
    world.chain().burn(ALICE, agent.id);
    gone(world, &agent);
}

fn rule_4_a_reminted_agent_is_its_new_owners(world: &World) {
    let (service, chain, agent) = (world.service(), world.chain(), world.agent(4));
    chain.burn(ALICE, agent.id);
    service.verify_signature(&agent.signed()).error(404, "AGENT_NOT_FOUND");
    chain.mint_with_id(BOB, agent.id);
    service.verify_signature(&agent.signed()).error(401, "SIGNATURE_INVALID");
    let body = service.verify_signature(&agent.draft().by(BOB).body()).success(200);
    assert_eq!(body["owner"], json!(BOB.address.to_checksum(None)));
}

fn rule_5_no_endpoint_shows_a_key_again(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let secret = key.rsplit('_').next().unwrap();
    let named = |agent_id: Value| json!({ "apiKey": key, "agentId": agent_id });
    let answers = [
        service.verify(&key),
        service.post("/verify", &named(json!("1"))),
        service.post("/verify", &named(json!(key))),
        service.verify(&key.to_uppercase()),
        service.verify_signature(&agent.signed()),
        service.verify_signature(&with(&agent.signed(), "nonce", json!(key))),
        service.generate(&agent.signed()),
        service.status(&agent.text()),
        service.status(&key),
        service.revoke(&agent.signed()),
    ];
    assert_eq!(
        answers.each_ref().map(|answer| answer.status),
        [200, 401, 400, 400, 200, 400, 409, 200, 400, 200]
    );
    for answer in answers {
        assert!(!answer.text().to_lowercase().contains(secret), "{}", answer.text());
    }
}
