//! Verdicts for operators: counters by `errorType` and tier, faults in the log, nothing of secrets.
//!
//! Every listener has them of its own, and counts the same things in the same way.

use std::sync::Arc;

use prometheus::IntCounter;

use crate::domain::denial::{About, Denial};
use crate::pipeline::permit::Permit;
use crate::pipeline::refusal::Refusal;
use crate::ports::clock::Clock;
use crate::telemetry::faults::FaultLog;
use crate::telemetry::metrics::Metrics;
use crate::wire::errors::ErrorCause;

/// The tiers as labels, by their numbers.
const TIERS: [&str; 5] = ["0", "1", "2", "3", "4"];

/// Counts and logs the verdicts of one listener.
pub(crate) struct Verdicts {
    listener: &'static str,
    metrics: Metrics,
    admitted: [IntCounter; TIERS.len()],
    chain_faults: FaultLog,
    store_faults: FaultLog,
    entropy_faults: FaultLog,
    audit_faults: FaultLog,
}

/// The agent, tier and limit that an error is about, as far as it names them.
pub(crate) fn about(cause: &ErrorCause) -> About {
    if let ErrorCause::Refused(Refusal::Denied(denial)) = cause {
        return denial.about();
    }
    if let ErrorCause::TooManyInFlight { agent, tier, .. } = cause {
        return About { agent: Some(*agent), tier: Some(*tier), limit: None };
    }
    About::default()
}

impl Verdicts {
    /// For the listener of this name.
    pub(crate) fn new(listener: &'static str, metrics: &Metrics, clock: &Arc<dyn Clock>) -> Self {
        let admitted = TIERS.map(|tier| metrics.limiter_decisions.with_label_values(&[tier, "admitted"]));
        Self {
            listener,
            admitted,
            chain_faults: FaultLog::new("chain", Arc::clone(clock)),
            store_faults: FaultLog::new("store", Arc::clone(clock)),
            entropy_faults: FaultLog::new("entropy", Arc::clone(clock)),
            audit_faults: FaultLog::new("audit", Arc::clone(clock)),
            metrics: metrics.clone(),
        }
    }

    /// A request was answered with an error.
    pub(crate) fn refused(&self, cause: &ErrorCause, error_type: &str) {
        self.metrics.denials.with_label_values(&[self.listener, error_type]).inc();
        if let ErrorCause::Refused(refusal) = cause {
            match refusal {
                Refusal::Chain(fault) | Refusal::Unverified(fault) => self.chain_faults.note(fault),
                Refusal::Store(fault) => self.store_faults.note(fault),
                Refusal::Entropy(fault) => self.entropy_faults.note(fault),
                Refusal::Unrecorded(fault) => self.audit_faults.note(fault),
                Refusal::Denied(_) => {}
            }
        }
    }

    /// The tier gate or the limiter has decided about a verification.
    pub(crate) fn decided(&self, outcome: Result<&Permit, &Refusal>) {
        let (tier, decision) = match outcome {
            Ok(permit) => {
                if let Some(counter) = self.admitted.get(usize::from(permit.tier().number())) {
                    counter.inc();
                }
                return;
            }
            Err(Refusal::Denied(Denial::RateLimited { tier: Some(tier), .. })) => (*tier, "limited"),
            Err(Refusal::Denied(Denial::TierBlocked { current, .. })) => (*current, "blocked"),
            Err(_) => return,
        };
        let tier = TIERS.get(usize::from(tier.number())).copied().unwrap_or_default();
        self.metrics.limiter_decisions.with_label_values(&[tier, decision]).inc();
    }
}
