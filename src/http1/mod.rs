//! HTTP/1 as bytes (RFC 9112): heads as spans, chunked bodies. Pure: no IO, no time, no configuration.
//!
//! Stricter than HTTP libraries: a message that two readers may read differently is refused (request smuggling).

pub(crate) mod chunked;
pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod lines;
pub(crate) mod name;
pub(crate) mod writing;

#[cfg(test)]
mod tests;

pub(crate) use chunked::{BrokenChunks, Decoder, Piece};
pub(crate) use fields::{FIELDS_MAX, Fields, Options, Problem, SpanFields, Spans, TOO_MANY_FIELDS};
pub(crate) use head::{AnswerHead, REPEATED};
pub(crate) use lines::{Body, RequestHead, TARGET_PROBLEMS};
pub(crate) use writing::Lines;
