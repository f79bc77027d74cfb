//! `[store]`: where keys and nonces are kept.

use std::path::PathBuf;

use crate::config::reader::Reader;
use crate::config::written::quoted;

/// The kind of store, with what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// A durable file of this process.
    Embedded {
        /// The folder that holds it; a relative one is relative to the working directory of the process.
        path: PathBuf,
    },
}

impl StoreSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let kind = reader.text("store.kind", "embedded", known_kind);
        let path = reader.text("store.path", "./data", folder);
        kind?;
        Some(Self::Embedded { path: path? })
    }
}

fn known_kind(text: &str) -> Result<(), String> {
    match text {
        "embedded" => Ok(()),
        other => Err(format!("is {}; the only kind of store is \"embedded\"", quoted(other))),
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("is {}; write the path of a folder", quoted(text)));
    }
    Ok(PathBuf::from(text))
}
