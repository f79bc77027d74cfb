//! Chooses the store that the settings name, and opens it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Settings;
use crate::config::store::{RedisPassword, RedisSettings, StoreSettings};
use crate::domain::secret::Secret;
use crate::ports::clock::Clock;
use crate::ports::store::Store;
use crate::store::embedded::{self, EmbeddedStore};
use crate::store::redis::options::{Options, TlsFiles};
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
    /// The file with the password.
    #[error("cannot read the password of the store from {path}: {cause}")]
    Password {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        cause: std::io::Error,
    },
}

/// Opens the store. One that is on other machines need not answer yet.
pub(super) fn open(
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
            Arc::new(EmbeddedStore::open(options, clock)?)
        }
        StoreSettings::Redis(redis) => {
            let options = redis_options(settings, redis)?;
            Arc::new(RunningRedisStore::open(options, clock, metrics.clone())?)
        }
    })
}

fn redis_options(settings: &Settings, redis: &RedisSettings) -> Result<Options, StoreError> {
    let password = match &redis.password {
        None => None,
        Some(RedisPassword::Text(password)) => Some(password.clone()),
        Some(RedisPassword::File(path)) => Some(password_in(path)?),
    };
    let identity = redis.identity.as_ref().map(|pair| (pair.cert.clone(), pair.key.clone()));
    Ok(Options {
        url: redis.url.clone(),
        password,
        tls: TlsFiles { ca: redis.ca.clone(), identity },
        timeout: redis.timeout,
        wait_replicas: redis.wait_replicas,
        wait_timeout: redis.wait_timeout,
        nonce_retention_secs: settings.signature.nonce_retention.as_secs(),
        max_ahead_secs: settings.signature.freshness.max_ahead_secs,
    })
}

/// What a file holds, without the line end behind it.
fn password_in(path: &Path) -> Result<Secret, StoreError> {
    let text =
        fs::read_to_string(path).map_err(|cause| StoreError::Password { path: path.to_owned(), cause })?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::password_in;

    #[test]
    fn a_line_end_behind_a_password_does_not_count_and_a_blank_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, " pass word \r\n").unwrap();
        assert_eq!(password_in(&path).unwrap().reveal(), " pass word ");
        let missing = password_in(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("missing"), "{missing}");
    }
}
