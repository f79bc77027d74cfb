//! The operating system's clock and randomness: the one file that asks for them.
#![expect(clippy::disallowed_methods, reason = "this is the file that the ban points to")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::ports::{Clock, Entropy, NoEntropy};

/// The machine's clocks and its random number generator.
#[derive(Debug, Clone, Copy)]
pub struct Os {
    start: Instant,
}

impl Os {
    /// The operating system, its monotonic time counted from now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for Os {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Os {
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic_micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Entropy for Os {
    fn key_bytes(&self) -> Result<[u8; 32], NoEntropy> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
        Ok(bytes)
    }
}
