//! HTTP/1 as bytes (RFC 9112): heads as spans, chunked bodies. Pure: no IO, no time, no configuration.
//!
//! Stricter than HTTP libraries: a message that two readers may read differently is refused (request smuggling).

pub mod chunked;
pub mod fields;
pub mod head;
pub mod name;
pub mod options;
pub mod told;
pub mod writing;

mod lines;

#[cfg(test)]
pub(crate) mod tests;
