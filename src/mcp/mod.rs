//! The Model Context Protocol over HTTP, as a gateway has to read it: the call that a request makes, lists of what may be called, and
//! errors that clients show.
//!
//! Pure rules over bytes. Must not know tenants, agents or connections.

pub(crate) mod call;
mod headers;
mod listing;
mod message;
pub(crate) mod refusal;

pub(crate) use call::McpRequest;
pub(crate) use listing::{Filter, List, Shows, Unreadable};

/// The reason why a message is refused, as a phrase.
pub(crate) type Problem = &'static str;

/// The code of an error about headers that do not fit the message.
pub(crate) const HEADER_MISMATCH: i32 = -32020;
