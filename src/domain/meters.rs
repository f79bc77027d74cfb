//! Many windows under one roof, for limits on callers who have proved nothing yet: sharded, bounded, and swept.
//!
//! Strangers choose these keys, so the number of windows has a ceiling. What happens there is the owner's choice:
//! a limit of the contract refuses (it never fails open), a protective one forgets the quietest instead.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::Mutex;

use crate::domain::quota::Quota;
use crate::domain::window::{Verdict, Window};

/// Power of two, so that a shard is picked by a mask; many more than cores, so that two rarely meet.
const SHARDS: usize = 64;

/// What a full set of windows does with a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The newcomer is limited until the shard has room again.
    Refuse,
    /// The window whose last accepted time is oldest makes room.
    ForgetQuietest,
}

/// Windows by key.
#[derive(Debug)]
pub struct Meters<K> {
    shards: Vec<Mutex<HashMap<K, Window>>>,
    hasher: RandomState,
    shard_entries_max: usize,
    when_full: WhenFull,
}

impl<K: Hash + Eq + Clone> Meters<K> {
    /// No windows yet, and never more than about `entries_max` of them.
    #[must_use]
    pub fn new(entries_max: usize, when_full: WhenFull) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
            hasher: RandomState::new(),
            shard_entries_max: entries_max.div_ceil(SHARDS).max(1),
            when_full,
        }
    }

    /// Decides about one request under `key`, and records it when it is admitted.
    pub fn hit(&self, key: &K, quota: Quota, now_micros: u64) -> Verdict {
        let mut shard = self.shard(key).lock();
        if let Some(window) = shard.get_mut(key) {
            return window.admit(quota, now_micros);
        }
        if shard.len() >= self.shard_entries_max {
            shard.retain(|_, window| !window.is_idle(quota.window_micros, now_micros));
        }
        if shard.len() >= self.shard_entries_max {
            match self.when_full {
                WhenFull::Refuse => return Verdict::Limited { retry_after_micros: quota.window_micros },
                WhenFull::ForgetQuietest => forget_quietest(&mut shard),
            }
        }
        let mut window = Window::default();
        let verdict = window.admit(quota, now_micros);
        shard.insert(key.clone(), window);
        verdict
    }

    /// What [`Self::hit`] would say to a request under `key`; records nothing.
    #[must_use]
    pub fn peek(&self, key: &K, quota: Quota, now_micros: u64) -> Verdict {
        let shard = self.shard(key).lock();
        shard.get(key).map_or(Verdict::Admitted { remaining: quota.limit.saturating_sub(1) }, |window| {
            window.peek(quota, now_micros)
        })
    }

    /// Forgets the windows that hold nothing young enough to matter.
    pub fn sweep(&self, window_micros: u64, now_micros: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|_, window| !window.is_idle(window_micros, now_micros));
            if shard.capacity() > 4 * shard.len() + 64 {
                shard.shrink_to_fit();
            }
        }
    }

    /// How many windows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[expect(clippy::indexing_slicing, reason = "the mask keeps the index below SHARDS")]
    fn shard(&self, key: &K) -> &Mutex<HashMap<K, Window>> {
        let hash = self.hasher.hash_one(key);
        &self.shards[(hash as usize) & (SHARDS - 1)]
    }
}

fn forget_quietest<K: Hash + Eq + Clone>(shard: &mut HashMap<K, Window>) {
    let quietest = shard.iter().min_by_key(|(_, window)| window.clamp(0)).map(|(key, _)| key.clone());
    if let Some(key) = quietest {
        shard.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Meters, WhenFull};
    use crate::domain::quota::{HOUR_MICROS, Quota};
    use crate::domain::window::Verdict;

    const TWO_AN_HOUR: Quota = Quota::per_hour(2);

    #[test]
    fn each_key_has_a_budget_of_its_own() {
        let meters = Meters::new(1_000, WhenFull::Refuse);
        assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 0), Verdict::Admitted { remaining: 1 });
        assert_eq!(meters.hit(&"a", TWO_AN_HOUR, 1), Verdict::Admitted { remaining: 0 });
        assert!(matches!(meters.hit(&"a", TWO_AN_HOUR, 2), Verdict::Limited { .. }));
        assert_eq!(meters.hit(&"b", TWO_AN_HOUR, 2), Verdict::Admitted { remaining: 1 });
    }

    #[test]
    fn a_flood_of_keys_stays_within_the_ceiling_and_forgets_no_count_when_it_must_refuse() {
        let meters = Meters::new(640, WhenFull::Refuse);
        for _ in 0..2 {
            meters.hit(&u64::MAX, TWO_AN_HOUR, 0);
        }
        for key in 0..100_000_u64 {
            meters.hit(&key, TWO_AN_HOUR, 1);
        }
        assert!(meters.len() <= 640 + 64, "{}", meters.len());
        assert!(matches!(meters.hit(&u64::MAX, TWO_AN_HOUR, 2), Verdict::Limited { .. }));
    }

    #[test]
    fn a_full_set_that_may_forget_lets_newcomers_in() {
        let meters = Meters::new(64, WhenFull::ForgetQuietest);
        for key in 0..10_000_u64 {
            assert!(matches!(meters.hit(&key, TWO_AN_HOUR, key), Verdict::Admitted { .. }));
        }
        assert!(meters.len() <= 128);
    }

    #[test]
    fn a_sweep_drops_exactly_the_idle_windows() {
        let meters = Meters::new(1_000, WhenFull::Refuse);
        meters.hit(&"old", TWO_AN_HOUR, 0);
        meters.hit(&"young", TWO_AN_HOUR, 1);
        meters.sweep(HOUR_MICROS, HOUR_MICROS);
        assert_eq!(meters.len(), 1);
        assert_eq!(meters.peek(&"young", TWO_AN_HOUR, HOUR_MICROS), Verdict::Admitted { remaining: 0 });
    }
}
