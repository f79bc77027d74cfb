//! `[store]`: where keys, nonces and limits are kept, with a table for each kind.

use std::path::PathBuf;

use crate::config::choice::choice;
use crate::config::reader::Reader;
use crate::config::store::redis_keys::RedisSettings;
use crate::config::written::quoted;

pub mod redis_keys;

const PATH: &str = "store.embedded.path";
const CREATE: &str = "store.embedded.create";

/// The kind of store, with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// A durable file of this process.
    Embedded {
        /// The folder that holds it; a relative one is relative to the working directory of the process.
        path: PathBuf,
        /// True if an empty store may be made where there is none.
        create: bool,
    },
    /// A Redis that many processes share.
    Redis(Box<RedisSettings>),
}

/// The word in `store.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Redis,
}

impl StoreSettings {
    /// Reads both tables, so that every mistake is found. A value in the table of the other kind is a mistake: its
    /// author believes that it counts.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let [of_embedded, of_redis] = [given(reader, &[PATH, CREATE]), given(reader, &redis_keys::KEYS)];
        let kinds = choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
        let kind = reader.text("store.kind", "embedded", kinds);
        let path = reader.text(PATH, "./data", folder);
        let create = reader.boolean(CREATE, false);
        let redis = RedisSettings::read(reader, &of_redis);
        match kind? {
            Kind::Embedded => {
                reader.forget_values("store.redis.");
                refuse(reader, of_redis, "[store.redis] has no meaning for the kind \"embedded\"");
                Some(Self::Embedded { path: path?, create: create? })
            }
            Kind::Redis => {
                reader.forget_values("store.embedded.");
                refuse(reader, of_embedded, "[store.embedded] has no meaning for the kind \"redis\"");
                redis.map(Box::new).map(Self::Redis)
            }
        }
    }
}

impl StoreSettings {
    /// True if a restart with the other would change nothing while the store is there.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Embedded { .. }, Self::Embedded { .. }) => self.is_same(other),
            (Self::Embedded { .. } | Self::Redis(_), _) => self == other,
        }
    }

    /// True for a store whose content is that of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Embedded { path, .. }, Self::Embedded { path: others, .. }) => path == others,
            (Self::Redis(redis), Self::Redis(others)) => {
                (&redis.url, &redis.prefix) == (&others.url, &others.prefix)
            }
            (Self::Embedded { .. }, Self::Redis(_)) | (Self::Redis(_), Self::Embedded { .. }) => false,
        }
    }
}

/// Those of these keys that have a value, right or wrong; to be asked before they are read.
fn given(reader: &Reader, keys: &[&'static str]) -> Vec<&'static str> {
    keys.iter().copied().filter(|path| reader.is_given(path)).collect()
}

/// Reports the keys of the other kind as one problem.
fn refuse(reader: &mut Reader, mut given: Vec<&'static str>, phrase: &str) {
    if !given.is_empty() {
        given.push("store.kind");
        reader.report(&given, format!("{phrase}; remove it, or choose the other kind"));
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("is {}; write the path of a folder", quoted(text)));
    }
    Ok(PathBuf::from(text))
}
