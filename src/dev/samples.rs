//! The project's registries on a development chain, and sample agents of every tier.
//!
//! The contracts are the compiled ones of `contracts/artifacts`; nothing is read at run time.

use std::error::Error;

use alloy::primitives::{Address, Bytes, I256, U256, address};
use alloy::sol;
use alloy::sol_types::SolCall;
use serde::{Deserialize, Serialize};

use crate::dev::accounts::{SAMPLE_ACCOUNTS, SampleAccount};
use crate::dev::chain::DevChain;

/// Where Multicall3 stands on every chain that has it.
pub(super) const MULTICALL: Address = address!("0xcA11bde05977b3631167028862bE2a173976CA11");

/// One token of the stake, in its smallest unit: 18 decimals.
const TOKEN: u128 = 10_u128.pow(18);

/// The sample agents in the order of their ids, from 1: tier, whole tokens of stake, agent card.
pub(super) const AGENTS: [(u8, u128, &str); 5] = [
    (1, 1_000, "ipfs://bafkreif5qky4odpd3uc7ffss3njvjxv33gckte5pv35mh2itju3ptxjq2q"),
    (2, 10_000, "ipfs://bafkreiajl67ocdcv6cgfxnqa34j4a42igpvfnuw4hbxfos73wxjpydvtyq"),
    (3, 100_000, "ipfs://bafkreiguvoa6gxfgvuvqds3vibyv7az6fcpdpns5lfhmpfsk6cbf5n5g44"),
    (4, 500_000, "ipfs://bafkreigbhnrnmvm4wi4cyqpf77dm3p655r6enlj4nhmwlmj5xfhxrc4eka"),
    (0, 0, "ipfs://bafkreiezlg2umoohefcphbbb7lxdjrfc5h2svli53nmo77szb6ywpvsudi"),
];

/// Feedback: agent, score.
const FEEDBACK: [(u64, i64); 9] = [(2, 5), (2, 4), (3, -4), (3, 1), (3, -2), (4, 5), (4, 3), (4, 5), (4, 4)];

/// Validations: agent, whether it passed, evidence.
const VALIDATIONS: [(u64, bool, &str); 2] = [
    (2, true, "ipfs://bafkreiew7luixf6wdufdx6dxteb6iaacwh2pcqhjd2yupfm44p2zvzkcxy"),
    (3, false, "ipfs://bafkreiajc6v4o63xeukzkdpj2lvydn4a64dq3ajjnhbd3bnntywisza75q"),
];

/// Organizations: name, whether it is verified, members.
const ORGANIZATIONS: [(&str, bool, &[u64]); 2] =
    [("Harbour Robotics", true, &[3, 4]), ("Night Market Collective", false, &[4])];

/// The contracts on the chain.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deployment {
    pub(crate) chain_id: u64,
    pub(crate) identity: Address,
    pub(crate) stake_vault: Address,
    pub(crate) reputation: Address,
    pub(crate) validation: Address,
    /// ERC-8004 has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) organization: Option<Address>,
    pub(crate) multicall: Address,
    /// In the order of their ids.
    #[serde(skip)]
    pub(crate) agents: Vec<SampleAgent>,
}

/// An agent to try things with.
#[derive(Debug, Clone)]
pub(crate) struct SampleAgent {
    pub(crate) id: u64,
    pub(crate) owner: Address,
    /// The owner's private key, as 0x and 64 hex digits. Publicly known.
    pub(crate) key: &'static str,
    /// 0 to 4, by the default stakes.
    pub(crate) tier: u8,
}

/// Why the sample contracts are not on the chain: contracts and this file do not fit together.
pub(crate) type DeployError = Box<dyn Error + Send + Sync>;

/// Deploys the registries and makes the sample agents. Agent N belongs to sample account N.
pub(crate) fn deploy(chain: &DevChain) -> Result<Deployment, DeployError> {
    let [deployer, owners @ ..] = &*SAMPLE_ACCOUNTS;
    let setup = Setup::new(chain, deployer.address)?;
    let chain_id = chain.ledger.lock().chain_id;
    let mut deployment = Deployment {
        chain_id,
        identity: setup.create(include_str!("../../contracts/artifacts/IdentityRegistry.json"), &[])?,
        stake_vault: setup.create(include_str!("../../contracts/artifacts/StakeVault.json"), &[])?,
        reputation: setup.create(include_str!("../../contracts/artifacts/ReputationRegistry.json"), &[])?,
        validation: setup.create(include_str!("../../contracts/artifacts/ValidationRegistry.json"), &[])?,
        organization: None,
        multicall: MULTICALL,
        agents: Vec::new(),
    };
    // The last: an address is made of how many there were before, and configurations have those of the others.
    let organization = include_str!("../../contracts/artifacts/OrganizationRegistry.json");
    let organization = setup.create(organization, &[])?;
    deployment.organization = Some(organization);
    for (&SampleAccount { address: owner, key }, (tier, tokens, uri)) in owners.iter().zip(AGENTS) {
        let mint = IIdentity::mintCall { to: owner, uri: uri.to_owned() };
        let id = IIdentity::mintCall::abi_decode_returns(&setup.send(owner, deployment.identity, &mint)?)?;
        setup.stake(owner, deployment.stake_vault, id, tokens)?;
        deployment.agents.push(SampleAgent { id: id.saturating_to(), owner, key, tier });
    }
    setup.reputations(&deployment)?;
    setup.organizations(organization)?;
    Ok(deployment)
}

pub(super) struct Setup<'a> {
    chain: &'a DevChain,
    deployer: Address,
}

impl<'a> Setup<'a> {
    /// Puts Multicall3 on the chain.
    pub(super) fn new(chain: &'a DevChain, deployer: Address) -> Result<Self, DeployError> {
        let multicall = include_str!("../../contracts/artifacts/Multicall3.json");
        let code = serde_json::from_str::<Artifact>(multicall)?.deployed_bytecode;
        chain.ledger.lock().set_code(MULTICALL, code);
        Ok(Self { chain, deployer })
    }

    pub(super) fn create(&self, artifact: &str, arguments: &[u8]) -> Result<Address, DeployError> {
        let artifact: Artifact = serde_json::from_str(artifact)?;
        let code = [&artifact.bytecode, arguments].concat();
        let created = self.chain.send(self.deployer, None, code.into())?;
        created.created_address().ok_or_else(|| "a creation made no contract".into())
    }

    /// Stakes so many whole tokens.
    pub(super) fn stake(
        &self,
        owner: Address,
        vault: Address,
        id: U256,
        tokens: u128,
    ) -> Result<(), DeployError> {
        if tokens > 0 {
            let stake = IStakeVault::stakeCall { agentId: id, amount: U256::from(tokens * TOKEN) };
            self.send(owner, vault, &stake)?;
        }
        Ok(())
    }

    fn reputations(&self, on: &Deployment) -> Result<(), DeployError> {
        for (agent, score) in FEEDBACK {
            let score = I256::unchecked_from(score);
            let feedback = IReputation::giveFeedbackCall { agentId: U256::from(agent), score };
            self.send(self.deployer, on.reputation, &feedback)?;
        }
        for (agent, passed, evidence) in VALIDATIONS {
            let validation = IValidation::submitValidationCall {
                agentId: U256::from(agent),
                passed,
                evidence: evidence.to_owned(),
            };
            self.send(self.deployer, on.validation, &validation)?;
        }
        Ok(())
    }

    fn organizations(&self, registry: Address) -> Result<(), DeployError> {
        for (name, verified, members) in ORGANIZATIONS {
            let create = IOrganization::createOrganizationCall { name: name.to_owned() };
            let created = self.send(self.deployer, registry, &create)?;
            let org_id = IOrganization::createOrganizationCall::abi_decode_returns(&created)?;
            for agent in members {
                let add = IOrganization::addMemberCall { orgId: org_id, agentId: U256::from(*agent) };
                self.send(self.deployer, registry, &add)?;
            }
            if verified {
                let verify = IOrganization::setVerifiedCall { orgId: org_id, verified };
                self.send(self.deployer, registry, &verify)?;
            }
        }
        Ok(())
    }

    pub(super) fn send(&self, from: Address, to: Address, call: &impl SolCall) -> Result<Bytes, DeployError> {
        let result = self.chain.send(from, Some(to), call.abi_encode().into())?;
        Ok(result.into_output().unwrap_or_default())
    }
}

/// A contract as `contracts/compile.mjs` writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Artifact {
    bytecode: Bytes,
    deployed_bytecode: Bytes,
}

sol! {
    interface IIdentity {
        function mint(address to, string uri) external returns (uint256 id);
    }

    interface IStakeVault {
        function stake(uint256 agentId, uint256 amount) external;
    }

    interface IReputation {
        function giveFeedback(uint256 agentId, int256 score) external;
    }

    interface IValidation {
        function submitValidation(uint256 agentId, bool passed, string evidence) external;
    }

    interface IOrganization {
        function createOrganization(string name) external returns (uint256 orgId);
        function addMember(uint256 orgId, uint256 agentId) external;
        function setVerified(uint256 orgId, bool verified) external;
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{U256, address};

    use crate::dev::fixture::{Identity, Registries, deployed, read};
    use crate::dev::{accounts::SAMPLE_ACCOUNTS, samples::TOKEN};

    #[test]
    fn the_registries_have_the_addresses_of_configurations() {
        let (_, on) = deployed();
        assert_eq!(on.identity, address!("0x5FbDB2315678afecb367f032d93F642f64180aa3"));
        assert_eq!(on.stake_vault, address!("0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"));
    }

    #[test]
    fn every_sample_agent_has_its_owner_its_uri_and_the_stake_of_its_tier() {
        let (chain, on) = deployed();
        let tiers: Vec<(u64, u8)> = on.agents.iter().map(|agent| (agent.id, agent.tier)).collect();
        assert_eq!(tiers, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)]);
        for (agent, tokens) in on.agents.iter().zip([1_000, 10_000, 100_000, 500_000, 0_u128]) {
            let id = U256::from(agent.id);
            let account = SAMPLE_ACCOUNTS[usize::try_from(agent.id).unwrap()];
            assert_eq!((agent.owner, agent.key), (account.address, account.key));
            assert_eq!(read(&chain, on.identity, &Identity::ownerOfCall { id }), agent.owner);
            assert!(read(&chain, on.identity, &Identity::tokenURICall { id }).starts_with("ipfs://bafkrei"));
            let stake = read(&chain, on.stake_vault, &Registries::getStakeCall { agentId: id });
            assert_eq!(stake.amount, U256::from(tokens * TOKEN));
            assert_eq!((stake.cooldownAmount, stake.cooldownEndTime), (U256::ZERO, U256::ZERO));
        }
    }
}
