//! Chooses the store that the settings name, and opens it.

use std::{path::Path, sync::Arc};

use tokio::sync::watch;

use crate::config::{Problem, Settings, store::RedisSettings, store::StoreSettings};
use crate::domain::SecretSource;
use crate::files;
use crate::ports::{Clock, Store};
use crate::store::{
    EmbeddedStore, RedisStore, SentinelLogin, TlsFiles, embedded, redis, redis::options::Options,
};
use crate::telemetry::Metrics;

/// A store, and, if a thread writes for it, a receiver that is closed once that has ended.
type Opened = (Arc<dyn Store>, Option<watch::Receiver<()>>);

/// Opens the store, or says why it can't be used. One that is on other machines need not answer yet. Blocks for as long as
/// connecting to it may take.
pub(crate) fn open(settings: &Settings, clock: &Arc<dyn Clock>, metrics: &Metrics) -> Result<Opened, String> {
    let clock = Arc::clone(clock);
    Ok(match &settings.fixed.store {
        StoreSettings::Embedded { path } => {
            let is_new = !embedded::file::is_there(path);
            if is_new && !settings.live.create_store {
                return Err(format!("there is {}", missing(path)));
            }
            let options = embedded::Options {
                path: path.clone(),
                binding: settings.fixed.binding(),
                nonce_retention_secs: settings.fixed.signature.nonce_retention.as_secs(),
                max_ahead_secs: settings.fixed.signature.freshness.max_ahead_secs,
            };
            let store = Arc::new(EmbeddedStore::open(options, clock).map_err(|error| error.to_string())?);
            if is_new {
                tracing::info!(path = %path.display(), "made an empty store: no key is known");
            }
            store.show(metrics);
            let writer_ended = store.writer_ended.clone();
            (store, Some(writer_ended))
        }
        StoreSettings::Redis(redis) => {
            let options = redis_options(settings, redis)?;
            let text = |error: redis::OpenError| error.to_string();
            let other = redis::other_chain(options.clone(), Arc::clone(&clock), metrics.clone());
            if let Some(cause) = other.map_err(text)? {
                return Err(format!("the store {} {cause}", redis.url));
            }
            let store = Arc::new(RedisStore::open(options, clock, metrics.clone()).map_err(text)?);
            metrics.count_entries("known_keys", &store, RedisStore::known_keys);
            metrics.count_entries("refused_visitors", &store, RedisStore::refused_visitors);
            metrics.at_scrape_from(&store, |families, store| {
                // Without a session it is not known.
                families.store_clock_offset.reset();
                if let Some(offset) = store.clock_offset_micros() {
                    families.store_clock_offset.with_label_values::<&str>(&[]).set(offset as f64 / 1e6);
                }
                families.store_replicas_missing.reset();
                if let Some(missing) = store.replicas_missing() {
                    families.store_replicas_missing.with_label_values::<&str>(&[]).set(missing.into());
                }
            });
            (store, None)
        }
    })
}

/// Opens a store in Redis to look keys up in it: it claims nothing there. `None` where the running service alone may open the store.
pub(crate) fn open_to_read(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Option<RedisStore>, String> {
    let StoreSettings::Redis(redis) = &settings.fixed.store else { return Ok(None) };
    let options = Options { reads_only: true, ..redis_options(settings, redis)? };
    let store = RedisStore::open(options, Arc::clone(clock), metrics.clone());
    store.map(Some).map_err(|error| error.to_string())
}

/// Whoever leaves `create` on gets an empty store in place of one that is lost.
pub(crate) fn left_on(settings: &Settings) -> Option<Problem> {
    let StoreSettings::Embedded { path } = &settings.fixed.store else { return None };
    let phrase = "is for the first start: leave it out, or a store that is lost is replaced by an empty one";
    let is_left_on = settings.live.create_store && embedded::file::is_there(path);
    is_left_on.then(|| Problem::new("store.embedded.create", phrase).as_warning())
}

/// Looks at the store without opening it: its state or what is wrong with it. Writes nothing.
pub(super) async fn inspect(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<String, String> {
    match &settings.fixed.store {
        StoreSettings::Embedded { path } if path.exists() && !path.is_dir() => {
            Err("is not a folder".to_owned())
        }
        StoreSettings::Embedded { path } if !embedded::file::is_there(path) => {
            if settings.live.create_store {
                Ok("is not there yet; the service makes it".to_owned())
            } else {
                Err(missing(path))
            }
        }
        StoreSettings::Embedded { path } => {
            embedded::file::inspect(path, &settings.fixed.binding()).map_err(|other| other.to_string())
        }
        StoreSettings::Redis(redis) => {
            let options = redis_options(settings, redis)?;
            let found = redis::inspect(options, Arc::clone(clock), metrics.clone()).await?;
            Ok(["answers"].into_iter().chain(found).collect::<Vec<_>>().join("; "))
        }
    }
}

/// A first start looks like a volume that is not mounted.
fn missing(path: &Path) -> String {
    format!(
        "no store in {}; if there was one, mount its volume or restore the file: an empty one knows no key and takes used \
         signatures again. For a first start set store.embedded.create or TIERGATE__STORE__EMBEDDED__CREATE to true, once",
        path.display()
    )
}

fn redis_options(settings: &Settings, redis: &RedisSettings) -> Result<Options, String> {
    let secret = |source: &Option<SecretSource>| {
        let read = source.as_ref().map(files::secret).transpose();
        read.map_err(|why| format!("the password of the store can't be read: {why}"))
    };
    let identity = redis.identity.as_ref().map(|pair| (pair.cert.clone(), pair.key.clone()));
    Ok(Options {
        binding: settings.fixed.binding(),
        prefix: redis.prefix.clone(),
        url: redis.url.clone(),
        password: secret(&redis.password)?,
        sentinel: SentinelLogin {
            user: redis.sentinel_username.clone(),
            password: secret(&redis.sentinel_password)?,
        },
        tls: TlsFiles { ca: redis.ca.clone(), identity },
        timeout: redis.timeout,
        wait_replicas: redis.wait_replicas,
        wait_timeout: redis.wait_timeout,
        nonce_retention_secs: settings.fixed.signature.nonce_retention.as_secs(),
        max_ahead_secs: settings.fixed.signature.freshness.max_ahead_secs,
        reads_only: false,
    })
}
