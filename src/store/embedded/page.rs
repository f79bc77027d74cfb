//! One transaction of the writer: each step is made in it as a whole, or answered with why not.

use crate::domain::agent_id::AgentId;
use crate::domain::nonce::NonceClaim;
use crate::ports::store::{KeyChange, KeyChanged};
use crate::store::embedded::tables::Ledger;
use crate::store::embedded::writer::Step;

/// What a commit made of a step.
pub(super) enum Outcome {
    Spent(bool),
    Changed(KeyChanged),
    Probed,
}

/// One transaction being written.
pub(super) struct Page<'a> {
    pub(super) ledger: Ledger<'a>,
    pub(super) forgotten_before: u64,
    pub(super) used_at_secs: u64,
    /// How many nonces were put in.
    pub(super) written: usize,
    /// Something was put in to see whether it can be.
    pub(super) probed: bool,
}

impl Page<'_> {
    pub(super) fn make(&mut self, step: &Step) -> Result<Outcome, redb::Error> {
        Ok(match step {
            Step::Spend { place, claim, .. } => {
                let unused = self.is_unused(place.agent, claim)?;
                if unused {
                    self.use_up(place.agent, claim)?;
                }
                Outcome::Spent(unused)
            }
            Step::Change { agent, claim, change, .. } => {
                Outcome::Changed(self.change(*agent, claim, change)?)
            }
            Step::Probe { .. } => {
                // Whether the disk takes a write is known only by writing: what stands there already.
                self.ledger.set_forgotten_before(self.forgotten_before)?;
                self.probed = true;
                Outcome::Probed
            }
        })
    }

    fn change(
        &mut self,
        agent: AgentId,
        claim: &NonceClaim,
        change: &KeyChange,
    ) -> Result<KeyChanged, redb::Error> {
        if !self.is_unused(agent, claim)? {
            return Ok(KeyChanged::NonceUsed);
        }
        let key = match change {
            KeyChange::Issue(_) if self.ledger.has_key(agent)? => return Ok(KeyChanged::KeyExists),
            KeyChange::Issue(key) | KeyChange::Rotate(key) => Some(key),
            KeyChange::Revoke => None,
        };
        self.use_up(agent, claim)?;
        self.ledger.set_key(agent, key)?;
        Ok(KeyChanged::Done)
    }

    fn is_unused(&self, agent: AgentId, claim: &NonceClaim) -> Result<bool, redb::Error> {
        Ok(claim.signed_at.0 >= self.forgotten_before && !self.ledger.has_used(agent, claim)?)
    }

    /// The row's time is never before the timestamp: whatever the wall clock did since that was checked, and however far
    /// ahead timestamps may lie when the row is forgotten.
    fn use_up(&mut self, agent: AgentId, claim: &NonceClaim) -> Result<(), redb::Error> {
        self.ledger.use_up(agent, claim, self.used_at_secs.max(claim.signed_at.0))?;
        self.written += 1;
        Ok(())
    }
}
