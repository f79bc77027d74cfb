//! The upstreams of a tenant or route, and the choice among them.
//!
//! An upstream is unusable while its checks fail, or for a while after several requests in a row failed on it. When all
//! are unusable they are tried all the same: a request that might succeed is better than one that can't.

pub(super) mod attempt;
pub(super) mod state;

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http::HeaderValue;
use pingora::upstreams::peer::HttpPeer;

use crate::domain::tenant::Balance;
use crate::gateway::upstreams::attempt::Attempt;
use crate::gateway::upstreams::state::UpstreamState;

/// The most upstreams of one group that are used: a request remembers in as many bits which it has tried.
const UPSTREAMS_MAX: usize = u64::BITS as usize;

/// How many requests may look for another connection at one time, however few are under way.
const RETRIES_MIN: u64 = 3;

/// Some upstreams that requests are spread over.
pub(crate) struct Upstreams {
    members: Vec<Member>,
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
    pub(in crate::gateway) state: Arc<UpstreamState>,
    /// Its share beside the others.
    pub(in crate::gateway) weight: u8,
    /// Everything but the address.
    pub(in crate::gateway) template: HttpPeer,
    /// What stands in `Host` where the upstream is to see its own name.
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
        let count = self.turns.len().max(1);
        let candidates = |from: usize| {
            let turns = (0..count).filter_map(move |step| self.turns.get(from.wrapping_add(step) % count));
            turns.filter_map(|at| self.members.get(usize::from(*at)).map(|member| (usize::from(*at), member)))
        };
        let open = |at: usize, member: &Member| !attempt.has_tried(at) && member.state.has_address();
        let usable = |at: usize, member: &Member| open(at, member) && member.state.is_usable(now);
        let ready = |at: usize, member: &Member| usable(at, member) && member.state.has_room();
        let mixed = mixed(turn);
        let warm =
            |at: usize, member: &Member| ready(at, member) && (mixed >> 32) % 100 < member.state.percent(now);
        let find = |from: usize, is: &dyn Fn(usize, &Member) -> bool| {
            candidates(from).find(|(at, member)| is(*at, member))
        };
        let best = match self.balance {
            Balance::RoundRobin => find(turn, &warm),
            Balance::LeastRequest => find(turn, &ready).map(|one| {
                let apart = turn.wrapping_add(1 + mixed as usize % count.saturating_sub(1).max(1));
                let other = find(apart, &ready).unwrap_or(one);
                if other.1.is_less_busy_than(one.1, now) { other } else { one }
            }),
        };
        let best = best.or_else(|| find(turn, &ready)).or_else(|| find(turn, &usable));
        let (at, member) = best.or_else(|| find(turn, &open))?;
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

impl Member {
    /// True if it has less to do for its share than another.
    fn is_less_busy_than(&self, other: &Self, now: u64) -> bool {
        let load = |member: &Self| member.state.in_flight().saturating_add(1);
        let share = |member: &Self| u64::from(member.weight) * member.state.percent(now);
        load(self).saturating_mul(share(other)) < load(other).saturating_mul(share(self))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use http::HeaderValue;
    use pingora::upstreams::peer::HttpPeer;

    use super::{Arc, Attempt, Balance, Member, RETRIES_MIN, UpstreamState, Upstreams};
    use crate::addresses::AddressRules;
    use crate::domain::tenant::{HealthRules, UpstreamLimits};
    use crate::domain::upstream::Upstream;
    use crate::serve::timer::Timer;

    const EJECT_MICROS: u64 = 10_000_000;

    fn group_of(weights: &[u8], balance: Balance, slow_start: Option<u64>) -> Upstreams {
        let member = |at: usize, weight: u8| {
            let upstream = Upstream::parse(&format!("127.0.0.1:{}", 9_000 + at)).unwrap();
            let health = HealthRules {
                path: None,
                interval: None,
                timeout: Duration::from_secs(1),
                eject_after: 3,
                eject_for: Duration::from_micros(EJECT_MICROS),
                slow_start: slow_start.map(Duration::from_micros),
            };
            let limits = UpstreamLimits { in_flight_max: 50, pending_max: 1 };
            Member {
                weight,
                state: Arc::new(UpstreamState::new(upstream, health, limits, AddressRules::default())),
                template: HttpPeer::new("127.0.0.1:1", false, String::new()),
                host: HeaderValue::from_static("a"),
            }
        };
        let members = weights.iter().enumerate().map(|(at, weight)| member(at, *weight));
        Upstreams::new(members.collect(), balance)
    }

    fn group(count: usize) -> Upstreams {
        group_of(&vec![1; count], Balance::RoundRobin, None)
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
        assert!(one.checked(false, 0) && !one.checked(false, 0));
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_001, 300)]));
        other.checked(false, 0);
        assert_eq!(spread(&upstreams, 0).len(), 2);
        assert!(one.checked(true, 0));
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_000, 300)]));
    }

    #[test]
    fn weights_are_kept_exactly_and_turns_are_spread_out() {
        let upstreams = group_of(&[2, 6, 4], Balance::RoundRobin, None);
        assert_eq!(*upstreams.turns, [1, 2, 0, 1, 2, 1]);
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_000, 50), (9_001, 150), (9_002, 100)]));
        upstreams.members()[1].state.checked(false, 0);
        let left = spread(&upstreams, 0);
        assert_eq!(left.values().sum::<u32>(), 300);
        assert!(left.len() == 2 && left[&9_002] > left[&9_000], "{left:?}");
    }

    #[test]
    fn a_recovered_upstream_gets_a_tenth_of_its_share_at_first_and_more_with_time() {
        let upstreams = group_of(&[1, 1], Balance::RoundRobin, Some(1_000));
        let one = &upstreams.members()[0].state;
        let share = |now| spread(&upstreams, now).get(&9_000).copied().unwrap_or_default();
        assert_eq!(share(5), 150, "it was never away");
        one.checked(false, 5);
        one.checked(true, 10);
        assert!((5..=30).contains(&share(10)), "{}", share(10));
        assert!((60..=90).contains(&share(510)), "{}", share(510));
        assert_eq!(share(1_010), 150);
        (0..3).for_each(|_| _ = one.failed(2_000));
        assert_eq!(share(2_000), 0);
        let back = 2_000 + EJECT_MICROS;
        assert!((5..=30).contains(&share(back)), "{}", share(back));
        // Alone it has to take everything.
        upstreams.members()[1].state.checked(false, back);
        assert_eq!(share(back), 300);
    }

    #[tokio::test]
    async fn the_less_busy_of_two_is_chosen_and_one_that_is_full_is_left_out() {
        let upstreams = group_of(&[1, 1], Balance::LeastRequest, None);
        let [one, other] = [0, 1].map(|at| Arc::clone(&upstreams.members()[at].state));
        let mut places = vec![one.enter(Duration::ZERO).await.unwrap()];
        assert_eq!(spread(&upstreams, 0), BTreeMap::from([(9_001, 300)]));
        for _ in 0..50 {
            places.push(other.enter(Duration::ZERO).await.unwrap());
        }
        assert!(other.enter(Duration::ZERO).await.is_none(), "it is full");
        let in_turn = group_of(&[1, 1], Balance::RoundRobin, None);
        let full = Arc::clone(&in_turn.members()[1].state);
        for _ in 0..50 {
            places.push(full.enter(Duration::ZERO).await.unwrap());
        }
        assert_eq!(spread(&in_turn, 0), BTreeMap::from([(9_000, 300)]));
        drop(places);
        assert_eq!(spread(&in_turn, 0).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_allowed_wait_for_a_place_and_one_more_does_not() {
        let upstreams = group(1);
        let state = Arc::clone(&upstreams.members()[0].state);
        let mut places = Vec::new();
        for _ in 0..50 {
            places.push(state.enter(Duration::ZERO).await.unwrap());
        }
        let waiting = tokio::spawn({
            let state = Arc::clone(&state);
            async move { state.enter(Duration::from_secs(5)).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(state.enter(Duration::from_secs(5)).await.is_none(), "one waits already");
        assert!(!waiting.is_finished());
        places.pop();
        assert!(waiting.await.unwrap());
        let begun = Timer::now();
        places.push(state.enter(Duration::ZERO).await.unwrap());
        assert!(state.enter(Duration::from_secs(5)).await.is_none(), "it waits in vain");
        assert_eq!(Timer::now() - begun, Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_under_way_count_under_other_rules_and_those_that_wait_get_the_new_room() {
        let before = Arc::clone(&group(1).members()[0].state);
        let mut places = Vec::new();
        for _ in 0..50 {
            places.push(before.enter(Duration::ZERO).await.unwrap());
        }
        let waiting = tokio::spawn({
            let state = Arc::clone(&before);
            async move { state.enter(Duration::from_secs(5)).await }
        });
        tokio::task::yield_now().await;
        assert!(before.failed(1) || before.failed(1) || before.failed(1), "it is ejected");
        before.checked(false, 1);
        let limits = |in_flight_max| UpstreamLimits { in_flight_max, pending_max: 0 };
        let fewer = Arc::new(before.with(before.health.clone(), limits(10), before.rules.clone()));
        assert_eq!((fewer.in_flight(), fewer.is_usable(2), fewer.has_room()), (50, false, false));
        let more = Arc::new(fewer.with(fewer.health.clone(), limits(52), fewer.rules.clone()));
        places.push(waiting.await.unwrap().unwrap());
        places.push(more.enter(Duration::ZERO).await.unwrap());
        assert!(more.enter(Duration::ZERO).await.is_none());
        drop(places);
        assert_eq!((before.in_flight(), more.in_flight(), more.is_usable(EJECT_MICROS)), (0, 0, false));
        more.is_not_checked();
        assert!(more.is_usable(2 * EJECT_MICROS), "nobody would find out that it is healthy again");
    }

    #[tokio::test]
    async fn retries_stay_below_a_tenth_of_the_requests_under_way() {
        let upstreams = Arc::new(group(1));
        let few: Vec<_> = std::iter::from_fn(|| upstreams.retry()).collect();
        assert_eq!(few.len() as u64, RETRIES_MIN);
        drop(few);
        let mut places = Vec::new();
        for _ in 0..50 {
            places.push(upstreams.members()[0].state.enter(Duration::ZERO).await.unwrap());
        }
        assert_eq!(std::iter::from_fn(|| upstreams.retry()).take(100).collect::<Vec<_>>().len(), 5);
    }
}
