//! Second step: how the agent stands. 404 when it is gone, 401 when its key has ended with the signer, 403 below the tier
//! that is asked for, or from an origin that was not declared where that matters.
//!
//! A key that ends with whoever signed for it (`keys.end_with_signer`) is good while that account holds the agent, which the
//! profile says that is read anyway.

use std::sync::Arc;

use alloy::primitives::Address;
use futures_util::future::Either;

use crate::domain::{AgentId, Denial, Grade, Quota, Tier, TrustProfile, Verdict};
use crate::error::Error;
use crate::pipeline::{
    Access, Ask, Pipeline, failures::ReservedFailure, owner::ReadTime, principal::Principal,
};
use crate::ports::{Asker, Parts, Proof};

/// How often the chain is read for one key that has ended by the cached profile: its holder may go on to send it.
pub(super) const REREADS: Quota = Quota::per_minute(1);

/// How many such keys are remembered.
pub(super) const REREAD_KEYS_MAX: usize = 4_096;

/// An agent whose tier suffices, with the quota that the tier gives it.
#[derive(Debug)]
pub struct Standing {
    pub(super) principal: Principal,
    pub(super) profile: Arc<TrustProfile>,
    pub(super) grade: Grade,
    quota: Quota,
    pub(super) endpoint_mismatch: bool,
    pub(super) reserved: Option<Box<ReservedFailure>>,
}

impl Standing {
    /// The agent.
    pub const fn agent(&self) -> AgentId {
        self.principal.agent()
    }

    /// The agent's tier.
    pub const fn tier(&self) -> Tier {
        self.grade.tier
    }

    /// The agent's quota at the listener that was asked.
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

impl Pipeline {
    pub(super) async fn stand(&self, principal: Principal, ask: &Ask<'_>) -> Result<Standing, Error> {
        let (agent, time) = (principal.agent(), principal.read_time);
        let signers = (principal.signer, principal.key_signer);
        let profile = match self.profile_of(agent, signers, (ask.access.parts, time)).await {
            // Boxed: a key whose signer holds the agent carries no room for a read along.
            Ok(profile) if self.has_ended(signers.1, &profile) => {
                Box::pin(self.profile_of_holder(&principal, ask)).await
            }
            read => read,
        };
        let judged = profile.and_then(|profile| {
            let (grade, quota) = judge(ask.access, agent, &profile)?;
            // The contract's: both are known and differ.
            let origins = principal.declared_origin.as_ref().zip(ask.origin.as_ref());
            let endpoint_mismatch = origins.is_some_and(|(declared, origin)| declared != origin);
            if endpoint_mismatch && ask.access.denies_endpoint_mismatch {
                return Err(Denial::EndpointMismatch { agent }.into());
            }
            Ok((profile, grade, quota, endpoint_mismatch))
        });
        match judged {
            Ok((profile, grade, quota, endpoint_mismatch)) => {
                Ok(Standing { principal, profile, grade, quota, endpoint_mismatch, reserved: None })
            }
            Err(refusal) => Err(self.unless_revoked(&principal, ask, refusal).await),
        }
    }

    /// The agent's profile. A cached one of which the signer is no holder is older than the signature check and is read
    /// again; if the holders have changed since that check, the signature is no longer one of theirs. One
    /// without the details that are shown is read again too, or says why it can't be; one by which the
    /// key has ended needs none.
    pub(super) async fn profile_of(
        &self,
        agent: AgentId,
        (signer, key_signer): (Option<Address>, Option<Address>),
        (parts, time): (Parts, ReadTime),
    ) -> Result<Arc<TrustProfile>, Error> {
        let gone = || Denial::AgentNotFound { agent };
        let ports = &self.ports;
        let profile = match ports.chain.profile(agent, parts) {
            Either::Left(cached) => cached.into_inner()?,
            // Boxed: a key check whose profile is cached carries no room for a timer along.
            Either::Right(read) => Box::pin(time.bound(ports, read)).await?,
        };
        if profile.is_none() && signer.is_none() {
            return Err(gone().into());
        }
        let is_holder =
            |profile: &TrustProfile| signer.is_none_or(|signer| self.may_act(&profile.holders, signer));
        let suffices = |profile: &TrustProfile| {
            parts == Parts::Gate || profile.details.is_some() || self.has_ended(key_signer, profile)
        };
        if let Some(profile) = profile.filter(|profile| is_holder(profile) && suffices(profile)) {
            return Ok(profile);
        }
        let latest = Box::pin(time.bound(ports, ports.chain.latest_profile(agent, parts))).await?;
        let profile = latest.ok_or_else(gone)?;
        if is_holder(&profile) {
            Ok(profile)
        } else {
            Err(self.bad_signature(agent, profile.holders.owner, signer, None))
        }
    }

    /// True if the credential is a key that ends with this signer, who may not act for the agent by this profile.
    pub(super) fn has_ended(&self, key_signer: Option<Address>, profile: &TrustProfile) -> bool {
        key_signer.is_some_and(|signer| !self.may_act(&profile.holders, signer))
    }

    /// The profile of an agent whose key has ended by a cached one, which may be older than the key: a new owner has just made
    /// it. Looked at once a minute, and as a stranger's: whoever sold many agents has as many such keys. A fault says nothing
    /// of the key, and is no look.
    pub(super) async fn profile_of_holder(
        &self,
        principal: &Principal,
        ask: &Ask<'_>,
    ) -> Result<Arc<TrustProfile>, Error> {
        let ended = || Error::from(Denial::InvalidApiKey { agent: ask.credential.named_agent() });
        let (Proof::Key(digest), Some(signer)) = (&principal.proof, principal.key_signer) else {
            return Err(ended());
        };
        let is_due = matches!(self.rereads.peek(digest, REREADS, || self.now()), Verdict::Admitted { .. });
        if !is_due || self.failures.check(ask.client, None).is_err() {
            return Err(ended());
        }
        let holders = self.ports.chain.holders(principal.agent(), Asker::Stranger).await?;
        if !holders.is_some_and(|holders| self.may_act(&holders, signer)) {
            self.rereads.hit(digest, REREADS, self.now());
            return Err(ended());
        }
        let latest = self.ports.chain.latest_profile(principal.agent(), ask.access.parts);
        let latest = principal.read_time.bound(&self.ports, latest).await?;
        latest.filter(|profile| !self.has_ended(Some(signer), profile)).ok_or_else(ended)
    }
}

/// The grade of a registered agent with this profile, and the quota of its tier.
/// Error: [`Denial::TierBlocked`] below the lowest tier that passes.
pub fn judge(access: &Access, agent: AgentId, profile: &TrustProfile) -> Result<(Grade, Quota), Denial> {
    let grade = access.tiers.grade(agent, profile);
    let current = grade.tier;
    if let Some(quota) = access.quotas.get(current).filter(|_| current >= access.min_tier) {
        return Ok((grade, quota));
    }
    let required = access.min_tier.max(Tier::Bronze);
    let required_stake = access.tiers.sources().stake_of(required);
    Err(Denial::TierBlocked { agent, current, required, required_stake })
}
