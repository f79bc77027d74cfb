//! `[store]`: where keys, nonces and limits are kept.
//!
//! The keys of every kind are read, so that what is wrong in any of them is found. One of a kind that is not chosen is a
//! problem unless it says its default: whoever wrote it believes that it does something.

use std::path::PathBuf;

use crate::config::choice::choice;
use crate::config::reader::Reader;
use crate::config::store::redis_keys::{RedisKeys, RedisSettings};
use crate::config::written::quoted;

pub mod redis_keys;

/// The folder of the embedded store.
const PATH: &str = "./data";

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

/// The word in `store.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Redis,
}

impl StoreSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let kinds = choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
        let kind = reader.text("store.kind", "embedded", kinds);
        let path = reader.text("store.path", PATH, folder);
        let redis = RedisKeys::read(reader);
        match kind? {
            Kind::Embedded => {
                refuse_others(reader, "embedded", &redis.written());
                Some(Self::Embedded { path: path? })
            }
            Kind::Redis => {
                refuse_others(reader, "redis", &[("store.path", differs(path.as_ref(), folder(PATH)))]);
                redis.check(reader).map(Box::new).map(Self::Redis)
            }
        }
    }
}

/// Whether something else was read than the default. What could not be read is a problem already.
fn differs<T: PartialEq>(read: Option<&T>, default: Result<T, String>) -> bool {
    read.is_some_and(|read| default.as_ref() != Ok(read))
}

/// Each key that was written for another kind than the one that is chosen.
fn refuse_others(reader: &mut Reader, kind: &str, keys: &[(&'static str, bool)]) {
    for (path, _) in keys.iter().filter(|(_, is_written)| *is_written) {
        let phrase =
            format!("{path} means nothing for the kind \"{kind}\"; leave it out, or choose the other kind");
        reader.report(&[path, "store.kind"], phrase);
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("is {}; write the path of a folder", quoted(text)));
    }
    Ok(PathBuf::from(text))
}
