//! The one list of errors: why a request is not served, by whose fault that is. `wire/errors.rs` gives each its row: status,
//! `errorType`, message and details. Knows no HTTP.
//!
//! Clients never see what a fault holds for the log.

use std::borrow::Cow;

use serde_json::Value;

use crate::domain::{AgentId, Denial, Tier};
use crate::ports::{ChainFault, NoEntropy, StoreFault};

/// Why a request is not served. Variants stand in the order of the contract's table, and after them our own.
#[derive(Debug, Clone)]
pub enum Error {
    /// The body or query is not of the contract's shape.
    Invalid {
        /// The first field that is wrong; `body` when it is the whole.
        field: &'static str,
        /// The value that came in, safe to echo.
        received: Value,
        /// The problem, as a phrase after the field's name.
        problem: Cow<'static, str>,
    },
    /// A verdict on a well-formed request.
    Denied(Denial),
    /// The chain could not be read.
    Chain(ChainFault),
    /// The chain could not be read, so nobody knows who signed a request.
    Unverified(ChainFault),
    /// The store failed.
    Store(StoreFault),
    /// No key could be minted, or no id drawn.
    Entropy(NoEntropy),
    /// An operation that must be recorded could not be, for this reason: it was not done.
    Unrecorded(String),
    /// A fault of ours that has no name in the contract.
    Internal,
    /// There is nothing at this path.
    NotFound,
    /// The path is known, the method is not its own.
    MethodNotAllowed {
        /// The methods that are, as `Allow` lists them.
        allow: Box<str>,
    },
    /// The request's bytes are ambiguous or not HTTP; the connection is closed.
    Malformed {
        /// The problem, as a phrase.
        problem: &'static str,
    },
    /// The message of MCP is not one that everybody reads alike, or its headers differ from it.
    McpMessage {
        /// The problem, as a phrase.
        problem: &'static str,
    },
    /// The request took too long to arrive; the connection is closed.
    TooSlow,
    /// The request head is too long; the connection is closed.
    HeadTooLarge,
    /// A client of OAuth looks for an authorization server, and there is none.
    NoLogin,
    /// The gateway knows no tenant of this host.
    UnknownHost,
    /// The tenant's rules let nobody pass here.
    Forbidden,
    /// A page of an origin that may not do this had its visitor's browser send it.
    OtherSite,
    /// Agents alone pass here, and the request shows no credential that is taken, or more than one.
    Unproven {
        /// The problem, as a sentence.
        problem: &'static str,
    },
    /// The body is longer than the endpoint or the tenant takes.
    UploadTooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// No upstream could be reached, or it gave no answer that can be read.
    Upstream,
    /// An upstream took too long.
    UpstreamTimeout,
    /// The request has passed this gateway before.
    Loop,
    /// The gateway is at one of its limits; nothing was sent to an upstream.
    Overloaded,
    /// The agent has as many requests under way as one may have; nothing was charged.
    TooManyInFlight {
        /// The agent.
        agent: AgentId,
        /// The tier that it has.
        tier: Tier,
        /// Requests in a window, for that tier.
        limit: u32,
        /// How many it may have under way.
        max: u32,
    },
}

impl From<Denial> for Error {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<ChainFault> for Error {
    fn from(fault: ChainFault) -> Self {
        Self::Chain(fault)
    }
}

impl From<StoreFault> for Error {
    fn from(fault: StoreFault) -> Self {
        Self::Store(fault)
    }
}
