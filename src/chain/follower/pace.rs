//! When the next poll is due: shortly before the next block where blocks come at a steady pace, then each `chain.poll_interval` until
//! it is there. No pause is longer than `chain.max_staleness` allows. Pure.

use std::{collections::VecDeque, time::Duration};

use crate::chain::block::Block;

/// So many blocks tell a chain's pace.
const BLOCKS: usize = 5;

/// Blocks' times are in whole seconds.
const SECOND_MILLIS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct PollSchedule {
    interval_millis: u64,
    /// The longest pause.
    idle_millis: u64,
    /// The latest heads: number, time, and how much later the poll began that saw it, in milliseconds. Our clock is monotonic and
    /// begins elsewhere.
    heads: VecDeque<(u64, u64, i64)>,
}

impl PollSchedule {
    pub(super) fn new(interval: Duration, max_staleness: Duration) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        // A poll has the rest of the time to be answered in.
        let idle_millis = (millis(max_staleness) * 8 / 10).max(millis(interval));
        Self { interval_millis: millis(interval), idle_millis, heads: VecDeque::new() }
    }

    /// A poll that began then was answered with this head. Noted by its end, each block would seem later than the one before.
    pub(super) fn saw(&mut self, head: &Block, asked_millis: u64) {
        if self.heads.back().is_some_and(|(number, ..)| *number == head.number) {
            return;
        }
        let made = head.timestamp.saturating_mul(1_000);
        self.heads.push_back((head.number, made, asked_millis.wrapping_sub(made).cast_signed()));
        if self.heads.len() > BLOCKS {
            self.heads.pop_front();
        }
    }

    /// How long to wait after a poll that was answered.
    pub(super) fn pause(&self, now_millis: u64) -> Duration {
        let until_due = self.until_due(now_millis).unwrap_or_default();
        // Equal parts of this time, none of them longer than the longest pause.
        let parts = until_due.div_ceil(self.idle_millis.max(1)).max(1);
        Duration::from_millis(until_due.div_ceil(parts).max(self.interval_millis))
    }

    /// How long it is until a poll is due before the next block, where blocks come at a steady pace.
    fn until_due(&self, now_millis: u64) -> Option<u64> {
        let pairs = self.heads.iter().zip(self.heads.iter().skip(1));
        let gaps = pairs.map(|((before, earlier, _), (number, later, _))| {
            later.saturating_sub(*earlier) / number.saturating_sub(*before).max(1)
        });
        let gaps: Vec<u64> = gaps.collect();
        let block_millis = *gaps.iter().min().filter(|_| self.heads.len() == BLOCKS)?;
        if gaps.iter().any(|gap| gap - block_millis > SECOND_MILLIS) {
            return None;
        }
        // Polls that begin only when a block is due never see one that comes sooner.
        let early_millis = self.interval_millis.max(SECOND_MILLIS);
        let lag = self.heads.iter().map(|(.., lag)| *lag).min()?;
        let due = (self.heads.back()?.1 + block_millis).saturating_add_signed(lag);
        due.checked_sub(now_millis + early_millis)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use alloy::primitives::B256;

    use super::PollSchedule;
    use crate::chain::block::Block;

    /// How many polls there are in a minute of a chain whose blocks are at the node some time after they were made, and how late
    /// a block is seen at most after that, in milliseconds, where a poll takes so long.
    fn run(
        block_millis: u64,
        interval_millis: u64,
        poll_millis: u64,
        delay: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        const MINUTES: u64 = 60;
        /// The chain's time where ours begins.
        const BEGIN_MILLIS: u64 = 1_000_000_000;
        let staleness = Duration::from_secs(5).max(Duration::from_millis(2 * interval_millis));
        let mut pace = PollSchedule::new(Duration::from_millis(interval_millis), staleness);
        let arrives = |number: u64| BEGIN_MILLIS + number * block_millis + delay(number);
        let (mut now, mut polls, mut number, mut latest) = (arrives(0), 0, 0, 0);
        while now < BEGIN_MILLIS + MINUTES * 60_000 {
            polls += 1;
            // Its answer is on the way for half of the time.
            let (asked, answered) = (now, now + poll_millis / 2);
            now += poll_millis;
            while arrives(number + 1) <= answered {
                number += 1;
                latest = latest.max(now - arrives(number));
            }
            let timestamp = (BEGIN_MILLIS + number * block_millis) / 1_000;
            let head = Block { number, hash: B256::ZERO, parent: B256::ZERO, timestamp };
            pace.saw(&head, asked - BEGIN_MILLIS);
            // A timer rings late.
            now += u64::try_from(pace.pause(now - BEGIN_MILLIS).as_millis()).unwrap() + polls % 3;
        }
        (polls / MINUTES, latest)
    }

    #[test]
    fn a_block_is_seen_within_two_intervals_and_the_time_of_its_poll() {
        for block in [400, 1_000, 2_000, 2_500, 3_000, 6_300, 11_900, 12_000, 60_000] {
            for (interval, poll) in
                [(250, 20), (250, 600), (1_000, 0), (1_000, 200), (1_000, 1_500), (3_000, 200)]
            {
                for jitter in [0, 2_000.min(block / 4)] {
                    let (_, latest) =
                        run(block, interval, poll, |number| 800 + number * 7_919 % (jitter + 1));
                    let is_soon = latest <= 2 * interval + poll + poll / 2;
                    assert!(is_soon, "{latest} ms late: {block} {interval} {poll} {jitter}");
                }
            }
        }
    }

    #[test]
    fn a_chain_of_12_s_is_polled_at_most_24_times_a_minute() {
        for (poll, jitter) in [(0, 0), (0, 700), (200, 300), (600, 700)] {
            let (polls, _) = run(12_000, 1_000, poll, |number| 800 + number * 7_919 % (jitter + 1));
            assert!((18..24).contains(&polls), "{polls} a minute, {poll} {jitter}");
        }
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
