//! `[store]`: where keys, nonces and limits are kept, with a table for each kind.

use std::path::PathBuf;

use crate::config::choice::choice;
use crate::config::files::folder;
use crate::config::reader::Reader;
use crate::config::store::redis_keys::RedisSettings;

pub mod redis_keys;

const CREATE: &str = "store.embedded.create";

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

settings! {
    /// The making of a store.
    #[derive(Copy)]
    StoreLive(reader) {
        /// True if an empty store may be made where there is none.
        create: bool = reader.boolean(CREATE, false),
    }
}

impl StoreSettings {
    /// Reads both tables, so that every mistake is found. A value in the table of the other kind is a mistake: its
    /// author believes that it counts.
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let is_redis = reader.text("store.kind", "embedded", choice(&[("embedded", false), ("redis", true)]));
        let path = reader.text("store.embedded.path", "./data", folder);
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
    given.extend(Some(CREATE).filter(|create| create.starts_with(table) && reader.is_given(create)));
    if !given.is_empty() {
        given.push("store.kind");
        reader.report(&given, format!("{phrase}; remove it, or choose the other kind"));
    }
}
