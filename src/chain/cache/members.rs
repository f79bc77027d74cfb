//! Which cached agents belong to an organization. It holds what the cached profiles list, and nothing else.

use std::collections::{HashMap, HashSet};

use alloy::primitives::U256;
use parking_lot::Mutex;

use crate::domain::agent_id::AgentId;
use crate::domain::profile::TrustProfile;

#[derive(Default)]
pub(super) struct Members(Mutex<HashMap<U256, HashSet<AgentId>>>);

impl Members {
    pub(super) fn add(&self, agent: AgentId, profile: &TrustProfile) {
        if profile.organizations.is_empty() {
            return;
        }
        let mut members = self.0.lock();
        for organization in &profile.organizations {
            members.entry(organization.org_id).or_default().insert(agent);
        }
    }

    pub(super) fn remove(&self, agent: AgentId, profile: &TrustProfile) {
        if profile.organizations.is_empty() {
            return;
        }
        let mut members = self.0.lock();
        for organization in &profile.organizations {
            if let Some(agents) = members.get_mut(&organization.org_id) {
                agents.remove(&agent);
                if agents.is_empty() {
                    members.remove(&organization.org_id);
                }
            }
        }
    }

    /// The members of these organizations.
    pub(super) fn of<'a>(&self, organizations: impl Iterator<Item = &'a U256>) -> HashSet<AgentId> {
        let members = self.0.lock();
        organizations.filter_map(|id| members.get(id)).flatten().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
