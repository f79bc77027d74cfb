//! Blocks and logs as nodes write them. Only the fields that are needed are read: chains differ in the rest.

use alloy::primitives::{Address, B256, Bytes, U64};
use serde::{Deserialize, Deserializer};

/// A block's place in the chain. In JSON-RPC a block that is not mined yet has no hash, and is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub(super) struct Block {
    #[serde(deserialize_with = "quantity")]
    pub(super) number: u64,
    pub(super) hash: B256,
    #[serde(rename = "parentHash")]
    pub(super) parent: B256,
    /// By its own time, in seconds since 1970.
    #[serde(deserialize_with = "quantity")]
    pub(super) timestamp: u64,
}

/// A log, of its data the first word only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Log {
    pub(super) address: Address,
    #[serde(deserialize_with = "quantity")]
    pub(super) block_number: u64,
    pub(super) block_hash: B256,
    /// At most four, the first being the event's.
    pub(super) topics: Vec<B256>,
    /// The first 32 bytes of its data, if there are so many.
    #[serde(rename = "data", default, deserialize_with = "first_word")]
    pub(super) first_word: Option<B256>,
}

fn quantity<'a, D: Deserializer<'a>>(json: D) -> Result<u64, D::Error> {
    U64::deserialize(json).map(|number| number.to())
}

fn first_word<'a, D: Deserializer<'a>>(json: D) -> Result<Option<B256>, D::Error> {
    Bytes::deserialize(json).map(|data| data.first_chunk().map(B256::from))
}
