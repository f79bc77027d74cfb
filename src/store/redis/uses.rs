//! Writes on which day each key was last used, behind the requests: they set a flag beside the key's owner, which is known here, and
//! once a minute the flags are looked at. A key is written once a day by each process that it comes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::sleep;

use crate::domain::api_key::KeyDigest;
use crate::domain::held_key::{KeyDays, day_of};
use crate::ports::store::KeyOwner;
use crate::store::redis::answers::{days_of, read};
use crate::store::redis::error::RedisError;
use crate::store::redis::names::Name;
use crate::store::redis::servers::Servers;

/// A key whose owner is known here.
pub(super) struct KnownKey {
    pub(super) owner: KeyOwner,
    /// It was used since the flags were looked at.
    pub(super) is_used: AtomicBool,
    /// The day on which its use was written last.
    noted_on: AtomicU32,
}

impl KnownKey {
    /// One that is used now.
    pub(super) const fn used(owner: KeyOwner) -> Self {
        Self { owner, is_used: AtomicBool::new(true), noted_on: AtomicU32::new(0) }
    }
}

/// The keys that are known here.
pub(super) type Known = Arc<Cache<KeyDigest, Arc<KnownKey>>>;

/// How often the flags are looked at.
const NOTED_EVERY: Duration = Duration::from_secs(60);

pub(super) async fn keep_noting(servers: &Servers, known: &Known) {
    loop {
        sleep(NOTED_EVERY).await;
        note(servers, known).await;
    }
}

/// Writes the uses of keys. One that Redis does not take is written with the next use.
pub(super) async fn note(servers: &Servers, known: &Known) {
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
