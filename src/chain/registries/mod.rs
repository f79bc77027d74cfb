//! The sets of registries that agents can be read from.
//!
//! One file per set says all there is to know of it: which calls, how their results decode, which logs name whom. Here
//! the configured set is chosen. `documented` is the documented ABI. `identity` is what all sets have in common,
//! `stake_vault` is where the tier comes from, `logs` are the rules that hold for the logs of any set.

use alloy::primitives::Address;
use serde_json::{Value, json};

use crate::chain::answer::{Call3, Result3};
use crate::chain::block::Log;
use crate::chain::fault::ReadError;
use crate::chain::registries::identity::{asked, owner_call};
use crate::chain::registries::logs::Drops;
use crate::chain::registries::results::{Found, TOO_FEW};
use crate::chain::registries::stake_vault::{read_stake, stake_call};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::profile::{Texts, TrustProfile};
use crate::domain::registries::{Registries, RegistrySet};
use crate::ports::chain::AskedHolders;

pub(super) mod documented;
pub(super) mod identity;
pub(super) mod logs;
pub(super) mod results;
pub(super) mod stake_vault;

impl Registries {
    /// Whom these logs concern.
    pub(in crate::chain) fn drops(&self, logs: &[Log]) -> Drops {
        match self.set {
            RegistrySet::Documented { organization } => Drops::of(logs, organization, &documented::EVENTS),
        }
    }

    /// The filters of all logs in these blocks that concern agents.
    pub(in crate::chain) fn log_filters(&self, blocks: &Value) -> Vec<Value> {
        let addresses: Vec<Address> = self.contracts().map(|(_, address)| address).collect();
        let mut filter = blocks.clone();
        if let Some(filter) = filter.as_object_mut() {
            filter.insert("address".to_owned(), json!(addresses));
        }
        vec![filter]
    }

    /// The calls for a whole profile.
    pub(in crate::chain) fn profile_calls(&self, agent: AgentId) -> Vec<Call3> {
        match self.set {
            RegistrySet::Documented { organization } => documented::profile_calls(self, organization, agent),
        }
    }

    /// The profile in the results of [`Self::profile_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_profile(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<TrustProfile>, ReadError> {
        match self.set {
            RegistrySet::Documented { organization } => {
                documented::read_profile(self, organization, agent, results)
            }
        }
    }

    /// The calls for a profile without details.
    pub(in crate::chain) fn gate_calls(&self, agent: AgentId) -> Vec<Call3> {
        [self.holder_calls(agent), vec![stake_call(self.stake_vault, agent)]].concat()
    }

    /// The profile in the results of [`Self::gate_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_gate(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<TrustProfile>, ReadError> {
        let Some(holders) = self.read_holders(agent, results)? else { return Ok(None) };
        let stake = read_stake(results)?;
        Ok(Some(TrustProfile { holders, stake, details: None, texts: Texts::default() }))
    }

    /// The calls for the holders.
    pub(in crate::chain) fn holder_calls(&self, agent: AgentId) -> Vec<Call3> {
        vec![owner_call(self.identity, agent)]
    }

    /// The holders in the results of [`Self::holder_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_holders(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<Holders>, ReadError> {
        match self.set {
            RegistrySet::Documented { .. } => documented::read_holders(agent, results),
        }
    }

    /// The holders, and which of them accept a signature, in the results of `contracts/HolderSignatures.sol`; `None` when the
    /// agent is not minted.
    pub(in crate::chain) fn read_asked_holders(
        &self,
        agent: AgentId,
        results: Vec<Result3>,
    ) -> Result<Option<AskedHolders>, ReadError> {
        let mut results = results.into_iter();
        let Some(holders) = self.read_holders(agent, &mut results)? else { return Ok(None) };
        let owner = asked(holders.owner, &results.next().ok_or(TOO_FEW)?);
        Ok(Some(AskedHolders { owner, wallet: None }))
    }

    /// Each registry in the results of [`Self::profile_calls`] about any agent.
    pub(in crate::chain) fn found(&self, results: &[Result3]) -> Vec<Found> {
        match self.set {
            RegistrySet::Documented { organization } => documented::found(self, organization, results),
        }
    }
}

/// True when a whole profile may have failed because of its details alone: owner and stake may be had by themselves.
pub(super) fn may_lie_in_details(error: &ReadError) -> bool {
    use ReadError::{NodeError, Reverted, TooLong, Undecodable};
    matches!(error, TooLong(_) | NodeError { .. })
        || matches!(error, Reverted(call) | Undecodable(call) if documented::DETAILS.contains(call))
}
