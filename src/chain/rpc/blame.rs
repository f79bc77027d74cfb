//! Whose fault an answer is that is none: the node's, nobody's, or unclear until another node has been asked.
//!
//! Some agents are absurd: their data is too long, their contracts burn all gas. Every node fails on them alike, and none
//! of them may be given up for it; else one such agent would take the chain away from everybody.

use crate::chain::fault::ReadError;
use crate::chain::rpc::call::At;

/// Whom an error speaks against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The node, whatever others say.
    Node,
    /// The node, if another one answers the same read.
    Unclear,
    /// Nobody.
    Nobody,
}

/// What nodes write when they lack the block that is asked for.
const NO_BLOCK: &[&str] =
    &["header not found", "unknown block", "block not found", "missing trie node", "header for hash"];

/// What nodes write when they are asked too often, or are not up to anything.
const OVERBURDENED: &[&str] = &[
    "rate limit",
    "ratelimit",
    "too many request",
    "request count exceeded",
    "compute units",
    "capacity",
    "throttle",
    "quota",
    "overload",
    "unavailable",
    "timeout",
    "timed out",
    "syncing",
    "not synced",
];

/// What nodes write when the contract's code was at fault. Looked for first: a call that ran too long is a "timeout" too.
const EXECUTION: &[&str] = &["execution", "out of gas", "gas required", "opcode", "stack", "evm error"];

/// What nodes write when a range of logs ends at a block that they do not have yet: nodes behind one URL differ by some.
const BLOCKS_TO_COME: &[&str] = &[
    "beyond current head",
    "beyond latest",
    "beyond head",
    "unknown block",
    "header not found",
    "block not found",
    "header for hash",
];

/// What nodes write when a range of logs, or what it holds, is more than they give at once. A bare "limit exceeded" is
/// none of these: that is a limit of rates.
const TOO_MANY_LOGS: &[&str] = &[
    "returned more than",
    "too many results",
    "too many logs",
    "max results",
    "response size",
    "response too large",
    "block range too",
    "range too large",
    "range is too",
    "maximum block range",
    "max block range",
    "block range limit",
    "exceeds maximum rpc range",
    "ranges over",
    "limited to a",
    "requests with up to a",
    "consider reducing your block range",
];

/// What nodes write when logs are not to be had from them.
const NO_LOGS: &[&str] = &["not supported", "unsupported", "unauthorized", "forbidden", "not allowed"];

/// Whom this error of a read of the state at `at` speaks against.
pub(super) fn blame(error: &ReadError, at: At) -> Blame {
    match error {
        ReadError::Node { code, message } => blame_by_text(*code, &message.to_ascii_lowercase(), at),
        ReadError::Connection(_)
        | ReadError::RateLimited(_)
        | ReadError::HttpStatus(_)
        | ReadError::Unintelligible(_) => Blame::Node,
        // A contract may be slow. Whether its node is, a probe finds out.
        ReadError::TimedOut(_)
        | ReadError::TooLong(_)
        | ReadError::Reverted(_)
        | ReadError::Undecodable(_)
        | ReadError::NoCode(_) => Blame::Unclear,
        ReadError::Busy
        | ReadError::GivenUp(_)
        | ReadError::WrongChain { .. }
        | ReadError::ChainsDiffer(_)
        | ReadError::Unvetted
        | ReadError::Behind { .. }
        | ReadError::MadeUpHead { .. }
        | ReadError::OldHead { .. } => Blame::Nobody,
    }
}

/// JSON-RPC has no codes for most of what happens, and nodes use those that there are in different ways.
fn blame_by_text(code: i64, message: &str, at: At) -> Blame {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(EXECUTION) {
        return Blame::Unclear;
    }
    if says(NO_BLOCK) || code == -32_001 {
        return match at {
            // A node that was never told of one block is not sick: it may be a block behind.
            At::Block(_) => Blame::Nobody,
            At::Latest => Blame::Node,
        };
    }
    // Limit exceeded, internal error, resource unavailable, no such method.
    let is_retryable = matches!(code, -32_005 | -32_603 | -32_002 | -32_601 | 429);
    if is_retryable || says(OVERBURDENED) { Blame::Node } else { Blame::Unclear }
}

/// Why logs can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogsTrouble {
    /// The range or the result is more than the node gives at once: ask for less.
    TooMany,
    /// The node does not give logs at all.
    NotSupported,
    /// Something that may pass.
    Transient,
}

/// What an error of `eth_getLogs` says.
pub(super) fn logs_trouble(error: &ReadError) -> LogsTrouble {
    match error {
        ReadError::Node { code, message } => logs_trouble_by_text(*code, &message.to_ascii_lowercase()),
        ReadError::TooLong(_) | ReadError::HttpStatus(413) => LogsTrouble::TooMany,
        ReadError::HttpStatus(401 | 403 | 405) => LogsTrouble::NotSupported,
        ReadError::HttpStatus(_)
        | ReadError::TimedOut(_)
        | ReadError::Busy
        | ReadError::Connection(_)
        | ReadError::RateLimited(_)
        | ReadError::Unintelligible(_)
        | ReadError::Reverted(_)
        | ReadError::Undecodable(_)
        | ReadError::NoCode(_)
        | ReadError::GivenUp(_)
        | ReadError::WrongChain { .. }
        | ReadError::ChainsDiffer(_)
        | ReadError::Unvetted
        | ReadError::Behind { .. }
        | ReadError::MadeUpHead { .. }
        | ReadError::OldHead { .. } => LogsTrouble::Transient,
    }
}

fn logs_trouble_by_text(code: i64, message: &str) -> LogsTrouble {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let limits_rates = ["rate limit", "ratelimit", "too many request", "request count", "compute units"];
    if says(BLOCKS_TO_COME) || says(&limits_rates) {
        return LogsTrouble::Transient;
    }
    // Before what says that something is not supported: ranges above some length may not be.
    if says(TOO_MANY_LOGS) {
        return LogsTrouble::TooMany;
    }
    if matches!(code, -32_601 | -32_004) || says(NO_LOGS) {
        return LogsTrouble::NotSupported;
    }
    LogsTrouble::Transient
}

#[cfg(test)]
mod tests {
    use alloy::primitives::B256;

    use super::{Blame, LogsTrouble, blame, logs_trouble};
    use crate::chain::fault::ReadError;
    use crate::chain::rpc::call::At;

    fn node(code: i64, message: &str) -> ReadError {
        ReadError::Node { code, message: message.to_owned() }
    }

    #[test]
    fn what_every_node_shares_is_no_single_nodes_fault() {
        for error in [
            ReadError::TimedOut(1),
            ReadError::TooLong(1),
            ReadError::Undecodable("x"),
            ReadError::NoCode("x"),
            ReadError::Reverted("x"),
            node(-32_000, "execution aborted (timeout = 5s)"),
            node(-32_000, "out of gas"),
            node(-32_003, "Out of gas: gas required exceeds allowance: 50000000"),
            node(-32_603, "EVM error StackOverflow"),
            node(-32_602, "invalid params"),
        ] {
            assert_eq!(blame(&error, At::Latest), Blame::Unclear, "{error}");
        }
    }

    #[test]
    fn what_a_sick_node_says_is_its_own_fault() {
        for error in [
            ReadError::Connection(String::new()),
            ReadError::RateLimited(None),
            ReadError::HttpStatus(502),
            ReadError::HttpStatus(403),
            ReadError::Unintelligible("x"),
            node(-32_005, "limit exceeded"),
            node(-32_603, "Internal error"),
            node(-32_000, "header not found"),
            node(-32_000, "missing trie node 1f (path ) <nil>"),
            node(-32_000, "project rate limited"),
            node(-32_000, "Request timed out"),
            node(-32_601, "the method eth_call does not exist"),
        ] {
            assert_eq!(blame(&error, At::Latest), Blame::Node, "{error}");
        }
    }

    #[test]
    fn a_node_that_lacks_one_block_is_not_sick() {
        let pinned = At::Block(B256::repeat_byte(1));
        for error in [
            node(-32_000, "header not found"),
            node(-32_001, "Resource not found."),
            node(-32_000, "Unknown block"),
        ] {
            assert_eq!(blame(&error, pinned), Blame::Nobody, "{error}");
            assert_eq!(blame(&error, At::Latest), Blame::Node, "{error}");
        }
    }

    /// What providers and clients write, in their own words as far as they are known.
    #[test]
    fn a_range_that_is_too_long_is_told_from_one_that_ends_too_late_and_from_a_limit_of_rates() {
        for message in [
            "query returned more than 10000 results. Try with this block range [0x1, 0x2].",
            "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range",
            "You can make eth_getLogs requests with up to a 500 block range.",
            "eth_getLogs is limited to a 10,000 range",
            "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range",
            "block range is too large",
            "block range is too wide",
            "block range too large",
            "exceed maximum block range: 50000",
            "Requested range exceeds maximum RPC range limit",
            "query exceeds max block range 100000",
            "query exceeds max results 20000, retry with the range 1-2",
            "ranges over 10000 blocks are not supported on freetier",
            "response size should not greater than 10000000 bytes",
        ] {
            for code in [-32_000, -32_005, -32_600, -32_602, 35] {
                assert_eq!(logs_trouble(&node(code, message)), LogsTrouble::TooMany, "{code} {message}");
            }
        }
        for message in [
            "block range extends beyond current head block",
            "beyond latest executed block",
            "end (5) is beyond latest executed block (4)",
            "unknown block",
            "header not found",
            "limit exceeded",
            "your plan is limited to 10 requests per second",
            "daily request count exceeded, request rate limited",
            "Too Many Requests",
            "Your app has exceeded its compute units per second capacity",
        ] {
            for code in [-32_000, -32_005, -32_602, 429] {
                assert_eq!(logs_trouble(&node(code, message)), LogsTrouble::Transient, "{code} {message}");
            }
        }
    }

    #[test]
    fn an_error_of_logs_says_whether_to_ask_for_less() {
        for (error, trouble) in [
            (node(-32_005, "query returned more than 10000 results"), LogsTrouble::TooMany),
            (
                node(-32_602, "Log response size exceeded. You can make eth_getLogs requests"),
                LogsTrouble::TooMany,
            ),
            (node(-32_600, "eth_getLogs is limited to a 10,000 range"), LogsTrouble::TooMany),
            (node(-32_000, "block range is too wide"), LogsTrouble::TooMany),
            (node(-32_701, "exceeds the max block range"), LogsTrouble::TooMany),
            (ReadError::HttpStatus(413), LogsTrouble::TooMany),
            (ReadError::TooLong(1), LogsTrouble::TooMany),
            (node(-32_601, "method not found"), LogsTrouble::NotSupported),
            (node(-32_004, "method not supported"), LogsTrouble::NotSupported),
            (node(-32_001, "Unauthorized: eth_getLogs"), LogsTrouble::NotSupported),
            (ReadError::HttpStatus(401), LogsTrouble::NotSupported),
            (ReadError::HttpStatus(403), LogsTrouble::NotSupported),
            (node(-32_005, "daily request count exceeded, request rate limited"), LogsTrouble::Transient),
            (node(-32_603, "internal error"), LogsTrouble::Transient),
            (node(-32_000, "header not found"), LogsTrouble::Transient),
            (ReadError::HttpStatus(502), LogsTrouble::Transient),
            (ReadError::RateLimited(None), LogsTrouble::Transient),
            (ReadError::TimedOut(1), LogsTrouble::Transient),
        ] {
            assert_eq!(logs_trouble(&error), trouble, "{error}");
        }
    }
}
