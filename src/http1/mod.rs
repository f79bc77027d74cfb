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
pub(crate) mod tests;
