//! The wall clock as far as forgetting may trust it. Signatures that may carry a forgotten nonce are refused for good, so
//! a clock that runs years ahead for an hour must not forget any.

/// A clock that is ahead for so long is believed, in seconds; for longer where nonces are kept for longer.
const SPAN_SECS_MIN: u64 = 86_400;

/// The wall clock without what it has gained on the monotonic one within the last span or two. A step back is followed
/// at once.
#[derive(Debug)]
pub(super) struct SteadyWall {
    span_micros: u64,
    span_ends_micros: u64,
    /// By how many seconds the wall clock led the monotonic one, at least: in this span and in the one before.
    least_lead_secs: [u64; 2],
}

impl SteadyWall {
    pub(super) fn new(retention_secs: u64, wall_secs: u64, now_micros: u64) -> Self {
        let span_micros = retention_secs.max(SPAN_SECS_MIN).saturating_mul(1_000_000);
        let lead = lead_secs(wall_secs, now_micros);
        let span_ends_micros = now_micros.saturating_add(span_micros);
        Self { span_micros, span_ends_micros, least_lead_secs: [lead; 2] }
    }

    /// Looks at both clocks and says what time it is at least.
    pub(super) fn secs(&mut self, wall_secs: u64, now_micros: u64) -> u64 {
        let lead = lead_secs(wall_secs, now_micros);
        let [mut this, mut before] = self.least_lead_secs;
        if now_micros >= self.span_ends_micros {
            before = this;
            this = lead;
            self.span_ends_micros = now_micros.saturating_add(self.span_micros);
        }
        this = this.min(lead);
        self.least_lead_secs = [this, before];
        this.min(before).saturating_add(now_micros / 1_000_000)
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
        let passed = 2 * SPAN_SECS;
        assert_eq!(steady.secs(9_000 + passed, passed * 1_000_000), 9_000 + passed);
    }

    #[test]
    fn a_step_back_is_believed_at_once() {
        assert_eq!(clock().secs(500, 1_000_000), 500);
    }
}
