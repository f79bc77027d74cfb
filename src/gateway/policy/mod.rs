//! The rules about headers, written once for every protocol: over [`Fields`](crate::http1::Fields) that are read,
//! and [`Lines`](crate::http1::Lines) that are written.

pub(super) mod answers;
pub(crate) mod forwarded;
pub(super) mod requests;

#[cfg(test)]
mod tests;
