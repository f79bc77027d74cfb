//! Maps that many threads use at once: many small locks instead of one, so that no request waits for a stranger's.
//!
//! Knows nothing of what is kept in them.

pub mod meters;

use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::Mutex;

/// So many of one thing, each under a lock of its own. Which of them a key falls under can't be foreseen from outside.
#[derive(Debug)]
pub struct Shards<T, const COUNT: usize> {
    shards: Vec<Mutex<T>>,
    hasher: RandomState,
}

impl<T: Default, const COUNT: usize> Shards<T, COUNT> {
    /// All of them empty.
    #[must_use]
    pub fn new() -> Self {
        // A mask picks the shard.
        const { assert!(COUNT.is_power_of_two()) };
        Self { shards: (0..COUNT).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl<T: Default, const COUNT: usize> Default for Shards<T, COUNT> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const COUNT: usize> Shards<T, COUNT> {
    /// The one that a key falls under.
    #[expect(clippy::indexing_slicing, reason = "the mask keeps the place below COUNT")]
    pub fn of(&self, key: &impl Hash) -> &Mutex<T> {
        &self.shards[(self.hasher.hash_one(key) as usize) & (COUNT - 1)]
    }

    /// Each of them, in an order that does not change.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.shards.iter()
    }
}
