//! `signature.key_operations = "own_types"`: a signature changes the one key, at the one service, in the one way that it names.

use alloy::primitives::hex;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy_dyn_abi::TypedData;
use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::service::{KEY_ENDPOINTS, Service, status_of};
use crate::support::signing::{Account, DEPLOYER};
use crate::support::{agents::Agent, client::with, secrets, settings::Settings, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    each_change_is_accepted_by_its_own_type_for_this_service_and_does_nothing_else,
    the_rules_tell_types_and_name_and_a_signature_made_of_them_alone_is_accepted,
    a_contract_wallet_signs_changes_by_their_own_types,
];

const OURS: &str = "https://verify.test/tiergate";
const THEIRS: &str = "https://other.test";
const TYPES: [&str; 3] = ["GenerateKey", "RotateKey", "RevokeKey"];

/// The settings of a service with types of its own and this public URL.
fn named(world: &World, public_url: &str) -> Settings {
    world.settings().set("signature.key_operations", "own_types").set("keys.public_url", public_url)
}

// threat: A signature for one service, or for a verification, is spent on a key at another
fn each_change_is_accepted_by_its_own_type_for_this_service_and_does_nothing_else(world: &World) {
    let [service, theirs] = [OURS, THEIRS].map(|url| Service::start(named(world, url)));
    for (endpoint, right) in KEY_ENDPOINTS.into_iter().zip(TYPES) {
        let agent = world.agent(4);
        let refused = |body: Value, why: &str| {
            let answer = service.signed(endpoint, &body);
            assert_eq!(answer.status, 401, "{endpoint:?} {why}: {}", answer.text());
            let details = answer.error(401, "SIGNATURE_INVALID");
            assert_eq!(details["owner"], json!(agent.owner.address.to_checksum(None)));
            let error = answer.json()["error"].as_str().unwrap().to_owned();
            assert!(error.ends_with(&format!(", type {right} of the service \"{OURS}\"")), "{error}");
        };
        let (verification, for_them) = (agent.signed(), agent.draft().body_for(right, THEIRS));
        refused(verification.clone(), "Verification");
        refused(for_them.clone(), "another service");
        refused(with(&agent.draft().profile_body(), "nonce", json!("1")), "ProfileRead");
        for wrong in TYPES.into_iter().filter(|name| *name != right) {
            refused(agent.draft().body_for(wrong, OURS), wrong);
        }
        for service in ["https://verify.test", "https://verify.test/tiergate/", ""] {
            refused(agent.draft().body_for(right, service), service);
        }
        let body = agent.draft().body_for(right, OURS);
        for path in ["/verify/signature", "/profile"] {
            service.post(path, &body).error(401, "SIGNATURE_INVALID");
        }
        // Both were good elsewhere, and are not spent.
        for (service, body) in [(&service, body), (&theirs, for_them)] {
            let answer = service.signed(endpoint, &body);
            assert_eq!(answer.status, status_of(endpoint), "{right}: {}", answer.text());
        }
        service.post("/verify/signature", &verification).success(200);
    }
    // Without types of their own a signature for another service changes a key.
    let (plain, agent) = (world.service(), world.agent(4));
    plain.rotate(&agent.draft().body_for("RotateKey", OURS)).error(401, "SIGNATURE_INVALID");
    let verification = agent.signed();
    theirs.post("/verify/signature", &verification).success(200);
    plain.rotate(&verification).success(200);
}

fn the_rules_tell_types_and_name_and_a_signature_made_of_them_alone_is_accepted(world: &World) {
    let name = "Hafen \"東京\"";
    let by_url = Service::start(named(world, &format!("{OURS}/")));
    let by_name = Service::start(named(world, OURS).set("signature.service_name", name));
    for (service, expected) in [(&by_url, OURS), (&by_name, name)] {
        let rules = service.get("/.well-known/tiergate").success(200);
        assert_eq!(rules["keyOperations"]["service"], expected);
        assert_eq!(rules["primaryType"], "Verification");
        let agent = world.agent(4);
        for (endpoint, operation) in KEY_ENDPOINTS.into_iter().zip(["generate", "rotate", "revoke"]) {
            let body = signed_by(&rules, operation, &agent);
            let answer = service.signed(endpoint, &body);
            assert_eq!(answer.status, status_of(endpoint), "{operation}: {}", answer.text());
        }
    }
}

/// The body of a change, of a signature by the rules of a service and nothing else.
fn signed_by(rules: &Value, operation: &str, agent: &Agent) -> Value {
    let own = &rules["keyOperations"];
    let draft = agent.draft();
    let message = json!({
        "service": own["service"],
        "agentId": agent.text(),
        "nonce": draft.nonce.to_string(),
        "timestamp": draft.timestamp,
    });
    let typed = with(&own[operation], "domain", rules["domain"].clone());
    let typed: TypedData = serde_json::from_value(with(&typed, "message", message)).unwrap();
    let signer: PrivateKeySigner = agent.owner.key.parse().unwrap();
    let signature = signer.sign_dynamic_typed_data_sync(&typed).unwrap().as_bytes();
    secrets::keep(&hex::encode(signature));
    draft.body_with(&signature)
}

// threat: A signature for one service, or for a verification, is spent on a key at another
fn a_contract_wallet_signs_changes_by_their_own_types(world: &World) {
    let settings = named(world, OURS).set("signature.contracts", true);
    let service = Service::start(
        settings.set("signature.contract_max_age", "1h").set("signature.nonce_retention", "2h"),
    );
    assert_eq!(service.get("/.well-known/tiergate").success(200)["contractMaxAgeSeconds"], 3_600);
    let wallet = Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key };
    let agent = world.agent(4);
    world.chain().transfer(agent.owner, wallet, agent.id);
    let agent = world.known_agent(agent.id, wallet);
    service.generate(&agent.signed()).error(401, "SIGNATURE_INVALID");
    service.generate(&agent.draft().body_for("RotateKey", OURS)).error(401, "SIGNATURE_INVALID");
    service.generate(&agent.draft().body_for("GenerateKey", OURS)).success(201);
}
