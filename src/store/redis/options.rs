//! The store's options, and the state that its connections share.

use std::{path::PathBuf, sync::Arc, sync::atomic::AtomicBool, time::Duration};

use redis::TlsCertificates;

use crate::domain::{Binding, RedisLayout, RedisUrl, Secret};
use crate::ports::Clock;
use crate::store::redis::names::{Name, Prefixed, Shard};
use crate::store::redis::scripts::{Request, Scripts};
use crate::telemetry::Metrics;

/// Options of the store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The chain that it is for.
    pub binding: Binding,
    /// The start of every name. No other deployment on the same Redis has the same.
    pub prefix: String,
    /// The URL of Redis, of its Sentinels, or of nodes of a cluster.
    pub url: RedisUrl,
    /// The password; `None`: that of the URL, if it has one.
    pub password: Option<Secret>,
    /// The login at Sentinels.
    pub sentinel: SentinelLogin,
    /// Certificates for TLS.
    pub tls: TlsFiles,
    /// How long one request may take.
    pub timeout: Duration,
    /// How many replicas must acknowledge a change of a key; 0: none.
    pub wait_replicas: u32,
    /// How long replicas may take to acknowledge it.
    pub wait_timeout: Duration,
    /// For how many seconds a used nonce is remembered; not less than a signature can be acceptable.
    pub nonce_retention_secs: u64,
    /// How many seconds a signature's timestamp may lie ahead of its use.
    pub max_ahead_secs: u64,
    /// True where nothing is claimed in Redis, because the store is only asked for keys.
    pub reads_only: bool,
}

/// The login at Sentinels.
#[derive(Debug, Clone, Default)]
pub struct SentinelLogin {
    /// The user; `None`: their default one.
    pub user: Option<String>,
    /// The password; `None`: they ask for none.
    pub password: Option<Secret>,
}

/// PEM files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities to trust; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and key of the client; `None`: it shows none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How long connecting may take in all; at least four requests' time.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

impl Options {
    /// How long connecting to a server and preparing it may take in all.
    pub(super) fn connect_timeout(&self) -> Duration {
        CONNECT_TIME_MAX.max(self.timeout * 4)
    }
}

/// Shared by all connections of one store.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) certificates: Option<TlsCertificates>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) scripts: Scripts,
    /// The first shard was bound: in a cluster no node that lacks it binds any before.
    pub(super) has_bound_first: AtomicBool,
    /// Scripts get the time from the caller: this, in microseconds, and the clock's monotonic time.
    #[cfg(test)]
    pub(super) simulated_from_micros: Option<u64>,
}

impl Shared {
    /// True where shards are spread over the nodes of a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.options.url.layout, RedisLayout::Cluster { .. })
    }

    /// A command on one key.
    pub(super) fn command(&self, command: &str, name: Name<'_>) -> Request<'static> {
        Request::command(command, name.shard()).arg(Prefixed(&self.options.prefix, name))
    }

    /// Writes to the server that has the shard, with a key that means nothing and lives for a minute.
    pub(super) fn probe(&self, shard: Shard) -> Request<'static> {
        self.command("SET", Name::Probe(shard)).arg("").arg("EX").arg(60)
    }

    /// The first three arguments of scripts that look at an epoch: the time here, and for how long nonces matter.
    pub(super) fn with_nonce_limits<'a>(&self, request: Request<'a>) -> Request<'a> {
        let Options { max_ahead_secs, nonce_retention_secs, .. } = self.options;
        request.arg(self.clock.unix_seconds()).arg(max_ahead_secs).arg(nonce_retention_secs)
    }

    /// Begins the epoch of a shard that is for this chain where nonces may have been lost, and forgets those that are over.
    /// `verb` is "bind" or "look".
    pub(super) fn claim_of(&self, shard: Shard, verb: &str) -> Request<'_> {
        let keys = [Name::Binding(shard), Name::Epoch(shard), Name::Nonces(shard)];
        self.with_nonce_limits(self.scripts.claim.on(&keys)).arg(self.options.binding.as_str()).arg(verb)
    }

    /// The request as it is sent. In tests with a simulated clock the time is its last argument.
    pub(super) fn timed<'a>(&self, request: Request<'a>) -> Request<'a> {
        #[cfg(test)]
        if let (Some(from_micros), Some(_)) = (self.simulated_from_micros, request.script) {
            return request.arg(from_micros + self.clock.monotonic_micros());
        }
        request
    }
}
