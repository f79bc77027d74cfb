//! `[store.redis]`: where Redis is, how to log in at servers and Sentinels, and how long to wait.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::choice::plain;
use crate::config::files::{key_pair, noted_file, secret_or_file};
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::written::Shown;
use crate::domain::redis_url::{NotARedisUrl, RedisLayout, RedisUrl};
use crate::domain::rpc_url::public_part;
use crate::domain::secret::{Secret, SecretSource};
use crate::domain::tenant::KeyPair;

const URL: &str = "store.redis.url";
const SENTINEL_USER: &str = "store.redis.sentinel_username";

/// So short that names stay short.
const PREFIX_BYTES_MAX: usize = 64;

/// Where Redis is, how to log in, and how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Where it is; may hold a user and a password.
    pub url: RedisUrl,
    /// What every name in it begins with; at most 64 bytes.
    pub prefix: String,
    /// The password that is not in the URL.
    pub password: Option<SecretSource>,
    /// As whom to log in at Sentinels; nothing: as their default user.
    pub sentinel_username: Option<String>,
    /// The password for Sentinels; nothing: they ask for none.
    pub sentinel_password: Option<SecretSource>,
    /// Whose certificates are believed, and nobody else's; nothing: the system's authorities.
    pub ca: Option<PathBuf>,
    /// What is shown to servers and Sentinels.
    pub identity: Option<KeyPair>,
    /// For how long one request may take; 1 ms to 5 s.
    pub timeout: Duration,
    /// How many replicas must acknowledge keys and nonces; 0 to 16.
    pub wait_replicas: u32,
    /// For how long their word is waited for; 1 ms to 5 s.
    pub wait_timeout: Duration,
}

impl RedisSettings {
    /// Reads the table, and reports everything in it that does not go together.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        reader.mask(Shown::Host, &[URL]);
        read_all!(Self {
            url: reader.text(URL, "redis://127.0.0.1:6379", redis_url),
            // Braces would choose the slot of a cluster, and other signs mean something in patterns of rights.
            prefix: reader.text("store.redis.prefix", "", |text| {
                plain(text, &(0..=PREFIX_BYTES_MAX), &['_', '-', '.', ':']).map(str::to_owned)
            }),
            password: Some(secret_or_file(
                reader,
                "store.redis.password",
                "store.redis.password_file",
                word,
                Content::Secret,
            )),
            sentinel_username: Some(reader.optional_text(SENTINEL_USER, user)),
            sentinel_password: Some(secret_or_file(
                reader,
                "store.redis.sentinel_password",
                "store.redis.sentinel_password_file",
                word,
                Content::Secret,
            )),
            ca: Some(noted_file(reader, "store.redis.ca", Content::Authorities)),
            identity: key_pair(reader, "store.redis.cert", "store.redis.key"),
            timeout: reader.duration("store.redis.timeout", "250ms", ["1ms", "5s"]),
            wait_replicas: reader.integer("store.redis.wait_replicas", 0, &(0..=16)),
            wait_timeout: reader.duration("store.redis.wait_timeout", "250ms", ["1ms", "5s"]),
        } then {
            if let Some(url) = &url {
                check(reader, url);
            }
        })
    }
}

/// Reports the keys that do not go together with the URL.
fn check(reader: &mut Reader, url: &RedisUrl) {
    let passwords = reader.given_below("store.redis.password");
    if url.password().is_some() && !passwords.is_empty() {
        reader.report(&passwords, "is a second password beside the one in url; write one of them");
    } else if url.user().is_some() && url.password().is_none() && passwords.is_empty() {
        let phrase = format!(
            "is {url} with a user, and nothing has the password; set TIERGATE__STORE__REDIS__PASSWORD as the service has it, or \
             name a file that holds it in store.redis.password_file"
        );
        reader.report(&[URL], phrase);
    }
    let of_sentinels = reader.given_below("store.redis.sentinel_");
    if !matches!(url.layout(), RedisLayout::Sentinel { .. }) {
        for path in of_sentinels {
            let phrase = format!("{path} is for Sentinels, and url is {url}; leave it out");
            reader.report(&[path, URL], phrase);
        }
    } else if of_sentinels == [SENTINEL_USER] {
        let phrase = "has no password; set TIERGATE__STORE__REDIS__SENTINEL_PASSWORD as the service has it, or name a file that \
                      holds it in store.redis.sentinel_password_file";
        reader.report(&of_sentinels, phrase);
    }
    let of_tls = ["store.redis.ca", "store.redis.cert", "store.redis.key"];
    if !url.tls() && of_tls.iter().any(|path| reader.is_given(path)) {
        let phrase = format!(
            "is {url}, which has no TLS; write rediss://, rediss-sentinel:// or rediss+cluster://, or no ca, cert and \
             key"
        );
        reader.report(&[URL], phrase);
    }
}

/// What is wrong shows scheme and host at most.
fn redis_url(text: &str) -> Result<RedisUrl, String> {
    RedisUrl::parse(text).map_err(|error| match error {
        NotARedisUrl::Malformed => {
            let shown = public_part(text).unwrap_or_else(|| "not such a URL".to_owned());
            format!(
                "is {shown}; write redis://HOST:PORT/DB, redis-sentinel://HOST,HOST/SERVICE/DB, \
                 redis+cluster://HOST,HOST, or one of them with rediss for TLS; a user and password percent-encoded"
            )
        }
        NotARedisUrl::SentinelTwice(host) => {
            format!("names the Sentinel {host} twice; name each once, since each has one vote")
        }
    })
}

/// What is wrong shows nothing of it: somebody may take the one key for the other.
fn user(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(text.to_owned()) }
}

/// What is wrong shows nothing of it.
fn word(text: &str) -> Result<Secret, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(Secret::new(text)) }
}
