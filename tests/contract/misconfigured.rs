//! Registries that are not there, are of an older kind, or say absurd things.

use alloy::primitives::{Address, U256, address};
use serde_json::json;

use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::signing::ALICE;
use crate::support::time::{SOON, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    an_address_without_code_is_in_the_log_at_the_start_once_and_before_anybody_asks,
    absent_optional_registries_are_zero_and_empty,
    signatures_are_bound_to_the_configured_registry,
];

/// About what a node itself says.
pub(crate) const NODES: &[Case<World>] = cases![
    an_address_without_code_is_503_and_not_ready_never_404,
    registries_that_are_swapped_are_not_ready_and_the_log_names_the_key_and_the_function,
    without_multicall_the_profile_is_the_same_field_by_field,
    every_common_registry_says_unminted_in_its_own_words,
    a_registry_that_speaks_of_another_id_is_503,
    absurdly_long_texts_are_cut_to_16_kib,
];

/// An address where no contract was ever deployed.
const NOWHERE: Address = address!("0x00000000000000000000000000000000DeaDBeef");

fn an_address_without_code_is_503_and_not_ready_never_404(world: &World) {
    let contracts = world.chain().contracts;
    for key in [
        "chain.contracts.identity",
        "chain.contracts.stake_vault",
        "chain.contracts.reputation",
        "chain.contracts.validation",
        "chain.contracts.organization",
    ] {
        let service = Service::start_unready(world.settings().at(key, NOWHERE));
        let unready = json!({ "status": "unavailable", "checks": { "store": "ok", "chain": "error" } });
        assert_eq!(service.get("/readyz").success(503), unready, "{key}");
        let registry = if key.ends_with("identity") { NOWHERE } else { contracts.identity };
        let agent = world.agent(4);
        for id in [agent.id, U256::from(555_555_555_u64)] {
            let signed = Agent::on(registry, id, ALICE).signed();
            let answer = service.verify_signature(&signed);
            // The owner can still be read where only another registry is missing.
            if id != agent.id && registry != NOWHERE {
                answer.error(404, "AGENT_NOT_FOUND");
            } else {
                assert_eq!(answer.status, 503, "{key}: {}", answer.text());
                assert_eq!(answer.error(503, "RPC_ERROR")["method"], json!("eth_call"));
            }
        }
        until("the log says which", SOON, || service.log().contains(key).then_some(()));
    }
}

fn registries_that_are_swapped_are_not_ready_and_the_log_names_the_key_and_the_function(world: &World) {
    let contracts = world.chain().contracts;
    let (identity, vault) = ("chain.contracts.identity", "chain.contracts.stake_vault");
    let settings = world.settings().at(identity, contracts.stake_vault).at(vault, contracts.identity);
    let half = settings.clone().at(identity, contracts.identity);
    for (settings, key, function) in
        [(settings, identity, "ownerOf(uint256)"), (half, vault, "getStake(uint256)")]
    {
        let service = Service::start_unready(settings);
        let unready = json!({ "status": "unavailable", "checks": { "store": "ok", "chain": "error" } });
        assert_eq!(service.get("/readyz").success(503), unready, "{key}");
        let line = format!(
            "the contract at the address configured as {key} is another one: it does not answer {function}"
        );
        until("the log says which", SOON, || service.log().contains(&line).then_some(()));
    }
}

/// Only liveness is asked before the line is there: readiness and metrics look at the chain too.
fn an_address_without_code_is_in_the_log_at_the_start_once_and_before_anybody_asks(world: &World) {
    let key = "chain.contracts.reputation";
    let service = Service::start_unready(world.settings().at(key, NOWHERE));
    let line = format!("there is no contract at the address configured as {key}");
    until("the log says which", SOON, || service.log().contains(&line).then_some(()));
    // It is looked for each second, and whenever somebody asks.
    until("it was looked for several times", SOON, || {
        service.get("/readyz").success(503);
        (service.samples().sum("tiergate_rpc_calls_total", &["eth_call"]) >= 10.0).then_some(())
    });
    let log = service.log();
    // Readiness says the same in words of its own.
    let said = log.lines().filter(|log| log.contains(&line) && !log.contains("not ready")).count();
    assert_eq!(said, 1, "{log}");
}

fn without_multicall_the_profile_is_the_same_field_by_field(world: &World) {
    let (chain, agent) = (world.chain(), world.agent(4));
    chain.feedback(agent.id, 5.try_into().unwrap());
    chain.validate(ALICE, agent.id, true, "evidence");
    chain.join(chain.organization("Guild"), agent.id);
    let without = Service::start(world.settings().at("chain.multicall", NOWHERE));
    let mut bodies = [world.service(), &without].map(|service| {
        let mut body = service.verify_signature(&agent.signed()).success(200);
        body["timestamp"] = json!(null);
        body
    });
    assert_eq!(bodies[0]["validation"]["latestEvidence"], json!("evidence"));
    assert_eq!(bodies[0]["organizations"].as_array().unwrap().len(), 1);
    assert_eq!(bodies[0], bodies[1]);
    let unminted = Agent::on(chain.contracts.identity, U256::from(555_555_556_u64), ALICE);
    without.verify_signature(&unminted.signed()).error(404, "AGENT_NOT_FOUND");

    // Longer than the code of a contract may be.
    let registry = chain.deploy("AbsurdStrings");
    let id = chain.mint_on(registry, ALICE, "");
    chain.set_length(registry, id, 100 * 1_024);
    let vault = chain.deploy("StakeVault");
    chain.stake_on(vault, id, THRESHOLDS[3]);
    let settings = world.settings().at("chain.contracts.identity", registry);
    let settings = settings.at("chain.contracts.stake_vault", vault);
    bodies = [settings.clone(), settings.at("chain.multicall", NOWHERE)].map(|settings| {
        let service = Service::start(settings);
        let mut body = service.verify_signature(&Agent::on(registry, id, ALICE).signed()).success(200);
        body["timestamp"] = json!(null);
        body
    });
    assert_eq!(bodies[0]["metadataURI"].as_str().unwrap().len(), 16 * 1_024);
    assert_eq!(bodies[0], bodies[1]);
    let said = without.log().matches("no contract at chain.multicall").count();
    assert_eq!(said, 1, "once: {}", without.log());
}

fn every_common_registry_says_unminted_in_its_own_words(world: &World) {
    for artifact in [
        "LegacyIdentity",
        "OpenZeppelin5Identity",
        "SolmateIdentity",
        "Erc721aIdentity",
        "SoladyIdentity",
        "ZeroOwnerIdentity",
    ] {
        unminted_is_404_on(world, artifact);
    }
}

fn a_registry_that_speaks_of_another_id_is_503(world: &World) {
    let (service, registry, _) = on_a_registry(world, "ConfusedIdentity");
    let missing = Agent::on(registry, U256::from(77), ALICE);
    service.verify_signature(&missing.signed()).error(503, "RPC_ERROR");
}

/// A service over a registry of its own, with a vault of its own: other cases have agents of the same numbers.
fn on_a_registry(world: &World, artifact: &str) -> (Service, Address, Address) {
    let (registry, vault) = (world.chain().deploy(artifact), world.chain().deploy("StakeVault"));
    let settings =
        world.settings().at("chain.contracts.identity", registry).at("chain.contracts.stake_vault", vault);
    (Service::start(settings), registry, vault)
}

fn unminted_is_404_on(world: &World, artifact: &str) {
    let (service, registry, vault) = on_a_registry(world, artifact);
    let missing = Agent::on(registry, U256::from(77), ALICE);
    for endpoint in SIGNED_ENDPOINTS {
        let answer = service.signed(endpoint, &missing.signed());
        answer.is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": "77" }));
    }
    let id = world.chain().mint_on(registry, ALICE, "ipfs://old");
    world.chain().stake_on(vault, id, THRESHOLDS[3]);
    let answer = service.verify_signature(&Agent::on(registry, id, ALICE).signed());
    let body = answer.success(200);
    assert_eq!(body["metadataURI"], json!("ipfs://old"));
}

fn absurdly_long_texts_are_cut_to_16_kib(world: &World) {
    let (service, registry, vault) = on_a_registry(world, "AbsurdStrings");
    for (uri_bytes, shown) in [(16_384, 16_384), (16_385, 16_384), (100 * 1_024, 16_384)] {
        let id = world.chain().mint_on(registry, ALICE, "");
        world.chain().set_length(registry, id, uri_bytes);
        world.chain().stake_on(vault, id, THRESHOLDS[3]);
        let answer = service.verify_signature(&Agent::on(registry, id, ALICE).signed());
        let body = answer.success(200);
        assert_eq!(body["metadataURI"], json!("a".repeat(shown)), "{uri_bytes}");
    }
}

fn absent_optional_registries_are_zero_and_empty(world: &World) {
    let agent = world.agent(4);
    let chain = world.chain();
    chain.feedback(agent.id, 5.try_into().unwrap());
    chain.validate(ALICE, agent.id, true, "evidence");
    chain.join(chain.organization("Guild"), agent.id);
    let settings = world
        .settings()
        .without("chain.contracts.reputation")
        .without("chain.contracts.validation")
        .without("chain.contracts.organization");
    let body = Service::start(settings).verify_signature(&agent.signed()).success(200);
    assert_eq!(body["reputation"], json!({ "totalScore": "0", "feedbackCount": 0, "averageRating": null }));
    let validation =
        json!({ "count": 0, "latestPassed": null, "latestEvidence": null, "latestValidator": null });
    assert_eq!(body["validation"], validation);
    assert_eq!(body["organizations"], json!([]));
    assert_eq!(body["trustTier"], json!(4));
}

fn signatures_are_bound_to_the_configured_registry(world: &World) {
    let (service, registry, _) = on_a_registry(world, "IdentityRegistry");
    let id = world.chain().mint_on(registry, ALICE, "");
    let elsewhere = world.known_agent(id, ALICE);
    service.generate(&elsewhere.signed()).error(401, "SIGNATURE_INVALID");
    service.generate(&Agent::on(registry, id, ALICE).signed()).success(201);
}
