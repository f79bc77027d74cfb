//! What the pipeline needs from outside, in the domain's verbs. No implementation is known here; `os.rs` alone knows how time and
//! randomness are obtained.

mod chain;
mod store;

use std::time::Duration;

pub use chain::{Asked, AskedHolders, Asker, Chain, ChainFault, ChainRead, Parts};
pub use store::{
    Admission, Budget, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, NewKey, NonceRefused,
    Proof, Reply, RouteScope, Scope, Store, StoreFault,
};

/// Where the product gets its time from.
pub trait Clock: Send + Sync {
    /// Wall-clock time in milliseconds since the Unix epoch. May step in either direction.
    fn unix_millis(&self) -> u64;

    /// Microseconds since some fixed moment. Never steps back, whatever happens to the wall clock.
    fn monotonic_micros(&self) -> u64;

    /// Wall-clock time in whole seconds since the Unix epoch.
    fn unix_seconds(&self) -> u64 {
        self.unix_millis() / 1_000
    }
}

/// A duration as [`Clock::monotonic_micros`] counts.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Where the product gets its randomness from.
pub trait Entropy: Send + Sync {
    /// Fills a key's worth of bytes from a cryptographically secure source.
    /// Error: [`NoEntropy`] when the source has failed; no key may be minted then.
    fn key_bytes(&self) -> Result<[u8; 32], NoEntropy>;
}

/// The source of randomness has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no randomness")]
pub struct NoEntropy;

#[cfg(test)]
pub mod simulated;
