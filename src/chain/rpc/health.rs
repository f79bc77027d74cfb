//! Which nodes are fit to be asked, and in which order: what is known of each of them, as a value. Must not know how it
//! becomes known; time is an argument.
//!
//! A node is fit when its breaker is closed, it is on the chain that is read, it is not far behind the others, and its
//! latest block is not too old. Among fit nodes, reads of the latest block go first to those that have it.

mod progress;

use std::sync::Arc;

pub(super) use self::progress::Gap;

use crate::chain::fault::ReadError;
use crate::chain::rpc::breaker::{Breaker, Class};
use crate::chain::rpc::following::Following;
use crate::chain::rpc::heads::{Head, HeadBounds, Seen};

/// How often each node is asked which chain it is on, in microseconds.
pub(super) const VET_EVERY_MICROS: u64 = 10_000_000;

/// How often each node's head is looked at, in microseconds.
pub(super) const SAMPLE_EVERY_MICROS: u64 = 5_000_000;

/// When nobody else is fit, no node is left alone for longer, whatever it asked for, in microseconds.
const ALONE_MICROS_MAX: u64 = 5_000_000;

/// What is known of all nodes. They are named by their places in the configured order.
pub(super) struct Health {
    nodes: Vec<Condition>,
    /// `signature.chain_id`.
    signature_chain: u64,
    /// The chain that is read, once that is known; it never changes.
    chain: Option<u64>,
    /// It was configured, or a node is on the one that signatures are for. Else it is only what the first nodes agreed on.
    is_certain: bool,
    /// Every node has been asked once.
    all_asked: bool,
    lead: Option<usize>,
    bounds: HeadBounds,
    /// The block up to which the chain was followed, and when.
    followed: Option<(u64, u64)>,
}

/// What is known of one node.
#[derive(Default)]
struct Condition {
    breaker: Breaker,
    following: Following,
    /// It failed a moment ago, and has neither answered since nor failed often enough to be given up.
    suspected: bool,
    /// What it is suspected of may be the fault of what was asked: it was too slow.
    was_slow: bool,
    chain: Option<u64>,
    /// It was on the chain that is read at some time. If it is on another one now, it is the one that moved.
    agreed: bool,
    vetted_at: Option<u64>,
    head: Head,
    /// The block of another node, when the head was too far behind it at the last look, or lacked it for too long.
    behind: Option<u64>,
    /// The highest block of the others, when the head is so far above it that it is made up.
    leapt: Option<u64>,
    /// How old the latest block was by its own time, in seconds, when that was too old.
    aged: Option<u64>,
    sampled_at: Option<u64>,
}

/// What a node is to be asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checkup {
    pub(super) node: usize,
    pub(super) wants_chain: bool,
    pub(super) wants_head: bool,
}

/// What a node said of itself, as far as it was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Vitals {
    pub(super) chain: Option<u64>,
    pub(super) head: Option<Seen>,
}

impl Health {
    /// Of so many nodes nothing is known; `chain` is the one to read, if that is configured.
    pub(super) fn new(nodes: usize, chain: Option<u64>, signature_chain: u64, bounds: HeadBounds) -> Self {
        Self {
            nodes: (0..nodes).map(|_| Condition::default()).collect(),
            signature_chain,
            chain,
            is_certain: chain.is_some(),
            all_asked: false,
            lead: None,
            bounds,
            followed: None,
        }
    }

    /// The chain that is read, once that is known.
    pub(super) const fn chain(&self) -> Option<u64> {
        self.chain
    }

    /// The chains that the nodes are on, when nobody can tell which of them is right. A chain on which the first nodes
    /// agreed is in doubt as soon as a node that had no say until then is on another one.
    pub(super) fn dispute(&self) -> Option<String> {
        let is_disputed = match self.chain {
            Some(chain) => {
                let dissents = |node: &Condition| !node.agreed && node.chain.is_some_and(|id| id != chain);
                !self.is_certain && self.nodes.iter().any(dissents)
            }
            None => self.all_asked && self.nodes.iter().any(|node| node.chain.is_some()),
        };
        is_disputed.then(|| self.reports())
    }

    /// The fit nodes, the lead first. The lead stays the same for as long as it is fit.
    pub(super) fn fit(&mut self) -> Vec<usize> {
        let mut fit: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.complaint(*node).is_none()).collect();
        if let Some(place) = fit.iter().position(|node| Some(*node) == self.lead) {
            let lead = fit.remove(place);
            fit.insert(0, lead);
        }
        self.lead = fit.first().copied().or(self.lead);
        fit
    }

    /// The fit nodes in the order in which a read asks them: the lead first, except that those that failed a moment ago
    /// come last. So a node that hangs costs one read its time and not as many as it takes to give it up. A read of the
    /// latest block asks those first that have it.
    pub(super) fn order(&mut self, of_latest: bool, now_micros: u64) -> Vec<usize> {
        let mut fit = self.fit();
        let rank = |node: &usize| {
            let is_suspected = self.nodes.get(*node).is_some_and(|condition| condition.suspected);
            (is_suspected, of_latest && self.gap(*node, now_micros).is_some())
        };
        fit.sort_by_cached_key(rank);
        fit
    }

    /// The node to follow: the same as long as it is fit, except that one whose blocks or logs failed a moment ago, or that
    /// gives no logs, makes way for another that is fit. That one goes on leading then, also for reads.
    pub(super) fn follow(&mut self, now_micros: u64) -> Option<usize> {
        let fit = self.fit();
        let able = fit.iter().copied().find(|node| self.is_able(*node, now_micros));
        let lead = able.or_else(|| fit.first().copied())?;
        self.lead = Some(lead);
        Some(lead)
    }

    /// A node gives no logs at all. True when another one is there that may.
    pub(super) fn refused_logs(&mut self, node: usize, now_micros: u64) -> bool {
        if let Some(condition) = self.nodes.get_mut(node) {
            condition.following.refused_logs(now_micros);
        }
        let mut others = (0..self.nodes.len()).filter(|other| *other != node);
        others.any(|other| self.complaint(other).is_none() && self.is_able(other, now_micros))
    }

    fn is_able(&self, node: usize, now_micros: u64) -> bool {
        self.nodes.get(node).is_some_and(|condition| !condition.following.is_paused(now_micros))
    }

    /// Why a node is not asked; nothing when it is fit.
    pub(super) fn complaint(&self, node: usize) -> Option<ReadError> {
        let condition = self.nodes.get(node)?;
        if let Some(cause) = condition.breaker.cause() {
            return Some(ReadError::GivenUp(Arc::clone(cause)));
        }
        let reported = condition.chain.filter(|_| self.all_asked || self.chain.is_some());
        let Some(reported) = reported else { return Some(ReadError::Unvetted) };
        if let Some(chains) = self.dispute() {
            return Some(ReadError::ChainsDiffer(chains));
        }
        let Some(chain) = self.chain else { return Some(ReadError::Unvetted) };
        if reported != chain {
            return Some(ReadError::WrongChain { reported, chain });
        }
        let head = condition.head.number().unwrap_or(0);
        let leapt = condition.leapt.map(|best| ReadError::MadeUpHead { head, best });
        let behind = leapt.or_else(|| condition.behind.map(|best| ReadError::Behind { head, best }));
        behind.or_else(|| condition.aged.map(|age_secs| ReadError::OldHead { head, age_secs }))
    }

    /// Why no node is asked, when none is: the complaint that explains most, and whose it is.
    pub(super) fn worst(&self) -> (usize, ReadError) {
        let complaints = (0..self.nodes.len()).filter_map(|node| Some((node, self.complaint(node)?)));
        let worst =
            complaints.reduce(|first, next| if weight(&next.1) > weight(&first.1) { next } else { first });
        worst.unwrap_or((0, ReadError::Unvetted))
    }

    /// A node answered. Only a call lifts the suspicion, which is about calls.
    pub(super) fn answered(&mut self, node: usize, class: Class) {
        if let Some(condition) = self.nodes.get_mut(node) {
            condition.breaker.answered(class);
            condition.following.answered(class);
            condition.suspected &= class != Class::Calls;
            condition.was_slow &= condition.suspected;
        }
    }

    /// A node failed.
    pub(super) fn failed(
        &mut self,
        node: usize,
        class: Class,
        error: &ReadError,
        now_micros: u64,
        grain: u64,
    ) {
        if let Some(condition) = self.nodes.get_mut(node) {
            condition.breaker.failed(class, error, now_micros, grain);
            condition.following.failed(class, now_micros, grain);
            condition.suspected = true;
        }
    }

    /// A node was too slow for one read. What was asked may be to blame, so that only a probe counts against the node.
    pub(super) fn was_slow(&mut self, node: usize) {
        if let Some(condition) = self.nodes.get_mut(node) {
            condition.suspected = true;
            condition.was_slow = true;
        }
    }

    /// What is to be asked now. A node that is suspected is asked at once; one that is given up is asked nothing before
    /// its pause is over, or a while has passed in which nobody else was fit.
    pub(super) fn due(&self, now_micros: u64) -> Vec<Checkup> {
        let nobody_is_fit = (0..self.nodes.len()).all(|node| self.complaint(node).is_some());
        let is_due =
            |last: Option<u64>, every| last.is_none_or(|last| now_micros.saturating_sub(last) >= every);
        let checkups = self.nodes.iter().enumerate().map(|(node, condition)| {
            let breaker = &condition.breaker;
            let is_missed = nobody_is_fit && breaker.is_open_for(ALONE_MICROS_MAX, now_micros);
            let recovers = breaker.is_due(now_micros) || is_missed;
            let asked = recovers || condition.breaker.cause().is_none();
            let doubtful = recovers || condition.suspected;
            let wants_chain = asked && (doubtful || is_due(condition.vetted_at, VET_EVERY_MICROS));
            let wants_head = asked && (recovers || is_due(condition.sampled_at, SAMPLE_EVERY_MICROS));
            Checkup { node, wants_chain, wants_head }
        });
        checkups.filter(|checkup| checkup.wants_chain || checkup.wants_head).collect()
    }

    /// A node was asked, and said this or failed.
    pub(super) fn examined(
        &mut self,
        node: usize,
        said: Result<Vitals, &ReadError>,
        now_micros: u64,
        grain: u64,
    ) {
        let Some(condition) = self.nodes.get_mut(node) else { return };
        match said {
            Ok(vitals) => {
                condition.breaker.probed();
                condition.suspected = false;
                condition.was_slow = false;
                if let Some(chain) = vitals.chain {
                    condition.chain = Some(chain);
                    condition.vetted_at = Some(now_micros);
                    self.adopt();
                }
                if let Some(head) = vitals.head {
                    self.sampled(node, head, now_micros);
                }
            }
            // Nobody uses a node that is unknown or given up: it costs nothing to let it wait at once. One that is slow
            // with the simplest question, too, is not up to anything.
            Err(error)
                if condition.chain.is_none()
                    || condition.breaker.cause().is_some()
                    || (condition.was_slow && matches!(error, ReadError::TimedOut(_))) =>
            {
                condition.breaker.probe_failed(error, now_micros, grain);
            }
            Err(error) => {
                condition.vetted_at = Some(now_micros);
                condition.sampled_at = Some(now_micros);
                condition.breaker.failed(Class::Calls, error, now_micros, grain);
                condition.suspected = true;
            }
        }
    }

    /// Every node has been asked once.
    pub(super) fn all_were_asked(&mut self) {
        self.all_asked = true;
        self.adopt();
    }

    pub(super) const fn were_all_asked(&self) -> bool {
        self.all_asked
    }

    /// Settles which chain is read, if that can be said and is not yet, and notes which nodes are on it. Signatures are
    /// for one chain: whoever is on it is believed. Else the nodes must agree, once each of them had its say.
    fn adopt(&mut self) {
        if self.chain.is_none() {
            let mut reports = self.nodes.iter().filter_map(|condition| condition.chain);
            if reports.clone().any(|chain| chain == self.signature_chain) {
                self.chain = Some(self.signature_chain);
                self.is_certain = true;
            } else if self.all_asked
                && let Some(first) = reports.next()
                && reports.all(|chain| chain == first)
            {
                self.chain = Some(first);
            }
        }
        if self.chain.is_some() {
            let on_it = self.nodes.iter_mut().filter(|node| node.chain == self.chain);
            on_it.for_each(|node| node.agreed = true);
        }
    }

    fn reports(&self) -> String {
        let reported = self.nodes.iter().filter_map(|condition| condition.chain);
        let mut chains: Vec<u64> = reported.chain(self.chain).collect();
        chains.sort_unstable();
        chains.dedup();
        chains.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// How much a complaint explains of why nobody is asked: a node that would serve if it were up, before one that would
/// not.
const fn weight(complaint: &ReadError) -> u8 {
    match complaint {
        ReadError::ChainsDiffer(_) => 4,
        ReadError::GivenUp(_) => 3,
        ReadError::Behind { .. } | ReadError::MadeUpHead { .. } | ReadError::OldHead { .. } => 2,
        ReadError::WrongChain { .. } => 1,
        ReadError::TimedOut(_)
        | ReadError::Busy
        | ReadError::Connection(_)
        | ReadError::RateLimited(_)
        | ReadError::HttpStatus(_)
        | ReadError::TooLong(_)
        | ReadError::Unintelligible(_)
        | ReadError::Node { .. }
        | ReadError::Reverted(_)
        | ReadError::Undecodable(_)
        | ReadError::NoCode(_)
        | ReadError::Unvetted => 0,
    }
}

#[cfg(test)]
mod tests;
