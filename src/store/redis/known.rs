//! Facts that a process knows for itself, so that Redis is asked less: the owners of keys, and which clients of public routes it refuses.
//!
//! The day of a key's last use is written behind the requests: they set a flag beside the key's owner, and once a minute the flags are
//! inspected at. A key is written once a day by each process that it comes to.
//!
//! Requests of clients are counted in Redis, each exactly, unless it is known here that Redis refuses it. So a flood beyond the limit of a
//! public route does not reach Redis.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use tokio::time::sleep;

use crate::domain::{ClientNet, KeyDays, KeyDigest, Quota, Verdict, held_key::day_of};
use crate::ports::{Budget, KeyOwner, RouteScope};
use crate::store::redis::answers::{self, days_of, read};
use crate::store::redis::{RedisStore, with_quota};
use crate::store::{redis::error::RedisError, redis::names::Name, redis::servers::Servers};

/// A key whose owner is known here.
pub(super) struct KnownKey {
    pub(super) owner: KeyOwner,
    /// True once it was used since the flags were inspected at.
    pub(super) is_used: AtomicBool,
    /// The day on which its use was written last.
    pub(super) noted_on: AtomicU32,
}

/// The keys that are known here.
pub(super) type KnownKeys = Arc<Cache<KeyDigest, Arc<KnownKey>>>;

/// How often the flags are inspected at.
const NOTED_EVERY: Duration = Duration::from_secs(60);

pub(super) async fn keep_noting(servers: &Servers, known: &KnownKeys) {
    loop {
        sleep(NOTED_EVERY).await;
        note(servers, known).await;
    }
}

/// Writes the uses of keys. One that Redis does not take is written with the next use.
pub(super) async fn note(servers: &Servers, known: &KnownKeys) {
    for (digest, key) in known.iter() {
        let today = day_of(servers.shared.clock.unix_seconds());
        let is_due =
            key.is_used.swap(false, Ordering::Relaxed) && key.noted_on.load(Ordering::Relaxed) != today;
        if is_due && note_one(servers, &digest, today).await.is_ok() {
            key.noted_on.store(today, Ordering::Relaxed);
        }
    }
}

async fn note_one(servers: &Servers, digest: &KeyDigest, today: u32) -> Result<(), RedisError> {
    let (shared, name) = (&servers.shared, Name::Days(digest));
    let text: Option<String> = read(&servers.ask(shared.command("GET", name)).await?)?;
    let Some(KeyDays { made, used }) = text.as_deref().and_then(days_of) else { return Ok(()) };
    if used != Some(today) {
        // Only where it still is, and for as long as it would be there.
        let set = shared.command("SET", name).arg(format!("{made} {today}"));
        servers.ask(set.arg("XX").arg("KEEPTTL")).await?;
    }
    Ok(())
}

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
