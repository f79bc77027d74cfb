//! Counts requests to manage keys: all of them in this process, in bounded memory, and owners' in Redis too, exactly. A
//! stranger may ask for any agent number, and leaves nothing in Redis.

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::domain::window::Verdict;
use crate::ports::store::Metered;
use crate::store::redis::answers;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, Name};
use crate::store::redis::scripts::Script;
use crate::store::redis::{RedisStore, with_quota};

/// How many pairs of client and agent are counted in this process at most; beyond that the least used are forgotten.
pub(super) const METERS_MAX: usize = 262_144;

impl RedisStore {
    /// Counts a request in this process.
    pub(super) fn count_here(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Metered {
        self.meters.hit(&(client, agent), quota, self.shared.clock.monotonic_micros()).into()
    }

    /// How many requests more would be counted in this process.
    pub(super) fn left_here(&self, client: ClientNet, agent: AgentId, quota: Quota) -> u32 {
        match self.meters.peek(&(client, agent), quota, || self.shared.clock.monotonic_micros()) {
            Verdict::Admitted { remaining } => remaining + 1,
            Verdict::Limited { .. } => 0,
        }
    }

    /// What all replicas have counted, and if the agent has a key.
    pub(super) async fn look_at_key(
        &self,
        client: ClientNet,
        agent: AgentId,
        quota: Quota,
    ) -> Result<(Verdict, bool), RedisError> {
        let meter = names::meter(client, agent);
        let look = with_quota(self.shared.scripts.left.on(&[meter, names::record(agent)]), quota);
        answers::verdict_and_key(&self.servers.ask(meter.shard(), look).await?)
    }

    /// Runs a script on the meter that all replicas share.
    pub(super) async fn metered(
        &self,
        script: &Script,
        name: Name<'_>,
        quota: Quota,
    ) -> Result<Verdict, RedisError> {
        let request = with_quota(script.on(&[name]), quota);
        answers::verdict(&self.servers.ask(name.shard(), request).await?)
    }
}

/// The smaller allowance.
pub(super) fn min(one: Metered, other: Metered) -> Metered {
    match (one, other) {
        (Metered::Counted { remaining: one }, Metered::Counted { remaining: other }) => {
            Metered::Counted { remaining: one.min(other) }
        }
        (Metered::Limited { retry_after }, _) | (_, Metered::Limited { retry_after }) => {
            Metered::Limited { retry_after }
        }
    }
}
