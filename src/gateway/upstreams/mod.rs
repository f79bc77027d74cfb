//! The upstreams of a tenant or route, and the choice among them.
//!
//! An upstream is unusable while its checks fail, or for a while after several requests in a row failed on it. When all
//! are unusable they are tried all the same: a request that might succeed is better than one that can't.
//!
//! Checks do not see an upstream that takes connections and fails requests, and such requests are not sent again. Without ejection
//! one of two fails every second request, 20 of 40; with it as many as `health.eject_after`
//! (`balancing::an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured`).

pub(super) mod state;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{cmp::Reverse, net::SocketAddr, sync::Arc};

use http::HeaderValue;
use pingora::upstreams::peer::HttpPeer;

use crate::{domain::Balance, gateway::upstreams::state::UpstreamState};

/// The most upstreams of one group that are used: a request remembers in as many bits which it has tried.
const UPSTREAMS_MAX: usize = u64::BITS as usize;

/// How many requests may look for another connection at one time, however few are under way.
const RETRIES_MIN: u64 = 3;

/// Upstreams that requests are spread over.
pub(crate) struct Upstreams {
    pub(in crate::gateway) members: Vec<Member>,
    balance: Balance,
    /// Members by their turns: each has as many as its weight, spread out.
    turns: Box<[u8]>,
    next: AtomicUsize,
    /// How many requests are looking for another connection.
    retrying: AtomicU64,
}

/// A request that is looking for another connection.
pub(crate) struct Retrying(Arc<Upstreams>);

/// An upstream, and how it is connected to.
pub(crate) struct Member {
    pub(crate) state: Arc<UpstreamState>,
    /// The share beside the others.
    pub(in crate::gateway) weight: u8,
    /// The peer, without the address.
    pub(in crate::gateway) template: HttpPeer,
    /// The value of `Host` where the upstream is to see its own name.
    pub(in crate::gateway) host: HeaderValue,
}

impl Upstreams {
    /// A group of at most [`UPSTREAMS_MAX`]; the configuration allows no more.
    pub(in crate::gateway) fn new(mut members: Vec<Member>, balance: Balance) -> Self {
        members.truncate(UPSTREAMS_MAX);
        let turns = turns(&members);
        Self { members, balance, turns, next: AtomicUsize::new(0), retrying: AtomicU64::new(0) }
    }

    /// Leave for one request to look for another connection: for at most a tenth of those under way, or a few.
    pub(in crate::gateway) fn retry(self: &Arc<Self>) -> Option<Retrying> {
        let live: u64 = self.members.iter().map(|member| member.state.in_flight()).sum();
        let most = (live / 10).max(RETRIES_MIN);
        let one_more = |retrying| (retrying < most).then_some(retrying + 1);
        let counted = self.retrying.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| Retrying(Arc::clone(self)))
    }

    /// Where to go next: the next address of an upstream that could not be connected to, else the next upstream in turn
    /// that can be used and was not tried, else one that was not tried.
    pub(in crate::gateway) fn choose(
        &self,
        attempt: &mut Attempt,
        now: u64,
    ) -> Option<(&Member, SocketAddr)> {
        if attempt.has_address_left()
            && let Some(next) = self.next_address(attempt, now)
        {
            return Some(next);
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.turns.len().max(1);
        let candidates = |from: usize| {
            let turns = (0..count).filter_map(move |step| self.turns.get(from.wrapping_add(step) % count));
            turns.filter_map(|at| self.members.get(usize::from(*at)).map(|member| (usize::from(*at), member)))
        };
        let open = |at: usize, member: &Member| !attempt.has_tried(at) && member.state.has_address();
        let usable = |at: usize, member: &Member| open(at, member) && member.state.is_usable(now);
        let ready = |at: usize, member: &Member| usable(at, member) && member.state.has_room();
        let find = |from: usize, is: &dyn Fn(usize, &Member) -> bool| {
            candidates(from).find(|(at, member)| is(*at, member))
        };
        let best = find(turn, &ready).map(|one| match self.balance {
            Balance::RoundRobin => one,
            Balance::LeastRequest => {
                let apart = turn.wrapping_add(1 + mixed(turn) as usize % count.saturating_sub(1).max(1));
                let other = find(apart, &ready).unwrap_or(one);
                if other.1.is_less_busy_than(one.1) { other } else { one }
            }
        });
        let (at, _) = best.or_else(|| find(turn, &usable)).or_else(|| find(turn, &open))?;
        // Each upstream's addresses in turn, whatever their numbers.
        attempt.try_one(at, turn / count);
        self.next_address(attempt, now)
    }

    fn next_address(&self, attempt: &mut Attempt, now: u64) -> Option<(&Member, SocketAddr)> {
        let member = self.current(*attempt)?;
        let (mark, address, left) = member.state.next_address(attempt.turn, attempt.tried_addresses, now)?;
        attempt.tried_addresses |= mark;
        attempt.addresses_left = left;
        Some((member, address))
    }

    /// The upstream that a request is at.
    pub(in crate::gateway) fn current(&self, attempt: Attempt) -> Option<&Member> {
        self.members.get(attempt.current?)
    }

    /// True if an upstream is left that was not tried.
    pub(in crate::gateway) fn has_another(&self, attempt: Attempt) -> bool {
        let mut members = self.members.iter().enumerate();
        members.any(|(at, member)| !attempt.has_tried(at) && member.state.has_address())
    }
}

impl Member {
    /// True if it has less to do for its share than another.
    fn is_less_busy_than(&self, other: &Self) -> bool {
        let load = |member: &Self| member.state.in_flight().saturating_add(1);
        load(self).saturating_mul(other.weight.into()) < load(other).saturating_mul(self.weight.into())
    }
}

impl Drop for Retrying {
    fn drop(&mut self) {
        self.0.retrying.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turns of a round: in each the member that lags most behind its share.
fn turns(members: &[Member]) -> Box<[u8]> {
    let weights = members.iter().map(|member| i64::from(member.weight));
    let divisor = weights.clone().fold(0, greatest_divisor).max(1);
    let weights: Vec<i64> = weights.map(|weight| weight / divisor).collect();
    let total: i64 = weights.iter().sum();
    let mut due = vec![0; weights.len()];
    let next = |_| {
        due.iter_mut().zip(&weights).for_each(|(due, weight)| *due += weight);
        // The first of those that are most due.
        let most = due.iter_mut().enumerate().max_by_key(|(at, due)| (**due, Reverse(*at)))?;
        *most.1 -= total;
        u8::try_from(most.0).ok()
    };
    (0..total).filter_map(next).collect()
}

const fn greatest_divisor(one: i64, other: i64) -> i64 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The bits of a turn, mixed: neighbours have nothing in common (splitmix64).
const fn mixed(turn: usize) -> u64 {
    let bits = (turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The upstreams that a request has tried.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// A bit for each; without them those that were tried may be tried again.
    pub(in crate::gateway) tried: u64,
    pub(in crate::gateway) current: Option<usize>,
    /// How many were tried, one that was tried again once more.
    pub(in crate::gateway) tries: u32,
    /// The turn of its upstream's addresses.
    pub(super) turn: usize,
    /// The marks of those that it has tried.
    pub(super) tried_addresses: u32,
    /// How many others its upstream has.
    pub(in crate::gateway) addresses_left: usize,
}

impl Attempt {
    /// True if the upstream that was tried last has another address.
    pub(in crate::gateway) const fn has_address_left(self) -> bool {
        self.addresses_left > 0
    }

    pub(super) const fn has_tried(self, at: usize) -> bool {
        self.tried >> at & 1 == 1
    }

    pub(super) const fn try_one(&mut self, at: usize, turn: usize) {
        self.tried |= 1 << at;
        self.current = Some(at);
        self.tries += 1;
        self.turn = turn;
        self.tried_addresses = 0;
    }
}

#[cfg(test)]
mod tests;
