//! Counts owners' requests to manage keys.

use crate::domain::agent_id::AgentId;
use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::domain::window::Verdict;
use crate::ports::store::KeyBudget;
use crate::store::redis::answers;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::{self, Name};
use crate::store::redis::scripts::Script;
use crate::store::redis::{RedisStore, with_quota};

impl RedisStore {
    /// What all replicas have counted, and if the agent has a key.
    pub(super) async fn look_at_key(
        &self,
        client: ClientNet,
        agent: AgentId,
        quota: Quota,
    ) -> Result<(Verdict, bool), RedisError> {
        let meter = names::meter(client, agent, KeyBudget::Changes);
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
