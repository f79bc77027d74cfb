//! Maps that many threads use at once: many small locks instead of one, so that no request waits for a stranger's.
//!
//! Knows nothing of what is kept in them.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::domain::{Quota, Verdict, Window};

/// A map whose keys bring their hash along.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Itself>>;

/// A key with its hash, which is computed once for both the shard and the table in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashed<K> {
    /// The hash: [`Shards::hashed`] computes it, unless the key comes with one.
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

    /// The shards, in an order that does not change.
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

/// An owner of shared places gets one more only while it holds fewer than this times the number that are free. An owner that
/// takes all it can ends at three quarters.
pub(crate) const SHARE: u32 = 3;

/// Many more than cores, so that two requests rarely meet.
const SHARDS: usize = 64;

/// Counts by key.
#[derive(Debug)]
pub(crate) struct Counts<K> {
    shards: Shards<Table<Hashed<K>, u64>, SHARDS>,
}

/// A part of what a key holds; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<K: Hash + Eq + Copy> {
    counts: Arc<Counts<K>>,
    key: Hashed<K>,
    part: u64,
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
        self.take_part(key, 1, |held| if held < max().into() { Ok(()) } else { Err(()) }).ok()
    }

    /// A part more for `key`, unless what it holds gives an error.
    pub(crate) fn take_part<E>(
        self: &Arc<Self>,
        key: K,
        part: u64,
        check: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Counted<K>, E> {
        let key = self.shards.hashed(key);
        let mut shard = self.shards.of(&key).lock();
        match shard.get_mut(&key) {
            Some(held) => {
                check(*held)?;
                *held += part;
            }
            None => {
                check(0)?;
                shard.insert(key, part);
            }
        }
        drop(shard);
        Ok(Counted { counts: Arc::clone(self), key, part })
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
            Some(held) if *held > self.part => *held -= self.part,
            Some(_) | None => drop(shard.remove(&self.key)),
        }
    }
}

/// A full shard makes room for many at once, so that a flood pays for the search now and then only: one in so many
/// windows goes.
const FORGOTTEN_SHARE: usize = 8;

/// Windows by key.
#[derive(Debug)]
pub(crate) struct Meters<K> {
    /// With each the limit that it was last counted under.
    shards: Shards<Table<Hashed<K>, (Window, u32)>, SHARDS>,
    shard_entries_max: usize,
}

impl<K: Hash + Eq + Clone> Meters<K> {
    /// No windows yet, and never more than about `entries_max` of them.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { shards: Shards::default(), shard_entries_max: entries_max.div_ceil(SHARDS).max(1) }
    }

    /// Decides about one request under `key`, and records it when it is admitted.
    pub(crate) fn hit(&self, key: &K, quota: Quota, now_micros: u64) -> Verdict {
        let key = self.shards.hashed(key.clone());
        let mut shard = self.shards.of(&key).lock();
        if let Some((window, limit)) = shard.get_mut(&key) {
            *limit = quota.limit;
            return window.admit(quota, now_micros);
        }
        if shard.len() >= self.shard_entries_max {
            make_room(&mut shard, quota.window_micros, now_micros);
        }
        let mut window = Window::default();
        let verdict = window.admit(quota, now_micros);
        shard.insert(key, (window, quota.limit));
        verdict
    }

    /// The verdict that [`Self::hit`] would give under `key`; records nothing. The time is asked for only when there is
    /// a window.
    pub(crate) fn peek(&self, key: &K, quota: Quota, now_micros: impl FnOnce() -> u64) -> Verdict {
        let key = self.shards.hashed(key.clone());
        let shard = self.shards.of(&key).lock();
        let unused = Verdict::Admitted { remaining: quota.limit.saturating_sub(1) };
        shard.get(&key).map_or(unused, |(window, _)| window.peek(quota, now_micros()))
    }

    /// Takes back the newest request that was recorded under `key`.
    pub(crate) fn give_back(&self, key: &K) {
        let key = self.shards.hashed(key.clone());
        if let Some((window, _)) = self.shards.of(&key).lock().get_mut(&key) {
            window.withdraw(window.clamp(0));
        }
    }

    /// Forgets the windows that hold nothing young enough to matter.
    pub(crate) fn sweep(&self, window_micros: u64, now_micros: u64) {
        for shard in self.shards.iter() {
            let mut shard = shard.lock();
            shard.retain(|_, (window, _)| !window.is_idle(window_micros, now_micros));
            if shard.capacity() > 4 * shard.len() + 64 {
                shard.shrink_to_fit();
            }
        }
    }

    /// How many windows there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.entries()
    }
}

/// Drops what is idle; if that is nothing, the windows that have most of their own limit left, the oldest of them first.
fn make_room<K: Eq + Clone>(shard: &mut Table<Hashed<K>, (Window, u32)>, width_micros: u64, now_micros: u64) {
    let before = shard.len();
    shard.retain(|_, (window, _)| !window.is_idle(width_micros, now_micros));
    if shard.len() < before {
        return;
    }
    let rank = |(window, limit): &(Window, u32)| {
        let quota = Quota { limit: *limit, window_micros: width_micros };
        let left = u64::from(window.remaining(quota, now_micros)) << 32;
        (u64::MAX - left / u64::from(*limit).max(1), window.clamp(0))
    };
    let mut ranked: Vec<_> = shard.iter().map(|(key, counted)| (rank(counted), key.clone())).collect();
    let forgotten = ranked.len().div_ceil(FORGOTTEN_SHARE).min(ranked.len().saturating_sub(1));
    ranked.select_nth_unstable_by_key(forgotten, |(rank, _)| *rank);
    for (_, key) in ranked.into_iter().take(forgotten.max(1)) {
        shard.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::{sync::Arc, thread};

    use proptest::prelude::{any, proptest};

    use super::{Counts, Meters, Shards};
    use crate::domain::{HOUR_MICROS, Quota, Verdict};

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

    const TWO_AN_HOUR: Quota = Quota::per_hour(2);

    #[test]
    fn each_key_has_a_budget_of_its_own() {
        let meters = Meters::new(1_000);
        assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 0), Verdict::Admitted { remaining: 1 });
        assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 1), Verdict::Admitted { remaining: 0 });
        assert!(matches!(meters.hit(&"a", TWO_AN_HOUR, 2), Verdict::Limited { .. }));
        assert_eq!(meters.hit(&"b", TWO_AN_HOUR, 2), Verdict::Admitted { remaining: 1 });
    }

    // threat: Made-up keys fill memory
    #[test]
    fn a_flood_of_keys_stays_within_the_ceiling_locks_nobody_out_and_frees_nobody_who_is_limited() {
        let meters = Meters::new(640);
        for _ in 0..2 {
            meters.hit(&u64::MAX, TWO_AN_HOUR, 0);
        }
        for key in 0..100_000_u64 {
            assert!(matches!(meters.hit(&key, TWO_AN_HOUR, 1), Verdict::Admitted { .. }));
        }
        assert!(meters.len() <= 640 + 64, "{}", meters.len());
        assert!(matches!(meters.hit(&u64::MAX, TWO_AN_HOUR, 2), Verdict::Limited { .. }));
    }

    #[test]
    fn whoever_is_at_a_limit_of_its_own_is_forgotten_last_whoever_asks_for_room() {
        const HUNDRED_AN_HOUR: Quota = Quota::per_hour(100);
        let meters = Meters::new(640);
        for _ in 0..2 {
            meters.hit(&u64::MAX, TWO_AN_HOUR, 0);
        }
        for key in 0..10_000_u64 {
            meters.hit(&key, HUNDRED_AN_HOUR, 1);
        }
        assert!(matches!(meters.hit(&u64::MAX, TWO_AN_HOUR, 2), Verdict::Limited { .. }));
    }

    // threat: A fault spends an owner's budget
    #[test]
    fn what_is_given_back_may_be_spent_again_and_nothing_more() {
        let meters = Meters::new(640);
        meters.give_back(&"a");
        for _ in 0..3 {
            assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 0), Verdict::Admitted { remaining: 1 });
            assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 5), Verdict::Admitted { remaining: 0 });
            assert!(matches!(meters.hit(&"a", TWO_AN_HOUR, 6), Verdict::Limited { .. }));
            meters.give_back(&"a");
            meters.give_back(&"a");
        }
    }

    #[test]
    fn a_set_of_one_window_a_shard_still_lets_newcomers_in() {
        let meters = Meters::new(1);
        for key in 0..1_000_u64 {
            assert!(matches!(meters.hit(&key, TWO_AN_HOUR, key), Verdict::Admitted { .. }));
        }
        assert!(meters.len() <= 64);
    }

    #[test]
    fn a_sweep_drops_exactly_the_idle_windows() {
        let meters = Meters::new(1_000);
        meters.hit(&"old", TWO_AN_HOUR, 0);
        meters.hit(&"young", TWO_AN_HOUR, 1);
        meters.sweep(HOUR_MICROS, HOUR_MICROS);
        assert_eq!(meters.len(), 1);
        assert_eq!(meters.peek(&"young", TWO_AN_HOUR, || HOUR_MICROS), Verdict::Admitted { remaining: 0 });
    }
}
