//! Which node is asked next: a circuit breaker per node, rate limits, and the tries of one read, as values. Time is an
//! argument.
//!
//! The configured order rules. A node that failed repeatedly is left out, and a real call probes it when its pause is over;
//! if that succeeds the node has its place again. A pause that a node asked for delays its next call and does not count as
//! a failure.

use std::sync::Arc;
use std::time::Duration;

use crate::chain::fault::ReadError;

/// So many failures in a row make a node unhealthy.
pub(super) const FAILURES_MAX: u32 = 5;

/// The first pause before a probe, in microseconds; each failed probe doubles it.
const PAUSE_MICROS: u64 = 500_000;

/// The longest pause before a probe.
const PAUSE_MICROS_MAX: u64 = 2_000_000;

/// The longest pause that a node may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The first pause between two tries of one read on the same node, in microseconds; each further one doubles it.
const BACKOFF_MICROS: u64 = 20_000;

/// The longest pause between two tries.
const BACKOFF_MICROS_MAX: u64 = 500_000;

/// Another node is asked rather than waiting longer than this for a preferred one, in microseconds.
const PATIENCE_MICROS: u64 = 100_000;

/// How often one read asks a node that fails. One that lags or limits rates is asked until the deadline.
const FAILED_TRIES_MAX: u32 = 6;

/// Whom an error speaks against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The node.
    Node,
    /// The node, if another one answers the same read: absurd agents make every node fail.
    Unclear,
    /// Nobody.
    Nobody,
}

/// Whom an error speaks against.
pub(super) const fn blame(error: &ReadError) -> Blame {
    use ReadError::{Busy, ChainsDiffer, Connection, HttpStatus, RateLimited, Unhealthy, Unintelligible};
    if matches!(error, Connection(_) | HttpStatus(_) | Unintelligible(_)) {
        Blame::Node
    } else if matches!(error, Busy | RateLimited(_) | Unhealthy(_) | ChainsDiffer(_)) {
        Blame::Nobody
    } else {
        Blame::Unclear
    }
}

/// What is known of one node.
#[derive(Debug, Default)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// Since the last success.
    openings: u32,
    open: Option<Open>,
    /// The node asked to be left alone until then.
    not_before_micros: u64,
}

#[derive(Debug)]
struct Open {
    until_micros: u64,
    /// A call is under way that finds out.
    is_probed: bool,
    cause: Arc<ReadError>,
}

/// What is known of all nodes, by their places in the configured order.
#[derive(Debug)]
pub(super) struct Health {
    breakers: Vec<Breaker>,
}

/// A change that the log tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Healthy,
    Unhealthy,
}

/// The tries of one read.
#[derive(Debug)]
pub(super) struct Tries {
    nodes: Vec<Tried>,
    grain: u64,
}

#[derive(Debug, Default, Clone)]
struct Tried {
    tries: u32,
    failed_tries: u32,
    not_before_micros: u64,
    is_suspect: bool,
}

/// What a read does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Ask(usize),
    Wait {
        until_micros: u64,
    },
    /// No node is worth asking. Of an unhealthy one: why.
    GiveUp(Option<(usize, Arc<ReadError>)>),
}

impl Tries {
    /// `grain` is any number: reads that failed together must not come back together.
    pub(super) fn new(nodes: usize, grain: u64) -> Self {
        Self { nodes: vec![Tried::default(); nodes], grain }
    }

    /// The read's try at this node failed.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, now_micros: u64) {
        self.grain = self.grain.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ node as u64;
        let grain = self.grain;
        let Some(tried) = self.nodes.get_mut(node) else { return };
        let pause = spread(BACKOFF_MICROS << tried.tries.min(16), BACKOFF_MICROS_MAX, grain);
        tried.tries += 1;
        tried.not_before_micros = now_micros.saturating_add(pause);
        match error {
            ReadError::Behind { .. } | ReadError::RateLimited(_) => {}
            // These cost the node or us more than others.
            ReadError::TimedOut(_) | ReadError::Node { .. } | ReadError::TooLong(_) => {
                tried.failed_tries += 2
            }
            _ => tried.failed_tries += 1,
        }
        tried.is_suspect |= blame(error) == Blame::Unclear;
    }

    /// The nodes that failed where another one answered.
    pub(super) fn suspects(&self, answered: usize) -> impl Iterator<Item = usize> {
        let suspects = self.nodes.iter().enumerate();
        suspects.filter(move |(node, tried)| tried.is_suspect && *node != answered).map(|(node, _)| node)
    }
}

impl Health {
    pub(super) fn new(nodes: usize) -> Self {
        Self { breakers: (0..nodes).map(|_| Breaker::default()).collect() }
    }

    /// The node to ask next: the same one again after a short pause, then the next.
    pub(super) fn next(&mut self, tries: &Tries, now_micros: u64) -> Next {
        let worth = self.breakers.iter().zip(&tries.nodes).enumerate().filter(|(_, (breaker, tried))| {
            breaker.is_asked(now_micros) && tried.failed_tries < FAILED_TRIES_MAX
        });
        let choice = worth.min_by_key(|(node, (breaker, tried))| {
            let at = breaker.not_before_micros.max(tried.not_before_micros);
            let is_far = at.saturating_sub(now_micros) > PATIENCE_MICROS;
            (if is_far { at } else { 0 }, tried.tries / 2, *node)
        });
        let Some((node, (breaker, tried))) = choice else { return Next::GiveUp(self.worst()) };
        let until_micros = breaker.not_before_micros.max(tried.not_before_micros);
        if until_micros > now_micros {
            return Next::Wait { until_micros };
        }
        if let Some(open) = self.breakers.get_mut(node).and_then(|breaker| breaker.open.as_mut()) {
            // This call is the probe; no other one joins it.
            open.is_probed = true;
            open.until_micros = now_micros.saturating_add(PAUSE_MICROS_MAX);
        }
        Next::Ask(node)
    }

    pub(super) fn succeeded(&mut self, node: usize) -> Change {
        let Some(breaker) = self.breakers.get_mut(node) else { return Change::None };
        let was_open = breaker.open.is_some();
        *breaker = Breaker::default();
        if was_open { Change::Healthy } else { Change::None }
    }

    /// The node failed.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, now_micros: u64, grain: u64) -> Change {
        let Some(breaker) = self.breakers.get_mut(node) else { return Change::None };
        breaker.failures = breaker.failures.saturating_add(1);
        if breaker.failures < FAILURES_MAX {
            return Change::None;
        }
        let pause = spread(PAUSE_MICROS << breaker.openings.min(16), PAUSE_MICROS_MAX, grain);
        let was_open = breaker.open.is_some();
        // Calls that were under way when it opened do not lengthen the pause.
        if breaker.open.as_ref().is_none_or(|open| open.is_probed) {
            breaker.openings = breaker.openings.saturating_add(1);
            let until_micros = now_micros.saturating_add(pause);
            breaker.open = Some(Open { until_micros, is_probed: false, cause: Arc::new(error.clone()) });
        }
        if was_open { Change::None } else { Change::Unhealthy }
    }

    /// The node limits our rate.
    pub(super) fn limited(&mut self, node: usize, pause: Option<Duration>, now_micros: u64) {
        let Some(breaker) = self.breakers.get_mut(node) else { return };
        let pause = pause.unwrap_or_default().min(ASKED_PAUSE_MAX).as_micros();
        let until_micros = now_micros.saturating_add(u64::try_from(pause).unwrap_or(u64::MAX));
        breaker.not_before_micros = breaker.not_before_micros.max(until_micros);
    }

    /// An unhealthy node and its error, the preferred one first.
    fn worst(&self) -> Option<(usize, Arc<ReadError>)> {
        let mut open = self.breakers.iter().enumerate();
        open.find_map(|(node, breaker)| breaker.open.as_ref().map(|open| (node, Arc::clone(&open.cause))))
    }
}

impl Breaker {
    /// Healthy, or due for a probe.
    fn is_asked(&self, now_micros: u64) -> bool {
        self.open.as_ref().is_none_or(|open| now_micros >= open.until_micros)
    }
}

/// The pause, or the longest one, give or take a quarter.
fn spread(pause: u64, max: u64, grain: u64) -> u64 {
    let whole = pause.min(max);
    let grain = grain.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    whole * 3 / 4 + grain % (whole / 2)
}

#[cfg(test)]
mod tests;
