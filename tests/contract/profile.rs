//! `POST /profile`: the owner sees the agent, whatever its tier, and a signature for that does nothing else.

use alloy::primitives::{I256, U256};
use serde_json::{Value, json};

use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::client::{Answer, with};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::signing::{ALICE, BOB, DEPLOYER, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{secrets::AUDIT, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_strangers_signature_is_401_with_the_owner_and_the_signer,
    a_read_is_counted_logged_and_shows_no_signature,
];

/// About the chain.
pub(crate) const OWNERS: &[Case<World>] = cases![the_owner_sees_every_field_whatever_the_tier];

/// About keys and nonces, which the store keeps.
pub(crate) const KEYS: &[Case<World>] = cases![a_signature_for_reading_does_nothing_else_and_no_other_reads];

const PATH: &str = "/profile";

fn read(service: &Service, body: &Value) -> Answer {
    service.post(PATH, body)
}

fn own(agent: &Agent) -> Value {
    agent.draft().profile_body()
}

fn the_owner_sees_every_field_whatever_the_tier(world: &World) {
    let (service, chain, agent) = (world.service(), world.chain(), world.agent(3));
    chain.feedback(agent.id, I256::unchecked_from(5));
    chain.feedback(agent.id, I256::unchecked_from(-2));
    chain.validate(DEPLOYER, agent.id, true, "ipfs://evidence");
    let organization = chain.organization("Guild");
    chain.join(organization, agent.id);
    chain.set_verified(organization, true);
    let shown = read(service, &own(&agent)).success(200);
    let age = unix_seconds().abs_diff(shown["timestamp"].as_u64().unwrap());
    assert!(age < 60, "{shown}");
    let expected = json!({
        "agentId": agent.text(),
        "owner": ALICE.address.to_checksum(None),
        "trustTier": 3,
        "stakedAmount": THRESHOLDS[2].to_string(),
        "reputation": { "totalScore": "3", "feedbackCount": 2, "averageRating": 1.5 },
        "validation": {
            "count": 1,
            "latestPassed": true,
            "latestEvidence": "ipfs://evidence",
            "latestValidator": DEPLOYER.address.to_checksum(None),
        },
        "metadataURI": "ipfs://card",
        "organizations": [{ "orgId": organization.to_string(), "name": "Guild", "verified": true }],
        "hasKey": false,
        "keys": [],
    });
    assert_eq!(with(&shown, "timestamp", None), expected);
    // The forms are those of a verification.
    let verified = service.verify_signature(&agent.signed()).success(200);
    let is_own = |field: &str| ["hasKey", "keys"].contains(&field);
    for (field, value) in expected.as_object().unwrap().iter().filter(|(field, _)| !is_own(field)) {
        assert_eq!(&verified[field], value, "{field}");
    }
    let shown = read(service, &own(&world.agent(0))).success(200);
    assert_eq!((&shown["trustTier"], &shown["stakedAmount"]), (&json!(0), &json!("0")));
    let none = json!({ "count": 0, "latestPassed": null, "latestEvidence": null, "latestValidator": null });
    assert_eq!((&shown["validation"], &shown["organizations"]), (&none, &json!([])));
    let unrated = json!({ "totalScore": "0", "feedbackCount": 0, "averageRating": null });
    assert_eq!(shown["reputation"], unrated);
}

// threat: A profile for strangers, or its signature spent on a key
fn a_signature_for_reading_does_nothing_else_and_no_other_reads(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let draft = agent.draft();
    let for_reading = draft.profile_body();
    for nonce in [draft.nonce, U256::ZERO, U256::from(draft.timestamp)] {
        let body = with(&for_reading, "nonce", json!(nonce.to_string()));
        for endpoint in SIGNED_ENDPOINTS {
            service.signed(endpoint, &body).error(401, "SIGNATURE_INVALID");
        }
    }
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(false));
    let for_a_key = draft.body();
    read(service, &for_a_key).error(401, "SIGNATURE_INVALID");
    service.generate(&for_a_key).success(201);
    for left in [59, 58] {
        let again = read(service, &for_reading);
        assert_eq!((&again.success(200)["hasKey"], again.allowance()), (&json!(true), (60, left)));
    }
}

// threat: A profile for strangers, or its signature spent on a key
fn a_strangers_signature_is_401_with_the_owner_and_the_signer(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let details = |signer: Value| {
        json!({
            "agentId": agent.text(),
            "owner": ALICE.address.to_checksum(None),
            "recoveredSigner": signer,
        })
    };
    let stranger = agent.draft().by(BOB).profile_body();
    let expected = details(json!(BOB.address.to_checksum(None)));
    read(service, &stranger).is_error(401, "SIGNATURE_INVALID", expected);
    let unreadable = with(&own(&agent), "signature", json!(format!("0x{}", "11".repeat(65))));
    read(service, &unreadable).is_error(401, "SIGNATURE_INVALID", details(Value::Null));
    // The signature is for this agent and time alone.
    let another = with(&own(&agent), "agentId", json!(world.agent(4).text()));
    read(service, &another).error(401, "SIGNATURE_INVALID");
    let later = with(&own(&agent), "timestamp", json!(unix_seconds() + 7));
    read(service, &later).error(401, "SIGNATURE_INVALID");
}

fn a_read_is_counted_logged_and_shows_no_signature(world: &World) {
    let service = Service::start(world.settings());
    let agent = world.agent(2);
    let draft: Draft = agent.draft();
    let (own, foreign) = (draft.profile_body(), draft.clone().by(BOB).profile_body());
    read(&service, &own).success(200);
    read(&service, &foreign).error(401, "SIGNATURE_INVALID");
    let samples = service.samples();
    for (status, count) in [("200", 1.0), ("401", 1.0)] {
        let labels = ["endpoint=\"/profile\"", &format!("status=\"{status}\"")];
        assert!((samples.sum("tiergate_requests_total", &labels) - count).abs() < 0.1, "{status}");
    }
    let line = |decision: &str| {
        let parts = ["\"/profile\"", &format!("decision=\"{decision}\"")];
        let log = service.await_log(&parts);
        log.lines().find(|line| parts.iter().all(|part| line.contains(part))).unwrap().to_owned()
    };
    for (line, sent) in [(line("admitted"), own), (line("refused"), foreign)] {
        assert!(line.contains(&format!("agent={}", agent.text())), "{line}");
        assert!(!line.contains(&sent["signature"].as_str().unwrap()[2..]), "{line}");
    }
    assert!(line("admitted").contains("tier=2"));
    agent.generate(&service);
    let file = service.folder.path().join(AUDIT);
    let audit = until("the key is in the audit log", SOON, || {
        std::fs::read_to_string(&file).ok().filter(|audit| audit.ends_with('\n'))
    });
    assert_eq!(audit.lines().count(), 1, "a read of the profile changes nothing: {audit}");
}
