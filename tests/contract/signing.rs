//! `GET /.well-known/tiergate`: what owners sign, for wallets and scripts that have no configuration of the service.

use alloy::primitives::keccak256;
use alloy::sol_types::{Eip712Domain, SolStruct};
use serde_json::{Value, json};

use crate::support::agents::{LIMITS, THRESHOLDS};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service, status_of};
use crate::support::signing::Verification;
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    domain_types_window_and_tiers_are_public_and_nothing_else,
    they_may_be_cached_for_five_minutes,
    a_signature_made_of_nothing_else_is_the_owners_at_every_endpoint,
    a_refused_signature_is_answered_with_the_domain_that_it_needs,
];

const PATH: &str = "/.well-known/tiergate";

fn elsewhere(world: &World) -> Service {
    let settings = world.settings().set("signature.domain_name", "Elsewhere \"x\"");
    let settings = settings.set("signature.domain_version", "7").set("signature.chain_id", 31_337);
    Service::start(settings.set("signature.max_age", "120s").set("signature.max_ahead", "0s"))
}

fn domain_types_window_and_tiers_are_public_and_nothing_else(world: &World) {
    let field = |name: &str, kind: &str| json!({ "name": name, "type": kind });
    let types_of_the_domain = json!([
        field("name", "string"),
        field("version", "string"),
        field("chainId", "uint256"),
        field("verifyingContract", "address"),
    ]);
    let [agent, nonce, timestamp] = ["agentId", "nonce", "timestamp"].map(|name| field(name, "uint256"));
    let tier = |tier: usize, name: &str| {
        let (stake, limit) = tier.checked_sub(1).map(|at| (THRESHOLDS[at], LIMITS[at])).unwrap_or_default();
        json!({ "tier": tier, "name": name, "stake": stake.to_string(), "requestsPerMinute": limit })
    };
    let names = ["Unverified", "Bronze", "Silver", "Gold", "Diamond"];
    let tiers: Vec<Value> = names.into_iter().enumerate().map(|(number, name)| tier(number, name)).collect();
    let expected = |name: &str, version: &str, chain_id: u64, age: u64, ahead: u64| {
        json!({
            "domain": {
                "name": name,
                "version": version,
                "chainId": chain_id,
                "verifyingContract": world.chain().contracts.identity.to_checksum(None),
            },
            "types": { "EIP712Domain": types_of_the_domain, "Verification": [agent, nonce, timestamp] },
            "primaryType": "Verification",
            "profile": {
                "types": { "EIP712Domain": types_of_the_domain, "ProfileRead": [agent, timestamp] },
                "primaryType": "ProfileRead",
            },
            "timestampMaxAge": age,
            "timestampMaxAhead": ahead,
            "tiers": tiers,
            "tokenDecimals": 18,
            "contractSignatures": false,
        })
    };
    let usual = expected("Service Verification", "1", 8004, 300, 60);
    assert_eq!(world.service().get(PATH).success(200), usual);
    assert_eq!(world.service().get(&format!("{PATH}?x=1")).success(200), usual);
    assert_eq!(elsewhere(world).get(PATH).success(200), expected("Elsewhere \"x\"", "7", 31_337, 120, 0));
}

fn they_may_be_cached_for_five_minutes(world: &World) {
    let answer = world.service().get(PATH);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("max-age=300"));
}

/// The `encodeType` of EIP-712, of a type in a document.
fn encoded(document: &Value, name: &str) -> String {
    let fields = document["types"][name].as_array().unwrap().iter();
    let fields = fields
        .map(|field| format!("{} {}", field["type"].as_str().unwrap(), field["name"].as_str().unwrap()));
    format!("{name}({})", fields.collect::<Vec<_>>().join(","))
}

fn a_signature_made_of_nothing_else_is_the_owners_at_every_endpoint(world: &World) {
    let service = elsewhere(world);
    let document = service.get(PATH).success(200);
    let domain: Eip712Domain = serde_json::from_value(document["domain"].clone()).unwrap();
    assert_eq!(keccak256(encoded(&document, "EIP712Domain")), domain.type_hash());
    let primary = document["primaryType"].as_str().unwrap();
    assert_eq!(encoded(&document, primary), Verification::eip712_root_type());
    let agent = world.agent(4);
    for endpoint in SIGNED_ENDPOINTS {
        let mut draft = agent.draft();
        draft.domain = domain.clone();
        let answer = service.signed(endpoint, &draft.body());
        assert_eq!(answer.status, status_of(endpoint), "{endpoint:?}: {}", answer.text());
    }
}

fn a_refused_signature_is_answered_with_the_domain_that_it_needs(world: &World) {
    let (service, agent) = (elsewhere(world), world.agent(4));
    let registry = world.chain().contracts.identity.to_checksum(None);
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &agent.signed());
        let details = answer.error(401, "SIGNATURE_INVALID");
        let fields: Vec<&str> = details.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["agentId", "owner", "recoveredSigner"]);
        let expected = format!(
            "The signature is not the agent owner's for the EIP-712 domain of name \"Elsewhere \\\"x\\\"\", \
             version \"7\", chain id 31337, verifying contract {registry}"
        );
        assert_eq!(answer.json()["error"], json!(expected));
    }
}
