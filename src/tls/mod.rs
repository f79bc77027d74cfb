//! Stub.
pub(crate) mod server;
pub(crate) mod upstream;
