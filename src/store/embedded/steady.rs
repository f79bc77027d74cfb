//! The wall clock as far as forgetting may trust it. Signatures that may carry a forgotten nonce are refused for good, so
//! a clock that runs years ahead for an hour must not forget any.

/// A clock that is ahead for longer than this is believed, in seconds; for longer where nonces are kept for longer.
const SPAN_SECS_MIN: u64 = 86_400;

/// How many parts a span has: an hour each.
const PARTS: usize = 24;

/// The wall clock without what it has gained on the monotonic one within the last span. A step back is followed at once, and
/// in up to two parts of a span forgotten as soon as it is over.
#[derive(Debug)]
pub(super) struct SteadyWall {
    part_micros: u64,
    part_ends_micros: u64,
    /// By how many seconds the wall clock led the monotonic one, at least: in each part of the last span and a little more.
    least_lead_secs: [u64; PARTS + 3],
}

impl SteadyWall {
    pub(super) fn new(retention_secs: u64, wall_secs: u64, now_micros: u64) -> Self {
        let part_micros = retention_secs.max(SPAN_SECS_MIN).saturating_mul(1_000_000) / PARTS as u64;
        let least_lead_secs = [lead_secs(wall_secs, now_micros); PARTS + 3];
        Self { part_micros, part_ends_micros: now_micros.saturating_add(part_micros), least_lead_secs }
    }

    /// Looks at both clocks and says what time it is at least.
    pub(super) fn secs(&mut self, wall_secs: u64, now_micros: u64) -> u64 {
        let lead = lead_secs(wall_secs, now_micros);
        if now_micros >= self.part_ends_micros {
            self.least_lead_secs.rotate_right(1);
            self.least_lead_secs[0] = lead;
            self.part_ends_micros = now_micros.saturating_add(self.part_micros);
        }
        self.least_lead_secs[0] = self.least_lead_secs[0].min(lead);
        let mut leads = self.least_lead_secs;
        let (_, third, _) = leads.select_nth_unstable(2);
        lead.min(*third).saturating_add(now_micros / 1_000_000)
    }
}

fn lead_secs(wall_secs: u64, now_micros: u64) -> u64 {
    wall_secs.saturating_sub(now_micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::SteadyWall;

    const SPAN_SECS: u64 = 86_400;

    fn clock() -> SteadyWall {
        SteadyWall::new(900, 1_000, 0)
    }

    #[test]
    fn a_steady_clock_is_believed() {
        let mut steady = clock();
        for passed in (0..1_000).step_by(7) {
            assert_eq!(steady.secs(1_000 + passed, passed * 1_000_000), 1_000 + passed);
        }
    }

    #[test]
    fn a_step_forward_is_believed_only_after_a_whole_span() {
        let mut steady = clock();
        for passed in 0..=SPAN_SECS {
            assert_eq!(steady.secs(9_000 + passed, passed * 1_000_000), 1_000 + passed);
        }
        for passed in SPAN_SECS..2 * SPAN_SECS {
            steady.secs(9_000 + passed, passed * 1_000_000);
        }
        let passed = 2 * SPAN_SECS;
        assert_eq!(steady.secs(9_000 + passed, passed * 1_000_000), 9_000 + passed);
    }

    #[test]
    fn a_clock_that_was_behind_for_a_moment_is_believed_again_at_once() {
        let mut steady = clock();
        for passed in 0..2 * SPAN_SECS {
            let behind = if passed % SPAN_SECS == 40_000 { 900 } else { 0 };
            let shown = 1_000 + passed - behind;
            assert_eq!(steady.secs(shown, passed * 1_000_000), shown, "after {passed} s");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_now_and_then_is_never_believed() {
        let mut steady = clock();
        for passed in 0..4 * SPAN_SECS {
            let ahead = if passed % 600 < 500 { 1_000_000 } else { 0 };
            assert_eq!(steady.secs(1_000 + passed + ahead, passed * 1_000_000), 1_000 + passed);
        }
    }

    #[test]
    fn a_step_back_is_believed_at_once() {
        assert_eq!(clock().secs(500, 1_000_000), 500);
    }
}
