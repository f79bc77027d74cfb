//! How the chain is read: nodes, registries, and for how long what was read serves.

use std::{num::NonZeroU32, time::Duration};

use alloy::primitives::Address;

use crate::domain::{registries::Registries, rpc_url::RpcUrl};

/// The nodes of one chain. `Debug` shows no key of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Where JSON-RPC is answered, in order of preference; at least one.
    pub urls: Vec<RpcUrl>,
    /// How long one try may take; more than 0, at most 5 s.
    pub request_timeout: Duration,
    /// How many calls a second each node gets at most.
    pub calls_per_second: Option<NonZeroU32>,
    /// The HTTP proxy through which nodes are reached.
    pub proxy: Option<RpcUrl>,
    /// The id of the chain that is read, at least 1. Answers of another one do not count.
    pub chain_id: u64,
}

/// How the registries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderSettings {
    /// Where they are.
    pub registries: Registries,
    /// Multicall3, which reads a profile from one block in one call.
    pub multicall: Address,
    /// The most gas that one `eth_call` may burn, 1,000,000 to 1,000,000,000.
    pub gas_cap: u64,
    /// How old a node's latest block may be by its own time before the node is not used, at least 10 s and at most 24 h;
    /// none when that is not judged.
    pub max_head_age: Option<Duration>,
    /// For how long profiles serve.
    pub lifetimes: Lifetimes,
}

/// For how long profiles serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// One that was read at the latest block; at least 50 ms, at most 60 s.
    pub poll_interval: Duration,
    /// How long the follower may be silent before nothing is served on its word; at least twice `poll_interval`, at most
    /// 10 minutes.
    pub max_staleness: Duration,
    /// After which time one that no log ever dropped is read again; at least a minute, at most 24 h.
    pub reread_after: Option<Duration>,
}
