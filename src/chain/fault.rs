//! What can go wrong between us and a registry, in words that hold no secret: whatever a node or a library said has been
//! through `redact`.

use std::sync::Arc;
use std::time::Duration;

/// Why a registry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No answer within the time limit.
    #[error("no answer within {0} ms")]
    TimedOut(u128),
    /// Too many calls are under way already.
    #[error("too many calls are under way")]
    Busy,
    /// No connection, or it broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// HTTP status 429, and for how long the node wants to be left alone, if it said so.
    #[error("the node answered with HTTP status 429")]
    RateLimited(Option<Duration>),
    /// Another HTTP status than success.
    #[error("the node answered with HTTP status {0}")]
    HttpStatus(u16),
    /// An answer without end, or nearly.
    #[error("the node's answer is longer than {0} bytes")]
    TooLong(usize),
    /// Something that is not JSON-RPC, or not what was asked for.
    #[error("the node's answer can't be understood: {0}")]
    Unintelligible(&'static str),
    /// A JSON-RPC error that is not a revert.
    #[error("the node answered with error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's text: cut, printable, without parts of the URL.
        message: String,
    },
    /// A contract call reverted where no revert belongs.
    #[error("{0} reverted")]
    Reverted(&'static str),
    /// A contract call gave something other than its ABI says.
    #[error("the return value of {0} can't be decoded")]
    Undecodable(&'static str),
    /// There is no contract at the configured address.
    #[error("there is no contract at the address configured as {0}")]
    NoCode(&'static str),
    /// The node failed too often, and is not asked until it has recovered.
    #[error("the node is given up for now, since {0}")]
    GivenUp(Arc<ReadError>),
    /// The node is on another chain than the one that is read.
    #[error("the node is on chain {reported}, not on chain {chain}")]
    WrongChain {
        /// The chain id that the node reported.
        reported: u64,
        /// The id of the chain that is read.
        chain: u64,
    },
    /// The nodes are on several chains, and nothing says which one is right.
    #[error("the nodes are on different chains ({0}), and chain.chain_id does not say which one is read")]
    ChainsDiffer(String),
    /// The node has not said yet which chain it is on.
    #[error("the node has not said which chain it is on")]
    Unvetted,
    /// The node lacks a block that is known already: it is too far behind to be used, or what it does not know may stand in
    /// that block.
    #[error("the node is at block {head}, behind block {best} which is known already")]
    Behind {
        /// The node's latest block.
        head: u64,
        /// The highest block that another node told, or that was followed.
        best: u64,
    },
    /// The node's latest block is further above the others' than a chain can grow.
    #[error("the node claims to be at block {head}, impossibly far above block {best} of the other nodes")]
    MadeUpHead {
        /// The node's latest block.
        head: u64,
        /// The highest block that another node reported.
        best: u64,
    },
    /// The node's latest block was made too long ago: it has stopped following its chain, or the chain stands still.
    #[error("the node's latest block {head} is {age_secs} s old, more than chain.max_head_age admits")]
    OldHead {
        /// The node's latest block.
        head: u64,
        /// Its age by its own time, in seconds.
        age_secs: u64,
    },
}

impl ReadError {
    /// A short name for the metric's label.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TimedOut(_) => "timeout",
            Self::Busy => "busy",
            Self::Connection(_) => "connection",
            Self::RateLimited(_) => "rate_limited",
            Self::HttpStatus(_) => "http_status",
            Self::TooLong(_) => "too_long",
            Self::Unintelligible(_) => "unintelligible",
            Self::Node { .. } => "node_error",
            Self::Reverted(_) => "reverted",
            Self::Undecodable(_) => "undecodable",
            Self::NoCode(_) => "no_code",
            Self::GivenUp(_) => "given_up",
            Self::WrongChain { .. } => "wrong_chain",
            Self::ChainsDiffer(_) => "chains_differ",
            Self::Unvetted => "unvetted",
            Self::Behind { .. } => "behind",
            Self::MadeUpHead { .. } => "made_up_head",
            Self::OldHead { .. } => "old_head",
        }
    }
}
