//! Counts requests of clients: each in Redis, exactly, unless it is known here that Redis refuses it. So a flood beyond the
//! limit of a public route does not reach Redis.

use quick_cache::sync::Cache;

use crate::domain::client::ClientNet;
use crate::domain::quota::Quota;
use crate::domain::window::Verdict;
use crate::ports::store::{Budget, RouteScope};
use crate::store::redis::answers;
use crate::store::redis::error::RedisError;
use crate::store::redis::names::Name;
use crate::store::redis::{RedisStore, with_quota};

/// How many refusals are remembered.
pub(super) const REFUSALS_MAX: usize = 65_536;

/// Refusals on public routes that still hold.
pub(super) type Refusals = Cache<(ClientNet, RouteScope), Refusal>;

/// Redis admits nothing under this limit before this moment of our clock.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    limit: u32,
    until_micros: u64,
}

impl RedisStore {
    /// The answer of Redis to a client that it has refused, while that can't have changed. A limit that was raised since
    /// is another question.
    pub(super) fn refused_here(&self, budget: &Budget, quota: Quota) -> Option<Verdict> {
        let Budget::Route(visitor) = budget else { return None };
        let refusal = self.refusals.get(visitor)?;
        let left_micros = refusal.until_micros.saturating_sub(self.shared.clock.monotonic_micros());
        let holds = left_micros > 0 && quota.limit <= refusal.limit;
        holds.then_some(Verdict::Limited { retry_after_micros: left_micros })
    }

    /// Counts a request in Redis.
    pub(super) async fn count_in_redis(&self, budget: &Budget, quota: Quota) -> Result<Verdict, RedisError> {
        // Redis decides later than this: a refusal is not held for too long.
        let asked_micros = self.shared.clock.monotonic_micros();
        let name = match budget {
            Budget::Route((client, route)) => Name::Visits(*client, route),
            Budget::Key(client, agent, of) => Name::Meter(*client, *agent, *of),
        };
        let hit = with_quota(self.shared.scripts.hit.on(&[name]), quota);
        let verdict = answers::verdict(&self.servers.ask(hit).await?)?;
        if let (Budget::Route(visitor), Verdict::Limited { retry_after_micros }) = (budget, verdict) {
            let until_micros = asked_micros.saturating_add(retry_after_micros);
            self.refusals.insert(visitor.clone(), Refusal { limit: quota.limit, until_micros });
        }
        Ok(verdict)
    }
}
