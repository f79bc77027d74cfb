//! An agent's profile for its owner, who signs for it: of any tier, and without a key.
//!
//! Such reads are limited per client and agent. The limit protects the nodes, so each process has its own, in bounded
//! memory. It is checked before a node is asked, and counted once the owner is proven: strangers can't use it up.

use std::sync::Arc;

use crate::domain::{AgentId, Allowance, ClientNet, Grade, HeldKey, Quota, Tiers, TrustProfile};
use crate::error::Error;
use crate::pipeline::{
    Pipeline, budget::allowance, credential::ProfileRead, owner::Signed, read_time::ReadTime,
};
use crate::ports::Parts;

/// How often a client may read one agent's profile.
pub(super) const READS: Quota = Quota::per_minute(60);

/// How many pairs of client and agent are remembered at most.
pub(super) const READERS_MAX: usize = 16_384;

/// An agent as its owner may see it. Made from a proof that the owner signed, and in no other way.
#[derive(Debug)]
pub struct OwnerProfile {
    agent: AgentId,
    /// The values of the registries.
    pub profile: Arc<TrustProfile>,
    /// The agent's tier, and what gave it.
    pub grade: Grade,
    /// The agent's keys that have not ended, the oldest first.
    pub keys: Vec<HeldKey>,
    /// The rest of the client's reads of this agent.
    pub allowance: Allowance,
}

impl OwnerProfile {
    /// The agent.
    pub const fn agent(&self) -> AgentId {
        self.agent
    }
}

impl Pipeline {
    /// Reads the agent's profile for its owner. Charges neither the agent's window nor key management.
    /// Error: the refusals of any signed request, but for those of nonces: there is none.
    pub async fn owner_profile(
        &self,
        client: ClientNet,
        read: &ProfileRead,
        tiers: &Tiers,
    ) -> Result<OwnerProfile, Error> {
        let signed = self.profile_read(read);
        let reserved = self.check_budget(client, &signed)?; // 429
        let outcome = self.read_for_owner(client, &signed, tiers).await;
        self.failures.note(client, reserved, &outcome);
        outcome
    }

    async fn read_for_owner(
        &self,
        client: ClientNet,
        signed: &Signed<'_>,
        tiers: &Tiers,
    ) -> Result<OwnerProfile, Error> {
        let reader = (client, signed.agent);
        let now = || self.ports.clock.monotonic_micros();
        allowance(READS, Some(signed.agent), self.profile_reads.peek(&reader, READS, now))?; // 429
        let read_time = ReadTime::begin(&self.ports);
        let proof = self.prove(signed).await?; // 400 timestamp, 404, 401, 503
        let agent = proof.agent();
        let allowance = allowance(READS, Some(agent), self.profile_reads.hit(&reader, READS, now()))?;
        let signers = (Some(proof.by.signer), None);
        let profile = self.profile_of(agent, signers, (Parts::Whole, read_time)).await?; // 404, 401, 503
        let keys = self.ports.store.keys(agent).await?; // 500
        let grade = tiers.grade(agent, &profile);
        Ok(OwnerProfile { agent, profile, grade, keys, allowance })
    }
}
