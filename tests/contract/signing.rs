//! `GET /.well-known/tiergate`: what owners sign, for wallets and scripts that have no configuration of the service.

use alloy::primitives::keccak256;
use alloy::sol_types::{Eip712Domain, SolStruct};
use serde_json::{Value, json};
use url::Url;

use crate::support::agents::{LIMITS, THRESHOLDS, unknown_key};
use crate::support::harness::{Case, cases};
use crate::support::process::{free_ports, own_ip};
use crate::support::service::{SIGNED_ENDPOINTS, Service, status_of};
use crate::support::signing::{BOB, Verification};
use crate::support::{client::Connection, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    domain_types_window_tiers_and_registries_are_public_and_nothing_else,
    a_signature_made_of_nothing_else_is_the_owners_at_every_endpoint,
    a_401_links_to_the_rules_relative_to_its_endpoint_at_both_listeners,
];

const PATH: &str = "/.well-known/tiergate";

fn elsewhere(world: &World) -> Service {
    let settings = world.settings().set("signature.domain_name", "Elsewhere \"x\"");
    let settings = settings.set("signature.domain_version", "7").set("signature.chain_id", 31_337);
    Service::start(settings.set("signature.max_age", "120s").set("signature.max_ahead", "0s"))
}

fn domain_types_window_tiers_and_registries_are_public_and_nothing_else(world: &World) {
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
    let contracts = &world.chain().contracts;
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
            "keyOperations": null,
            "timestampMaxAge": age,
            "timestampMaxAhead": ahead,
            "contractMaxAgeSeconds": null,
            "keysPerAgentMax": 1,
            "keyExpiresMaxSeconds": 31_536_000,
            "tiers": tiers,
            "tierSource": "stake_vault",
            "tokenDecimals": 18,
            "contractSignatures": false,
            "agentWallet": false,
            "chainId": contracts.chain_id,
            "contracts": {
                "identity": contracts.identity.to_checksum(None),
                "stakeVault": contracts.stake_vault.to_checksum(None),
                "reputation": contracts.reputation.to_checksum(None),
                "validation": contracts.validation.to_checksum(None),
                "organization": contracts.organization.to_checksum(None),
            },
            "token": null,
            "keysUrl": null,
            "consoleUrl": null,
            "gatewayUrl": null,
            "version": env!("CARGO_PKG_VERSION"),
        })
    };
    let usual = expected("Service Verification", "1", 8004, 300, 60);
    assert_eq!(world.service().get(PATH).success(200), usual);
    assert_eq!(world.service().get(&format!("{PATH}?x=1")).success(200), usual);
    assert_eq!(elsewhere(world).get(PATH).success(200), expected("Elsewhere \"x\"", "7", 31_337, 120, 0));
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

fn a_401_links_to_the_rules_relative_to_its_endpoint_at_both_listeners(world: &World) {
    let (owners, _) = free_ports(own_ip());
    let service = Service::start(world.settings().set("listen.owners", vec![owners.to_string()]));
    let (agent, unknown) = (world.agent(4), json!({ "apiKey": unknown_key(70) }));
    let strangers = agent.draft().by(BOB);
    for (listener, method, path, body, link) in [
        (service.api, "POST", "/verify", &unknown, "<.well-known/tiergate>; rel=\"help\""),
        (
            service.api,
            "POST",
            "/verify/signature",
            &strangers.body(),
            "<../.well-known/tiergate>; rel=\"help\"",
        ),
        (service.api, "POST", "/profile", &strangers.profile_body(), "<.well-known/tiergate>; rel=\"help\""),
        (owners, "POST", "/keys/generate", &strangers.body(), "<../.well-known/tiergate>; rel=\"help\""),
        (owners, "POST", "/keys/rotate", &strangers.body(), "<../.well-known/tiergate>; rel=\"help\""),
        (owners, "DELETE", "/keys", &strangers.body(), "<.well-known/tiergate>; rel=\"help\""),
    ] {
        let body = body.to_string().into_bytes();
        let answer = Connection::open(listener).unwrap().send(method, path, &[], Some(&body)).unwrap();
        assert_eq!((answer.status, answer.header("link")), (401, Some(link)), "{path}: {}", answer.text());
        // The API takes no credential in headers, so that it challenges for none.
        assert_eq!(answer.header("www-authenticate"), None);
        let base = Url::parse(&format!("http://{listener}{path}")).unwrap();
        let target = base.join(link.split(['<', '>']).nth(1).unwrap()).unwrap();
        assert_eq!(target.path(), PATH, "{path}");
    }
    let other = service.post("/verify", &json!({}));
    assert_eq!((other.status, other.header("link")), (400, None));
}
