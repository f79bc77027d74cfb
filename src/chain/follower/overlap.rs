//! How far back logs are asked for once more, and when those of a head that stays are. Pure: the time is told.
//!
//! Behind one URL there may be many nodes, and the one that is asked for logs may lag behind the one that told the head.
//! What it left out is found by a later poll that asks for the same block again. How long a node lags is a matter of
//! time; so each block's logs are read once when it is seen, and once or more when it was seen a while ago.

use std::collections::VecDeque;

/// How many blocks are asked for once more where anything is, at least.
pub(super) const BLOCKS_MIN: u64 = 16;

/// How many are at most, however quick the chain is.
pub(super) const BLOCKS_MAX: u64 = 512;

/// For how long after it was seen a block is asked for once more, in microseconds.
pub(super) const LAG_MICROS: u64 = 15_000_000;

/// Of heads that follow each other more quickly than this the first is remembered, in microseconds. It bounds how many
/// are: those of [`LAG_MICROS`] and one before.
const GRAIN_MICROS: u64 = 250_000;

/// For how long a head has stayed when its logs are asked for once more, in microseconds: at the next poll, and when
/// slower nodes have it too. It is three calls for a block, however long it stays.
const LOOKS_MICROS: [u64; 3] = [1, 4_000_000, LAG_MICROS];

/// Which heads were seen when.
#[derive(Debug)]
pub(super) struct Overlap {
    /// By rising number and time. The first was seen long enough before the last reading, or is the beginning.
    heads: VecDeque<Sighting>,
    /// The last head, remembered above or not.
    last: Sighting,
    /// When the poll began that read logs last.
    read_micros: u64,
}

/// A head, and when the poll began that told it first.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    number: u64,
    micros: u64,
}

impl Overlap {
    /// What is followed begins with this head: nothing before it is of concern.
    pub(super) fn new(head: u64, now_micros: u64) -> Self {
        let last = Sighting { number: head, micros: now_micros };
        Self { heads: VecDeque::from([last]), last, read_micros: now_micros }
    }

    /// The first block to ask for: whatever was not read yet when it had been seen for [`LAG_MICROS`]. What goes beyond
    /// [`BLOCKS_MIN`] is asked for only as far as it is not below `cheap_from`.
    pub(super) fn first(&self, cheap_from: u64) -> u64 {
        let back = |blocks| self.last.number.saturating_add(1).saturating_sub(blocks);
        let by_time = self.heads.front().map_or(0, |head| head.number.saturating_add(1));
        by_time.max(back(BLOCKS_MAX)).max(cheap_from).min(back(BLOCKS_MIN))
    }

    /// True when the logs of a head that stays are to be asked for once more.
    pub(super) fn is_due(&self, now_micros: u64) -> bool {
        let stayed = |until: u64| until.saturating_sub(self.last.micros);
        LOOKS_MICROS.iter().any(|look| stayed(self.read_micros) < *look && *look <= stayed(now_micros))
    }

    /// The logs up to this head were read by a poll that began then.
    pub(super) fn was_read(&mut self, head: u64, asked_micros: u64) {
        self.read_micros = asked_micros;
        if head > self.last.number {
            self.last = Sighting { number: head, micros: asked_micros };
            let before = self.heads.back().map_or(0, |head| head.micros);
            if asked_micros.saturating_sub(before) >= GRAIN_MICROS {
                self.heads.push_back(self.last);
            }
        }
        let is_old = |head: &Sighting| asked_micros.saturating_sub(head.micros) >= LAG_MICROS;
        while self.heads.get(1).is_some_and(is_old) {
            self.heads.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_MAX, BLOCKS_MIN, LAG_MICROS, LOOKS_MICROS, Overlap};

    const SECOND: u64 = 1_000_000;

    /// A chain that begins with block 1,000 at second 100 and has a block each `block_micros`, polled each second until
    /// `seconds` have passed.
    fn polled(block_micros: u64, seconds: u64) -> (Overlap, u64) {
        let mut overlap = Overlap::new(1_000, 100 * SECOND);
        let mut head = 1_000;
        for second in 1..=seconds {
            head = 1_000 + second * SECOND / block_micros;
            overlap.was_read(head, (100 + second) * SECOND);
        }
        (overlap, head)
    }

    #[test]
    fn a_quick_chain_is_read_again_for_15_seconds_and_a_slow_one_for_16_blocks() {
        for (block_micros, blocks) in [(12 * SECOND, 16), (2 * SECOND, 16), (SECOND, 16), (250_000, 15 * 4)] {
            let (overlap, head) = polled(block_micros, 300);
            assert_eq!(head + 1 - overlap.first(0), blocks, "{block_micros}");
        }
    }

    #[test]
    fn nothing_before_the_beginning_is_asked_for_by_time_and_never_more_than_512_blocks() {
        let (overlap, head) = polled(250_000, 10);
        assert_eq!((overlap.first(0), head), (1_001, 1_040));
        let (overlap, head) = polled(20_000, 300);
        assert_eq!(head + 1 - overlap.first(0), BLOCKS_MAX);
    }

    #[test]
    fn what_is_dear_is_not_asked_for_beyond_16_blocks() {
        let (overlap, head) = polled(250_000, 300);
        assert_eq!(overlap.first(head - 30), head - 30);
        assert_eq!(overlap.first(head - 59), head - 59);
        assert_eq!(overlap.first(0), head - 59);
        for cheap_from in [head - 15, head, head + 1] {
            assert_eq!(head + 1 - overlap.first(cheap_from), BLOCKS_MIN);
        }
    }

    #[test]
    fn after_a_silence_what_was_new_before_it_is_asked_for_once_more() {
        let (mut overlap, head) = polled(250_000, 300);
        // Nobody has read these since they were seen for 15 s.
        assert_eq!(overlap.first(0), head - 59);
        overlap.was_read(head + 1, 1_000 * SECOND);
        assert_eq!(overlap.first(0), head + 1 - 15);
    }

    #[test]
    fn a_head_that_stays_is_read_at_the_next_poll_and_twice_more_and_then_never() {
        for (poll_micros, expected) in [
            (SECOND, vec![1, 4, 15]),
            (50_000, vec![1, 80, 300]),
            (5 * SECOND, vec![1, 3]),
            (60 * SECOND, vec![1]),
        ] {
            let mut overlap = Overlap::new(10, SECOND);
            overlap.was_read(11, 2 * SECOND);
            let mut looks = Vec::new();
            for poll in 1..1_000 {
                let now = 2 * SECOND + poll * poll_micros;
                if overlap.is_due(now) {
                    looks.push(poll);
                    overlap.was_read(11, now);
                }
            }
            assert_eq!(looks, expected, "{poll_micros}");
        }
    }

    #[test]
    fn the_last_look_reads_everything_that_was_not_read_15_seconds_after_it_was_seen() {
        let (mut overlap, head) = polled(250_000, 300);
        let seen = 400 * SECOND;
        for look in LOOKS_MICROS {
            overlap.was_read(head, seen + look);
        }
        assert_eq!(overlap.first(0), head + 1 - BLOCKS_MIN, "all of it was");
        let (mut overlap, head) = polled(250_000, 300);
        overlap.was_read(head, seen + LAG_MICROS / 3);
        // What was seen within the 15 s before that look.
        assert_eq!(head - overlap.first(0) + 1, 10 * 4);
    }

    #[test]
    fn what_is_remembered_is_bounded_however_often_it_is_polled() {
        let mut overlap = Overlap::new(0, 0);
        for poll in 1..20_000 {
            overlap.was_read(poll, poll * 10_000);
            assert!(overlap.len() <= 62, "{}", overlap.len());
        }
        // Fewer are remembered than were seen: none is asked for less long.
        let blocks = 19_999 + 1 - overlap.first(0);
        assert_eq!(blocks, BLOCKS_MAX);
        let mut overlap = Overlap::new(0, 0);
        for poll in 1..20_000 {
            overlap.was_read(poll, poll * 100_000);
        }
        let blocks = 19_999 + 1 - overlap.first(0);
        assert!((150..=153).contains(&blocks), "{blocks}");
    }
}
