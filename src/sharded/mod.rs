//! Maps that many threads use at once: many small locks instead of one, so that no request waits for a stranger's.
//!
//! Knows nothing of what is kept in them.

pub(crate) mod counts;
pub(crate) mod meters;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

/// A map whose keys bring their hash along.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Itself>>;

/// A key with its hash, which is computed once for both the shard and the table in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashed<K> {
    /// Its hash: [`Shards::hashed`] computes it, unless the key comes with one.
    pub(crate) hash: u64,
    pub(crate) key: K,
}

impl<K> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The hash of what is a hash already.
#[derive(Debug, Default)]
pub(crate) struct Itself(u64);

impl Hasher for Itself {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "the key brings no hash along");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// So many of one thing, each under a lock of its own. Which of them a [`Hashed`] key falls under can't be foreseen from
/// outside.
#[derive(Debug)]
pub(crate) struct Shards<T, const COUNT: usize> {
    shards: Vec<Mutex<T>>,
    hasher: RandomState,
}

impl<T: Default, const COUNT: usize> Default for Shards<T, COUNT> {
    fn default() -> Self {
        // A mask picks the shard.
        const { assert!(COUNT.is_power_of_two()) };
        Self { shards: (0..COUNT).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }
}

impl<T, const COUNT: usize> Shards<T, COUNT> {
    pub(crate) fn hashed<K: Hash>(&self, key: K) -> Hashed<K> {
        Hashed { hash: self.hasher.hash_one(&key), key }
    }

    /// The one that a key falls under, by bits of its hash that a table does not use: it takes the lowest for the place
    /// and the highest for a tag.
    #[expect(clippy::indexing_slicing, reason = "the mask keeps the place below COUNT")]
    pub(crate) fn of(&self, key: &impl Hash) -> &Mutex<T> {
        let hash = BuildHasherDefault::<Itself>::default().hash_one(key);
        &self.shards[((hash >> 32) as usize) & (COUNT - 1)]
    }

    /// Each of them, in an order that does not change.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.shards.iter()
    }
}

impl<K, V, const COUNT: usize> Shards<Table<K, V>, COUNT> {
    /// How many entries there are.
    pub(crate) fn entries(&self) -> usize {
        self.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Shards;

    #[test]
    fn keys_in_a_row_are_spread_over_the_shards_and_those_of_one_shard_over_its_table() {
        let shards: Shards<HashSet<u64>, 16> = Shards::default();
        for number in 0..16_000_u64 {
            let key = shards.hashed(number);
            shards.of(&key).lock().insert(key.hash % 16);
        }
        for shard in shards.iter() {
            assert_eq!(shard.lock().len(), 16, "every place is used in every shard");
        }
    }
}
