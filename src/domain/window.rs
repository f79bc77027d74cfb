//! How much may pass in how long (contract, "Limits"), and the exact sliding window that counts it (contract, "Verification rate
//! limit"): a log of accepted times.
//!
//! A request is admitted when fewer than N were accepted within the last window, N being the limit of that moment.
//! Refused requests write nothing. So at most N pass in any window, whatever happens to the limit in between.

use std::collections::VecDeque;

/// At most `limit` accepted requests in any span of `window_micros`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The most accepted requests in one window; at least 1.
    pub limit: u32,
    /// The window's width in microseconds; at most [`WINDOW_MICROS_MAX`].
    pub window_micros: u64,
}

/// One minute, the window of verifications.
pub const MINUTE_MICROS: u64 = 60_000_000;

/// One hour, the window of key management.
pub const HOUR_MICROS: u64 = 3_600_000_000;

/// The widest window: gaps between accepted requests are kept in 32 bits.
pub const WINDOW_MICROS_MAX: u64 = u32::MAX as u64;

const _: () = assert!(HOUR_MICROS <= WINDOW_MICROS_MAX);

impl Quota {
    /// So many in any minute.
    pub const fn per_minute(limit: u32) -> Self {
        Self { limit, window_micros: MINUTE_MICROS }
    }

    /// So many in any hour.
    pub const fn per_hour(limit: u32) -> Self {
        Self { limit, window_micros: HOUR_MICROS }
    }
}

/// What a request under a quota has left, for the rate-limit headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The quota's limit.
    pub limit: u32,
    /// How many more would be accepted now.
    pub remaining: u32,
}

/// Whole seconds after which a refused request would be accepted, if nobody else used the budget: never 0, and rounded
/// up, so that waiting exactly this long is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(u64);

impl RetryAfter {
    /// Rounds up to whole seconds.
    pub const fn from_micros(micros: u64) -> Self {
        let seconds = micros.div_ceil(1_000_000);
        Self(if seconds == 0 { 1 } else { seconds })
    }

    /// The seconds to wait.
    pub const fn seconds(self) -> u64 {
        self.0
    }
}

/// What the window says to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted and recorded; so many more would be admitted now.
    Admitted {
        /// How many more.
        remaining: u32,
    },
    /// Refused, nothing recorded; the request would be admitted after so long.
    Limited {
        /// Microseconds from now; at least 1.
        retry_after_micros: u64,
    },
}

/// The accepted times of one agent (or client) that may still matter.
///
/// Times are kept as the gaps between them, in 32 bits: a full window of tier 4 takes 11 KiB. That is exact, because
/// everything older than a window is dropped before anything is added, so that no gap exceeds a window.
#[derive(Debug, Default, Clone)]
pub struct Window {
    /// The oldest and the newest accepted time in microseconds; nothing while the log is empty.
    ends: Option<(u64, u64)>,
    /// Microseconds from each accepted time to the next.
    gaps: VecDeque<u32>,
}

impl Window {
    /// Decides about one request at `now_micros`, and records it when it is admitted.
    ///
    /// A `now_micros` before the newest accepted time counts as that time.
    pub fn admit(&mut self, quota: Quota, now_micros: u64) -> Verdict {
        let now = self.clamp(now_micros);
        self.expire(quota.window_micros, now);
        let accepted = self.len();
        if accepted >= quota.limit {
            return Verdict::Limited { retry_after_micros: self.wait(quota, now) };
        }
        self.push(quota.limit, now);
        Verdict::Admitted { remaining: quota.limit - accepted - 1 }
    }

    /// How many more would be admitted at `now_micros`; records nothing.
    pub fn remaining(&self, quota: Quota, now_micros: u64) -> u32 {
        let now = self.clamp(now_micros);
        quota.limit.saturating_sub(self.live(quota.window_micros, now))
    }

    /// What [`Self::admit`] would say at `now_micros`; records nothing.
    pub fn peek(&self, quota: Quota, now_micros: u64) -> Verdict {
        match self.remaining(quota, now_micros) {
            0 => Verdict::Limited { retry_after_micros: self.wait(quota, self.clamp(now_micros)) },
            free => Verdict::Admitted { remaining: free - 1 },
        }
    }

    /// Takes back one request that was admitted at `at_micros`, because it came to nothing.
    pub fn withdraw(&mut self, at_micros: u64) {
        let mut times = self.times();
        if let Some(place) = times.iter().rposition(|time| *time == at_micros) {
            times.remove(place);
            *self = Self::default();
            for time in times {
                self.push(u32::MAX, time);
            }
        }
    }

    /// True when nothing that was accepted lies within the last window.
    pub fn is_idle(&self, window_micros: u64, now_micros: u64) -> bool {
        self.ends.is_none_or(|(_, newest)| now_micros.saturating_sub(newest) >= window_micros)
    }

    /// The time that [`Self::admit`] would record at `now_micros`.
    pub fn clamp(&self, now_micros: u64) -> u64 {
        self.ends.map_or(now_micros, |(_, newest)| now_micros.max(newest))
    }

    fn len(&self) -> u32 {
        let times = self.gaps.len() + usize::from(self.ends.is_some());
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Drops every accepted time that is a window old or older.
    fn expire(&mut self, window_micros: u64, now: u64) {
        while let Some((oldest, newest)) = self.ends {
            if now - oldest < window_micros {
                return;
            }
            match self.gaps.pop_front() {
                Some(gap) => self.ends = Some((oldest + u64::from(gap), newest)),
                None => self.ends = None,
            }
        }
        // An empty log keeps no buffer: an agent that is quiet for a window costs nothing but its slot.
        self.gaps = VecDeque::new();
    }

    /// How many accepted times are younger than a window.
    fn live(&self, window_micros: u64, now: u64) -> u32 {
        let Some((mut time, _)) = self.ends else { return 0 };
        let mut expired = u32::from(now - time >= window_micros);
        for gap in &self.gaps {
            time += u64::from(*gap);
            if now - time < window_micros {
                break;
            }
            expired += 1;
        }
        self.len() - expired
    }

    /// How long until fewer than the limit are younger than a window: until the limit-th most recent is a window old.
    fn wait(&self, quota: Quota, now: u64) -> u64 {
        let Some((oldest, newest)) = self.ends else { return 1 };
        let skipped = self.len().saturating_sub(quota.limit) as usize;
        let blocking = if skipped == 0 {
            oldest
        } else if skipped < self.gaps.len() / 2 {
            oldest + self.gaps.iter().take(skipped).map(|gap| u64::from(*gap)).sum::<u64>()
        } else {
            newest - self.gaps.iter().skip(skipped).map(|gap| u64::from(*gap)).sum::<u64>()
        };
        (blocking + quota.window_micros).saturating_sub(now).max(1)
    }

    fn push(&mut self, limit: u32, now: u64) {
        let Some((oldest, newest)) = self.ends else {
            self.ends = Some((now, now));
            return;
        };
        // Grows by doubling but never beyond what the limit needs, so that a full log has no slack.
        if self.gaps.len() == self.gaps.capacity() {
            let wanted = (self.gaps.len() * 2).max(4).min((limit as usize).max(self.gaps.len() + 1));
            self.gaps.reserve_exact(wanted - self.gaps.len());
        }
        self.gaps.push_back(u32::try_from(now - newest).unwrap_or(u32::MAX));
        self.ends = Some((oldest, now));
    }

    fn times(&self) -> Vec<u64> {
        let Some((oldest, _)) = self.ends else { return Vec::new() };
        let later = self.gaps.iter().scan(oldest, |time, gap| {
            *time += u64::from(*gap);
            Some(*time)
        });
        std::iter::once(oldest).chain(later).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
