//! How far the nodes have got, compared with each other: who is behind in blocks or in time, who makes heads up, whose latest
//! block is too old, and who lacks what others have.

use crate::chain::rpc::heads::{BLOCKS_BEHIND_MAX, Seen, reference};
use crate::chain::rpc::health::{Condition, Health};

/// A head that was told so long ago at most is not asked for once more before a read, in microseconds.
const FRESH_MICROS: u64 = 250_000;

/// For how long what was followed says which blocks there are, in microseconds.
pub(super) const FOLLOWED_COUNTS_MICROS: u64 = 15_000_000;

/// How far the nodes have got, in the eyes of one that has not got so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chain::rpc) struct Gap {
    pub(in crate::chain::rpc) head: u64,
    pub(in crate::chain::rpc) best: u64,
    /// The node told its head only just now.
    pub(in crate::chain::rpc) is_fresh: bool,
}

impl Health {
    /// What the node lacks of the latest block that is known; nothing when it has it. With one node there is none to lack.
    pub(in crate::chain::rpc) fn gap(&self, node: usize, now_micros: u64) -> Option<Gap> {
        if self.nodes.len() < 2 {
            return None;
        }
        let condition = self.nodes.get(node)?;
        let counts = |at: u64| now_micros.saturating_sub(at) <= FOLLOWED_COUNTS_MICROS;
        let followed = self.followed.filter(|(_, at)| counts(*at)).map(|(number, _)| number);
        let best = reference(self.other_heads(node, now_micros)).max(followed)?;
        let head = condition.head.number().unwrap_or(0);
        let is_fresh = condition.head.is_fresh(now_micros, FRESH_MICROS);
        (head < best).then_some(Gap { head, best, is_fresh })
    }

    /// Everything up to this block was followed.
    pub(in crate::chain::rpc) const fn followed(&mut self, number: u64, now_micros: u64) {
        self.followed = Some((number, now_micros));
    }

    /// A node's head was seen.
    pub(in crate::chain::rpc) fn sampled(&mut self, node: usize, head: Seen, now_micros: u64) {
        if let Some(condition) = self.nodes.get_mut(node) {
            condition.head.told(head.number, now_micros, &self.bounds);
            condition.aged = self.bounds.too_old(head);
            condition.sampled_at = Some(now_micros);
        }
        self.compare_head(node, now_micros);
    }

    /// Compares a node's head, as it was last seen, with the others', after looking which heads are made up.
    pub(in crate::chain::rpc) fn compare_head(&mut self, node: usize, now_micros: u64) {
        for each in 0..self.nodes.len() {
            let others = self.other_heads(each, now_micros);
            if let Some(condition) = self.nodes.get_mut(each) {
                condition.leapt = condition.head.leap(&others);
            }
        }
        let best = reference(self.other_heads(node, now_micros));
        let settled = reference(self.settled_heads(node, now_micros));
        if let Some(condition) = self.nodes.get_mut(node) {
            let head = condition.head.number();
            let is_far = |best: &u64| head.is_some_and(|head| best.saturating_sub(head) > BLOCKS_BEHIND_MAX);
            let is_late = |settled: &u64| head.is_some_and(|head| head < *settled);
            condition.behind = best.filter(is_far).or_else(|| settled.filter(is_late));
        }
    }

    /// The heads of the others that count. Nodes of other chains, those that are given up, those that were not heard for
    /// a while, those that make heads up and those that stand still say nothing about a node.
    fn other_heads(&self, node: usize, now_micros: u64) -> Vec<u64> {
        self.witnesses(node).filter_map(|condition| condition.head.recent(now_micros)).collect()
    }

    /// What the others had so long ago that the node must have it, too.
    fn settled_heads(&self, node: usize, now_micros: u64) -> Vec<u64> {
        self.witnesses(node)
            .filter_map(|condition| condition.head.settled(now_micros, &self.bounds))
            .collect()
    }

    fn witnesses(&self, node: usize) -> impl Iterator<Item = &Condition> {
        let others = self.nodes.iter().enumerate().filter(move |(other, condition)| {
            *other != node
                && condition.chain.is_some()
                && condition.chain == self.chain
                && condition.breaker.cause().is_none()
                && condition.leapt.is_none()
                && condition.aged.is_none()
        });
        others.map(|(_, condition)| condition)
    }
}
