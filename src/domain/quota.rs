//! How much may pass in how long (contract, "Limits").

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
