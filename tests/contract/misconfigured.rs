//! Registries that are not there, are of an older kind, or say absurd things.

use alloy::primitives::{Address, U256, address};
use serde_json::json;

use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::{signing::ALICE, world::World};

pub(crate) const CASES: &[Case<World>] = cases![];

/// About what a node itself says.
pub(crate) const NODES: &[Case<World>] = cases![
    an_address_without_code_or_of_another_contract_is_503_and_not_ready_never_404,
    an_address_without_code_that_decides_nothing_is_ready_and_degraded,
    every_common_registry_says_unminted_in_its_own_words,
];

/// An address where no contract was ever deployed.
const NOWHERE: Address = address!("0x00000000000000000000000000000000DeaDBeef");

// threat: A failure admits somebody, or looks like an answer
fn an_address_without_code_or_of_another_contract_is_503_and_not_ready_never_404(world: &World) {
    let contracts = world.chain().contracts;
    for (key, address, says) in [
        ("chain.contracts.identity", NOWHERE, "there is no contract at the address configured as"),
        ("chain.contracts.identity", contracts.stake_vault, "it does not answer ownerOf(uint256)"),
        ("chain.contracts.stake_vault", contracts.identity, "it does not answer getStake(uint256)"),
    ] {
        let service = Service::start_unready(world.settings().at(key, address));
        let unready = json!({ "status": "unavailable", "checks": { "store": "ok", "chain": "error" } });
        service.await_readiness("/readyz", 503, |shown| *shown == unready);
        let registry = if key.ends_with("identity") { address } else { contracts.identity };
        let agent = world.agent(4);
        for id in [agent.id, U256::from(555_555_555_u64)] {
            let signed = Agent::on(registry, id, ALICE).signed();
            let answer = service.verify_signature(&signed);
            // The owner can still be read where only another registry is missing.
            if id != agent.id && registry == contracts.identity {
                answer.error(404, "AGENT_NOT_FOUND");
            } else {
                assert_eq!(answer.status, 503, "{key}: {}", answer.text());
                assert_eq!(answer.error(503, "RPC_ERROR")["method"], json!("eth_call"));
            }
        }
        service.await_log(&[key, says]);
    }
}

/// Owner and stake are read all the same.
fn an_address_without_code_that_decides_nothing_is_ready_and_degraded(world: &World) {
    let key = "chain.contracts.organization";
    let service = Service::start(world.settings().at(key, NOWHERE));
    let degraded = json!({
        "status": "ready", "checks": { "store": "ok", "chain": "ok" }, "degraded": ["chain_details"]
    });
    service.await_readiness("/readyz", 200, |shown| *shown == degraded);
    service.verify_signature(&world.agent(4).signed()).error(503, "RPC_ERROR");
    let missing = Agent::on(world.chain().contracts.identity, U256::from(555_555_555_u64), ALICE);
    service.verify_signature(&missing.signed()).error(404, "AGENT_NOT_FOUND");
    let line = format!("details lack a registry: there is no contract at the address configured as {key}");
    assert_eq!(service.await_log(&[&line]).matches(&line).count(), 1);
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
        let (service, registry, vault) = on_a_registry(world, artifact);
        let missing = Agent::on(registry, U256::from(77), ALICE);
        for endpoint in SIGNED_ENDPOINTS {
            let answer = service.signed(endpoint, &missing.signed());
            answer.is_error(404, "AGENT_NOT_FOUND", json!({ "agentId": "77" }));
        }
        let id = world.chain().mint_on(registry, ALICE, "ipfs://old");
        world.chain().stake_on(vault, id, THRESHOLDS[3]);
        let body = service.verify_signature(&Agent::on(registry, id, ALICE).signed()).success(200);
        assert_eq!(body["metadataURI"], json!("ipfs://old"), "{artifact}");
    }
}

/// A service over a registry of its own, with a vault of its own: other cases have agents of the same numbers.
fn on_a_registry(world: &World, artifact: &str) -> (Service, Address, Address) {
    let (registry, vault) = (world.chain().deploy(artifact), world.chain().deploy("StakeVault"));
    let settings =
        world.settings().at("chain.contracts.identity", registry).at("chain.contracts.stake_vault", vault);
    (Service::start(settings), registry, vault)
}
