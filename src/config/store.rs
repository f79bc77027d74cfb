//! `[store]`: where keys, nonces and limits are kept, with a table for each kind.

use std::path::PathBuf;

use crate::config::{files::folder, reader::Reader, store::redis_keys::RedisSettings};

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
        /// true: an empty store is made where there is none: set it to true for a first start, and remove it then. Without it a start
        /// without the store's file is refused: a volume that is not mounted looks like a first start.
        create: bool = reader.boolean(CREATE, false),
    }
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
            path = reader.text("store.embedded.path", "./data", folder);
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
    given.extend(Some(CREATE).filter(|create| create.starts_with(table) && reader.is_given(create)));
    if !given.is_empty() {
        given.push("store.kind");
        reader.report(&given, format!("{phrase}; remove it, or choose the other kind"));
    }
}
