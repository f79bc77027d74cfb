//! The Redis store: what many replicas share, on one server, behind Sentinels, or in a cluster.
//!
//! Every verification is one script in the agent's slot: key still current or nonce unused, window, record. Windows are
//! counted by Redis' clock. Only the owner of a key is cached, which never changes; the script decides whether the key is
//! still current. A step is sent once: without an answer it may have been taken, and the request is refused.
//!
//! Signatures whose nonces Redis may have lost are refused: see `scripts/nonces.lua`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{future::ready, io, mem, path::PathBuf, sync::Arc};

use alloy::primitives::Address;
use async_trait::async_trait;
use futures_util::future::Either;
use quick_cache::sync::Cache;
use redis::{ClientTlsConfig, TlsCertificates};
use tokio::runtime::{Builder, Runtime};

use crate::domain::{
    AgentId, ClientNet, HeldKey, KeyDigest, NonceClaim, Quota, TenantList, UnixSeconds, Verdict, WebOrigin,
};
use crate::files::{self, PEM_BYTES_MAX};
use crate::ports::{
    Admission, Budget, Clock, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, Proof, Reply,
    Scope, Store, StoreFault,
};
use crate::store::redis::answers::{Record, admission, days_of, key_seen, read};
pub use crate::store::redis::inspect::{inspect, other_chain};
use crate::store::redis::known::{KnownKey, KnownKeys, REFUSALS_MAX, Refusals};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::options::{Options, Shared, TlsFiles};
use crate::store::redis::scripts::{Request, Scripts};
use crate::store::{redis::error::RedisError, redis::servers::Servers};
use crate::supervision::keep_going;
use crate::telemetry::Metrics;

mod answers;
mod claims;
mod connect;
mod error;
mod info;
mod inspect;
mod key_changes;
mod known;
mod names;
pub mod options;
mod scripts;
mod sentinels;
mod server;
mod servers;

/// How many keys' owners are remembered.
const KNOWN_KEYS_MAX: usize = 131_072;

/// Why the store can't be used at all. That no server answers is no reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file that can't be read.
    #[error("{0}")]
    File(String),
    /// No thread for connections.
    #[error("cannot start a thread for connections to Redis: {0}")]
    NoThread(io::Error),
}

/// A store in Redis.
pub struct RedisStore {
    shared: Arc<Shared>,
    servers: Arc<Servers>,
    known: KnownKeys,
    /// Clients that are at the limit of a public route.
    refusals: Refusals,
    /// The thread that connections live in. They work from every runtime of the process and outlive all of them. `None` only
    /// while the store is being dropped.
    runtime: Option<Runtime>,
}

impl RedisStore {
    /// Begins to connect in the background.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: not when Redis is absent.
    pub fn open(options: Options, clock: Arc<dyn Clock>, metrics: Metrics) -> Result<Self, OpenError> {
        Self::on(shared(options, clock, metrics)?)
    }

    fn on(shared: Shared) -> Result<Self, OpenError> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("store-redis").enable_all().build();
        let runtime = runtime.map_err(OpenError::NoThread)?;
        let shared = Arc::new(shared);
        let servers = Servers::begin(Arc::clone(&shared), runtime.handle().clone());
        let known: KnownKeys = Arc::new(Cache::new(KNOWN_KEYS_MAX));
        let (noting, of) = (Arc::clone(&servers), Arc::clone(&known));
        runtime.spawn(async move {
            keep_going("key-uses", &noting.shared.metrics, || known::keep_noting(&noting, &of)).await;
        });
        let refusals = Cache::new(REFUSALS_MAX);
        Ok(Self { shared, servers, known, refusals, runtime: Some(runtime) })
    }

    /// How many keys' owners are remembered.
    #[must_use]
    pub fn known_keys(&self) -> usize {
        self.known.len()
    }

    /// By how many microseconds a server's clock is ahead of this machine's: of the server for which that is most.
    #[must_use]
    pub fn clock_offset_micros(&self) -> Option<i64> {
        let offsets = self.servers.known().into_iter().filter_map(|server| server.clock_offset_micros());
        offsets.max_by_key(|offset| offset.abs())
    }

    /// How many refusals on public routes are remembered.
    #[must_use]
    pub fn refused_visitors(&self) -> usize {
        self.refusals.len()
    }
}

impl Drop for RedisStore {
    /// Closes the connections without waiting: this may happen inside another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl RedisStore {
    async fn look_up(&self, digest: &KeyDigest) -> Result<Option<KeyOwner>, RedisError> {
        let get = async |name| -> Result<Option<Vec<u8>>, RedisError> {
            read(&self.servers.ask(self.shared.command("GET", name)).await?)
        };
        let Some(entry) = get(Name::Entry(digest)).await? else { return Ok(None) };
        let mut owner = owner(&entry).ok_or(RedisError::Unreadable)?;
        // After the entry, so that a digest of no key costs one command.
        if let Some(signer) = get(Name::Signer(digest)).await? {
            owner.signer = Some(Address::try_from(&*signer).map_err(|_| RedisError::Unreadable)?);
        } else if get(Name::Entry(digest)).await?.is_none() {
            // Both went in between: the key is not one that has no signer.
            return Ok(None);
        }
        let (is_used, noted_on) = (true.into(), 0.into());
        self.known.insert(*digest, Arc::new(KnownKey { owner: owner.clone(), is_used, noted_on }));
        Ok(Some(owner))
    }

    /// The agent's keys that have not ended, with their days.
    async fn live(&self, agent: AgentId) -> Result<Vec<HeldKey>, RedisError> {
        let Record { mut keys, now_secs, .. } = self.record(agent).await?;
        keys.retain(|key| key.is_live(now_secs));
        for key in &mut keys {
            let days = self.servers.ask(self.shared.command("GET", Name::Days(&key.digest))).await?;
            key.days = read::<Option<String>>(&days)?.as_deref().and_then(days_of);
        }
        Ok(keys)
    }

    async fn enter(
        &self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        proof: &Proof,
    ) -> Result<Admission, RedisError> {
        let (scripts, window) = (&self.shared.scripts, Name::Window(agent, scope));
        let admit = match proof {
            Proof::Key(digest) => {
                let admit = scripts.admit_by_key.on(&[Name::Record(agent), window]);
                admit.arg(digest.to_bytes().as_slice())
            }
            Proof::Nonce(claim) => {
                let shard = Shard::of_agent(agent);
                let keys = [Name::Epoch(shard), Name::Nonces(shard), window];
                let admit = self.shared.with_nonce_limits(scripts.admit_by_nonce.on(&keys));
                admit.arg(claim.signed_at.0).arg(names::nonce(agent, claim.nonce))
            }
        };
        let admission = admission(&self.servers.ask(with_quota(admit, quota)).await?)?;
        if let (Admission::KeyRevoked, Proof::Key(digest)) = (admission, proof) {
            // It will not be asked for again.
            self.known.remove(digest);
        }
        Ok(admission)
    }
}

#[async_trait]
impl Store for RedisStore {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        match self.known.get(digest) {
            Some(known) => {
                known.is_used.store(true, Ordering::Relaxed);
                Either::Left(ready(Ok(Some(known.owner.clone()))))
            }
            None => {
                Either::Right(Box::pin(
                    async move { self.look_up(digest).await.map_err(fault("find a key")) },
                ))
            }
        }
    }

    async fn is_current(&self, agent: AgentId, digest: &KeyDigest) -> Result<bool, StoreFault> {
        let Record { keys, now_secs, .. } = self.record(agent).await.map_err(fault("look at a key"))?;
        Ok(keys.iter().any(|key| key.digest == *digest && key.is_live(now_secs)))
    }

    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        self.live(agent).await.map_err(fault("look at a key"))
    }

    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission> {
        let admission = self.enter(agent, scope, quota, proof);
        Either::Right(Box::pin(async move { admission.await.map_err(fault("admit")) }))
    }

    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict> {
        match self.refused_here(budget, quota) {
            Some(refused) => Either::Left(ready(Ok(refused))),
            None => Either::Right(Box::pin(async move {
                self.count_in_redis(budget, quota).await.map_err(fault("count a request"))
            })),
        }
    }

    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget) {
        // The newest one may be another of the same seconds. A Redis that still fails keeps it.
        let _ = self.servers.ask(self.shared.command("RPOP", Name::Meter(client, agent, of))).await;
    }

    /// True for about one digest in a thousand: a cluster keeps it where the agent is.
    fn fits(&self, agent: AgentId, digest: &KeyDigest) -> bool {
        Shard::of_digest(digest) == Shard::of_agent(agent)
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        self.swap_key(agent, claim, &change).await.map_err(fault("change a key"))
    }

    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault> {
        let keys = [Name::Meter(client, agent, KeyBudget::Changes), Name::Record(agent)];
        let seen = self.servers.ask(with_quota(self.shared.scripts.left.on(&keys), quota)).await;
        seen.and_then(|seen| key_seen(&seen)).map_err(fault("look for a key"))
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        let servers = self.servers.known().into_iter();
        let from = servers.map(|server| server.accepted_from_secs.load(Ordering::Relaxed)).max()?;
        (from > self.shared.clock.unix_seconds()).then_some(UnixSeconds(from))
    }

    fn replicas_missing(&self) -> Option<u32> {
        self.servers.known().into_iter().filter_map(|server| server.replicas_missing()).max()
    }

    #[cfg(test)]
    async fn note_uses(&self) {
        known::note(&self.servers, &self.known).await;
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.servers.probe().await.map_err(fault("write"))
    }
}

fn fault(verb: &'static str) -> impl Fn(RedisError) -> StoreFault {
    move |error| StoreFault { verb, cause: error.to_string().into() }
}

fn with_quota(request: Request<'_>, quota: Quota) -> Request<'_> {
    request.arg(quota.limit).arg(quota.window_micros)
}

fn shared(options: Options, clock: Arc<dyn Clock>, metrics: Metrics) -> Result<Shared, OpenError> {
    Ok(Shared {
        certificates: certificates(&options.tls)?,
        scripts: Scripts::new(&options.prefix),
        options,
        clock,
        metrics,
        has_bound_first: AtomicBool::default(),
        #[cfg(test)]
        simulated_from_micros: None,
    })
}

/// Reads an entry: the agent, then the declared origin, if there is one.
fn owner(entry: &[u8]) -> Option<KeyOwner> {
    let (agent, terms) = entry.split_first_chunk::<32>()?;
    let (origin, tenants) = match std::str::from_utf8(terms).ok()?.split_once(' ') {
        Some((origin, tenants)) => (origin, Some(TenantList::parse(tenants.split(',')).ok()?)),
        None => (std::str::from_utf8(terms).ok()?, None),
    };
    let declared_origin = match origin {
        "" => None,
        origin => Some(WebOrigin::parse(origin).ok()?),
    };
    Some(KeyOwner { agent: AgentId::from_bytes(*agent), declared_origin, signer: None, tenants })
}

/// Reads the files with certificates.
fn certificates(files: &TlsFiles) -> Result<Option<TlsCertificates>, OpenError> {
    let read = |path: &PathBuf| {
        let read = files::bytes(path, PEM_BYTES_MAX).map(|mut bytes| mem::take(&mut *bytes));
        read.map_err(|problem| OpenError::File(format!("{}: {problem}", files::shown(path))))
    };
    let client_tls = match &files.identity {
        Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        None => None,
    };
    let root_cert = files.ca.as_ref().map(read).transpose()?;
    let any = client_tls.is_some() || root_cert.is_some();
    Ok(any.then_some(TlsCertificates { client_tls, root_cert }))
}

#[cfg(test)]
mod tests;
