//! Counts how many of something each key holds. A key that holds none has no entry, so entries need no sweep.

use std::hash::Hash;
use std::sync::Arc;

use crate::sharded::{Hashed, Shards, Table};

/// An owner of shared places gets one more only while it holds fewer than this times the number that are free. An owner that
/// takes all it can ends at three quarters.
pub(crate) const SHARE: u32 = 3;

/// Many more than cores, so that two requests rarely meet.
const SHARDS: usize = 64;

/// Counts by key.
#[derive(Debug)]
pub(crate) struct Counts<K> {
    shards: Shards<Table<Hashed<K>, u32>, SHARDS>,
}

/// One of what a key holds; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<K: Hash + Eq + Copy> {
    counts: Arc<Counts<K>>,
    key: Hashed<K>,
}

impl<K: Hash + Eq + Copy> Counts<K> {
    /// One more for `key`, unless it holds `max` of them.
    #[must_use]
    pub(crate) fn take(self: &Arc<Self>, key: K, max: u32) -> Option<Counted<K>> {
        self.take_below(key, || max)
    }

    /// The same, with a maximum that is looked up while nobody takes one of this key or gives one back.
    #[must_use]
    pub(crate) fn take_below(self: &Arc<Self>, key: K, max: impl FnOnce() -> u32) -> Option<Counted<K>> {
        let key = self.shards.hashed(key);
        let mut shard = self.shards.of(&key).lock();
        let max = max();
        match shard.get_mut(&key) {
            Some(held) if *held < max => *held += 1,
            None if max > 0 => drop(shard.insert(key, 1)),
            Some(_) | None => return None,
        }
        drop(shard);
        Some(Counted { counts: Arc::clone(self), key })
    }

    /// How many keys hold any.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.shards.entries()
    }
}

impl<K: Hash + Eq + Copy> Default for Counts<K> {
    fn default() -> Self {
        Self { shards: Shards::default() }
    }
}

impl<K: Hash + Eq + Copy> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut shard = self.counts.shards.of(&self.key).lock();
        match shard.get_mut(&self.key) {
            Some(held) if *held > 1 => *held -= 1,
            Some(_) | None => drop(shard.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::thread;

    use proptest::prelude::{any, proptest};

    use super::Counts;

    const MAX: u32 = 3;

    proptest! {
        #[test]
        fn a_key_never_holds_more_than_its_maximum_and_goes_with_its_last(
            steps in proptest::collection::vec((any::<bool>(), 0..4_u8, any::<u8>()), 0..200),
        ) {
            let counts = Arc::new(Counts::default());
            let mut held: HashMap<u8, Vec<_>> = HashMap::new();
            for (takes, key, which) in steps {
                let of_key = held.entry(key).or_default();
                if takes {
                    let taken = counts.take(key, MAX);
                    assert_eq!(taken.is_some(), of_key.len() < MAX as usize);
                    of_key.extend(taken);
                } else if !of_key.is_empty() {
                    of_key.swap_remove(usize::from(which) % of_key.len());
                }
                assert_eq!(counts.keys(), held.values().filter(|held| !held.is_empty()).count());
            }
        }
    }

    #[test]
    fn threads_that_race_never_exceed_the_maximum() {
        let counts = Arc::new(Counts::default());
        let taken: usize = thread::scope(|scope| {
            let take = || (0..100).filter_map(|_| counts.take("key", 50)).collect::<Vec<_>>();
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let held: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
            held.iter().map(Vec::len).sum()
        });
        assert_eq!(taken, 50);
        assert_eq!(counts.keys(), 0, "all have been given back");
    }

    #[test]
    fn a_maximum_of_none_takes_none() {
        assert!(Arc::new(Counts::default()).take("key", 0).is_none());
    }
}
