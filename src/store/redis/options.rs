//! What the store needs to know, and what all its connections share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::TlsCertificates;

use crate::domain::redis_url::RedisUrl;
use crate::domain::secret::Secret;
use crate::ports::clock::Clock;
use crate::store::redis::findings::Told;
use crate::store::redis::scripts::{Request, Scripts};
use crate::telemetry::metrics::Metrics;

/// What the store needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where Redis is.
    pub url: RedisUrl,
    /// The password, wherever it was written; nothing: that of the URL, if it has one.
    pub password: Option<Secret>,
    /// As whom to log in at Sentinels.
    pub sentinel: SentinelLogin,
    /// Certificates for TLS.
    pub tls: TlsFiles,
    /// How long one request may take.
    pub timeout: Duration,
    /// How many replicas must acknowledge keys and nonces; 0: none.
    pub wait_replicas: u32,
    /// For how long their word is waited for.
    pub wait_timeout: Duration,
    /// For how many seconds a used nonce is remembered; not less than a signature can be acceptable.
    pub nonce_retention_secs: u64,
    /// How many seconds a signature's timestamp may lie ahead of its use.
    pub max_ahead_secs: u64,
}

/// As whom to log in at Sentinels; what is absent is not said.
#[derive(Debug, Clone, Default)]
pub struct SentinelLogin {
    /// The user; nothing: their default one.
    pub user: Option<String>,
    /// The password; nothing: they ask for none.
    pub password: Option<Secret>,
}

/// PEM files for TLS; what is absent is the system's, or not shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Whose certificates are believed.
    pub ca: Option<PathBuf>,
    /// What is shown to the servers: certificate chain and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What all connections of one store share.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) certificates: Option<TlsCertificates>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) scripts: Scripts,
    /// What operators have heard of the servers.
    pub(super) told: Told,
    /// Scripts are told the time instead of asking for it: this, in microseconds, and what the clock has counted.
    #[cfg(test)]
    pub(super) simulated_from_micros: Option<u64>,
}

impl Shared {
    /// The request as it is sent. Tests say what time it is.
    pub(super) fn timed<'a>(&self, request: Request<'a>) -> Request<'a> {
        #[cfg(test)]
        if let (Some(from_micros), Some(_)) = (self.simulated_from_micros, request.script()) {
            return request.arg(from_micros + self.clock.monotonic_micros());
        }
        request
    }
}
