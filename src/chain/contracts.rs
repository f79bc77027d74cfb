//! What the configured contracts say of an agent.
//!
//! Knows which call asks for what; how a call finds a node is the pool's affair, what answers mean is `snapshot`'s, and
//! whether the contracts are there is `survey`'s.

use std::sync::Arc;

use alloy::primitives::Address;

use crate::chain::rpc::{Pool, Terms};
use crate::chain::snapshot::{Registries, owner_call, read_owner};
use crate::chain::survey::{Survey, says_no_multicall};
use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::ChainFault;

/// The registries.
pub(super) struct Contracts {
    registries: Registries,
    survey: Arc<Survey>,
}

impl Contracts {
    pub(super) const fn new(registries: Registries, survey: Arc<Survey>) -> Self {
        Self { registries, survey }
    }

    /// The agent's profile, all of it from one block; nothing when the agent is not minted.
    pub(super) async fn profile(
        &self,
        pool: &Pool,
        terms: &Terms,
        agent: AgentId,
    ) -> Result<Option<TrustProfile>, ChainFault> {
        if !self.survey.lacks_multicall() {
            let read = self.profile_by_multicall(pool, terms, agent).await;
            match read {
                Err(fault) if says_no_multicall(&fault) => self.survey.look_for_multicall().await?,
                read => return read,
            }
            if !self.survey.lacks_multicall() {
                return self.profile_by_multicall(pool, terms, agent).await;
            }
        }
        let creation = self.registries.profile_creation(agent);
        pool.call(terms, None, &creation, |outcome| self.registries.read_created_profile(outcome)).await
    }

    async fn profile_by_multicall(
        &self,
        pool: &Pool,
        terms: &Terms,
        agent: AgentId,
    ) -> Result<Option<TrustProfile>, ChainFault> {
        let call = self.registries.profile_call(agent);
        let to = Some(self.registries.multicall);
        pool.call(terms, to, &call, |outcome| self.registries.read_profile(outcome)).await
    }

    /// The agent's owner; nothing when the agent is not minted.
    pub(super) async fn owner(
        &self,
        pool: &Pool,
        terms: &Terms,
        agent: AgentId,
    ) -> Result<Option<Address>, ChainFault> {
        pool.call(terms, Some(self.registries.identity), &owner_call(agent).into(), read_owner).await
    }
}
