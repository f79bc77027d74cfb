//! Bots that prove their domain (Web Bot Auth): whether a signature is one of a key that its domain publishes.
//!
//! A key is looked for under its domain alone. No request waits for a directory: the one that causes a read is a stranger's, as is
//! each one until the directory is there. Must not know HTTP messages of clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::HashMap, net::SocketAddr, ops::Range, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_cache::sync::Cache;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::net::lookup_host;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::addresses::is_public;
use crate::domain::{
    BotDomains, BotSignature, ClientNet, DIRECTORY_PATH, MINUTE_MICROS, Quota, Reach, Verdict,
};
use crate::ports::Clock;
use crate::sharded::Meters;
use crate::telemetry::Metrics;

/// How many domains are known at once.
const DOMAINS_MAX: usize = 1_024;

/// How long keys count after they were read.
const KEYS_MICROS_MAX: u64 = 60 * MINUTE_MICROS;

/// How long a directory is not read again in which a key was found.
const FOUND_MICROS: u64 = 10 * MINUTE_MICROS;

/// The same where a key was not found.
const MISSED_MICROS: u64 = MINUTE_MICROS;

/// How many directories of listed domains are read at once, and as many below a `*`.
pub(crate) const READS_MAX: usize = 16;

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
    known: Cache<String, Arc<DirectoryState>>,
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
struct DirectoryState {
    /// When the last read of it began, in monotonic microseconds; 0: it was not read.
    begun_micros: AtomicU64,
    /// The keys of the last read that gave any, and until when they count.
    keys: ArcSwapOption<(Keys, u64)>,
}

impl Bots {
    /// Bots of these domains, whose directories are read on this runtime.
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
        // A client that finds no place has spent none of its reads.
        let place = Arc::clone(places)
            .try_acquire_owned()
            .ok()
            .filter(|_| matches!(self.readers.hit(&client, READS_OF_CLIENT, now), Verdict::Admitted { .. }));
        let Some(place) = place else {
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

/// The type of a directory.
const TYPE: &str = "application/http-message-signatures-directory+json";

/// The longest directory, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// How many keys a directory may have.
const KEYS_MAX: usize = 64;

/// How long a read may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Public keys for Ed25519 by their thumbprints (RFC 7638), and when each counts, in Unix seconds.
pub(super) type Keys = HashMap<Box<str>, ([u8; 32], Range<u64>)>;

/// The reader of directories.
pub(super) struct Directories {
    public: Client,
    anywhere: Client,
}

/// Why a directory can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("{0}")]
    Connection(#[from] reqwest::Error),
    #[error("it is answered with {0}")]
    Status(StatusCode),
    #[error("it is longer than 64 KiB")]
    TooLong,
    #[error("it is no JWK Set of up to 64 keys")]
    Malformed,
}

/// Resolves names to public addresses alone: what is judged is what is connected to.
struct PublicAddresses;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err("it has no public address".into());
            }
            Ok::<Addrs, _>(Box::new(public.into_iter()))
        })
    }
}

impl Directories {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = || {
            let builder = Client::builder().https_only(true).redirect(Policy::none()).no_proxy();
            builder.timeout(TIME_MAX).pool_max_idle_per_host(0).user_agent("tiergate")
        };
        Ok(Self {
            public: client().dns_resolver(Arc::new(PublicAddresses)).build()?,
            anywhere: client().build()?,
        })
    }

    /// The keys of a domain now.
    pub(super) async fn read(&self, domain: &str, reach: Reach) -> Result<Keys, Unread> {
        let client = match reach {
            Reach::Below | Reach::Public => &self.public,
            Reach::Anywhere => &self.anywhere,
        };
        let url = format!("https://{domain}{DIRECTORY_PATH}");
        let mut answer = client.get(url).header(ACCEPT, TYPE).send().await?;
        if answer.status() != StatusCode::OK {
            return Err(Unread::Status(answer.status()));
        }
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            if piece.len() > BYTES_MAX - body.len() {
                return Err(Unread::TooLong);
            }
            body.extend_from_slice(&piece);
        }
        parse(&body).ok_or(Unread::Malformed)
    }
}

/// The keys of a JWK Set. Those of other kinds are left out, and names that it gives to keys mean nothing.
pub(super) fn parse(json: &[u8]) -> Option<Keys> {
    #[derive(Deserialize)]
    struct KeySet {
        keys: Vec<Jwk>,
    }
    #[derive(Deserialize)]
    struct Jwk {
        kty: String,
        crv: Option<String>,
        x: Option<String>,
        nbf: Option<u64>,
        exp: Option<u64>,
    }
    let KeySet { keys } =
        serde_json::from_slice(json).ok().filter(|set: &KeySet| set.keys.len() <= KEYS_MAX)?;
    let key = |jwk: Jwk| {
        let is_ed25519 = jwk.kty == "OKP" && jwk.crv.as_deref() == Some("Ed25519");
        let x = jwk.x.filter(|_| is_ed25519)?;
        let key = URL_SAFE_NO_PAD.decode(&x).ok()?.try_into().ok()?;
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let times = jwk.nbf.unwrap_or(0)..jwk.exp.unwrap_or(u64::MAX);
        Some((URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)).into(), (key, times)))
    };
    Some(keys.into_iter().filter_map(key).collect())
}

#[cfg(test)]
mod tests;
