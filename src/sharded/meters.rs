//! Many windows under one roof, for limits on callers who have proved nothing yet: sharded, bounded, and swept.
//!
//! Strangers choose these keys, so the number of windows has a ceiling. There the least used windows make room: to be
//! refused for lack of room would let a flood of strangers lock everybody out, and whoever is at its limit is forgotten
//! last.

use std::hash::Hash;

use crate::domain::quota::Quota;
use crate::domain::window::{Verdict, Window};
use crate::sharded::{Hashed, Shards, Table};

/// Many more than cores, so that two requests rarely meet.
const SHARDS: usize = 64;

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

    /// What [`Self::hit`] would say to a request under `key`; records nothing. The time is asked for only when there is
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
    use super::Meters;
    use crate::domain::quota::{HOUR_MICROS, Quota};
    use crate::domain::window::Verdict;

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
