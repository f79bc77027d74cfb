//! `[store]`: where keys, nonces and limits are kept, with a table for each kind. `[store.redis]`: where Redis is, how to log in
//! at servers and Sentinels, and how long to wait.

use std::{path::PathBuf, time::Duration};

use crate::config::written::{Shown, path, plain};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{
    KeyPair, NotARedisUrl, RedisLayout, RedisUrl, Secret, SecretSource, rpc_url::public_part,
};

/// The kind of store, with its settings.
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

impl StoreSettings {
    /// Reads both tables, so that every mistake is found. A value in the table of the other kind is a mistake: its
    /// author believes that it counts.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        keys! { reader:
            /// Where keys, nonces and limits are kept: "embedded", a durable file of this process alone, or "redis", a Redis or Valkey
            /// that any number of processes share. Each kind has a table of its own, all of whose keys may be left out; a table with
            /// keys for the kind that is not chosen is an error.
            is_redis = reader.word("store.kind", "embedded", &[("embedded", false), ("redis", true)]);
            /// The folder of the embedded store. A relative path is relative to the working directory of the process, not to this
            /// file.
            path = reader.text("store.embedded.path", "./data", |text| path(text, "folder"));
        }
        let redis = RedisSettings::read(reader);
        if is_redis? {
            refuse(reader, "store.embedded.", "[store.embedded] has no meaning for the kind \"redis\"");
            return redis.map(Box::new).map(Self::Redis);
        }
        refuse(reader, "store.redis.", "[store.redis] has no meaning for the kind \"embedded\"");
        Some(Self::Embedded { path: path? })
    }

    /// True for a store whose content is that of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Embedded { path }, Self::Embedded { path: others }) => path == others,
            (Self::Redis(redis), Self::Redis(others)) => {
                (&redis.url, &redis.prefix) == (&others.url, &others.prefix)
            }
            (Self::Embedded { .. }, Self::Redis(_)) | (Self::Redis(_), Self::Embedded { .. }) => false,
        }
    }
}

/// Reports the keys of the other kind as one problem; none of their values is in force.
fn refuse(reader: &mut Reader, table: &str, phrase: &str) {
    reader.forget_values(table);
    let mut given = reader.given_below(table);
    // It is read later.
    let create = Some("store.embedded.create").filter(|create| create.starts_with(table));
    given.extend(create.filter(|create| reader.is_given(create)));
    if !given.is_empty() {
        given.push("store.kind");
        reader.report(&given, format!("{phrase}; remove it, or choose the other kind"));
    }
}

const URL: &str = "store.redis.url";
const SENTINEL_USER: &str = "store.redis.sentinel_username";

/// So short that names stay short.
const PREFIX_BYTES_MAX: usize = 64;

settings! {
    /// Where Redis is, how to log in, and how long to wait.
    RedisSettings(reader) {
        /// Where Redis is (6.2 or later, or Valkey): redis://HOST:PORT/DB; the Sentinels of a service,
        /// redis-sentinel://HOST:PORT,HOST:PORT/SERVICE/DB; some nodes of a cluster, redis+cluster://HOST:PORT,HOST:PORT. With
        /// rediss in front instead of redis each of them speaks TLS, to Sentinels too. A user and password for the servers may
        /// stand in front of the hosts (USER:PASSWORD@), percent-encoded. A user may stand there alone
        /// (USER@), with the password in one of the places below. Nothing but scheme, hosts and user of it is ever logged.
        url: RedisUrl = {
            reader.mask(Shown::Host, &[URL]);
            reader.text(URL, "redis://127.0.0.1:6379", redis_url)
        },
        /// The beginning of every name in Redis, in front of "tg2:"; up to 64 characters of A-Z, a-z, 0-9, _, -, . and :. Deployments
        /// with different ones share nothing of a Redis but its memory.
        prefix: String = reader.text("store.redis.prefix", "", |text| {
            plain(text, &(0..=PREFIX_BYTES_MAX), &['_', '-', '.', ':']).map(str::to_owned)
        }),
        /// Optional. The password, if it is in none of the other places: here, best from the environment
        /// (TIERGATE__STORE__REDIS__PASSWORD), or a file that holds it and nothing else.
        /// Example: "example"
        /// Example: "/run/secrets/redis-password"
        password: Option<SecretSource> = {
            let keys = ["store.redis.password", "store.redis.password_file"];
            Some(reader.secret_or_file(keys, secret, Content::Secret))
        },
        /// Optional, for Sentinels that ask for a login of their own: the user, if it is not their default one, and the password,
        /// here or in a file. What the servers are told is never told to Sentinels.
        /// Example: "example"
        sentinel_username: Option<String> =
            Some(reader.text(SENTINEL_USER, None, |text| not_empty(text).map(str::to_owned))),
        /// Optional. The password for Sentinels, here or in a file.
        /// Example: "example"
        /// Example: "/run/secrets/sentinel-password"
        sentinel_password: Option<SecretSource> = {
            let keys = ["store.redis.sentinel_password", "store.redis.sentinel_password_file"];
            Some(reader.secret_or_file(keys, secret, Content::Secret))
        },
        /// Optional, for TLS. A PEM file with the authorities whose certificates are believed; the system's do not count then.
        /// Example: "/etc/tiergate/redis-ca.crt"
        ca: Option<PathBuf> = Some(reader.file("store.redis.ca", Content::Authorities)),
        /// Optional, for TLS. The certificate that is shown to Redis and Sentinels, and its key: PEM files.
        /// Example: "/etc/tiergate/redis-client.crt"
        /// Example: "/etc/tiergate/redis-client.key"
        identity: Option<KeyPair> = reader.key_pair("store.redis.cert", "store.redis.key"),
        /// How long one request to Redis may take, 1ms to 5s; what takes longer is answered with 500.
        timeout: Duration = reader.duration("store.redis.timeout", "250ms", ["1ms", "5s"]),
        /// How many replicas of Redis must have a changed key before it counts, 0 to 16; fewer in time is a 500.
        wait_replicas: u32 = reader.integer("store.redis.wait_replicas", 0, &(0..=16)),
        /// How long they may take to acknowledge it, 1ms to 5s.
        wait_timeout: Duration = reader.duration("store.redis.wait_timeout", "250ms", ["1ms", "5s"]),
    } then {
        if let Some(url) = &url {
            check(reader, url);
        }
    }
}

/// Reports the keys that do not go together with the URL.
fn check(reader: &mut Reader, url: &RedisUrl) {
    let passwords = reader.given_below("store.redis.password");
    if url.password.is_some() && !passwords.is_empty() {
        reader.report(&passwords, "is a second password beside the one in url; write one of them");
    } else if url.user.is_some() && url.password.is_none() && passwords.is_empty() {
        let phrase = format!(
            "is {url} with a user, and nothing has the password; set TIERGATE__STORE__REDIS__PASSWORD as the service has it, or \
             name a file that holds it in store.redis.password_file"
        );
        reader.report(&[URL], phrase);
    }
    let of_sentinels = reader.given_below("store.redis.sentinel_");
    if !matches!(url.layout, RedisLayout::Sentinel { .. }) {
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
    if !url.tls && of_tls.iter().any(|path| reader.is_given(path)) {
        let phrase = format!(
            "is {url}, which has no TLS; write rediss://, rediss-sentinel:// or rediss+cluster://, or no ca, cert and \
             key"
        );
        reader.report(&[URL], phrase);
    }
}

/// The problem shows scheme and host at most.
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

fn secret(text: &str) -> Result<Secret, String> {
    not_empty(text).map(Secret::new)
}

/// The problem shows nothing of the text: somebody may take one key for another.
fn not_empty(text: &str) -> Result<&str, String> {
    if text.is_empty() { Err("is empty; leave it out".to_owned()) } else { Ok(text) }
}
