//! The upstreams of a tenant or route, and the choice among them.
//!
//! An upstream is unusable while its checks fail, or for a while after several requests in a row failed on it. When all
//! are unusable they are tried all the same: a request that might succeed is better than one that can't.

pub(super) mod attempt;
pub(super) mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;
use pingora::upstreams::peer::HttpPeer;

use crate::gateway::upstreams::attempt::Attempt;
use crate::gateway::upstreams::state::UpstreamState;

/// The most upstreams of one group that are used: a request remembers in as many bits which it has tried.
const UPSTREAMS_MAX: usize = u64::BITS as usize;

/// Some upstreams that requests are spread over.
pub(crate) struct Upstreams {
    members: Vec<Member>,
    next: AtomicUsize,
}

/// An upstream, and how it is connected to.
pub(crate) struct Member {
    pub(in crate::gateway) state: Arc<UpstreamState>,
    /// Everything but the address.
    pub(in crate::gateway) template: HttpPeer,
    /// What stands in `Host` where the upstream is to see its own name.
    pub(in crate::gateway) host: HeaderValue,
}

impl Upstreams {
    /// A group of at most [`UPSTREAMS_MAX`]; the configuration allows no more.
    pub(in crate::gateway) fn new(mut members: Vec<Member>) -> Self {
        members.truncate(UPSTREAMS_MAX);
        Self { members, next: AtomicUsize::new(0) }
    }

    pub(in crate::gateway) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Where to go next: the next address of an upstream that could not be connected to, else the next upstream in turn
    /// that can be used and was not tried, else one that was not tried.
    pub(in crate::gateway) fn choose(
        &self,
        attempt: &mut Attempt,
        now: u64,
    ) -> Option<(&Member, SocketAddr)> {
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
    pub(in crate::gateway) fn current(&self, attempt: Attempt) -> Option<&Member> {
        self.members.get(attempt.current?)
    }

    /// True if an address is left that was not tried.
    pub(in crate::gateway) fn has_another(&self, attempt: Attempt) -> bool {
        if attempt.has_address_left() {
            return true;
        }
        let mut members = self.members.iter().enumerate();
        members.any(|(at, member)| !attempt.has_tried(at) && member.state.has_address())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use http::HeaderValue;
    use pingora::upstreams::peer::HttpPeer;

    use super::{Arc, Attempt, Member, UpstreamState, Upstreams};
    use crate::domain::tenant::HealthRules;
    use crate::domain::upstream::Upstream;

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
