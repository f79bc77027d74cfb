//! Errors of the chain. None holds a secret: texts of nodes and libraries went through `redact`.

use std::{sync::Arc, time::Duration};

use crate::ports::ChainFault;

/// Why a registry could not be read. Its name, in snake case, is the metric's label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum ReadError {
    #[error("no answer within {0} ms")]
    Timeout(u128),
    /// Among those in flight, or within `chain.calls_per_second`.
    #[error("there was no room for the call in time")]
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
    #[error("the node's answer is longer than {0} bytes")]
    TooLong(usize),
    /// Not JSON-RPC, or not the result that was asked for.
    #[error("the node's answer can't be understood: {0}")]
    Unintelligible(&'static str),
    /// A JSON-RPC error. The node's text is cut, printable, and without parts of the URL.
    #[error("the node answered with error {code}: {message}")]
    NodeError { code: i64, message: String },
    /// The node does not run a call with so much gas.
    #[error("the node refuses the gas of a call: {0}")]
    Gas(String),
    /// A JSON-RPC error about a block that the node does not have, or not yet.
    #[error("the node lacks the block: error {code}: {message}")]
    NoBlock { code: i64, message: String },
    /// A contract call reverted unexpectedly.
    #[error("{0} reverted")]
    Reverted(&'static str),
    /// A contract call returned something that its ABI does not allow.
    #[error("the return value of {0} can't be decoded")]
    Undecodable(&'static str),
    #[error("there is no contract at the address configured as {0}")]
    NoCode(&'static str),
    /// The contract has no such function, or answers it with something else.
    #[error("the contract at the address configured as {key} is another one: it does not answer {function}")]
    OtherContract { key: &'static str, function: &'static str },
    /// No creation was run. Of the kind of chain, and no fault of a node.
    #[error("the node answers no eth_call without `to`")]
    NoCreation,
    /// A registry of ERC-8004 whose version is not read here.
    #[error("the registry at the address configured as {key} has version {version}, and not 2")]
    Version { key: &'static str, version: String },
    /// The details of an agent, which were asked for apart.
    #[error("the details of the agent can't be read: {0}")]
    NoDetails(Arc<ReadError>),
    /// The node failed repeatedly and is not asked until the next probe.
    #[error("the node is unhealthy, since {0}")]
    Unhealthy(Arc<ReadError>),
    #[error("the node is on chain {reported}, not on chain {chain}")]
    WrongChain { reported: u64, chain: u64 },
    /// The answer is older than the newest block that was accounted for or shown.
    #[error("the node is behind: it answered at block {number}, and block {newest} is known")]
    Behind { number: u64, newest: u64 },
    #[error("the node answered at block {0}, which is not the one that it was asked for")]
    OtherBlock(u64),
    /// The block's own time is too far from our clock: its node or chain stands still, or one of the clocks is wrong.
    /// The age is negative in the future.
    #[error(
        "the time of the node's latest block {number} is {age_secs} s ago: more than chain.max_head_age, or too far ahead"
    )]
    HeadTime { number: u64, age_secs: i64 },
}

/// The error of an answer with fewer results than calls.
pub(super) const TOO_FEW: ReadError = ReadError::Unintelligible("it has too few results");

impl ReadError {
    /// The fault of a call at this node.
    pub(super) fn at(self, endpoint: Arc<str>, method: &'static str) -> ReadFault {
        ReadFault { endpoint, method, error: Arc::new(self) }
    }

    /// True when the node answered that it can't or won't: it may do less. One that is down or limits calls would get only more of
    /// them.
    pub(super) const fn is_refusal(&self) -> bool {
        use ReadError::{HttpStatus, NodeError, TooLong, Unintelligible};
        matches!(self, NodeError { .. } | TooLong(_) | HttpStatus(..500) | Unintelligible(_))
    }

    /// True when the node refused this request, and may take a smaller one. Another status says that it takes none of ours.
    pub(super) const fn is_too_much(&self) -> bool {
        use ReadError::HttpStatus;
        self.is_refusal() && !matches!(self, HttpStatus(..=399 | 401..=407))
    }

    /// The metric's label.
    pub(super) fn kind(&self) -> &'static str {
        self.into()
    }
}

/// A read that failed, with the call at the node that it failed at.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{method} at {endpoint} failed: {error}")]
pub(super) struct ReadFault {
    pub(super) endpoint: Arc<str>,
    pub(super) method: &'static str,
    pub(super) error: Arc<ReadError>,
}

impl ReadFault {
    /// True if the nodes are behind.
    pub(super) fn is_behind(&self) -> bool {
        matches!(*self.error, ReadError::Behind { .. })
    }
}

impl From<ReadFault> for ChainFault {
    fn from(fault: ReadFault) -> Self {
        let (is_behind, cause) = (fault.is_behind(), fault.error.to_string().into());
        Self { endpoint: fault.endpoint, method: fault.method, is_behind, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::ReadError;

    #[test]
    fn a_group_is_read_alone_where_less_may_be_taken_and_not_where_nothing_of_ours_is() {
        let is_too_much = |status: &u16| ReadError::HttpStatus(*status).is_too_much();
        assert!([400, 408, 413, 414, 422].iter().all(is_too_much));
        assert!(![200, 302, 401, 402, 403, 404, 407, 500, 502].iter().any(is_too_much));
    }
}
