//! The sets of registries that agents can be read from.
//!
//! One file per set says all there is to know of it: which calls, how their results decode, which logs name whom. Here
//! the configured set is chosen. `documented` is the documented ABI, `erc8004` that of ERC-8004. `calls` is what all sets have in
//! common, `logs` are the rules that hold for the logs of any set.

use alloy::primitives::Bytes;
use futures_util::future::Either;

use crate::chain::dated::{Call3, Result3, call};
use crate::chain::fault::{ReadError, TOO_FEW};
use crate::chain::registries::calls::{Check, asked, decode, getStakeCall, owner_call, read_owner};
use crate::chain::{block::Log, registries::erc8004::DetailsRead, registries::logs::Drops};
use crate::domain::{AgentId, Holders, Registries, RegistrySet, Texts, TrustProfile};
use crate::ports::AskedHolders;

pub(super) mod calls;
pub(super) mod documented;
pub(super) mod erc8004;
pub(super) mod logs;

impl Registries {
    /// The agents that these logs concern.
    pub(in crate::chain) fn drops(&self, logs: &[Log]) -> Drops {
        let is_ours = |log: &&Log| self.contracts().any(|(_, address)| address == log.address);
        let logs = logs.iter().filter(is_ours);
        match self.set {
            RegistrySet::Documented { organization } => Drops::of(logs, organization, &documented::EVENTS),
            RegistrySet::Erc8004 { .. } => Drops::of(logs, None, &erc8004::EVENTS),
        }
    }

    /// The calls for the holders.
    pub(in crate::chain) fn holder_calls(&self, agent: AgentId) -> Vec<Call3> {
        match self.set {
            RegistrySet::Documented { .. } => vec![owner_call(self.identity, agent)],
            RegistrySet::Erc8004 { .. } => erc8004::holder_calls(self.identity, agent),
        }
    }

    /// The holders in the results of [`Self::holder_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_holders(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<Holders>, ReadError> {
        match self.set {
            RegistrySet::Documented { .. } => Ok(read_owner(agent, results)?.map(Holders::owned_by)),
            RegistrySet::Erc8004 { .. } => erc8004::read_holders(agent, results),
        }
    }

    /// The calls for what decides: holders and stake.
    pub(in crate::chain) fn gate_calls(&self, agent: AgentId) -> Vec<Call3> {
        let stake = self.stake_vault.map(|vault| call(vault, &getStakeCall { agentId: agent.token_id() }));
        self.holder_calls(agent).into_iter().chain(stake).collect()
    }

    /// The profile without details in the results of [`Self::gate_calls`]; `None` when the agent is not minted.
    pub(in crate::chain) fn read_gate(
        &self,
        agent: AgentId,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<TrustProfile>, ReadError> {
        let Some(holders) = self.read_holders(agent, results)? else { return Ok(None) };
        let stake = self.stake_vault.map(|_| decode::<getStakeCall>("chain.contracts.stake_vault", results));
        let stake = stake.transpose()?;
        Ok(Some(TrustProfile { holders, stake, measured: None, details: None, texts: Texts::default() }))
    }

    /// The calls for the details of these agents, or the init code that reads them.
    pub(in crate::chain) fn details_calls(&self, agents: &[AgentId]) -> Either<Vec<Call3>, Bytes> {
        match self.set {
            RegistrySet::Documented { organization } => {
                let calls = |agent: &AgentId| documented::details_calls(self, organization, *agent);
                Either::Left(agents.iter().flat_map(calls).collect())
            }
            RegistrySet::Erc8004 { feedback_max } => {
                Either::Right(erc8004::details_code(self, feedback_max, agents))
            }
        }
    }

    /// The details of an agent in the results of either.
    pub(in crate::chain) fn read_details(
        &self,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<DetailsRead, ReadError> {
        match self.set {
            RegistrySet::Documented { .. } => {
                let details = documented::read_details(self, results)?;
                Ok(DetailsRead { details, ran_out: false, latest: None })
            }
            RegistrySet::Erc8004 { .. } => erc8004::read_details(&results.next().ok_or(TOO_FEW)?),
        }
    }

    /// The holders, and which of them accept a signature, in the results of `contracts/HolderSignatures.sol`; `None` when the
    /// agent is not minted.
    pub(in crate::chain) fn read_asked_holders(
        &self,
        agent: AgentId,
        results: &[Result3],
    ) -> Result<Option<AskedHolders>, ReadError> {
        if self.has_wallets() {
            erc8004::check_version(results.last().ok_or(TOO_FEW)?)?;
        }
        let mut results = results.iter().cloned();
        let Some(owner) = read_owner(agent, &mut results)? else { return Ok(None) };
        let owner = asked(owner, &results.next().ok_or(TOO_FEW)?);
        if !self.has_wallets() {
            return Ok(Some(AskedHolders { owner, wallet: None }));
        }
        let wallet = erc8004::read_wallet(&mut results)?.filter(|wallet| *wallet != owner.address);
        let answer = results.next().ok_or(TOO_FEW)?;
        Ok(Some(AskedHolders { owner, wallet: wallet.map(|wallet| asked(wallet, &answer)) }))
    }

    /// A question to each contract that shows whether it is the right one; the agent is any one.
    pub(in crate::chain) fn checks(&self, agent: AgentId) -> impl Iterator<Item = Check> {
        self.contracts().map(move |(key, address)| match self.set {
            RegistrySet::Documented { .. } => documented::check(key, address, agent),
            RegistrySet::Erc8004 { .. } => erc8004::check(key, address, agent),
        })
    }
}
