//! Blocks and logs as nodes write them. Only the fields that are needed are read: chains differ in the rest.

use alloy::primitives::{Address, B256, Bytes, U64};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::chain::fault::ReadError;
use crate::chain::pool::{Answers, Call};

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

/// The block that an answer is about. In order of time, and of number where the time is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Date {
    /// In seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) number: u64,
}

/// The block of an answer to a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAt {
    pub(super) date: Date,
    /// The hash of the block before, where it is known.
    pub(super) before: Option<B256>,
    /// True if it showed the block that was followed when the read began.
    pub(super) is_followed: bool,
}

impl Block {
    pub(super) const fn date(&self) -> Date {
        Date { timestamp: self.timestamp, number: self.number }
    }
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

/// The call for a block, by number or by name.
pub(super) fn block_call(block: Value) -> Call {
    Call { method: "eth_getBlockByNumber", params: json!([block, false]) }
}

/// The call for the logs of contracts in these blocks; of one event alone, if it is named.
pub(super) fn logs_call((contracts, event): &(Vec<Address>, Option<B256>), [from, to]: [u64; 2]) -> Call {
    let mut filter = json!({ "address": contracts, "fromBlock": U64::from(from), "toBlock": U64::from(to) });
    if let (Some(filter), Some(event)) = (filter.as_object_mut(), event) {
        filter.insert("topics".to_owned(), json!([event]));
    }
    Call { method: "eth_getLogs", params: json!([filter]) }
}

/// Succeeds when the next answer, which is to [`block_call`], shows the block of an earlier answer. A node that is behind has
/// none of this number, and after a reorganization there is another.
pub(super) fn is_of(answers: &mut Answers<'_>, date: Date) -> Result<(), ReadError> {
    let block: Option<Block> = answers.next()?;
    let is_same = block.is_some_and(|block| block.timestamp == date.timestamp);
    if is_same { Ok(()) } else { Err(ReadError::OtherBlock(date.number)) }
}

fn quantity<'a, D: Deserializer<'a>>(json: D) -> Result<u64, D::Error> {
    U64::deserialize(json).map(|number| number.to())
}

fn first_word<'a, D: Deserializer<'a>>(json: D) -> Result<Option<B256>, D::Error> {
    Bytes::deserialize(json).map(|data| data.first_chunk().map(B256::from))
}
