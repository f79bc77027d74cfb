//! Blocks and logs as nodes write them. Only the fields that are needed are read: chains differ in the rest.

use alloy::primitives::{Address, B256, Bytes, U64};
use serde::Deserialize;

use crate::chain::fault::ReadError;

/// A block's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Block {
    /// Its number.
    pub(super) number: u64,
    /// Its hash.
    pub(super) hash: B256,
    /// The hash of the block before it.
    pub(super) parent: B256,
    /// When it was made, by its own time, in seconds since 1970.
    pub(super) timestamp: u64,
}

/// A log, of its data the first word only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Log {
    /// The contract that wrote it.
    pub(super) address: Address,
    /// The number of its block.
    pub(super) block_number: u64,
    /// The hash of its block.
    pub(super) block_hash: B256,
    /// Its place in the block.
    pub(super) log_index: u64,
    /// At most four, the first being the event's.
    pub(super) topics: Vec<B256>,
    /// The first 32 bytes of its data, if there are so many.
    pub(super) first_word: Option<B256>,
}

/// The hash of a block that is not mined yet is null.
#[derive(Deserialize)]
struct WrittenBlock {
    number: U64,
    hash: B256,
    #[serde(rename = "parentHash")]
    parent: B256,
    timestamp: U64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenLog {
    address: Address,
    block_number: U64,
    block_hash: B256,
    log_index: U64,
    topics: Vec<B256>,
    #[serde(default)]
    data: Bytes,
}

const NOT_WHAT_WAS_ASKED_FOR: ReadError = ReadError::Unintelligible("its result is not what was asked for");

/// The block in a node's result; `None` when the node has no such block.
pub(super) fn read_block(json: &str) -> Result<Option<Block>, ReadError> {
    let written: Option<WrittenBlock> = serde_json::from_str(json).map_err(|_| NOT_WHAT_WAS_ASKED_FOR)?;
    Ok(written.map(|block| Block {
        number: block.number.to(),
        hash: block.hash,
        parent: block.parent,
        timestamp: block.timestamp.to(),
    }))
}

/// The logs in a node's result, all of them from these blocks.
pub(super) fn read_logs(json: &str, from: u64, to: u64) -> Result<Vec<Log>, ReadError> {
    let written: Vec<WrittenLog> = serde_json::from_str(json).map_err(|_| NOT_WHAT_WAS_ASKED_FOR)?;
    let logs = written.into_iter().map(|log| Log {
        address: log.address,
        block_number: log.block_number.to(),
        block_hash: log.block_hash,
        log_index: log.log_index.to(),
        topics: log.topics,
        first_word: log.data.first_chunk().map(B256::from),
    });
    let logs: Vec<Log> = logs.collect();
    if logs.iter().all(|log| (from..=to).contains(&log.block_number)) {
        Ok(logs)
    } else {
        Err(ReadError::Unintelligible("it has logs of other blocks than asked for"))
    }
}
