//! HTTP message signatures (RFC 9421) of Ethereum accounts (ERC-8128) and of bots (Web Bot Auth): from a request to what must
//! have been signed.
//!
//! Everything here is decided by the request and the time alone. Must not know chain, store or answers.

pub(crate) mod bots;
pub(crate) mod candidates;
pub(crate) mod digest;
pub(crate) mod profile;
pub(crate) mod signing;

mod base;
mod keyid;

use crate::domain::host::HostPattern;
use crate::http1::fields::Fields;

#[cfg(test)]
mod tests;

/// A request whose signatures are read.
#[derive(Debug)]
pub(crate) struct Message<'a, F> {
    pub(crate) method: &'a str,
    /// The scheme that the client used; `None`: it is not known.
    pub(crate) scheme: Option<&'a str>,
    /// Host and port, as the client wrote them.
    pub(crate) authority: &'a str,
    /// The hosts that a signature counts for, of all that a client may write; `None`: any, where one is to be made.
    pub(crate) hosts: Option<&'a [HostPattern]>,
    /// Path and query, as they came.
    pub(crate) target: &'a [u8],
    pub(crate) fields: &'a F,
    pub(crate) content: Content,
}

/// What is known of a request's body when its head has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// There is none.
    Empty,
    /// It follows. One in chunks may turn out to be empty.
    Follows,
    /// Another gateway has it.
    Unseen,
}

/// The values of a field by its name in lower case, in order, without the blanks around them.
fn values<'a>(fields: &'a impl Fields, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
    fields.all().filter(named).map(|(_, value)| value.trim_ascii())
}

/// All lines of a field as one (RFC 9421, section 2.1). `None` if there is none.
fn combined(fields: &impl Fields, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = values(fields, name).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}
