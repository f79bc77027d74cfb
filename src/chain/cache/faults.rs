//! Agents whose profiles can't be read because of what the chain holds of them: every node fails on them alike.

use quick_cache::sync::Cache;

use crate::domain::agent_id::AgentId;
use crate::ports::chain::ChainFault;

/// How many agents' faults are remembered. Who is pushed out costs a read.
const FAULTS_MAX: usize = 1_024;

/// Faults by agent, each for one interval or until a log concerns the agent.
pub(super) struct Faults {
    entries: Cache<AgentId, (u64, u64, ChainFault)>,
    serves_micros: u64,
}

impl Faults {
    pub(super) fn new(serves_micros: u64) -> Self {
        Self { entries: Cache::new(FAULTS_MAX), serves_micros }
    }

    pub(super) fn keep(&self, agent: AgentId, fault: &ChainFault, generation: u64, now_micros: u64) {
        self.entries.insert(agent, (generation, now_micros, fault.clone()));
    }

    /// Why the agent can't be read, if that was found out just now.
    pub(super) fn get(&self, agent: AgentId, generation: u64, now_micros: u64) -> Option<ChainFault> {
        let (of, met_micros, fault) = self.entries.get(&agent)?;
        let serves = now_micros.saturating_sub(met_micros) < self.serves_micros && of == generation;
        if !serves {
            self.entries.remove(&agent);
        }
        serves.then_some(fault)
    }

    /// The agent may have changed.
    pub(super) fn forget(&self, agent: AgentId) {
        self.entries.remove(&agent);
    }

    /// Anybody may have changed: an organization has, and whose members can't be read is not known.
    pub(super) fn clear(&self) {
        self.entries.clear();
    }
}
