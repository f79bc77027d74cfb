//! The stores: where keys, nonces and windows live. Must not know the pipeline, the listeners or the chain.

pub mod embedded;
pub mod redis;

mod held_keys;

#[cfg(test)]
mod contract;

pub use embedded::EmbeddedStore;
pub use redis::RedisStore;
pub use redis::options::{SentinelLogin, TlsFiles};
