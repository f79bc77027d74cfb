//! Whether a node can be followed just now: what its blocks and its logs came to, as a value, with time as an argument.
//!
//! A node may answer calls and give no logs. It stays fit for reads then, and is only passed over as the one that is
//! followed, as long as there is another.

use crate::chain::rpc::breaker::{Class, pause_micros};

/// For how long a node is not followed that does not give logs at all, in microseconds.
const REFUSAL_MICROS: u64 = 60_000_000;

/// What following one node came to.
#[derive(Debug, Default)]
pub(super) struct Following {
    blocks: Lapse,
    logs: Lapse,
}

/// Failures in a row of one class of methods.
#[derive(Debug, Default)]
struct Lapse {
    failures: u32,
    until_micros: u64,
}

impl Following {
    /// True while another node is to be followed, if there is one.
    pub(super) const fn is_paused(&self, now_micros: u64) -> bool {
        now_micros < self.blocks.until_micros || now_micros < self.logs.until_micros
    }

    /// The node answered.
    pub(super) fn answered(&mut self, class: Class) {
        if let Some(lapse) = self.lapse(class) {
            *lapse = Lapse::default();
        }
    }

    /// The node failed: it is passed over for as long as a breaker would be open.
    pub(super) fn failed(&mut self, class: Class, now_micros: u64, grain: u64) {
        if let Some(lapse) = self.lapse(class) {
            lapse.until_micros = now_micros.saturating_add(pause_micros(lapse.failures, grain));
            lapse.failures = lapse.failures.saturating_add(1);
        }
    }

    /// The node gives no logs at all.
    pub(super) const fn refused_logs(&mut self, now_micros: u64) {
        self.logs.until_micros = now_micros.saturating_add(REFUSAL_MICROS);
    }

    const fn lapse(&mut self, class: Class) -> Option<&mut Lapse> {
        match class {
            Class::Calls => None,
            Class::Blocks => Some(&mut self.blocks),
            Class::Logs => Some(&mut self.logs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Following, REFUSAL_MICROS};
    use crate::chain::rpc::breaker::Class;

    #[test]
    fn an_answer_of_one_class_does_not_clear_the_failure_of_another() {
        let mut following = Following::default();
        assert!(!following.is_paused(0));
        following.failed(Class::Logs, 0, 0);
        following.answered(Class::Blocks);
        following.answered(Class::Calls);
        assert!(following.is_paused(1));
        following.answered(Class::Logs);
        assert!(!following.is_paused(1));
    }

    #[test]
    fn failures_in_a_row_pause_for_longer_and_a_refusal_for_a_minute() {
        let mut following = Following::default();
        following.failed(Class::Blocks, 0, 0);
        assert!(following.is_paused(500_000) && !following.is_paused(1_250_000));
        for _ in 0..9 {
            following.failed(Class::Blocks, 0, 0);
        }
        assert!(following.is_paused(1_250_000) && !following.is_paused(2_500_000));
        let mut following = Following::default();
        following.refused_logs(0);
        assert!(following.is_paused(REFUSAL_MICROS - 1) && !following.is_paused(REFUSAL_MICROS));
    }
}
