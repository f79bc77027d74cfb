//! Which node is asked next: a circuit breaker per node, rate limits, and the tries of one read, as values. Time is an
//! argument.
//!
//! The configured order rules. A node that failed repeatedly is left out, and a real call probes it when its pause is over;
//! if that succeeds the node has its place again. With no other node reads wait for that. A pause that a node asked for
//! delays its next call and does not count as a failure.

use std::{sync::Arc, time::Duration};

use crate::chain::{fault::ReadError, spread};

/// So many failures in a row make a node unhealthy.
pub(super) const FAILURES_MAX: u32 = 5;

/// The pause before a probe, and between probes, answered or not, in microseconds.
const PAUSE_MICROS: u64 = 1_000_000;

/// The longest pause that a node may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The same where no other node is free sooner: everybody would wait for it.
const ASKED_PAUSE_MAX_ALONE: Duration = Duration::from_secs(2);

/// The first pause between two tries of one read on the same node, in microseconds; each further one doubles it.
const BACKOFF_MICROS: u64 = 20_000;

/// The longest pause between two tries.
const BACKOFF_MICROS_MAX: u64 = 500_000;

/// Another node is asked rather than waiting longer than this for a preferred one, in microseconds.
const PATIENCE_MICROS: u64 = 100_000;

/// How often one read asks a node that fails. One that lags, limits rates, or is probed is asked until the deadline.
const FAILED_TRIES_MAX: u32 = 6;

/// True when an error speaks against the node alone.
pub(super) const fn is_the_nodes(error: &ReadError) -> bool {
    use ReadError::{Connection, HttpStatus, Unintelligible};
    matches!(error, Connection(_) | HttpStatus(_) | Unintelligible(_))
}

/// True when an error speaks against the node if another one answers the same read: absurd agents make every node fail.
const fn is_suspicious(error: &ReadError) -> bool {
    use ReadError::{Busy, NoBlock, NoCreation, RateLimited};
    !is_the_nodes(error) && !matches!(error, Busy | NoBlock { .. } | NoCreation | RateLimited(_))
}

/// State of one node.
#[derive(Debug, Default)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// When the last of them was noted. What began before says the same.
    failed_micros: u64,
    /// The node is unhealthy: when it is probed, and its last error.
    open: Option<(u64, Arc<ReadError>)>,
    /// The pause that the node asked for: of everything, and of logs alone. When it began, and its length.
    pause: (u64, Duration),
    logs_pause: (u64, Duration),
}

/// State of all nodes, by their places in the configured order.
#[derive(Debug)]
pub(super) struct Health {
    breakers: Vec<Breaker>,
}

/// The tries of one read.
#[derive(Debug)]
pub(super) struct Tries {
    nodes: Vec<Tried>,
    has_logs: bool,
    /// The read probes unhealthy nodes until then: none with a stranger's input, which proves no health, and none whose time
    /// would be over before the answer.
    probes_until_micros: u64,
    pub(super) began_micros: u64,
    /// Of several agents, each of whom may be asked about alone.
    pub(super) is_of_group: bool,
}

#[derive(Debug, Default, Clone)]
struct Tried {
    tries: u32,
    failed_tries: u32,
    not_before_micros: u64,
    is_suspect: bool,
}

impl Tries {
    pub(super) fn new(nodes: usize, has_logs: bool, (began_micros, probes_until_micros): (u64, u64)) -> Self {
        let nodes = vec![Tried::default(); nodes];
        Self { nodes, has_logs, probes_until_micros, began_micros, is_of_group: false }
    }

    /// The read's try at this node failed.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, now_micros: u64) {
        let Some(tried) = self.nodes.get_mut(node) else { return };
        let pause = (BACKOFF_MICROS << tried.tries.min(16)).min(BACKOFF_MICROS_MAX);
        // A node that hangs, or lacks the block, has had its turn.
        tried.tries += if is_behind(error) || matches!(error, ReadError::Timeout(_)) { 2 } else { 1 };
        // Reads that fail together must not come back together.
        tried.not_before_micros = now_micros.saturating_add(spread(pause, self.began_micros ^ now_micros));
        let is_passing = is_behind(error) || matches!(error, ReadError::RateLimited(_));
        // These cost the node or us more than others.
        let is_dear = matches!(error, ReadError::Timeout(_) | ReadError::NodeError { .. });
        tried.failed_tries += if is_passing { 0 } else { 1 + u32::from(is_dear) };
        let is_too_much = (self.has_logs && error.is_refusal())
            || (self.is_of_group && matches!(error, ReadError::Timeout(_)));
        if is_too_much || matches!(error, ReadError::TooLong(_) | ReadError::NoCreation) {
            // It would be the same again. Less is asked for.
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

    /// The node to ask next, and from when on: the same one again after a short pause, then the next. If all are unhealthy, that
    /// which is probed first.
    pub(super) fn next(&self, tries: &Tries, now_micros: u64) -> Option<(usize, u64)> {
        let choice = |pause_max| {
            let worth = self.worth(tries, pause_max, now_micros).min_by_key(|(node, from_micros, tried)| {
                (if is_far(*from_micros, now_micros) { *from_micros } else { 0 }, tried.tries / 2, *node)
            });
            worth.map(|(node, from_micros, _)| (node, from_micros))
        };
        let soon_micros = now_micros.saturating_add(ASKED_PAUSE_MAX_ALONE.as_micros() as u64);
        let free = choice(ASKED_PAUSE_MAX).filter(|(_, from_micros)| *from_micros <= soon_micros);
        let may_probe = now_micros <= tries.probes_until_micros;
        let probe = |(from_micros, (node, _))| (node, if may_probe { from_micros } else { u64::MAX });
        free.or_else(|| choice(ASKED_PAUSE_MAX_ALONE)).or_else(|| self.unhealthy().map(probe))
    }

    /// If all nodes are unhealthy: when the first is probed, which one, and why.
    pub(super) fn unhealthy(&self) -> Option<(u64, (usize, ReadError))> {
        let open = self.breakers.iter().map(|breaker| breaker.open.as_ref()).collect::<Option<Vec<_>>>()?;
        let (node, (from_micros, cause)) = open.into_iter().enumerate().min_by_key(|(_, open)| open.0)?;
        Some((*from_micros, (node, ReadError::Unhealthy(Arc::clone(cause)))))
    }

    /// Begins a try at a node that was chosen, unless the choice is another one by now. Returns how many nodes the read has yet
    /// to ask: each is left its share of the read's time.
    pub(super) fn begin(&mut self, node: usize, tries: &mut Tries, now_micros: u64) -> Option<u32> {
        self.next(tries, now_micros).filter(|choice| choice.0 == node && choice.1 <= now_micros)?;
        if let Some((from_micros, _)) = &mut self.breakers.get_mut(node)?.open {
            *from_micros = now_micros.saturating_add(PAUSE_MICROS);
            tries.nodes.get_mut(node)?.failed_tries = 0;
        }
        let is_waiting = |(other, from_micros, tried): &(usize, u64, &Tried)| {
            *other != node && tried.tries == 0 && !is_far(*from_micros, now_micros)
        };
        Some(self.worth(tries, ASKED_PAUSE_MAX, now_micros).filter(is_waiting).count() as u32)
    }

    /// The nodes that a read may ask, with the time from which on if pauses last so long at most.
    fn worth<'a>(
        &'a self,
        tries: &'a Tries,
        pause_max: Duration,
        now_micros: u64,
    ) -> impl Iterator<Item = (usize, u64, &'a Tried)> {
        let nodes = self.breakers.iter().zip(&tries.nodes).enumerate();
        nodes.filter_map(move |(node, (breaker, tried))| {
            let is_worth = match &breaker.open {
                Some((from_micros, _)) => (*from_micros..=tries.probes_until_micros).contains(&now_micros),
                None => tried.failed_tries < FAILED_TRIES_MAX,
            };
            let end = |(began_micros, pause): (u64, Duration)| {
                began_micros.saturating_add(pause.min(pause_max).as_micros() as u64)
            };
            let logs_end = if tries.has_logs { end(breaker.logs_pause) } else { 0 };
            is_worth.then(|| (node, end(breaker.pause).max(logs_end).max(tried.not_before_micros), tried))
        })
    }

    /// The node answered. True when it was unhealthy. A pause that it asked for goes on.
    pub(super) fn succeeded(&mut self, node: usize) -> bool {
        let Some(breaker) = self.breakers.get_mut(node) else { return false };
        breaker.failures = 0;
        breaker.open.take().is_some()
    }

    /// The node failed at what began then. True when it is unhealthy from now on.
    pub(super) fn failed(&mut self, node: usize, error: &ReadError, (began, now): (u64, u64)) -> bool {
        let Some(breaker) = self.breakers.get_mut(node) else { return false };
        if began < breaker.failed_micros {
            return false;
        }
        breaker.failed_micros = now;
        breaker.failures = breaker.failures.saturating_add(1);
        if breaker.failures < FAILURES_MAX {
            return false;
        }
        let until_micros = now.saturating_add(spread(PAUSE_MICROS, now));
        breaker.open.replace((until_micros, Arc::new(error.clone()))).is_none()
    }

    /// The node limits our rate, or that of logs. A pause that it asks for replaces the one before.
    pub(super) fn limited(&mut self, node: usize, pause: Duration, has_logs: bool, now_micros: u64) {
        let Some(breaker) = self.breakers.get_mut(node) else { return };
        *if has_logs { &mut breaker.logs_pause } else { &mut breaker.pause } = (now_micros, pause);
    }
}

/// True when the node may have the block a moment later, and another one may have it now.
pub(super) const fn is_behind(error: &ReadError) -> bool {
    matches!(error, ReadError::Behind { .. } | ReadError::NoBlock { .. })
}

/// True when a read asks another node rather than waiting until then.
const fn is_far(until_micros: u64, now_micros: u64) -> bool {
    until_micros.saturating_sub(now_micros) > PATIENCE_MICROS
}

#[cfg(test)]
mod tests;
