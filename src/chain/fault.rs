//! Errors of the chain. None holds a secret: texts of nodes and libraries went through `redact`.

use std::sync::Arc;
use std::time::Duration;

/// Why a registry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No answer within the time limit.
    #[error("no answer within {0} ms")]
    TimedOut(u128),
    /// Too many calls are in flight.
    #[error("too many calls are in flight")]
    Busy,
    /// No connection, or it broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The node limits our rate. It may have said for how long.
    #[error("the node limits the rate of calls")]
    RateLimited(Option<Duration>),
    /// Another HTTP status than success.
    #[error("the node answered with HTTP status {0}")]
    HttpStatus(u16),
    /// The answer is longer than so many bytes.
    #[error("the node's answer is longer than {0} bytes")]
    TooLong(usize),
    /// Not JSON-RPC, or not the result that was asked for.
    #[error("the node's answer can't be understood: {0}")]
    Unintelligible(&'static str),
    /// A JSON-RPC error.
    #[error("the node answered with error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's text: cut, printable, without parts of the URL.
        message: String,
    },
    /// A contract call reverted unexpectedly.
    #[error("{0} reverted")]
    Reverted(&'static str),
    /// A contract call returned something that its ABI does not allow.
    #[error("the return value of {0} can't be decoded")]
    Undecodable(&'static str),
    /// There is no contract at the configured address.
    #[error("there is no contract at the address configured as {0}")]
    NoCode(&'static str),
    /// The node failed repeatedly and is not asked until the next probe.
    #[error("the node is unhealthy, since {0}")]
    Unhealthy(Arc<ReadError>),
    /// The answer is of another chain.
    #[error("the node is on chain {reported}, not on chain {chain}")]
    WrongChain {
        /// The chain id in the answer.
        reported: u64,
        /// The id of the chain that is read.
        chain: u64,
    },
    /// The nodes are on several chains, and none is configured.
    #[error("the nodes are on different chains ({0}), and chain.chain_id does not say which one is read")]
    ChainsDiffer(String),
    /// The answer is older than the newest known block.
    #[error("the node is behind: it answered at block {number}, and block {newest} is known")]
    Behind {
        /// The answer's block.
        number: u64,
        /// The newest block that was accounted for or shown.
        newest: u64,
    },
    /// The block's own time is too far from our clock: its node or chain stands still, or one of the clocks is wrong.
    #[error(
        "the time of the node's latest block {number} is {age_secs} s ago, more than chain.max_head_age admits"
    )]
    HeadTime {
        /// The answer's block.
        number: u64,
        /// Its age by its own time, in seconds; negative in the future.
        age_secs: i64,
    },
}

impl ReadError {
    /// The metric's label.
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
            Self::Unhealthy(_) => "unhealthy",
            Self::WrongChain { .. } => "wrong_chain",
            Self::ChainsDiffer(_) => "chains_differ",
            Self::Behind { .. } => "behind",
            Self::HeadTime { .. } => "head_time",
        }
    }

    /// True when what the chain holds of the agent can't be read, whichever node is asked. Never concluded from the text
    /// of an error.
    pub(super) const fn lies_in_the_agent(&self) -> bool {
        matches!(self, Self::Reverted(_) | Self::Undecodable(_) | Self::TooLong(_))
    }
}
