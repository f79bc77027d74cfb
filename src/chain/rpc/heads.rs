//! What a node says of its latest block, and which of what the others say it is compared with: as values. Must not know
//! how it becomes known; time is an argument.
//!
//! One node that makes up a head must not take the others out, so a head counts only while its node is in use and was
//! heard a moment ago, and a leap is not believed on one node's word.

/// A node that is more than so many blocks behind another one is not used.
pub(super) const BLOCKS_BEHIND_MAX: u64 = 32;

/// No chain grows by so many blocks between two looks. A head that is further above the others is made up.
pub(super) const LEAP_BLOCKS_MAX: u64 = 1_000_000;

/// For how long a head counts after it was told, in microseconds: three looks.
pub(super) const HEARD_MICROS_MAX: u64 = 15_000_000;

/// With so many other heads known, the highest needs a second one near it.
const WITNESSES_MIN: usize = 3;

/// What one node said of its latest block.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// The latest block, as it was told last.
    number: Option<u64>,
    told_at: Option<u64>,
    /// The last one that was no leap, or that another node confirmed.
    steady: Option<u64>,
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

    /// The node told its latest block.
    pub(super) const fn told(&mut self, number: u64, now_micros: u64) {
        self.number = Some(number);
        self.told_at = Some(now_micros);
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
    use super::{HEARD_MICROS_MAX, Head, LEAP_BLOCKS_MAX, reference};

    fn at(number: u64) -> Head {
        let mut head = Head::default();
        head.told(number, 0);
        head
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
        head.told(90 + LEAP_BLOCKS_MAX, 1);
        assert_eq!(head.leap(&[90]), None, "so far is near enough");
        head.told(u64::MAX, 2);
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
