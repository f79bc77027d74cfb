//! The sliding window as a step function, for tests: the log of accepted times, and the rule as the documents state it.
//!
//! `Window` and the scripts in Redis are compared with it in every state that they can reach with small limits.

use crate::domain::{window::Quota, window::Verdict};

/// The state of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    /// Accepted times in microseconds, the oldest first.
    pub(crate) accepted: Vec<u64>,
}

impl Model {
    /// Decides about one request at `now_micros`. Returns the state afterwards, too.
    ///
    /// A time before the newest accepted one counts as that one. When it is more than a window before it, everything is
    /// first moved back until the newest is now.
    pub(crate) fn step(&self, quota: Quota, now_micros: u64) -> (Self, Verdict) {
        let Quota { limit, window_micros: width } = quota;
        let mut next = self.clone();
        let newest = self.accepted.last().copied().unwrap_or_default();
        let ahead = newest.saturating_sub(now_micros);
        if ahead > width {
            next.accepted.iter_mut().for_each(|time| *time -= ahead);
        }
        let counted = if ahead > width { now_micros } else { now_micros.max(newest) };
        let live: Vec<u64> = next.accepted.iter().copied().filter(|time| counted - time < width).collect();
        let count = u32::try_from(live.len()).unwrap();
        if count >= limit {
            let blocking = live[(count - limit) as usize];
            return (next, Verdict::Limited { retry_after_micros: blocking + width - now_micros });
        }
        next.accepted = [live, vec![counted]].concat();
        (next, Verdict::Admitted { remaining: limit - count - 1 })
    }

    /// The verdict on a request at `now_micros`, without its effect.
    pub(crate) fn peek(&self, quota: Quota, now_micros: u64) -> Verdict {
        self.step(quota, now_micros).1
    }

    /// True when forgetting everything changes no answer, from `now_micros` on.
    pub(crate) fn is_idle(&self, width_micros: u64, now_micros: u64) -> bool {
        self.accepted.last().is_none_or(|newest| now_micros >= newest + width_micros)
    }

    /// The same window, as if it were `to_micros` instead of `from_micros`.
    pub(crate) fn shifted(&self, from_micros: u64, to_micros: u64) -> Self {
        Self { accepted: self.accepted.iter().map(|time| time + to_micros - from_micros).collect() }
    }
}
