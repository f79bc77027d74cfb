//! How many blocks' logs one request asks for: as many as the node has shown to bear. Pure.

/// The most blocks that are asked for at once.
const BLOCKS_MAX: u64 = 1_000;

/// So many requests that went well in a row, and more blocks are tried again.
const CALM_REQUESTS: u32 = 16;

/// A number of blocks that is halved at once and grows slowly.
#[derive(Debug)]
pub(super) struct Span {
    blocks: u64,
    calm: u32,
}

impl Span {
    pub(super) const fn new() -> Self {
        Self { blocks: BLOCKS_MAX, calm: 0 }
    }

    /// The last block to ask for when `from` is the first and none above `end` are wanted.
    pub(super) fn last_of(&self, from: u64, end: u64) -> u64 {
        from.saturating_add(self.blocks - 1).min(end)
    }

    /// The first block of a request for as many blocks as can be, that ends with `end`.
    pub(super) const fn first_of(&self, end: u64) -> u64 {
        end.saturating_sub(self.blocks - 1)
    }

    /// A request from `from` up to `end` was too large. False when it was for one block only.
    pub(super) fn shrink(&mut self, from: u64, end: u64) -> bool {
        let asked = self.last_of(from, end) - from + 1;
        self.calm = 0;
        self.blocks = (asked / 2).max(1);
        asked > 1
    }

    /// A request for these blocks went well. Only one that went to the limit says anything about it.
    pub(super) fn was_read(&mut self, from: u64, to: u64) {
        if to - from + 1 < self.blocks {
            return;
        }
        self.calm += 1;
        if self.calm >= CALM_REQUESTS {
            self.calm = 0;
            self.blocks = (self.blocks + self.blocks.div_ceil(4)).min(BLOCKS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_MAX, Span};

    #[test]
    fn a_request_that_is_too_large_is_halved_down_to_one_block() {
        let mut span = Span::new();
        let mut asked = vec![span.last_of(1, u64::MAX)];
        while span.shrink(1, u64::MAX) {
            asked.push(span.last_of(1, u64::MAX));
        }
        assert_eq!(asked, [1_000, 500, 250, 125, 62, 31, 15, 7, 3, 1]);
        assert_eq!(span.last_of(7, 100), 7);
    }

    #[test]
    fn what_was_asked_is_halved_and_not_what_might_have_been() {
        let mut span = Span::new();
        assert!(span.shrink(1, 20));
        assert_eq!(span.last_of(1, 20), 10);
    }

    #[test]
    fn it_grows_slowly_and_only_by_requests_that_went_to_the_limit() {
        let mut span = Span::new();
        span.shrink(1, 40);
        for _ in 0..100 {
            span.was_read(1, 19);
        }
        assert_eq!(span.last_of(1, u64::MAX), 20);
        for _ in 0..15 {
            span.was_read(1, 20);
        }
        assert_eq!(span.last_of(1, u64::MAX), 20);
        span.was_read(1, 20);
        assert_eq!(span.last_of(1, u64::MAX), 25);
        for _ in 0..10_000 {
            let to = span.last_of(1, u64::MAX);
            span.was_read(1, to);
        }
        assert_eq!(span.last_of(1, u64::MAX), BLOCKS_MAX);
    }
}
