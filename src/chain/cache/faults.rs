//! Agents whose profiles can't be read by what the chain holds of them: every node fails on them alike, and would at the
//! next request again. Knows that they can't be read, and for how long that is said without asking; not what is at fault.

use quick_cache::sync::Cache;

use crate::chain::cache::ground::{Ground, Ticket};
use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;

/// How many agents' faults are remembered. Who is pushed out costs a read.
pub(super) const FAULTS_MAX: usize = 1_024;

/// Faults by agent.
pub(super) struct Faults {
    entries: Cache<AgentId, Remembered>,
    serves_micros: u64,
}

#[derive(Clone)]
struct Remembered {
    ticket: Ticket,
    met_micros: u64,
    fault: ChainFault,
}

impl Faults {
    /// Nobody's. Each is said for so long.
    pub(super) fn new(serves_micros: u64) -> Self {
        Self { entries: Cache::new(FAULTS_MAX), serves_micros }
    }

    /// What the read with this ticket met.
    pub(super) fn keep(&self, ticket: &Ticket, fault: &ChainFault, now_micros: u64) {
        let remembered = Remembered { ticket: *ticket, met_micros: now_micros, fault: fault.clone() };
        self.entries.insert(ticket.agent, remembered);
    }

    /// What a read would meet, unless it is long ago or something was dropped since that may have been at fault.
    pub(super) fn get(&self, agent: AgentId, ground: &Ground, now_micros: u64) -> Option<ChainFault> {
        let Remembered { ticket, met_micros, fault } = self.entries.get(&agent)?;
        let serves = now_micros.saturating_sub(met_micros) < self.serves_micros && ground.stands(&ticket);
        if !serves {
            self.entries.remove(&agent);
        }
        serves.then_some(fault)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
