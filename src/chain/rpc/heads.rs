//! What a node says of its latest block, and which of what the others say it is compared with: as values. Must not know
//! how it becomes known; time is an argument.
//!
//! One node that makes up a head must not take the others out, so a head counts only while its node is in use and was
//! heard a moment ago, and a leap is not believed on one node's word. A node is behind in blocks, or in time: when it lacks
//! a block that another one told a while ago. Alone, it is judged by its block's own time.

use std::collections::VecDeque;
use std::time::Duration;

/// A node that is more than so many blocks behind another one is not used.
pub(super) const BLOCKS_BEHIND_MAX: u64 = 32;

/// No chain grows by so many blocks between two looks. A head that is further above the others is made up.
pub(super) const LEAP_BLOCKS_MAX: u64 = 1_000_000;

/// For how long a head counts after it was told, in microseconds: three looks.
pub(super) const HEARD_MICROS_MAX: u64 = 15_000_000;

/// How far behind in time a node may be at least, whatever is configured, in microseconds: nodes hear of a block one after
/// the other.
const LAG_MICROS_MIN: u64 = 5_000_000;

/// How many moments between now and a lag ago are remembered at least.
const MOMENTS_IN_LAG: u64 = 4;

/// How many moments are remembered of one node.
const MOMENTS_MAX: usize = 16;

/// With so many other heads known, the highest needs a second one near it.
const WITNESSES_MIN: usize = 3;

/// How old heads may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadBounds {
    /// So long after another node told a block a node must have it too, in microseconds.
    lag_micros: u64,
    /// So old the latest block may be by its own time, in seconds, if that is judged.
    age_secs_max: Option<u64>,
}

impl HeadBounds {
    /// What is configured; a lag is never shorter than nodes need to hear of each other.
    pub(super) fn new(max_staleness: Duration, max_head_age: Option<Duration>) -> Self {
        let micros = u64::try_from(max_staleness.as_micros()).unwrap_or(u64::MAX);
        Self { lag_micros: micros.max(LAG_MICROS_MIN), age_secs_max: max_head_age.map(|age| age.as_secs()) }
    }

    /// True when blocks have to be asked for their time.
    pub(super) const fn judge_age(&self) -> bool {
        self.age_secs_max.is_some()
    }

    /// The age of a head, if it is too old.
    pub(super) fn too_old(&self, seen: Seen) -> Option<u64> {
        let most = self.age_secs_max?;
        seen.age_secs.filter(|age| *age > most)
    }
}

/// The latest block of a node as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) number: u64,
    /// How old it was then by its own time, in seconds, if that was told.
    pub(super) age_secs: Option<u64>,
}

impl From<u64> for Seen {
    fn from(number: u64) -> Self {
        Self { number, age_secs: None }
    }
}

/// What one node said of its latest block.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// The latest block, as it was told last.
    number: Option<u64>,
    told_at: Option<u64>,
    /// The last one that was no leap, or that another node confirmed.
    steady: Option<u64>,
    /// Some of what was told and when, oldest first.
    moments: VecDeque<(u64, u64)>,
}

impl Head {
    /// The latest block, as it was told last.
    pub(super) const fn number(&self) -> Option<u64> {
        self.number
    }

    /// The latest block, if it was told a moment ago.
    pub(super) fn recent(&self, now_micros: u64) -> Option<u64> {
        let told_at = self.told_at?;
        self.number.filter(|_| now_micros.saturating_sub(told_at) <= HEARD_MICROS_MAX)
    }

    /// True when it was told no longer than `within_micros` ago.
    pub(super) fn is_fresh(&self, now_micros: u64, within_micros: u64) -> bool {
        self.told_at.is_some_and(|told_at| now_micros.saturating_sub(told_at) <= within_micros)
    }

    /// The node told its latest block.
    pub(super) fn told(&mut self, number: u64, now_micros: u64, bounds: &HeadBounds) {
        self.number = Some(number);
        self.told_at = Some(now_micros);
        let gap = bounds.lag_micros / MOMENTS_IN_LAG;
        if self.moments.back().is_none_or(|(at, _)| now_micros.saturating_sub(*at) >= gap) {
            if self.moments.len() == MOMENTS_MAX {
                self.moments.pop_front();
            }
            self.moments.push_back((now_micros, number));
        }
    }

    /// The block that the node had so long ago that others must have heard of it, if it still has it.
    pub(super) fn settled(&self, now_micros: u64, bounds: &HeadBounds) -> Option<u64> {
        let number = self.recent(now_micros)?;
        let is_settled = |at: u64| now_micros.saturating_sub(at) >= bounds.lag_micros;
        let (_, settled) = self.moments.iter().rev().find(|(at, _)| is_settled(*at))?;
        Some(number.min(*settled))
    }

    /// The highest of `others`, if this head is so far above it that it is made up.
    ///
    /// Of two nodes that never agreed the lower one may just as well be at its beginning: then only a node's own leap
    /// speaks against it. Others that are near each other outvote it.
    pub(super) fn leap(&mut self, others: &[u64]) -> Option<u64> {
        let number = self.number?;
        let is_leap = |from: u64| number.saturating_sub(from) > LEAP_BLOCKS_MAX;
        let best = others.iter().copied().max();
        let leaps_itself = self.steady.is_some_and(is_leap);
        let made_up = best.filter(|best| is_leap(*best) && (leaps_itself || agree(others)));
        let confirmed = best.is_some_and(|best| !is_leap(best));
        if made_up.is_none() && (confirmed || !leaps_itself) {
            self.steady = Some(number);
        }
        made_up
    }
}

/// The head that a node is compared with: the highest of the others, or the second where there are enough of them.
pub(super) fn reference(mut others: Vec<u64>) -> Option<u64> {
    others.sort_unstable_by(|a, b| b.cmp(a));
    let place = usize::from(others.len() >= WITNESSES_MIN);
    others.get(place).copied()
}

/// True when at least two are known, all near each other and none at the chain's beginning, where nodes are that only
/// just started.
fn agree(heads: &[u64]) -> bool {
    let (Some(least), Some(most)) = (heads.iter().min(), heads.iter().max()) else { return false };
    heads.len() >= 2 && *least > 0 && most - least <= BLOCKS_BEHIND_MAX
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{HEARD_MICROS_MAX, Head, HeadBounds, LEAP_BLOCKS_MAX, MOMENTS_MAX, Seen, reference};

    fn bounds() -> HeadBounds {
        HeadBounds::new(Duration::from_secs(8), Some(Duration::from_secs(600)))
    }

    fn at(number: u64) -> Head {
        let mut head = Head::default();
        head.told(number, 0, &bounds());
        head
    }

    #[test]
    fn a_block_is_settled_once_others_had_time_to_hear_of_it_and_while_its_node_has_it() {
        let mut head = at(7);
        for secs in 1..=20 {
            head.told(7 + secs, secs * 1_000_000, &bounds());
        }
        assert_eq!(head.settled(20_000_000, &bounds()), Some(7 + 12));
        head.told(9, 20_500_000, &bounds());
        assert_eq!(
            head.settled(20_500_000, &bounds()),
            Some(9),
            "what was rolled back is nothing to wait for"
        );
        assert_eq!(at(7).settled(7_999_999, &bounds()), None);
        assert_eq!(at(7).settled(8_000_000, &bounds()), Some(7));
        assert_eq!(at(7).settled(HEARD_MICROS_MAX + 1, &bounds()), None, "silence says nothing");
    }

    #[test]
    fn what_is_remembered_of_a_node_is_bounded_and_covers_the_lag() {
        let mut head = at(0);
        for tenth in 1..=10_000 {
            head.told(tenth, tenth * 100_000, &bounds());
        }
        assert!(head.moments.len() <= MOMENTS_MAX);
        let settled = head.settled(1_000_000_000, &bounds()).unwrap();
        assert!((9_900..=9_920).contains(&settled), "{settled}");
    }

    #[test]
    fn a_head_is_too_old_by_its_own_time_alone_and_only_where_that_is_judged() {
        let seen = |age_secs| Seen { number: 1, age_secs };
        assert_eq!(bounds().too_old(seen(Some(600))), None);
        assert_eq!(bounds().too_old(seen(Some(601))), Some(601));
        assert_eq!(bounds().too_old(seen(None)), None);
        let lenient = HeadBounds::new(Duration::ZERO, None);
        assert_eq!((lenient.too_old(seen(Some(u64::MAX))), lenient.judge_age()), (None, false));
    }

    #[test]
    fn a_head_counts_for_three_looks() {
        let head = at(7);
        assert_eq!((head.recent(HEARD_MICROS_MAX), head.recent(HEARD_MICROS_MAX + 1)), (Some(7), None));
        assert_eq!(Head::default().recent(0), None);
    }

    #[test]
    fn among_three_others_the_highest_alone_says_nothing() {
        assert_eq!(reference(vec![]), None);
        assert_eq!(reference(vec![9]), Some(9));
        assert_eq!(reference(vec![1, 9]), Some(9));
        assert_eq!(reference(vec![u64::MAX, 5, 6]), Some(6));
    }

    #[test]
    fn a_leap_is_not_believed_on_one_nodes_word() {
        let mut head = at(100);
        assert_eq!(head.leap(&[90]), None);
        head.told(90 + LEAP_BLOCKS_MAX, 1, &bounds());
        assert_eq!(head.leap(&[90]), None, "so far is near enough");
        head.told(u64::MAX, 2, &bounds());
        assert_eq!(head.leap(&[90]), Some(90));
        assert_eq!(head.leap(&[]), None, "alone it is not judged");
        assert_eq!(head.leap(&[90]), Some(90), "and is not believed for that");
        assert_eq!(head.leap(&[u64::MAX - 1]), None, "but when another one says the same");
    }

    #[test]
    fn a_node_that_only_just_started_does_not_take_out_one_that_is_far() {
        for beginner in [0, 3, 5_000_000] {
            assert_eq!(at(20_000_000).leap(&[beginner]), None);
        }
        assert_eq!(at(20_000_000).leap(&[0, 0]), None);
        assert_eq!(at(20_000_000).leap(&[3_000_000, 5_000_000]), None);
        assert_eq!(
            at(20_000_000).leap(&[3_000_000, 3_000_009]),
            Some(3_000_009),
            "two that agree outvote it"
        );
    }
}
