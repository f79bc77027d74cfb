//! How old or how far ahead a signature's timestamp may be (contract, "Authentication", rule 2).

/// Whole seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// The acceptable window around now. Both edges belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How many seconds a timestamp may lie behind.
    pub max_age_secs: u64,
    /// How many seconds a timestamp may lie ahead, for clocks that differ.
    pub max_ahead_secs: u64,
}

impl Freshness {
    /// True when a signature made at `signed_at` may be used at `now`.
    pub const fn accepts(self, signed_at: UnixSeconds, now: UnixSeconds) -> bool {
        if signed_at.0 > now.0 {
            signed_at.0 - now.0 <= self.max_ahead_secs
        } else {
            now.0 - signed_at.0 <= self.max_age_secs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Freshness, UnixSeconds};

    const WINDOW: Freshness = Freshness { max_age_secs: 300, max_ahead_secs: 60 };

    fn accepts(signed_at: u64) -> bool {
        WINDOW.accepts(UnixSeconds(signed_at), UnixSeconds(10_000))
    }

    #[test]
    fn a_timestamp_is_accepted_up_to_the_edge_and_not_beyond() {
        assert!(accepts(9_700) && !accepts(9_699), "300 s old is the last");
        assert!(accepts(10_060) && !accepts(10_061), "60 s ahead is the last");
    }

    #[test]
    fn absurd_timestamps_are_refused_without_overflow() {
        assert!(!accepts(0) && !accepts(u64::MAX));
    }
}
