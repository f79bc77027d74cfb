//! Which node is asked next: a circuit breaker per node, rate limits, and the tries of one read, as values. Time is an
//! argument.
//!
//! The configured order rules. A node that failed repeatedly is left out, and a real call probes it when its pause is over;
//! if that succeeds the node has its place again. A pause that a node asked for delays its next call and does not count as
//! a failure.

use std::sync::Arc;
use std::time::Duration;

use crate::chain::fault::ReadError;
use crate::chain::pool::Input;
use crate::chain::spread;

/// So many failures in a row make a node unhealthy.
pub(super) const FAILURES_MAX: u32 = 5;

/// The pause before a probe, and between probes, in microseconds.
const PAUSE_MICROS: u64 = 1_000_000;

/// While a probe is under way no other one joins it for so long, in microseconds.
const PROBE_MICROS: u64 = 2_000_000;

/// The longest pause that a node may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The same where there is no other node: everybody would wait for it.
const ASKED_PAUSE_MAX_ALONE: Duration = Duration::from_secs(2);

/// The first pause between two tries of one read on the same node, in microseconds; each further one doubles it.
const BACKOFF_MICROS: u64 = 20_000;

/// The longest pause between two tries.
const BACKOFF_MICROS_MAX: u64 = 500_000;

/// Another node is asked rather than waiting longer than this for a preferred one, in microseconds.
const PATIENCE_MICROS: u64 = 100_000;

/// How often one read asks a node that fails. One that lags or limits rates is asked until the deadline.
const FAILED_TRIES_MAX: u32 = 6;

/// True when an error speaks against the node alone.
pub(super) const fn is_the_nodes(error: &ReadError) -> bool {
    use ReadError::{Connection, HttpStatus, Unintelligible};
    matches!(error, Connection(_) | HttpStatus(_) | Unintelligible(_))
}

/// True when an error speaks against the node if another one answers the same read: absurd agents make every node fail.
const fn is_suspicious(error: &ReadError) -> bool {
    use ReadError::{Busy, NoCreation, RateLimited, Unhealthy};
    !is_the_nodes(error) && !matches!(error, Busy | NoCreation | RateLimited(_) | Unhealthy(_))
}

/// What is known of one node.
#[derive(Debug, Default)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// The node is unhealthy: when it is probed, and its last error.
    open: Option<(u64, Arc<ReadError>)>,
    /// The node asked to be left alone until then.
    not_before_micros: u64,
}

/// What is known of all nodes, by their places in the configured order.
#[derive(Debug)]
pub(super) struct Health {
    breakers: Vec<Breaker>,
}

/// The tries of one read.
#[derive(Debug)]
pub(super) struct Tries {
    nodes: Vec<Tried>,
    input: Input,
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
    /// Until this time, in microseconds.
    Wait(u64),
    /// No node is worth asking. Of an unhealthy one: why.
    GiveUp(Option<(usize, Arc<ReadError>)>),
}

impl Tries {
    /// `grain` is any number: reads that fail together must not come back together.
    pub(super) fn new(nodes: usize, input: Input, grain: u64) -> Self {
        Self { nodes: vec![Tried::default(); nodes], input, grain }
    }

    /// The read's try at this node failed.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, now_micros: u64) {
        let Some(tried) = self.nodes.get_mut(node) else { return };
        let pause = (BACKOFF_MICROS << tried.tries.min(16)).min(BACKOFF_MICROS_MAX);
        // A node that hangs has had its turn.
        tried.tries += if matches!(error, ReadError::Timeout(_)) { 2 } else { 1 };
        tried.not_before_micros = now_micros.saturating_add(spread(pause, self.grain ^ now_micros));
        let is_passing = matches!(error, ReadError::Behind { .. } | ReadError::RateLimited(_));
        // These cost the node or us more than others.
        let is_dear = matches!(error, ReadError::Timeout(_) | ReadError::NodeError { .. });
        tried.failed_tries += if is_passing { 0 } else { 1 + u32::from(is_dear) };
        if matches!(error, ReadError::TooLong(_) | ReadError::NoCreation) {
            // It would be the same again.
            tried.failed_tries = FAILED_TRIES_MAX;
        }
        tried.is_suspect |= is_suspicious(error);
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
        let choice = self.worth(tries, now_micros).min_by_key(|(node, until_micros, tried)| {
            (if is_far(*until_micros, now_micros) { *until_micros } else { 0 }, tried.tries / 2, *node)
        });
        let Some((node, until_micros, _)) = choice else { return Next::GiveUp(self.worst()) };
        if until_micros > now_micros {
            return Next::Wait(until_micros);
        }
        self.probe_from(node, now_micros.saturating_add(PROBE_MICROS));
        Next::Ask(node)
    }

    /// How many nodes a read has yet to ask besides this one. Each is left its share of the read's time.
    pub(super) fn untried(&self, tries: &Tries, node: usize, now_micros: u64) -> u32 {
        let is_waiting = |(other, until_micros, tried): &(usize, u64, &Tried)| {
            *other != node && tried.tries == 0 && !is_far(*until_micros, now_micros)
        };
        self.worth(tries, now_micros).filter(is_waiting).count() as u32
    }

    /// The nodes that a read may ask, with the time from which on.
    fn worth<'a>(
        &'a self,
        tries: &'a Tries,
        now_micros: u64,
    ) -> impl Iterator<Item = (usize, u64, &'a Tried)> {
        let nodes = self.breakers.iter().zip(&tries.nodes).enumerate();
        nodes.filter_map(move |(node, (breaker, tried))| {
            // Whether an unhealthy node is healthy again no read with a stranger's input can say.
            let may_probe = |until_micros: u64| tries.input == Input::Ours && now_micros >= until_micros;
            let is_due = breaker.open.as_ref().is_none_or(|(until_micros, _)| may_probe(*until_micros));
            let until_micros = breaker.not_before_micros.max(tried.not_before_micros);
            (is_due && tried.failed_tries < FAILED_TRIES_MAX).then_some((node, until_micros, tried))
        })
    }

    /// Reads may probe the node from then on, if it is unhealthy.
    pub(super) fn probe_from(&mut self, node: usize, micros: u64) {
        if let Some((until_micros, _)) = self.breakers.get_mut(node).and_then(|breaker| breaker.open.as_mut())
        {
            *until_micros = micros;
        }
    }

    /// The node answered. True when it was unhealthy. A pause that it asked for goes on.
    pub(super) fn succeeded(&mut self, node: usize) -> bool {
        let Some(breaker) = self.breakers.get_mut(node) else { return false };
        breaker.failures = 0;
        breaker.open.take().is_some()
    }

    /// The node failed. True when it is unhealthy from now on.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, now_micros: u64) -> bool {
        let Some(breaker) = self.breakers.get_mut(node) else { return false };
        breaker.failures = breaker.failures.saturating_add(1);
        if breaker.failures < FAILURES_MAX {
            return false;
        }
        let until_micros = now_micros.saturating_add(spread(PAUSE_MICROS, now_micros));
        breaker.open.replace((until_micros, Arc::new(error.clone()))).is_none()
    }

    /// The node limits our rate.
    pub(super) fn limited(&mut self, node: usize, pause: Option<Duration>, now_micros: u64) {
        let is_alone = self.breakers.len() == 1;
        let Some(breaker) = self.breakers.get_mut(node) else { return };
        let max = if is_alone { ASKED_PAUSE_MAX_ALONE } else { ASKED_PAUSE_MAX };
        let pause = pause.unwrap_or_default().min(max).as_micros();
        let until_micros = now_micros.saturating_add(u64::try_from(pause).unwrap_or(u64::MAX));
        breaker.not_before_micros = breaker.not_before_micros.max(until_micros);
    }

    /// An unhealthy node and its error, the preferred one first.
    fn worst(&self) -> Option<(usize, Arc<ReadError>)> {
        let mut breakers = self.breakers.iter().enumerate();
        breakers.find_map(|(node, breaker)| Some((node, Arc::clone(&breaker.open.as_ref()?.1))))
    }
}

/// True when a read asks another node rather than waiting until then.
const fn is_far(until_micros: u64, now_micros: u64) -> bool {
    until_micros.saturating_sub(now_micros) > PATIENCE_MICROS
}

#[cfg(test)]
mod tests;
