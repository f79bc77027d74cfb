//! Counts requests of strangers on public routes: each in Redis, exactly, unless it is known here that Redis refuses it. So
//! a flood beyond the limit does not reach Redis.

use quick_cache::sync::Cache;

use crate::domain::client::ClientNet;
use crate::domain::quota::{Quota, RetryAfter};
use crate::domain::window::Verdict;
use crate::ports::store::{Metered, RouteScope};
use crate::store::redis::RedisStore;
use crate::store::redis::error::RedisError;
use crate::store::redis::names;

/// How many refusals are remembered.
const REFUSALS_MAX: usize = 65_536;

/// Refusals that still hold, by client and route.
pub(super) struct Refusals(Cache<(ClientNet, RouteScope), Refusal>);

/// Redis admits nothing under this limit before this moment of our clock.
#[derive(Clone, Copy)]
struct Refusal {
    limit: u32,
    until_micros: u64,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Cache::new(REFUSALS_MAX))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl RedisStore {
    /// The answer of Redis to a client that it has refused, while that can't have changed. A limit that was raised since
    /// is another question.
    pub(super) fn refused_here(
        &self,
        client: ClientNet,
        route: &RouteScope,
        quota: Quota,
    ) -> Option<Metered> {
        let refusal = self.refusals.0.get(&(client, route.clone()))?;
        let left_micros = refusal.until_micros.saturating_sub(self.shared.clock.monotonic_micros());
        let holds = left_micros > 0 && quota.limit <= refusal.limit;
        holds.then(|| Metered::Limited { retry_after: RetryAfter::from_micros(left_micros) })
    }

    /// Counts a request in Redis.
    pub(super) async fn count_visit(
        &self,
        client: ClientNet,
        route: &RouteScope,
        quota: Quota,
    ) -> Result<Metered, RedisError> {
        // Redis decides later than this: the refusal is not held for too long.
        let asked_micros = self.shared.clock.monotonic_micros();
        let verdict = self.metered(&self.shared.scripts.hit, names::visits(client, route), quota).await?;
        if let Verdict::Limited { retry_after_micros } = verdict {
            let until_micros = asked_micros.saturating_add(retry_after_micros);
            self.refusals.0.insert((client, route.clone()), Refusal { limit: quota.limit, until_micros });
        }
        Ok(verdict.into())
    }
}
