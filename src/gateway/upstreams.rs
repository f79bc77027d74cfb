//! The upstreams of a tenant or route, the choice among them, and the state of each: where it is, and whether it is healthy.
//!
//! An upstream is unusable while its checks fail, or for a while after several requests in a row failed on it. When all
//! are unusable they are tried all the same: a request that might succeed is better than one that can't.
//!
//! Checks do not see an upstream that takes connections and fails requests, and such requests are not sent again. Without ejection
//! one of two fails every second request, 20 of 40; with it as many as `health.eject_after`
//! (`balancing::an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured`).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::{cmp::Reverse, time::Duration};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use pingora::upstreams::peer::HttpPeer;
use tokio::sync::Semaphore;

use crate::addresses::{AddressRefused, AddressRules};
use crate::domain::{HealthRules, Upstream, UpstreamLimits};
use crate::gateway::in_flight::{Place, WaitQueue, increment_below};
use crate::ports::micros;

/// How many marks of connections take turns. The library keeps one whose request was dropped open for as long as nobody asks for its
/// mark: with a new mark for each of them, an upstream that is often silent would take all descriptors.
pub(super) const GENERATIONS: u64 = 4;

/// The most upstreams of one group that are used: a request remembers in as many bits which it has tried.
const UPSTREAMS_MAX: usize = u64::BITS as usize;

/// How many requests may look for another connection at one time, however few are under way.
const RETRIES_MIN: u32 = 3;

/// Upstreams that requests are spread over.
pub(crate) struct Upstreams {
    pub(super) members: Vec<Member>,
    /// True if the less busy one of two is chosen, and not each in turn.
    by_load: bool,
    /// Members by their turns: each has as many as its weight, spread out.
    turns: Box<[u8]>,
    next: AtomicUsize,
    /// How many requests are looking for another connection.
    retrying: Arc<AtomicU32>,
}

/// An upstream, and how it is connected to.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) state: Arc<UpstreamState>,
    /// The share beside the others.
    pub(super) weight: u8,
    /// The peer, without the address.
    pub(super) template: HttpPeer,
    /// The value of `Host` where the upstream is to see its own name.
    pub(super) host: HeaderValue,
}

impl Upstreams {
    /// A group of at most [`UPSTREAMS_MAX`]; the configuration allows no more.
    pub(super) fn new(mut members: Vec<Member>, by_load: bool) -> Self {
        members.truncate(UPSTREAMS_MAX);
        let turns = turns(&members);
        Self { members, by_load, turns, next: AtomicUsize::new(0), retrying: Arc::default() }
    }

    /// Leave for one request to look for another connection: for at most a tenth of those under way, or a few.
    pub(super) fn retry(&self) -> Option<Place> {
        let live = self.members.iter().map(|member| member.state.in_flight()).fold(0, u32::saturating_add);
        Place::take(&self.retrying, (live / 10).max(RETRIES_MIN))
    }

    /// Where to go next: the next address of an upstream that could not be connected to, else the next upstream in turn
    /// that can be used and was not tried, else one that was not tried.
    pub(super) fn choose(&self, attempt: &mut Attempt, now: u64) -> Option<SocketAddr> {
        if attempt.addresses_left > 0
            && let Some(next) = self.current(*attempt)?.state.next_address(attempt, now)
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
        let best = find(turn, &ready).map(|one| {
            if !self.by_load {
                return one;
            }
            // Each round compares those that are another distance apart.
            let apart = 1 + turn / count % count.saturating_sub(1).max(1);
            let other = find(turn.wrapping_add(apart), &ready).unwrap_or(one);
            let load = |member: &Member| member.state.in_flight().saturating_add(1);
            let of_share = |member, of: &Member| load(member).saturating_mul(of.weight.into());
            if of_share(other.1, one.1) < of_share(one.1, other.1) { other } else { one }
        });
        let (at, _) = best.or_else(|| find(turn, &usable)).or_else(|| find(turn, &open))?;
        attempt.tried |= 1 << at;
        attempt.current = Some(at);
        attempt.tries += 1;
        // Each upstream's addresses in turn, whatever their numbers.
        (attempt.turn, attempt.tried_addresses) = (turn / count, 0);
        self.current(*attempt)?.state.next_address(attempt, now)
    }

    /// The upstream that a request is at.
    pub(super) fn current(&self, attempt: Attempt) -> Option<&Member> {
        self.members.get(attempt.current?)
    }

    /// True if an upstream is left that was not tried.
    pub(super) fn has_another(&self, attempt: Attempt) -> bool {
        let mut members = self.members.iter().enumerate();
        members.any(|(at, member)| !attempt.has_tried(at) && member.state.has_address())
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

/// The upstreams that a request has tried.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// A bit for each; without them those that were tried may be tried again.
    pub(super) tried: u64,
    pub(super) current: Option<usize>,
    /// How many were tried, one that was tried again once more.
    pub(super) tries: u32,
    /// The turn of its upstream's addresses.
    pub(super) turn: usize,
    /// The marks of those that it has tried.
    pub(super) tried_addresses: u32,
    /// How many others the upstream that was tried last has.
    pub(super) addresses_left: usize,
}

impl Attempt {
    pub(super) const fn has_tried(self, at: usize) -> bool {
        self.tried >> at & 1 == 1
    }
}

/// How long connecting to an address may take while another one of its name is left, which could be reached.
const HEAD_START: Duration = Duration::from_millis(500);

/// After how many answers that there is no such name its last addresses are used no more: a minute, as names are looked up.
pub(super) const GONE_AFTER: u32 = 6;

/// One upstream of a tenant under its rules, with all that outlives its rules.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    /// As it was configured.
    pub(crate) upstream: Upstream,
    /// How it is watched.
    pub(super) health: HealthRules,
    /// The addresses, all of which the rules allow; empty while the name is not resolved.
    pub(super) addresses: ArcSwap<Vec<Arc<Address>>>,
    /// The addresses that it may have.
    pub(super) rules: AddressRules,
    /// Why its last look-up gave no address, or not all.
    trouble: Mutex<Option<Trouble>>,
    /// How much it is given.
    pub(super) limits: UpstreamLimits,
    /// When it is to be checked next under these rules.
    pub(super) next_check: AtomicU64,
    /// The part that outlives a reload of other rules.
    pub(super) shared: Arc<SharedState>,
}

/// One address of an upstream.
#[derive(Debug)]
pub(crate) struct Address {
    pub(super) at: SocketAddr,
    /// One bit, which stays its own when look-ups find other addresses or another order.
    mark: u32,
    /// Until when it is asked last because it could not be reached, in monotonic microseconds; 0: it could.
    last_until: AtomicU64,
}

/// Health and requests under way of an upstream, whatever its rules are.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// How many requests may be under way at it now, also for those that wait since an earlier reload.
    in_flight_max: AtomicU32,
    /// How many requests are under way at it.
    taken: AtomicU32,
    /// Requests that wait until there are fewer.
    queue: WaitQueue,
    /// True if the last health check failed.
    is_failing: AtomicBool,
    /// Failed requests in a row.
    failures: AtomicU32,
    /// Until when it gets no requests, in monotonic microseconds.
    ejected_until: AtomicU64,
    /// How many look-ups in a row were answered that there is no such name.
    gone_answers: AtomicU32,
    /// Changes when a stream was silent for too long: connections of before get no more requests.
    generation: AtomicU64,
    /// When its name is to be looked up next.
    pub(super) next_resolution: AtomicU64,
    /// True if a check waits for its turn or is under way.
    pub(super) is_in_check: AtomicBool,
    /// True if a look-up of its name does.
    pub(super) is_in_resolution: AtomicBool,
}

/// Why a look-up gave no address, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is none.
    NoAddress,
    /// There is none any more: for a while all answers have said so.
    Gone,
    /// The rules do not allow this one.
    Refused(SocketAddr, AddressRefused),
}

/// The places for look-ups and checks of a tenant's upstreams.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) look_ups: OnceLock<Semaphore>,
    pub(super) checks: OnceLock<Semaphore>,
}

/// The slot of one request at an upstream, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct UpstreamSlot(Arc<UpstreamState>);

impl UpstreamState {
    /// An upstream under these rules. It is where and how it was if it was known, is else taken for healthy, and is checked
    /// at once. Of its addresses the allowed ones are used.
    pub(super) fn new(
        upstream: Upstream,
        health: HealthRules,
        limits: UpstreamLimits,
        rules: AddressRules,
        former: Option<&Self>,
    ) -> Self {
        let shared = former.map(|former| Arc::clone(&former.shared)).unwrap_or_default();
        shared.in_flight_max.store(limits.in_flight_max, Ordering::SeqCst);
        // There may be room now for those that wait.
        shared.queue.freed();
        if former.is_some_and(|former| former.health.interval.is_none()) {
            shared.is_failing.store(false, Ordering::Relaxed);
        }
        let mut addresses = match (upstream.host.parse(), former) {
            (Ok(ip), _) => vec![Address::new(SocketAddr::new(ip, upstream.port), 1)],
            (Err(_), Some(former)) => former.addresses.load().to_vec(),
            (Err(_), None) => Vec::new(),
        };
        addresses.retain(|address| rules.check(address.at).is_ok());
        let addresses = ArcSwap::from_pointee(addresses);
        let (next_check, trouble) = (AtomicU64::new(0), Mutex::new(None));
        Self { upstream, health, addresses, rules, trouble, limits, next_check, shared }
    }

    /// True if its last check failed. Without checks none has a say, also one that a former table began and that ends later.
    fn is_failing(&self) -> bool {
        self.health.interval.is_some() && self.shared.is_failing.load(Ordering::Relaxed)
    }

    /// True if its address has to be looked up: it has a name, or an address that may become this machine's.
    pub(super) fn is_looked_up(&self) -> bool {
        self.upstream.host.parse::<IpAddr>().is_err() || self.rules.may_be_own(self.upstream.port)
    }

    /// Takes the addresses of its name, of which the allowed ones are used. Without any it keeps those that it has while the
    /// name can't be looked up, and for [`GONE_AFTER`] answers that there is no such name. Returns what is wrong, if that is new.
    pub(super) fn resolved(&self, found: &[SocketAddr], is_gone: bool) -> Option<Trouble> {
        let former = self.shared.gone_answers.load(Ordering::Relaxed);
        let answers = if is_gone { former.saturating_add(1) } else { 0 };
        self.shared.gone_answers.store(answers, Ordering::Relaxed);
        let refused = found.iter().find_map(|address| Some((*address, self.rules.check(*address).err()?)));
        let trouble = match refused {
            Some((address, refused)) => Some(Trouble::Refused(address, refused)),
            None if answers >= GONE_AFTER => Some(Trouble::Gone),
            None if found.is_empty() => Some(Trouble::NoAddress),
            None => None,
        };
        if trouble == Some(Trouble::Gone) {
            self.addresses.store(Arc::default());
        }
        if !found.is_empty() {
            let is_allowed = |address: &&SocketAddr| self.rules.check(**address).is_ok();
            let allowed = found.iter().filter(is_allowed);
            let former = self.addresses.load();
            if !former.iter().map(|address| &address.at).eq(allowed.clone()) {
                let known = |at: &SocketAddr| former.iter().find(|address| address.at == *at).cloned();
                let mut taken = former.iter().fold(0, |marks, address| marks | address.mark);
                let mut new = |at| {
                    let free = !taken & taken.wrapping_add(1);
                    taken |= free;
                    Address::new(at, free)
                };
                let addresses = allowed.map(|at| known(at).unwrap_or_else(|| new(*at))).collect();
                self.addresses.store(Arc::new(addresses));
            }
        }
        let former = std::mem::replace(&mut *self.trouble.lock(), trouble);
        trouble.filter(|_| trouble != former)
    }

    /// Why its last look-up gave no address, or not all.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        *self.trouble.lock()
    }

    /// True if its checks and requests succeed, as far as is known.
    pub(super) fn is_usable(&self, now: u64) -> bool {
        !self.is_failing() && now >= self.shared.ejected_until.load(Ordering::Relaxed)
    }

    /// The state, for people.
    pub(crate) fn condition(&self, now: u64) -> &'static str {
        if !self.has_address() {
            match self.trouble() {
                Some(Trouble::Refused(..)) => "address not allowed",
                Some(Trouble::NoAddress | Trouble::Gone) | None => "no address",
            }
        } else if self.is_failing() {
            "fails its checks"
        } else if self.is_usable(now) {
            "healthy"
        } else {
            "ejected"
        }
    }

    /// True if a request gets a slot at once.
    pub(super) fn has_room(&self) -> bool {
        self.shared.taken.load(Ordering::SeqCst) < self.shared.in_flight_max.load(Ordering::SeqCst)
            && self.shared.queue.is_empty()
    }

    /// How many requests are under way at it.
    pub(crate) fn in_flight(&self) -> u32 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// A slot for a request, which may have to wait for it; `None` if too many wait, or for too long.
    pub(super) async fn acquire(self: &Arc<Self>, longest: Duration) -> Option<UpstreamSlot> {
        let take = || {
            let max = self.shared.in_flight_max.load(Ordering::SeqCst);
            increment_below(&self.shared.taken, max).then(|| UpstreamSlot(Arc::clone(self)))
        };
        self.shared.queue.take(self.limits.pending_max, longest, take).await
    }

    /// The number of the connections that requests may share, whose mark it is but for multiples of [`GENERATIONS`].
    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed)
    }

    /// Gives no more requests to the connections of this number, however many requests were silent on them.
    pub(super) fn leave_connections(&self, of: u64) {
        let generation = &self.shared.generation;
        // Another request has done it.
        let _ = generation.compare_exchange(of, of.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The next address in turn that was not tried. Those that could not be reached come last; when their time is over one request
    /// tries again.
    fn next_address(&self, attempt: &mut Attempt, now: u64) -> Option<SocketAddr> {
        let (addresses, turn, tried) = (self.addresses.load(), attempt.turn, attempt.tried_addresses);
        let places = (0..addresses.len()).map(|step| turn.wrapping_add(step) % addresses.len());
        let mut all = places.filter_map(|at| addresses.get(at)).filter(|address| tried & address.mark == 0);
        let (again, until) = (all.clone(), now.saturating_add(micros(self.health.eject_for)));
        let first = all.find(|address| address.has_its_turn(now, until)).or_else(|| again.clone().next())?;
        attempt.tried_addresses |= first.mark;
        attempt.addresses_left = again.count() - 1;
        Some(first.at)
    }

    /// How long connecting to the address of an attempt may take: not for long while there is a better one.
    pub(super) fn connect_time(&self, attempt: Attempt, longest: Duration) -> Duration {
        let is_better = |address: &Arc<Address>| {
            attempt.tried_addresses & address.mark == 0 && address.last_until.load(Ordering::Relaxed) == 0
        };
        let has_better = attempt.addresses_left > 0 && self.addresses.load().iter().any(is_better);
        if has_better { longest.min(HEAD_START) } else { longest }
    }

    /// An address could be connected to or not. One that could not is asked last for as long as a sick upstream is left out.
    pub(super) fn reached(&self, at: SocketAddr, is_reached: bool, now: u64) {
        let until = if is_reached { 0 } else { now.saturating_add(micros(self.health.eject_for)) };
        for address in self.addresses.load().iter().filter(|address| address.at == at) {
            address.last_until.store(until, Ordering::Relaxed);
        }
    }

    pub(super) fn has_address(&self) -> bool {
        !self.addresses.load().is_empty()
    }

    /// A request was answered by it.
    pub(super) fn succeeded(&self) {
        if self.shared.failures.load(Ordering::Relaxed) != 0 {
            self.shared.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A request failed on it. True when it gets none from now on, for a while.
    pub(super) fn failed(&self, now: u64) -> bool {
        let failures = self.shared.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let eject_after = self.health.eject_after;
        if eject_after == 0 || failures < eject_after {
            return false;
        }
        self.shared.failures.store(0, Ordering::Relaxed);
        let until = now.saturating_add(micros(self.health.eject_for));
        self.shared.ejected_until.fetch_max(until, Ordering::Relaxed) <= now
    }

    /// A check has said how it is. True when that is new.
    pub(super) fn checked(&self, is_healthy: bool) -> bool {
        let was_healthy = !self.shared.is_failing.swap(!is_healthy, Ordering::Relaxed);
        if is_healthy && !was_healthy {
            self.shared.ejected_until.store(0, Ordering::Relaxed);
        }
        was_healthy != is_healthy
    }
}

impl Address {
    pub(super) fn new(at: SocketAddr, mark: u32) -> Arc<Self> {
        Arc::new(Self { at, mark, last_until: AtomicU64::new(0) })
    }

    /// True if it could be reached, or is to be tried again: by one request alone, until which it is asked last again.
    fn has_its_turn(&self, now: u64, until: u64) -> bool {
        let last_until = self.last_until.load(Ordering::Relaxed);
        let claim =
            || self.last_until.compare_exchange(last_until, until, Ordering::Relaxed, Ordering::Relaxed);
        last_until == 0 || (last_until <= now && claim().is_ok())
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.0.shared.taken.fetch_sub(1, Ordering::SeqCst);
        self.0.shared.queue.freed();
    }
}

#[cfg(test)]
mod tests;
