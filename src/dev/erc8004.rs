//! ERC-8004's registries on a development chain, deployed as their authors do, and sample agents.
//!
//! The contracts are ours, of `contracts/erc8004`, with the same interface. A stake vault beside them gives the tiers.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolValue};

use crate::dev::erc8004::IErc8004::{
    giveFeedbackCall, initialize_0Call, initialize_1Call, registerCall, upgradeToAndCallCall,
    validationRequestCall, validationResponseCall,
};
use crate::dev::samples::{AGENTS, DeployError, Deployment, MULTICALL, SampleAgent, Setup};
use crate::dev::{accounts::SAMPLE_ACCOUNTS, chain::DevChain};

/// Feedback: agent, stars of 100.
const FEEDBACK: [(u64, i128); 7] = [(0, 40), (1, 60), (2, 80), (2, 90), (3, 95), (3, 85), (4, 100)];

/// Validations: agent, response of 100, evidence.
const VALIDATIONS: [(u64, u8, &str); 2] = [
    (2, 100, "ipfs://bafkreiew7luixf6wdufdx6dxteb6iaacwh2pcqhjd2yupfm44p2zvzkcxy"),
    (3, 0, "ipfs://bafkreiajc6v4o63xeukzkdpj2lvydn4a64dq3ajjnhbd3bnntywisza75q"),
];

/// Deploys the registries and makes the sample agents. Agent N belongs to sample account N.
pub(crate) fn deploy(chain: &DevChain) -> Result<Deployment, DeployError> {
    let [deployer, ..] = *SAMPLE_ACCOUNTS;
    let setup = Setup::new(chain, deployer.address)?;
    let chain_id = chain.ledger.lock().chain_id;
    let unfinished = setup.create(include_str!("../../contracts/artifacts/Erc8004Unfinished.json"), &[])?;
    let proxy_about = |identity| {
        let call = Bytes::from(initialize_1Call::new((identity,)).abi_encode());
        let arguments = (unfinished, call).abi_encode_params();
        setup.create(include_str!("../../contracts/artifacts/Erc8004Proxy.json"), &arguments)
    };
    let identity = proxy_about(Address::ZERO)?;
    let mut on = Deployment {
        chain_id,
        identity,
        stake_vault: setup.create(include_str!("../../contracts/artifacts/StakeVault.json"), &[])?,
        reputation: proxy_about(identity)?,
        validation: proxy_about(identity)?,
        organization: None,
        multicall: MULTICALL,
        agents: Vec::new(),
    };
    let upgrade = |proxy, artifact, initialize: Vec<u8>| {
        let upgrade = upgradeToAndCallCall::new((setup.create(artifact, &[])?, initialize.into()));
        setup.send(deployer.address, proxy, &upgrade)
    };
    let about = initialize_1Call::new((identity,)).abi_encode();
    let code = include_str!("../../contracts/artifacts/Erc8004Identity.json");
    upgrade(identity, code, initialize_0Call {}.abi_encode())?;
    let code = include_str!("../../contracts/artifacts/Erc8004Reputation.json");
    upgrade(on.reputation, code, about.clone())?;
    let code = include_str!("../../contracts/artifacts/Erc8004Validation.json");
    upgrade(on.validation, code, about)?;
    // The documented samples have no agent 0, whose place the last of them takes here.
    let samples = AGENTS.last().into_iter().chain(&AGENTS);
    for (owner, (tier, tokens, uri)) in SAMPLE_ACCOUNTS.iter().zip(samples) {
        let register = registerCall::new(((*uri).to_owned(),));
        let id = registerCall::abi_decode_returns(&setup.send(owner.address, identity, &register)?)?;
        let (owner, key, tier) = (owner.address, owner.key, *tier);
        setup.stake(owner, on.stake_vault, id, *tokens)?;
        on.agents.push(SampleAgent { id: id.saturating_to(), owner, key, tier });
    }
    reviews(&setup, &on)?;
    Ok(on)
}

/// The last sample account gives all feedback, and answers all requests for validation.
fn reviews(setup: &Setup<'_>, on: &Deployment) -> Result<(), DeployError> {
    let ([.., reviewer], none) = (*SAMPLE_ACCOUNTS, String::new);
    for (agent, stars) in FEEDBACK {
        let (id, tag) = (U256::from(agent), "starred".to_owned());
        let feedback = giveFeedbackCall::new((id, stars, 0, tag, none(), none(), none(), B256::ZERO));
        setup.send(reviewer.address, on.reputation, &feedback)?;
    }
    for (agent, response, evidence) in VALIDATIONS {
        let (id, hash) = (U256::from(agent), B256::from(U256::from(agent)));
        let owner = on.agents.iter().find(|sample| sample.id == agent).map(|sample| sample.owner);
        let request = validationRequestCall::new((reviewer.address, id, none(), hash));
        setup.send(owner.unwrap_or_default(), on.validation, &request)?;
        let answer = validationResponseCall::new((hash, response, evidence.to_owned(), B256::ZERO, none()));
        setup.send(reviewer.address, on.validation, &answer)?;
    }
    Ok(())
}

sol! {
    interface IErc8004 {
        function initialize() external;
        function initialize(address identityRegistry) external;
        function upgradeToAndCall(address newImplementation, bytes data) external payable;
        function register(string agentURI) external returns (uint256 agentId);
        function giveFeedback(
            uint256 agentId, int128 value, uint8 valueDecimals, string tag1, string tag2, string endpoint,
            string feedbackURI, bytes32 feedbackHash
        ) external;
        function validationRequest(address validator, uint256 agentId, string requestURI, bytes32 requestHash) external;
        function validationResponse(
            bytes32 requestHash, uint8 response, string responseURI, bytes32 responseHash, string tag
        ) external;
    }
}

#[cfg(test)]
mod tests;
