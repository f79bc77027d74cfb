//! `[store]`: where keys, nonces and limits are kept.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::choice::choice;
use crate::config::duration::DurationBounds;
use crate::config::files::{file, key_pair};
use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::redis_url::RedisUrl;
use crate::domain::rpc_url::public_part;
use crate::domain::secret::Secret;
use crate::domain::tenant::KeyPair;

/// How long one request to Redis may take, and its replicas to acknowledge a write.
const UP_TO_FIVE_SECONDS: DurationBounds = DurationBounds {
    min: Duration::from_millis(1),
    max: Duration::from_secs(5),
    allowed: "of at least 1ms and at most 5s",
};

/// The kind of store, with what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// A durable file of this process.
    Embedded {
        /// The folder that holds it; a relative one is relative to the working directory of the process.
        path: PathBuf,
    },
    /// A Redis that many processes share.
    Redis(Box<RedisSettings>),
}

/// Where Redis is, how to log in, and how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Where it is; may hold a user and a password.
    pub url: RedisUrl,
    /// The password that is not in the URL.
    pub password: Option<RedisPassword>,
    /// Whose certificates are believed; nothing: the system's authorities.
    pub ca: Option<PathBuf>,
    /// What is shown to the servers.
    pub identity: Option<KeyPair>,
    /// For how long one request may take; 1 ms to 5 s.
    pub timeout: Duration,
    /// How many replicas must acknowledge keys and nonces; 0 to 16.
    pub wait_replicas: u32,
    /// For how long their word is waited for; 1 ms to 5 s.
    pub wait_timeout: Duration,
}

/// A password, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisPassword {
    /// The password itself.
    Text(Secret),
    /// A file that holds it and nothing else; a line end behind it does not count.
    File(PathBuf),
}

/// The word in `store.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Redis,
}

impl StoreSettings {
    /// Reads the keys of every kind, so that what is wrong in any is found; those of another kind mean nothing.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let kinds = choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
        let kind = reader.text("store.kind", "embedded", kinds);
        let path = reader.text("store.path", "./data", folder);
        let redis = RedisSettings::read(reader, kind == Some(Kind::Redis));
        match kind? {
            Kind::Embedded => Some(Self::Embedded { path: path? }).filter(|_| redis.is_some()),
            Kind::Redis => path.and(redis).map(Box::new).map(Self::Redis),
        }
    }
}

impl RedisSettings {
    fn read(reader: &mut Reader, is_used: bool) -> Option<Self> {
        let url = reader.text("store.url", "redis://127.0.0.1:6379", redis_url);
        let text_is_given = reader.is_given("store.password");
        let file_is_given = reader.is_given("store.password_file");
        let text = reader.optional_text("store.password", password);
        let from_file = reader.optional_text("store.password_file", file);
        let ca_is_given = reader.is_given("store.ca");
        let ca = reader.optional_text("store.ca", file);
        let identity = key_pair(reader, "store.cert", "store.key");
        let timeout = reader.duration("store.timeout", "250ms", &UP_TO_FIVE_SECONDS);
        let wait_replicas = reader.integer("store.wait_replicas", 0, &(0..=16));
        let wait_timeout = reader.duration("store.wait_timeout", "250ms", &UP_TO_FIVE_SECONDS);
        let (url, identity) = (url?, identity?);
        if is_used {
            let has_password = [url.password().is_some(), text_is_given, file_is_given];
            if has_password.into_iter().filter(|given| *given).count() > 1 {
                let phrase =
                    "is one of several passwords; write it in the URL, in password or in password_file";
                reader.report(&["store.password", "store.password_file"], phrase);
            }
            if !url.tls() && (ca_is_given || identity.is_some()) {
                reader.report(
                    &["store.url"],
                    format!("is {url}, which has no TLS; write rediss:// or no ca, cert and key"),
                );
            }
            if url.user().is_some() && !has_password.contains(&true) {
                reader.report(
                    &["store.url"],
                    format!("is {url} with a user and no password; write both or neither"),
                );
            }
        }
        let text = text.map(RedisPassword::Text);
        let from_file = from_file.map(RedisPassword::File);
        Some(Self {
            url,
            password: text.or(from_file),
            ca,
            identity,
            timeout: timeout?,
            wait_replicas: wait_replicas?,
            wait_timeout: wait_timeout?,
        })
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("is {}; write the path of a folder", quoted(text)));
    }
    Ok(PathBuf::from(text))
}

/// What is wrong shows scheme and host at most.
fn redis_url(text: &str) -> Result<RedisUrl, String> {
    RedisUrl::parse(text).map_err(|_| {
        let shown = public_part(text).unwrap_or_else(|| "not such a URL".to_owned());
        format!(
            "is {shown}; write redis://HOST:PORT/DB, rediss://…, redis-sentinel://HOST,HOST/SERVICE, \
             redis+cluster://HOST,HOST or rediss+cluster://…, a user and password percent-encoded"
        )
    })
}

/// What is wrong shows nothing of it.
fn password(text: &str) -> Result<Secret, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(Secret::new(text)) }
}
