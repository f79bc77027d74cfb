//! The Model Context Protocol over HTTP, as a gateway has to read it: the call that a request makes, lists of what may be called, and
//! errors that clients show.
//!
//! Pure rules over bytes. Must not know tenants, agents or connections.

pub(crate) mod call;
pub(crate) mod headers;
pub(crate) mod listing;
pub(crate) mod message;
pub(crate) mod refusal;

/// The reason why a message is refused, as a phrase.
pub(crate) type Problem = &'static str;

/// The code of an error about headers that do not fit the message.
pub(crate) const HEADER_MISMATCH: i32 = -32020;
