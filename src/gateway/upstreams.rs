//! The upstreams of a tenant or route: which of them gets a request, and what is known of their health.
//!
//! An upstream is unusable while its checks fail, or for a while after several requests in a row failed on it. When all
//! are unusable they are tried all the same: a request that might succeed is better than one that can't.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora::upstreams::peer::HttpPeer;

use crate::domain::tenant::HealthRules;
use crate::domain::upstream::Upstream;

/// The most upstreams of one group that are used: a request remembers in as many bits which it has tried.
const UPSTREAMS_MAX: usize = u64::BITS as usize;

/// Some upstreams that requests are spread over.
pub(crate) struct Upstreams {
    members: Vec<Member>,
    next: AtomicUsize,
}

/// An upstream, and how it is connected to.
pub(crate) struct Member {
    pub(super) state: Arc<UpstreamState>,
    /// Everything but the address.
    pub(super) template: HttpPeer,
    /// What stands in `Host` where the upstream is to see its own name.
    pub(super) host: HeaderValue,
}

/// What is known of one upstream of a tenant. Lives on when the configuration is read again.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    /// As it was configured.
    pub(super) upstream: Upstream,
    /// How it is watched.
    pub(super) health: HealthRules,
    /// Where it is; empty while its name is unknown.
    pub(super) addresses: ArcSwap<Vec<SocketAddr>>,
    /// What the last check said.
    is_healthy: AtomicBool,
    /// Failed requests in a row.
    failures: AtomicU32,
    /// Until when it gets no requests, in monotonic microseconds.
    ejected_until: AtomicU64,
    /// When it is to be checked next.
    pub(super) next_check: AtomicU64,
    /// When its name is to be looked up next.
    pub(super) next_resolution: AtomicU64,
    /// Whether a check is under way.
    pub(super) is_in_check: AtomicBool,
    /// Whether its name is being looked up.
    pub(super) is_in_resolution: AtomicBool,
}

/// Which upstreams a request has tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    tried: u64,
    current: Option<usize>,
    tries: u32,
    address: usize,
    addresses_left: usize,
}

impl Upstreams {
    /// A group of at most [`UPSTREAMS_MAX`]; the configuration allows no more.
    pub(super) fn new(mut members: Vec<Member>) -> Self {
        members.truncate(UPSTREAMS_MAX);
        Self { members, next: AtomicUsize::new(0) }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Where to go next: the next address of an upstream that could not be connected to, else the next upstream in turn
    /// that can be used and was not tried, else one that was not tried.
    pub(super) fn choose(&self, attempt: &mut Attempt, now: u64) -> Option<(&Member, SocketAddr)> {
        if let Some(next) = self.next_address(attempt) {
            return Some(next);
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.members.len().max(1);
        let in_turn = || (0..count).map(|step| turn.wrapping_add(step) % count);
        let candidates = || in_turn().filter_map(|at| self.members.get(at).map(|member| (at, member)));
        let open = |at: usize, member: &Member| !attempt.has_tried(at) && member.state.has_address();
        let usable = candidates().find(|(at, member)| open(*at, member) && member.state.is_usable(now));
        let (at, member) = usable.or_else(|| candidates().find(|(at, member)| open(*at, member)))?;
        let addresses = member.state.addresses.load();
        // Each upstream's addresses in turn, whatever their numbers.
        let first = turn / count;
        let address = addresses.get(first % addresses.len().max(1)).copied()?;
        attempt.try_one(at, first, addresses.len());
        Some((member, address))
    }

    fn next_address(&self, attempt: &mut Attempt) -> Option<(&Member, SocketAddr)> {
        let member = self.current(*attempt)?;
        let addresses = member.state.addresses.load();
        let at = attempt.try_next_address()?;
        addresses.get(at % addresses.len().max(1)).copied().map(|address| (member, address))
    }

    /// The upstream that a request is at.
    pub(super) fn current(&self, attempt: Attempt) -> Option<&Member> {
        self.members.get(attempt.current?)
    }

    /// Whether an address is left that was not tried.
    pub(super) fn has_another(&self, attempt: Attempt) -> bool {
        if attempt.has_address_left() {
            return true;
        }
        let mut members = self.members.iter().enumerate();
        members.any(|(at, member)| !attempt.has_tried(at) && member.state.has_address())
    }
}

impl Attempt {
    pub(super) const fn new() -> Self {
        Self { tried: 0, current: None, tries: 0, address: 0, addresses_left: 0 }
    }

    /// How often it was tried to connect.
    pub(super) const fn count(self) -> u32 {
        self.tries
    }

    /// Whether the upstream that was tried last has another address.
    pub(super) const fn has_address_left(self) -> bool {
        self.addresses_left > 0
    }

    const fn has_tried(self, at: usize) -> bool {
        self.tried >> at & 1 == 1
    }

    const fn try_one(&mut self, at: usize, address: usize, addresses: usize) {
        self.tried |= 1 << at;
        self.current = Some(at);
        self.tries += 1;
        self.address = address;
        self.addresses_left = addresses.saturating_sub(1);
    }

    fn try_next_address(&mut self) -> Option<usize> {
        self.addresses_left = self.addresses_left.checked_sub(1)?;
        self.tries += 1;
        self.address = self.address.wrapping_add(1);
        Some(self.address)
    }
}

impl UpstreamState {
    /// An upstream of which nothing bad is known.
    pub(super) fn new(upstream: Upstream, health: HealthRules) -> Self {
        let fixed = upstream.host.parse().map(|ip| SocketAddr::new(ip, upstream.port)).ok();
        Self {
            upstream,
            health,
            addresses: ArcSwap::from_pointee(fixed.into_iter().collect()),
            is_healthy: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            next_check: AtomicU64::new(0),
            next_resolution: AtomicU64::new(0),
            is_in_check: AtomicBool::new(false),
            is_in_resolution: AtomicBool::new(false),
        }
    }

    /// The same upstream, watched in another way: it is where it was.
    pub(super) fn watched_otherwise(&self, health: HealthRules) -> Self {
        let state = Self::new(self.upstream.clone(), health);
        state.addresses.store(self.addresses.load_full());
        state
    }

    /// Whether its address has to be looked up.
    pub(super) fn is_named(&self) -> bool {
        self.upstream.host.parse::<std::net::IpAddr>().is_err()
    }

    fn is_usable(&self, now: u64) -> bool {
        self.is_healthy.load(Ordering::Relaxed) && now >= self.ejected_until.load(Ordering::Relaxed)
    }

    pub(super) fn has_address(&self) -> bool {
        !self.addresses.load().is_empty()
    }

    /// A request was answered by it.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A request failed on it. True when it gets none from now on, for a while.
    pub(super) fn failed(&self, now: u64) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let eject_after = self.health.eject_after;
        if eject_after == 0 || failures < eject_after {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        let until = now.saturating_add(micros(self.health.eject_for));
        self.ejected_until.fetch_max(until, Ordering::Relaxed) <= now
    }

    /// A check has said how it is. True when that is new.
    pub(super) fn checked(&self, is_healthy: bool) -> bool {
        let was_healthy = self.is_healthy.swap(is_healthy, Ordering::Relaxed);
        if is_healthy && !was_healthy {
            self.ejected_until.store(0, Ordering::Relaxed);
        }
        was_healthy != is_healthy
    }
}

/// A duration as the clock counts.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use http::HeaderValue;
    use pingora::upstreams::peer::HttpPeer;

    use super::{Arc, Attempt, HealthRules, Member, Upstream, UpstreamState, Upstreams};

    const EJECT_MICROS: u64 = 10_000_000;

    fn group(count: usize) -> Upstreams {
        let member = |at: usize| {
            let upstream = Upstream::parse(&format!("127.0.0.1:{}", 9_000 + at)).unwrap();
            let health = HealthRules {
                path: None,
                interval: None,
                timeout: Duration::from_secs(1),
                eject_after: 3,
                eject_for: Duration::from_micros(EJECT_MICROS),
            };
            Member {
                state: Arc::new(UpstreamState::new(upstream, health)),
                template: HttpPeer::new("127.0.0.1:1", false, String::new()),
                host: HeaderValue::from_static("a"),
            }
        };
        Upstreams::new((0..count).map(member).collect())
    }

    /// How often each port is chosen by new requests.
    fn spread(upstreams: &Upstreams, now: u64) -> BTreeMap<u16, u32> {
        let mut counts = BTreeMap::new();
        for _ in 0..300 {
            let (_, address) = upstreams.choose(&mut Attempt::new(), now).unwrap();
            *counts.entry(address.port()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn a_request_tries_each_upstream_once() {
        let upstreams = group(3);
        let mut attempt = Attempt::new();
        let mut ports: Vec<u16> =
            std::iter::from_fn(|| upstreams.choose(&mut attempt, 0).map(|(_, to)| to.port())).collect();
        ports.sort_unstable();
        assert_eq!(
            (ports, attempt.count(), upstreams.has_another(attempt)),
            (vec![9_000, 9_001, 9_002], 3, false)
        );
    }

    #[test]
    fn every_address_of_every_upstream_has_its_turn_and_is_tried_before_the_next_upstream() {
        let upstreams = group(2);
        for (at, member) in upstreams.members().iter().enumerate() {
            let address = |last: u8| format!("127.0.{at}.{last}:9000").parse().unwrap();
            member.state.addresses.store(Arc::new(vec![address(1), address(2)]));
        }
        let mut first = BTreeMap::new();
        for _ in 0..100 {
            let (_, address) = upstreams.choose(&mut Attempt::new(), 0).unwrap();
            *first.entry(address).or_insert(0) += 1;
        }
        assert_eq!(first.values().collect::<Vec<_>>(), [&25; 4], "{first:?}");
        let mut attempt = Attempt::new();
        let tried: Vec<_> =
            std::iter::from_fn(|| upstreams.choose(&mut attempt, 0).map(|(_, to)| to.ip())).collect();
        let distinct: std::collections::BTreeSet<_> = tried.iter().collect();
        assert_eq!((tried.len(), distinct.len(), attempt.count()), (4, 4, 4), "{tried:?}");
    }

    #[test]
    fn failures_in_a_row_take_an_upstream_out_for_a_while_and_a_success_between_them_does_not() {
        let upstreams = group(2);
        let sick = &upstreams.members()[0].state;
        assert!(!sick.failed(0) && !sick.failed(0));
        sick.succeeded();
        assert!(!sick.failed(0) && !sick.failed(0));
        assert_eq!(spread(&upstreams, 0).len(), 2);
        assert!(sick.failed(0), "the third in a row");
        assert_eq!(spread(&upstreams, EJECT_MICROS - 1), BTreeMap::from([(9_001, 300)]));
        assert_eq!(spread(&upstreams, EJECT_MICROS).len(), 2);
    }

    #[test]
    fn an_upstream_whose_checks_fail_gets_nothing_unless_all_do() {
        let upstreams = group(2);
        let [one, other] = [0, 1].map(|at| Arc::clone(&upstreams.members()[at].state));
        assert!(one.checked(false) && !one.checked(false));
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_001, 300)]));
        other.checked(false);
        assert_eq!(spread(&upstreams, 0).len(), 2);
        assert!(one.checked(true));
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_000, 300)]));
    }
}
