//! Bots that prove their domain (Web Bot Auth): whether a signature is one of a key that its domain publishes.
//!
//! A key is looked for under its domain alone. No request waits for a directory: the one that causes a read is a stranger's, as is
//! each one until the directory is there. Must not know HTTP messages of clients.

mod directory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use quick_cache::sync::Cache;
use ring::signature::{ED25519, UnparsedPublicKey};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::bots::directory::{Directories, Keys};
use crate::domain::bot::{BotDomains, BotSignature, Reach};
use crate::domain::client::ClientNet;
use crate::domain::quota::{MINUTE_MICROS, Quota};
use crate::domain::window::Verdict;
use crate::ports::clock::Clock;
use crate::sharded::meters::Meters;
use crate::telemetry::metrics::Metrics;

/// How many domains are known at once.
const DOMAINS_MAX: usize = 1_024;

/// How long keys count after they were read.
const KEYS_MICROS_MAX: u64 = 60 * MINUTE_MICROS;

/// How long a directory is not read again in which a key was found.
const FOUND_MICROS: u64 = 10 * MINUTE_MICROS;

/// The same where a key was not found.
const MISSED_MICROS: u64 = MINUTE_MICROS;

/// How many directories of listed domains are read at once, and as many below a `*`.
const READS_MAX: usize = 16;

/// How many reads a client network may cause.
const READS_OF_CLIENT: Quota = Quota::per_minute(10);

/// How many signatures of a request are checked.
const CHECKS_MAX: usize = 2;

/// How many wrong ones of a client network are checked.
const WRONG_CHECKS: Quota = Quota::per_minute(60);

/// How many client networks are remembered.
const CLIENTS_MAX: usize = 4_096;

/// The bots of some domains.
pub(crate) struct Bots {
    domains: BotDomains,
    directories: Arc<Directories>,
    known: Cache<String, Arc<Known>>,
    readers: Meters<ClientNet>,
    wrong: Meters<ClientNet>,
    reads: Arc<Semaphore>,
    reads_below: Arc<Semaphore>,
    /// Where directories are read.
    runtime: Handle,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

/// A directory, as it is known here.
#[derive(Default)]
struct Known {
    /// When the last read of it began, in monotonic microseconds; 0: it was not read.
    begun_micros: AtomicU64,
    /// Those of the last read that gave any, and until when they count.
    keys: ArcSwapOption<(Keys, u64)>,
}

impl Bots {
    /// Those of these domains, whose directories are read on this runtime.
    pub(crate) fn new(
        domains: BotDomains,
        runtime: Handle,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            domains,
            directories: Arc::new(Directories::new()?),
            known: Cache::new(DOMAINS_MAX),
            readers: Meters::new(CLIENTS_MAX),
            wrong: Meters::new(CLIENTS_MAX),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            reads_below: Arc::new(Semaphore::new(READS_MAX)),
            runtime,
            clock,
            metrics,
        })
    }

    /// The domain that one of these signatures proves.
    pub(crate) fn domain(&self, signatures: &[BotSignature], client: ClientNet) -> Option<Box<str>> {
        let (mut result, mut is_wrong) = ("refused", false);
        let now = || self.clock.monotonic_micros();
        let is_over = matches!(self.wrong.peek(&client, WRONG_CHECKS, now), Verdict::Limited { .. });
        let proven = signatures.iter().take(if is_over { 0 } else { CHECKS_MAX }).find(|signed| {
            let Some(reach) = self.domains.reach(&signed.domain) else { return false };
            let Some(key) = self.key(&signed.domain, reach, &signed.key_id, client) else {
                result = "unknown";
                return false;
            };
            is_wrong = UnparsedPublicKey::new(&ED25519, key).verify(&signed.base, &signed.signature).is_err();
            !is_wrong
        });
        if is_wrong {
            self.wrong.hit(&client, WRONG_CHECKS, now());
        }
        let result = if proven.is_some() { "proven" } else { result };
        self.metrics.bot_proofs.with_label_values(&[result]).inc();
        proven.map(|signed| signed.domain.clone())
    }

    /// A key of a domain, as far as it is known. Has the directory read if it is time.
    fn key(&self, domain: &str, reach: Reach, id: &str, client: ClientNet) -> Option<[u8; 32]> {
        let known = self.known.get(domain);
        let now = self.clock.monotonic_micros().max(1);
        let key = known.as_ref().and_then(|known| {
            let keys = known.keys.load();
            let (keys, until) = &**keys.as_ref()?;
            let (key, times) = keys.get(id).filter(|_| now < *until)?;
            times.contains(&self.clock.unix_seconds()).then_some(*key)
        });
        let pause = if key.is_some() { FOUND_MICROS } else { MISSED_MICROS };
        let begun = known.as_ref().map_or(0, |known| known.begun_micros.load(Ordering::Relaxed));
        if begun == 0 || now.saturating_sub(begun) >= pause {
            self.read(domain, reach, (begun, now), client);
        }
        key
    }

    /// Has a directory read, unless somebody else did so since `begun`, or there is no place.
    fn read(&self, domain: &str, reach: Reach, (begun, now): (u64, u64), client: ClientNet) {
        let places = match reach {
            Reach::Below => &self.reads_below,
            Reach::Public | Reach::Anywhere => &self.reads,
        };
        let (Ok(place), Verdict::Admitted { .. }) =
            (Arc::clone(places).try_acquire_owned(), self.readers.hit(&client, READS_OF_CLIENT, now))
        else {
            self.metrics.bot_directory_reads.with_label_values(&["full"]).inc();
            return;
        };
        let Ok(known) = self.known.get_or_insert_with(domain, || Ok::<_, ()>(Arc::default())) else { return };
        let order = Ordering::Relaxed;
        if known.begun_micros.compare_exchange(begun, now, order, order).is_err() {
            return;
        }
        let (directories, metrics) = (Arc::clone(&self.directories), self.metrics.clone());
        let domain = domain.to_owned();
        self.runtime.spawn(async move {
            let _place = place;
            let read = directories.read(&domain, reach).await;
            let result = if read.is_ok() { "taken" } else { "failed" };
            metrics.bot_directory_reads.with_label_values(&[result]).inc();
            match read {
                // A failure says nothing of the keys that are known.
                Err(why) => tracing::debug!("the key directory of {domain} can't be read: {why}"),
                Ok(keys) => known.keys.store(Some(Arc::new((keys, now + KEYS_MICROS_MAX)))),
            }
        });
    }
}

#[cfg(test)]
mod tests;
