//! Chooses the store that the settings name, and opens it.

use std::sync::Arc;

use crate::app::store_files;
use crate::config::Settings;
use crate::config::store::StoreSettings;
use crate::config::store::redis_keys::RedisSettings;
use crate::domain::freshness::UnixSeconds;
use crate::domain::secret::SecretSource;
use crate::ports::clock::Clock;
use crate::ports::store::Store;
use crate::store::embedded::{self, EmbeddedStore};
use crate::store::redis::options::{Options, SentinelLogin, TlsFiles};
use crate::store::redis::{self, RunningRedisStore};
use crate::telemetry::metrics::Metrics;

/// Why the store can't be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The file of the embedded store.
    #[error(transparent)]
    Embedded(#[from] embedded::file::OpenError),
    /// What Redis needs.
    #[error(transparent)]
    Redis(#[from] redis::OpenError),
    /// Files that its settings name, each problem with its key.
    #[error("files of the store can't be used:\n  {}", .0.join("\n  "))]
    Files(Vec<String>),
    /// Two metrics of one name.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Opens the store. One that is on other machines need not answer yet.
pub(crate) fn open(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Arc<dyn Store>, StoreError> {
    let clock = Arc::clone(clock);
    Ok(match &settings.store {
        StoreSettings::Embedded { path } => {
            let options = embedded::Options {
                path: path.clone(),
                nonce_retention_secs: settings.signature.nonce_retention.as_secs(),
                max_ahead_secs: settings.signature.freshness.max_ahead_secs,
            };
            let store = Arc::new(EmbeddedStore::open(options, clock)?);
            metrics.count_entries("agents", &store, EmbeddedStore::agents)?;
            metrics.count_entries("key_managers", &store, EmbeddedStore::key_managers)?;
            metrics.count_entries("visitors", &store, EmbeddedStore::visitors)?;
            store
        }
        StoreSettings::Redis(redis) => {
            let options = redis_options(settings, redis, &clock)?;
            let store = Arc::new(RunningRedisStore::open(options, clock, metrics.clone())?);
            metrics.count_entries("known_keys", &store, RunningRedisStore::known_keys)?;
            metrics.count_entries("key_managers", &store, RunningRedisStore::key_managers)?;
            metrics.count_entries("refused_visitors", &store, RunningRedisStore::refused_visitors)?;
            store
        }
    })
}

fn redis_options(
    settings: &Settings,
    redis: &RedisSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Options, StoreError> {
    let problems = store_files::problems(&settings.store, UnixSeconds(clock.unix_seconds()));
    if !problems.is_empty() {
        return Err(StoreError::Files(problems));
    }
    let password = |password: &Option<SecretSource>| {
        password
            .as_ref()
            .map(store_files::password)
            .transpose()
            .map_err(|problem| StoreError::Files(vec![problem]))
    };
    let identity = redis.identity.as_ref().map(|pair| (pair.cert.clone(), pair.key.clone()));
    Ok(Options {
        url: redis.url.clone(),
        password: password(&redis.password)?,
        sentinel: SentinelLogin {
            user: redis.sentinel_username.clone(),
            password: password(&redis.sentinel_password)?,
        },
        tls: TlsFiles { ca: redis.ca.clone(), identity },
        timeout: redis.timeout,
        wait_replicas: redis.wait_replicas,
        wait_timeout: redis.wait_timeout,
        nonce_retention_secs: settings.signature.nonce_retention.as_secs(),
        max_ahead_secs: settings.signature.freshness.max_ahead_secs,
    })
}
