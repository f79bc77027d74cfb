//! The one node that is followed, and what is asked of it: blocks and logs.
//!
//! Of blocks and logs only those fields are read that are needed here; chains differ in the rest.

use std::sync::Arc;

use alloy::primitives::{Address, B256, Bytes, U64};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::chain::fault::ReadError;
use crate::chain::rpc::Pool;
use crate::chain::rpc::blame::{Blame, LogsTrouble, blame, logs_trouble};
use crate::chain::rpc::breaker::Class;
use crate::chain::rpc::call::At;
use crate::chain::rpc::heads::Seen;
use crate::chain::rpc::transport::{Node, NodeAnswer};
use crate::ports::chain::ChainFault;

/// The node that leads now. It is the same at every look, for as long as it is fit and gives blocks and logs.
pub struct Lead<'a> {
    pool: &'a Pool,
    node: usize,
}

/// Which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockId {
    /// The node's latest.
    Latest,
    /// The one of this number on the node's present chain.
    Number(u64),
}

/// A block's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockMark {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The hash of the block before it.
    pub parent: B256,
}

/// A log, of its data no more than the first word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMark {
    /// The contract that wrote it.
    pub address: Address,
    /// The number of its block.
    pub block_number: u64,
    /// The hash of its block.
    pub block_hash: B256,
    /// Its place in the block.
    pub log_index: u64,
    /// At most four, the first being the event's.
    pub topics: Vec<B256>,
    /// The first 32 bytes of its data, if there are so many.
    pub first_word: Option<B256>,
}

/// Logs that could not be had.
#[derive(Debug, Clone)]
pub struct LogsFault {
    /// What can be done about it.
    pub trouble: LogsTrouble,
    /// What happened.
    pub fault: ChainFault,
}

/// A block as nodes write it. The hash of a block that is not mined yet is null.
#[derive(Deserialize)]
struct WrittenBlock {
    number: U64,
    hash: B256,
    #[serde(rename = "parentHash")]
    parent: B256,
    /// In seconds since 1970.
    timestamp: U64,
}

/// A log as nodes write it.
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

impl Pool {
    /// The node that leads now. One that failed to give blocks or logs a moment ago makes way for another fit one.
    ///
    /// # Errors
    ///
    /// When no node is fit: why, of the node that explains most.
    pub async fn lead(&self) -> Result<Lead<'_>, ChainFault> {
        self.be_acquainted().await;
        let mut health = self.health.lock();
        match health.follow(self.clock.monotonic_micros()) {
            Some(node) => Ok(Lead { pool: self, node }),
            None => {
                let (node, error) = health.worst();
                drop(health);
                Err(self.fault(node, "eth_getBlockByNumber", error))
            }
        }
    }
}

impl Lead<'_> {
    /// What it is called: its scheme, host and port, numbered where several nodes share them.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.pool.nodes.get(self.node).map_or_else(|| Arc::from("none"), |node| Arc::clone(node.name()))
    }

    /// True when this and `other` are the same node.
    #[must_use]
    pub const fn is(&self, other: &Lead<'_>) -> bool {
        self.node == other.node
    }

    /// A block's place; nothing when the node has no such block. The latest one is noted as the node's head.
    ///
    /// # Errors
    ///
    /// When the node fails, or says something else than asked; that counts against it. When its latest block shows that it
    /// is not to be followed: then it is not fit any more.
    pub async fn block(&self, id: BlockId) -> Result<Option<BlockMark>, ChainFault> {
        let method = "eth_getBlockByNumber";
        let name = match id {
            BlockId::Latest => json!("latest"),
            BlockId::Number(number) => json!(U64::from(number)),
        };
        let asked = self.ask::<Option<WrittenBlock>>(method, json!([name, false])).await;
        let block = asked
            .and_then(|block| matching(id, block))
            .map_err(|error| self.failed(Class::Blocks, method, error))?;
        self.pool.health.lock().answered(self.node, Class::Blocks);
        let Some(block) = block else { return Ok(None) };
        if id == BlockId::Latest {
            self.look_at(&block).map_err(|error| self.pool.fault(self.node, method, error))?;
        }
        Ok(Some(block.mark()))
    }

    /// Notes the node's latest block.
    fn look_at(&self, block: &WrittenBlock) -> Result<(), ReadError> {
        let (now, _) = self.pool.moment(self.node);
        let secs: u64 = block.timestamp.to();
        self.pool.metrics.follower_block_time.set(i64::try_from(secs).unwrap_or(i64::MAX));
        let seen = block.seen(self.pool.clock.unix_millis());
        self.pool.note(|health| health.sampled(self.node, seen, now));
        match self.pool.health.lock().complaint(self.node) {
            Some(
                error @ (ReadError::OldHead { .. } | ReadError::Behind { .. } | ReadError::MadeUpHead { .. }),
            ) => Err(error),
            // What else there is against it says nothing about this block.
            Some(_) | None => Ok(()),
        }
    }

    /// The logs of these contracts from block `from` to block `to`, both included.
    ///
    /// # Errors
    ///
    /// When the node can't or won't give them. What is too much at once, and what it does not give at all, does not
    /// count against it. That it gives none at all is told only when no other fit node may: until then it is transient,
    /// and the next lead is another node.
    pub async fn logs(&self, from: u64, to: u64, of: &[Address]) -> Result<Vec<LogMark>, LogsFault> {
        let method = "eth_getLogs";
        let filter = json!([{ "fromBlock": U64::from(from), "toBlock": U64::from(to), "address": of }]);
        let logs = self.ask::<Vec<WrittenLog>>(method, filter).await;
        match logs.and_then(|logs| within(from, to, logs)) {
            Ok(logs) => {
                self.pool.health.lock().answered(self.node, Class::Logs);
                Ok(logs)
            }
            Err(error) => Err(self.without_logs(method, error)),
        }
    }

    fn without_logs(&self, method: &'static str, error: ReadError) -> LogsFault {
        match logs_trouble(&error) {
            LogsTrouble::Transient => {
                let fault = self.failed(Class::Logs, method, error);
                LogsFault { trouble: LogsTrouble::Transient, fault }
            }
            LogsTrouble::TooMany => {
                LogsFault { trouble: LogsTrouble::TooMany, fault: self.pool.fault(self.node, method, error) }
            }
            LogsTrouble::NotSupported => {
                let (now, _) = self.pool.moment(self.node);
                let may_others = self.pool.health.lock().refused_logs(self.node, now);
                let trouble = if may_others { LogsTrouble::Transient } else { LogsTrouble::NotSupported };
                LogsFault { trouble, fault: self.pool.fault(self.node, method, error) }
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ReadError> {
        let Some(node) = self.pool.nodes.get(self.node) else { return Err(ReadError::Unvetted) };
        let answer = self.pool.ask(node, method, params).await?;
        node.result(answer)
    }

    /// The follower asks one node and has no second opinion: what is unclear counts too.
    fn failed(&self, class: Class, method: &'static str, error: ReadError) -> ChainFault {
        match blame(&error, At::Latest) {
            Blame::Node | Blame::Unclear => self.pool.failed(self.node, class, &error),
            Blame::Nobody => {}
        }
        self.pool.fault(self.node, method, error)
    }
}

impl WrittenBlock {
    fn mark(&self) -> BlockMark {
        BlockMark { number: self.number.to(), hash: self.hash, parent: self.parent }
    }

    /// As the latest block, at this time of day.
    fn seen(&self, unix_millis: u64) -> Seen {
        let age_secs = (unix_millis / 1_000).saturating_sub(self.timestamp.to());
        Seen { number: self.number.to(), age_secs: Some(age_secs) }
    }
}

/// A node's latest block, as its answer to "latest" tells it.
pub(super) fn latest_seen(node: &Node, answer: NodeAnswer, unix_millis: u64) -> Result<Seen, ReadError> {
    let block: Option<WrittenBlock> = node.result(answer)?;
    let block = block.ok_or(ReadError::Unintelligible("it has no latest block"))?;
    Ok(block.seen(unix_millis))
}

fn matching(id: BlockId, block: Option<WrittenBlock>) -> Result<Option<WrittenBlock>, ReadError> {
    match (id, &block) {
        (BlockId::Number(asked), Some(block)) if U64::from(asked) != block.number => {
            Err(ReadError::Unintelligible("it is another block than asked for"))
        }
        _ => Ok(block),
    }
}

fn within(from: u64, to: u64, logs: Vec<WrittenLog>) -> Result<Vec<LogMark>, ReadError> {
    let logs = logs.into_iter().map(|log| LogMark {
        address: log.address,
        block_number: log.block_number.to(),
        block_hash: log.block_hash,
        log_index: log.log_index.to(),
        topics: log.topics,
        first_word: log.data.first_chunk().map(B256::from),
    });
    let logs: Vec<LogMark> = logs.collect();
    if logs.iter().all(|log| (from..=to).contains(&log.block_number)) {
        Ok(logs)
    } else {
        Err(ReadError::Unintelligible("it has logs of other blocks than asked for"))
    }
}
