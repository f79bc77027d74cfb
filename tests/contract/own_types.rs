//! `signature.key_operations = "own_types"`: a signature changes the one key, at the one service, in the one way that it names.

use alloy::primitives::hex;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy_dyn_abi::TypedData;
use serde_json::{Value, json};

use crate::support::agents::Agent;
use crate::support::client::with;
use crate::support::harness::{Case, cases};
use crate::support::secrets;
use crate::support::service::{KEY_ENDPOINTS, Service, status_of};
use crate::support::settings::Settings;
use crate::support::signing::{Account, DEPLOYER};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    each_change_is_accepted_by_its_own_type_for_this_service_and_by_no_other,
    a_signature_for_a_change_verifies_nobody_and_reads_no_profile,
    a_signature_for_another_service_or_for_a_verification_changes_no_key_here,
    without_own_types_a_signature_for_another_service_changes_a_key_here,
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

fn each_change_is_accepted_by_its_own_type_for_this_service_and_by_no_other(world: &World) {
    let service = Service::start(named(world, OURS));
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
        refused(agent.signed(), "Verification");
        refused(with(&agent.draft().profile_body(), "nonce", json!("1")), "ProfileRead");
        for wrong in TYPES.into_iter().filter(|name| *name != right) {
            refused(agent.draft().body_for(wrong, OURS), wrong);
        }
        for service in [THEIRS, "https://verify.test", "https://verify.test/tiergate/", ""] {
            refused(agent.draft().body_for(right, service), service);
        }
        let answer = service.signed(endpoint, &agent.draft().body_for(right, OURS));
        assert_eq!(answer.status, status_of(endpoint), "{right}: {}", answer.text());
    }
}

fn a_signature_for_a_change_verifies_nobody_and_reads_no_profile(world: &World) {
    let (service, agent) = (Service::start(named(world, OURS)), world.agent(4));
    for own_type in TYPES {
        for path in ["/verify/signature", "/profile"] {
            let answer = service.post(path, &agent.draft().body_for(own_type, OURS));
            answer.error(401, "SIGNATURE_INVALID");
        }
    }
    service.post("/verify/signature", &agent.signed()).success(200);
    service.post("/profile", &agent.draft().profile_body()).success(200);
}

/// Two services that trust the same registry for the same domain.
fn a_signature_for_another_service_or_for_a_verification_changes_no_key_here(world: &World) {
    let [ours, theirs] = [OURS, THEIRS].map(|url| Service::start(named(world, url)));
    for (endpoint, own_type) in KEY_ENDPOINTS.into_iter().zip(TYPES) {
        let agent = world.agent(4);
        let for_them = agent.draft().body_for(own_type, THEIRS);
        ours.signed(endpoint, &for_them).error(401, "SIGNATURE_INVALID");
        let verification = agent.signed();
        ours.signed(endpoint, &verification).error(401, "SIGNATURE_INVALID");
        // Both were good, and are not spent.
        let answer = theirs.signed(endpoint, &for_them);
        assert_eq!(answer.status, status_of(endpoint), "{own_type}: {}", answer.text());
        theirs.post("/verify/signature", &verification).success(200);
    }
}

/// What the case before shows is the setting's doing.
fn without_own_types_a_signature_for_another_service_changes_a_key_here(world: &World) {
    let (service, agent) = (Service::start(world.settings()), world.agent(4));
    let for_another = agent.signed();
    world.service().post("/verify/signature", &for_another).success(200);
    service.rotate(&for_another).success(200);
    service.rotate(&agent.draft().body_for("RotateKey", OURS)).error(401, "SIGNATURE_INVALID");
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

fn a_contract_wallet_signs_changes_by_their_own_types(world: &World) {
    let service = Service::start(named(world, OURS).set("signature.contracts", true));
    let wallet = Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key };
    let agent = world.agent(4);
    world.chain().transfer(agent.owner, wallet, agent.id);
    let agent = world.known_agent(agent.id, wallet);
    service.generate(&agent.signed()).error(401, "SIGNATURE_INVALID");
    service.generate(&agent.draft().body_for("RotateKey", OURS)).error(401, "SIGNATURE_INVALID");
    service.generate(&agent.draft().body_for("GenerateKey", OURS)).success(201);
}
