//! HTTP/2 as bytes (RFC 9113): heads of requests, before the library reads them. Pure: no IO, no time, no configuration.
//!
//! A head that can't be a request's is the fault of its stream (section 8.1.1). The library ends the connection for it,
//! which a proxy in front shares among its clients. So such heads are made readable, and say that they are to be refused.

pub(crate) mod frames;

mod fields;
mod huffman;

#[cfg(test)]
mod tests;

use http::HeaderMap;

use crate::http1::fields::Problem;
use crate::http1::lines::TARGET_PROBLEMS;

/// A block that can't be decoded: the fault of the connection (RFC 9113, section 4.3).
#[derive(Debug)]
struct Broken;

/// The header that says why a request is refused, also where a client has written it.
const REFUSED: &str = "tiergate-refused";

/// The longest header block that is waited for, with its frames, in bytes: more than the library takes.
const BLOCK_BYTES_MAX: usize = 128 * 1024;

const NAME: Problem = "a header name is not a token in lower case";
const PSEUDO: Problem = "there is a pseudo-header that requests don't have";
const METHOD: Problem = "the method is not a token";
const SCHEME: Problem = "the scheme is not one";
const AUTHORITY: Problem = "the authority is not a host with a port";
const PRIORITIES: Problem = "a stream depends on itself";
const VALUE: Problem = "a header's value holds a control character";
const OURS: Problem = "there is a header that the gateway alone writes";

/// The reason why a request that the library has read is to be refused.
pub(crate) fn problem(fields: &HeaderMap) -> Option<Problem> {
    let why = fields.get(REFUSED)?.as_bytes();
    let ours = [NAME, PSEUDO, METHOD, SCHEME, AUTHORITY, VALUE];
    Some(ours.into_iter().chain(TARGET_PROBLEMS).find(|problem| problem.as_bytes() == why).unwrap_or(OURS))
}
