//! Tests of the readers of heads and of bodies in chunks.

mod answers;
mod chunks;
mod parts;
mod requests;

#[path = "../../../tests/support/corpus/heads.rs"]
pub(crate) mod heads;
