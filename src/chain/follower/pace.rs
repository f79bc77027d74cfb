//! When the next poll is due: after the chain's own block time where that is steady, bounded by `chain.poll_interval` below and by what
//! `chain.max_staleness` allows above. Pure.

use std::{collections::VecDeque, time::Duration};

use crate::chain::block::Block;

/// So many blocks tell a chain's pace.
const BLOCKS: usize = 5;

/// Chains with shorter block times, and those that make blocks on demand, are polled each interval.
const BLOCK_MILLIS_MIN: u64 = 2_000;

/// Blocks' times are in whole seconds.
const SECOND_MILLIS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct PollSchedule {
    interval_millis: u64,
    /// The longest pause.
    idle_millis: u64,
    /// The latest heads: number, time, and how long after that it was seen by our clock, which may be behind, in milliseconds.
    heads: VecDeque<(u64, u64, i64)>,
}

impl PollSchedule {
    pub(super) fn new(interval: Duration, max_staleness: Duration) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        // A poll has the rest of the time to be answered in.
        let idle_millis = (millis(max_staleness) * 8 / 10).max(millis(interval));
        Self { interval_millis: millis(interval), idle_millis, heads: VecDeque::new() }
    }

    /// A poll was answered with this head.
    pub(super) fn saw(&mut self, head: &Block, unix_millis: u64) {
        if self.heads.back().is_some_and(|(number, ..)| *number == head.number) {
            return;
        }
        let made = head.timestamp.saturating_mul(1_000);
        self.heads.push_back((head.number, made, unix_millis.wrapping_sub(made).cast_signed()));
        if self.heads.len() > BLOCKS {
            self.heads.pop_front();
        }
    }

    /// How long to wait after a poll that was answered.
    pub(super) fn pause(&self, unix_millis: u64) -> Duration {
        let millis = self.until_due(unix_millis).map_or(self.interval_millis, |until_due| {
            // Equal parts of this time, none of them longer than the longest pause.
            let parts = until_due.div_ceil(self.idle_millis.max(1)).max(1);
            until_due.div_ceil(parts).max(self.interval_millis)
        });
        Duration::from_millis(millis)
    }

    /// How long it is until the next block, where the time between two is long and known.
    fn until_due(&self, unix_millis: u64) -> Option<u64> {
        let pairs = self.heads.iter().zip(self.heads.iter().skip(1));
        let gaps = pairs.map(|((before, earlier, _), (number, later, _))| {
            later.saturating_sub(*earlier) / number.saturating_sub(*before).max(1)
        });
        let gaps: Vec<u64> = gaps.collect();
        let block_millis = *gaps.iter().min().filter(|_| self.heads.len() == BLOCKS)?;
        let is_steady = gaps.iter().all(|gap| gap - block_millis <= SECOND_MILLIS);
        if !is_steady || block_millis < BLOCK_MILLIS_MIN.max(self.interval_millis) {
            return None;
        }
        // Blocks come that long after their own time at least.
        let lag = self.heads.iter().map(|(.., lag)| *lag).min()?;
        let due = (self.heads.back()?.1 + block_millis).saturating_add_signed(lag);
        // One that is late may come at any time. After a step of our clock it seems to be further away than it is.
        due.checked_sub(unix_millis).map(|until_due| until_due.min(block_millis))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use alloy::primitives::B256;

    use super::PollSchedule;
    use crate::chain::block::Block;

    /// How many polls there are in ten minutes of a chain whose blocks are seen some time after they were made, and how
    /// late a block is seen at most, in milliseconds, where our clock is so far behind theirs.
    fn run(
        block_secs: u64,
        interval_millis: u64,
        behind_millis: u64,
        delay: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let staleness = Duration::from_secs(5).max(Duration::from_millis(2 * interval_millis));
        let mut pace = PollSchedule::new(Duration::from_millis(interval_millis), staleness);
        let (begin, end) = (1_000_000_000_u64, 1_000_600_000_u64);
        let arrives = |number: u64| begin + number * block_secs * 1_000 + delay(number);
        let (mut now, mut polls, mut seen, mut latest) = (begin, 0, 0, 0);
        while now < end {
            polls += 1;
            let number = (0..).take_while(|number| arrives(*number) <= now).last().unwrap_or(0);
            if number > seen && now > begin + 120_000 {
                latest = latest.max(now - arrives(number));
            }
            seen = number;
            let timestamp = (begin + number * block_secs * 1_000) / 1_000;
            pace.saw(&Block { number, hash: B256::ZERO, parent: B256::ZERO, timestamp }, now - behind_millis);
            now += u64::try_from(pace.pause(now - behind_millis).as_millis()).unwrap();
        }
        (polls, latest)
    }

    #[test]
    fn a_chain_of_12_s_is_polled_at_most_25_times_a_minute_and_each_block_is_seen_within_an_interval() {
        for (jitter, behind) in
            [(0, 0), (300, 0), (700, 0), (0, 1_000), (300, 3_000), (700, 13_000), (700, 29_000)]
        {
            let (polls, latest) = run(12, 1_000, behind, |number| 800 + number * 7_919 % (jitter + 1));
            assert!(polls <= 250, "{polls} in ten minutes, jitter {jitter}, {behind} ms behind");
            assert!(latest <= 1_000 + jitter, "{latest} ms late, jitter {jitter}, {behind} ms behind");
        }
    }

    #[test]
    fn a_quick_chain_and_one_that_is_hardly_slower_than_the_interval_are_polled_each_interval() {
        for (block_secs, interval_millis) in [(1, 1_000), (1, 250), (2, 3_000)] {
            let (polls, _) = run(block_secs, interval_millis, 0, |_| 100);
            assert_eq!(polls, 600_000 / interval_millis, "{block_secs}");
        }
    }

    #[test]
    fn after_a_step_back_of_our_clock_a_poll_is_no_later_than_the_next_block() {
        let mut pace = PollSchedule::new(Duration::from_secs(1), Duration::from_secs(600));
        let mut now = 1_000_000_000;
        for number in 0..5 {
            now += 12_000;
            let block = Block { number, hash: B256::ZERO, parent: B256::ZERO, timestamp: now / 1_000 };
            pace.saw(&block, now);
        }
        assert_eq!(pace.pause(now - 60_000), Duration::from_secs(12));
    }

    #[test]
    fn a_chain_whose_blocks_come_at_irregular_times_is_polled_each_interval() {
        let mut pace = PollSchedule::new(Duration::from_secs(1), Duration::from_secs(600));
        let mut now = 1_000_000_000;
        for (number, gap_secs) in [12, 12, 12, 12, 12, 30, 12, 12, 12, 12, 12].into_iter().enumerate() {
            now += gap_secs * 1_000;
            let block =
                Block { number: number as u64, hash: B256::ZERO, parent: B256::ZERO, timestamp: now / 1_000 };
            pace.saw(&block, now);
            let is_steady = number == 4 || number >= 9;
            assert_eq!(pace.pause(now) > Duration::from_secs(2), is_steady, "block {number}");
        }
    }
}
