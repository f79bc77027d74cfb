//! `POST /profile`: the owner sees the agent, whatever its tier, and a signature for that does nothing else.

use alloy::primitives::{I256, U256};
use serde_json::{Value, json};

use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::client::{Answer, Connection, with};
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::secrets::AUDIT;
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::signing::{ALICE, BOB, DEPLOYER, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    each_field_of_the_body_is_checked,
    timestamps_outside_the_window_are_a_replay_without_a_nonce,
    a_strangers_signature_is_401_with_the_owner_and_the_signer,
    an_agent_that_was_never_minted_is_404,
    sixty_reads_a_minute_for_each_client_and_agent,
    refused_reads_count_against_the_clients_budget_of_refused_credentials,
    a_node_that_is_down_is_503,
    a_read_is_counted_logged_and_shows_no_signature,
];

/// About the chain.
pub(crate) const OWNERS: &[Case<World>] =
    cases![the_owner_sees_every_field, an_agent_without_stake_is_shown, the_former_owner_is_refused_at_once];

/// About keys, nonces and windows, which the store keeps.
pub(crate) const KEYS: &[Case<World>] = cases![
    a_key_shows_once_there_is_one,
    a_signature_for_reading_does_nothing_else_and_no_other_reads,
    a_read_may_be_repeated_and_is_charged_to_nobody,
];

const PATH: &str = "/profile";

fn read(service: &Service, body: &Value) -> Answer {
    service.post(PATH, body)
}

fn own(agent: &Agent) -> Value {
    agent.draft().profile_body()
}

fn the_owner_sees_every_field(world: &World) {
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
    });
    assert_eq!(with(&shown, "timestamp", None), expected);
    // The forms are those of a verification.
    let verified = service.verify_signature(&agent.signed()).success(200);
    for (field, value) in expected.as_object().unwrap().iter().filter(|(field, _)| *field != "hasKey") {
        assert_eq!(&verified[field], value, "{field}");
    }
}

fn an_agent_without_stake_is_shown(world: &World) {
    let agent = world.agent(0);
    let shown = read(world.service(), &own(&agent)).success(200);
    assert_eq!((&shown["trustTier"], &shown["stakedAmount"]), (&json!(0), &json!("0")));
    let none = json!({ "count": 0, "latestPassed": null, "latestEvidence": null, "latestValidator": null });
    assert_eq!(shown["validation"], none);
}

fn the_former_owner_is_refused_at_once(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let (former, next) = (own(&agent), agent.draft().by(BOB).profile_body());
    read(service, &former).success(200);
    read(service, &next).error(401, "SIGNATURE_INVALID");
    world.chain().transfer(ALICE, BOB, agent.id);
    let details = json!({
        "agentId": agent.text(),
        "owner": BOB.address.to_checksum(None),
        "recoveredSigner": ALICE.address.to_checksum(None),
    });
    read(service, &former).is_error(401, "SIGNATURE_INVALID", details);
    let shown = read(service, &next).success(200);
    assert_eq!(shown["owner"], json!(BOB.address.to_checksum(None)));
}

fn a_key_shows_once_there_is_one(world: &World) {
    let (service, agent) = (world.service(), world.agent(2));
    let has_key = || read(service, &own(&agent)).success(200)["hasKey"].clone();
    assert_eq!(has_key(), json!(false));
    agent.generate(service);
    assert_eq!(has_key(), json!(true));
    service.revoke(&agent.signed()).success(200);
    assert_eq!(has_key(), json!(false));
}

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
    read(service, &for_reading).success(200);
    service.generate(&for_a_key).success(201);
}

fn a_read_may_be_repeated_and_is_charged_to_nobody(world: &World) {
    let (service, agent) = (world.service(), world.agent(2));
    let body = own(&agent);
    for left in (50..60).rev() {
        let answer = read(service, &body);
        answer.success(200);
        assert_eq!(answer.allowance(), (60, left));
    }
    assert_eq!(service.status(&agent.text()).allowance(), (10, 10));
    let verified = service.verify_signature(&agent.signed());
    verified.success(200);
    assert_eq!(verified.allowance(), (16, 15));
}

fn each_field_of_the_body_is_checked(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let body = own(&agent);
    for (field, value, received) in [
        ("agentId", Value::Null, Value::Null),
        ("agentId", json!(7), json!(7)),
        ("agentId", json!("0x7"), json!("0x7")),
        ("signature", json!("0xab"), json!("0xab")),
        ("timestamp", json!("1"), json!("1")),
        ("timestamp", json!(-1), json!(-1)),
    ] {
        read(service, &with(&body, field, value)).is_invalid(field, received);
    }
    for field in ["agentId", "signature", "timestamp"] {
        read(service, &with(&body, field, None)).is_invalid(field, Value::Null);
    }
    read(service, &json!([body])).is_invalid("body", Value::Null);
    // A field of other endpoints is ignored, as any that is not listed.
    read(service, &with(&body, "nonce", json!(true))).success(200);
    let long = with(&body, "padding", json!("x".repeat(16_384)));
    read(service, &long).is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
    for method in ["GET", "PUT", "DELETE", "HEAD"] {
        let answer = service.request(method, PATH, &[], None);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
}

fn timestamps_outside_the_window_are_a_replay_without_a_nonce(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let now = unix_seconds();
    for inside in [now - 120, now + 50] {
        read(service, &agent.draft().timestamp(inside).profile_body()).success(200);
    }
    let details = json!({ "agentId": agent.text(), "field": "timestamp" });
    for outside in [0, now - 3_600, now + 3_600, now * 1_000, u64::MAX] {
        let body = agent.draft().timestamp(outside).profile_body();
        read(service, &body).is_error(400, "REPLAY_DETECTED", details.clone());
    }
}

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

fn an_agent_that_was_never_minted_is_404(world: &World) {
    for id in [U256::ZERO, U256::from(777_777_777_u64), U256::MAX] {
        let agent = world.known_agent(id, ALICE);
        read(world.service(), &own(&agent)).is_error(
            404,
            "AGENT_NOT_FOUND",
            json!({ "agentId": agent.text() }),
        );
    }
}

fn sixty_reads_a_minute_for_each_client_and_agent(world: &World) {
    let service = world.service();
    let [agent, other] = [(), ()].map(|()| world.agent(1));
    let stranger = agent.draft().by(BOB).profile_body();
    for _ in 0..5 {
        read(service, &stranger).error(401, "SIGNATURE_INVALID");
    }
    let mut connection = service.connect();
    for left in (0..60).rev() {
        let answer = connection.post(PATH, &own(&agent)).unwrap();
        answer.success(200);
        assert_eq!(answer.allowance(), (60, left));
    }
    let wait = connection.post(PATH, &own(&agent)).unwrap();
    assert!(wait.is_limited(json!(agent.text()), Value::Null, 60) <= 60);
    connection.post(PATH, &own(&other)).unwrap().success(200);
    let mut neighbour = Connection::open_from("127.0.7.7".parse().unwrap(), service.api).unwrap();
    neighbour.post(PATH, &own(&agent)).unwrap().success(200);
}

fn refused_reads_count_against_the_clients_budget_of_refused_credentials(world: &World) {
    let service = Service::start(world.settings().set("abuse.failures_per_minute", 4));
    let agent = world.agent(1);
    let stranger = agent.draft().by(BOB).profile_body();
    read(&service, &stranger).error(401, "SIGNATURE_INVALID");
    read(&service, &agent.draft().timestamp(1).profile_body()).error(400, "REPLAY_DETECTED");
    read(&service, &own(&world.known_agent(U256::ZERO, ALICE))).error(404, "AGENT_NOT_FOUND");
    read(&service, &stranger).error(401, "SIGNATURE_INVALID");
    read(&service, &stranger).is_limited(json!(agent.text()), Value::Null, 4);
    service.verify_signature(&agent.draft().by(BOB).body()).error(429, "RATE_LIMITED");
}

fn a_node_that_is_down_is_503(world: &World) {
    let relay = Relay::new(world.chain().node);
    let urls = vec![format!("http://{}", relay.address)];
    let service = Service::start(world.settings().set("chain.rpc_urls", urls));
    let agent = world.agent(1);
    read(&service, &own(&agent)).success(200);
    relay.behave(Behaviour::Close);
    read(&service, &own(&agent)).error(503, "RPC_ERROR");
    relay.behave(Behaviour::Honest);
    until("the node is back", SOON, || (read(&service, &own(&agent)).status == 200).then_some(()));
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
        until("the line is there", SOON, || {
            let log = service.log();
            let line = log.lines().find(|line| {
                line.contains("\"/profile\"") && line.contains(&format!("decision=\"{decision}\""))
            });
            line.map(str::to_owned)
        })
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
