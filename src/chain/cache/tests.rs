//! What is kept, for how long it serves, and that a read which was under way while its agent was dropped is not kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, U256};

use super::faults::FAULTS_MAX;
use super::{BACKSTOP_MICROS, Lifetimes, Plan, ProfileCache, Reading, Source, backstop_micros};
use crate::chain::cache::weight::{CACHED_BYTES_MAX, ENTRIES_MAX};
use crate::chain::follower::events::{Culprit, Drops};
use crate::chain::rpc::lead::BlockMark;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::{Organization, Reputation, TrustProfile, Validation};
use crate::ports::chain::ChainFault;

const SECOND: u64 = 1_000_000;
const INTERVAL: u64 = SECOND;
const STALENESS: u64 = 5 * SECOND;
const ORGANIZATION: u64 = 9;

/// A member of an organization; all others belong to none.
const MEMBER: u64 = 2;
const AGENT: u64 = 1;
const OWNER: Address = Address::with_last_byte(7);

fn id(agent: u64) -> AgentId {
    AgentId::new(U256::from(agent))
}

fn block(number: u64) -> BlockMark {
    BlockMark { number, hash: B256::from(U256::from(number)), parent: B256::from(U256::from(number - 1)) }
}

fn profile(agent: u64) -> Arc<TrustProfile> {
    let organization =
        Organization { org_id: U256::from(ORGANIZATION), name: "guild".into(), verified: false };
    Arc::new(TrustProfile {
        owner: OWNER,
        stake: U256::from(5),
        reputation: Reputation::default(),
        validation: Validation::default(),
        metadata_uri: String::new(),
        organizations: if agent == MEMBER { vec![organization] } else { Vec::new() },
    })
}

/// A cache that knows nothing, in which the two agents do not happen to share a counter of drops.
fn empty() -> ProfileCache {
    let lifetimes = Lifetimes {
        poll_interval: Duration::from_micros(INTERVAL),
        max_staleness: Duration::from_micros(STALENESS),
    };
    loop {
        let cache = ProfileCache::new(lifetimes);
        if cache.ground.place(id(AGENT)) != cache.ground.place(id(MEMBER)) {
            return cache;
        }
    }
}

/// A cache whose follower is at block 100, by a poll at second 10.
fn cache() -> ProfileCache {
    let cache = empty();
    cache.restart(block(100), 10 * SECOND);
    cache
}

/// Reads an agent in no time, as it is due.
fn read(cache: &ProfileCache, agent: u64, now: u64) -> (Plan, bool) {
    let (plan, ticket) = cache.begin(id(agent), now);
    let from = match plan {
        Plan::Pinned(_) => Source::Followed,
        Plan::Latest => Source::Latest,
    };
    (plan, cache.keep(&ticket, &profile(agent), from, (now, now)))
}

/// A cache that has an agent's profile as at block 101, confirmed at second 11.
fn warm(agent: u64) -> ProfileCache {
    let cache = cache();
    assert_eq!(read(&cache, agent, 10 * SECOND + 1), (Plan::Latest, true));
    cache.advance(block(101), &Drops::default(), 11 * SECOND);
    assert_eq!(read(&cache, agent, 11 * SECOND), (Plan::Pinned(block(101)), true));
    cache
}

fn serves(cache: &ProfileCache, agent: u64, now: u64) -> bool {
    cache.get(id(agent), now).is_some()
}

/// Something that drops, and whether it concerns an agent.
type Dropping = (&'static str, fn(&ProfileCache), fn(u64) -> bool);

const DROPPINGS: [Dropping; 6] = [
    ("a log that names the agent", |cache| drop_on(cache, &named(AGENT)), |agent| agent == AGENT),
    ("a log that names the member", |cache| drop_on(cache, &named(MEMBER)), |agent| agent == MEMBER),
    ("a log of the organization", |cache| drop_on(cache, &of_organization()), |agent| agent == MEMBER),
    ("a log that names nobody", |cache| drop_on(cache, &everybody()), |_| true),
    ("a beginning anew", |cache| cache.restart(block(102), 12 * SECOND), |_| true),
    ("touch is lost", ProfileCache::lose_touch, |_| true),
];

fn drop_on(cache: &ProfileCache, drops: &Drops) {
    cache.advance(block(102), drops, 12 * SECOND);
}

fn named(agent: u64) -> Drops {
    Drops { agents: [id(agent)].into(), ..Drops::default() }
}

fn of_organization() -> Drops {
    Drops { organizations: [U256::from(ORGANIZATION)].into(), ..Drops::default() }
}

fn everybody() -> Drops {
    Drops { everybody: Some(Culprit::Block(102)), ..Drops::default() }
}

#[test]
fn a_drop_after_a_read_was_kept_ends_its_service() {
    for (name, drop, concerns) in DROPPINGS {
        for agent in [AGENT, MEMBER] {
            let cache = warm(agent);
            assert!(serves(&cache, agent, 12 * SECOND));
            drop(&cache);
            assert_eq!(serves(&cache, agent, 12 * SECOND), !concerns(agent), "{name}, {agent}");
            assert_eq!(cache.last_owner(id(agent)), Some(OWNER), "it stays known");
        }
    }
}

#[test]
fn a_drop_between_the_beginning_and_the_end_of_a_read_keeps_it_out() {
    for (name, drop, concerns) in DROPPINGS {
        for agent in [AGENT, MEMBER] {
            for source in [Source::Followed, Source::Latest] {
                let cache = warm(agent);
                cache.forget(id(agent));
                let (_, ticket) = cache.begin(id(agent), 11 * SECOND);
                drop(&cache);
                let times = (11 * SECOND, 12 * SECOND + 1);
                let is_kept = cache.keep(&ticket, &profile(agent), source, times);
                assert_eq!(is_kept, !concerns(agent), "{name}, {agent}");
                assert_eq!(serves(&cache, agent, 11 * SECOND + 1), is_kept, "{name}, {agent}, {source:?}");
            }
        }
    }
}

#[test]
fn a_drop_before_a_read_began_does_not_touch_it() {
    for (name, drop, _) in DROPPINGS {
        for agent in [AGENT, MEMBER] {
            let cache = warm(agent);
            drop(&cache);
            let (_, is_kept) = read(&cache, agent, 12 * SECOND + 1);
            assert!(is_kept && serves(&cache, agent, 12 * SECOND + 1), "{name}, {agent}");
        }
    }
}

#[test]
fn a_read_is_at_the_block_whose_drops_its_ticket_has_seen() {
    let cache = warm(AGENT);
    let (plan, before) = cache.begin(id(AGENT), 11 * SECOND);
    assert_eq!(plan, Plan::Pinned(block(101)));
    drop_on(&cache, &named(AGENT));
    let (plan, after) = cache.begin(id(AGENT), 12 * SECOND);
    assert_eq!(plan, Plan::Pinned(block(102)));
    assert!(!cache.keep(&before, &profile(AGENT), Source::Followed, (0, 0)));
    assert!(cache.keep(&after, &profile(AGENT), Source::Followed, (12 * SECOND, 12 * SECOND)));
}

#[test]
fn what_was_read_at_the_followed_block_serves_while_the_follower_is_in_touch() {
    let cache = warm(AGENT);
    let silent_at = 11 * SECOND + STALENESS;
    assert!(serves(&cache, AGENT, silent_at - 1));
    assert!(!serves(&cache, AGENT, silent_at) && !cache.is_in_touch(silent_at));
    assert_eq!(cache.begin(id(AGENT), silent_at).0, Plan::Latest);
    cache.advance(block(102), &Drops::default(), silent_at);
    assert!(serves(&cache, AGENT, silent_at), "nothing was missed");
}

#[test]
fn a_poll_is_as_old_as_its_question() {
    let cache = warm(AGENT);
    // Asked at second 12, however late the answer came.
    cache.advance(block(102), &Drops::default(), 12 * SECOND);
    assert!(!serves(&cache, AGENT, 12 * SECOND + STALENESS));
}

#[test]
fn what_was_read_at_the_latest_block_serves_for_one_interval_and_until_a_later_poll() {
    let cache = cache();
    let begun = 10 * SECOND + 1;
    read(&cache, AGENT, begun);
    assert!(serves(&cache, AGENT, begun + INTERVAL - 1) && !serves(&cache, AGENT, begun + INTERVAL));
    assert_eq!(cache.begin(id(AGENT), begun + INTERVAL).0, Plan::Latest, "no poll was later");
    cache.advance(block(100), &Drops::default(), begun - 1);
    assert!(serves(&cache, AGENT, begun + 1), "a poll that began before it says less");
    cache.advance(block(100), &Drops::default(), begun);
    assert!(!serves(&cache, AGENT, begun + 1));
    assert_eq!(cache.begin(id(AGENT), begun + 1).0, Plan::Pinned(block(100)));
}

#[test]
fn nobody_is_shown_an_older_state_after_a_newer_one() {
    for drop in [named(AGENT), everybody(), Drops::default()] {
        let cache = cache();
        // A poll that was told block 101 is under way; a read sees block 102 meanwhile.
        let (asked, read_at) = (10 * SECOND + 1, 10 * SECOND + 2);
        assert_eq!(read(&cache, AGENT, read_at).0, Plan::Latest);
        cache.advance(block(101), &drop, asked);
        assert_eq!(cache.begin(id(AGENT), read_at + 1).0, Plan::Latest, "{drop:?}");
        cache.advance(block(102), &Drops::default(), read_at);
        assert_eq!(cache.begin(id(AGENT), read_at + 1).0, Plan::Pinned(block(102)), "{drop:?}");
    }
}

#[test]
fn without_a_follower_everything_is_read_at_the_latest_block_and_serves_for_one_interval() {
    for cache in [empty(), warm(AGENT)] {
        cache.lose_touch();
        for now in [20 * SECOND, 30 * SECOND] {
            assert!(!serves(&cache, AGENT, now));
            assert_eq!(read(&cache, AGENT, now), (Plan::Latest, true));
            assert!(serves(&cache, AGENT, now + INTERVAL - 1) && !serves(&cache, AGENT, now + INTERVAL));
        }
    }
}

#[test]
fn what_no_log_ever_drops_is_read_again_after_ten_minutes() {
    let cache = warm(AGENT);
    let (begun, end) = (11 * SECOND, 11 * SECOND + BACKSTOP_MICROS);
    cache.advance(block(101), &Drops::default(), begun + BACKSTOP_MICROS * 3 / 4);
    assert!(serves(&cache, AGENT, begun + BACKSTOP_MICROS * 3 / 4 - 1));
    cache.advance(block(101), &Drops::default(), end);
    assert!(!serves(&cache, AGENT, end));
    assert_eq!(cache.begin(id(AGENT), end).0, Plan::Pinned(block(101)));
}

#[test]
fn what_was_read_within_a_moment_is_not_read_again_within_one() {
    let lapses: BTreeSet<u64> = (0..1_000)
        .map(|millis| {
            let began_micros = 11 * SECOND + millis * 1_000;
            let reading = Reading { from: Source::Followed, generation: 0, began_micros, ended_micros: 0 };
            began_micros + backstop_micros(&reading)
        })
        .collect();
    let widest = lapses.iter().zip(lapses.iter().skip(1)).map(|(one, next)| next - one).max().unwrap();
    assert!(lapses.last().unwrap() - lapses.first().unwrap() > BACKSTOP_MICROS / 5, "{lapses:?}");
    assert!(widest < 2 * SECOND, "{widest}");
}

#[test]
fn the_last_owner_is_known_until_the_agent_is_seen_not_to_exist() {
    let cache = warm(AGENT);
    assert_eq!(cache.last_owner(id(MEMBER)), None);
    drop_on(&cache, &everybody());
    assert_eq!(cache.last_owner(id(AGENT)), Some(OWNER));
    cache.forget(id(AGENT));
    assert_eq!(cache.last_owner(id(AGENT)), None);
    drop_on(&cache, &named(AGENT));
    assert_eq!(cache.len(), 0, "a log makes nobody known");
}

#[test]
fn a_flood_of_agents_stays_within_the_bounds() {
    let cache = cache();
    for agent in 0..(ENTRIES_MAX as u64 + 20_000) {
        read(&cache, agent, 10 * SECOND + 1);
    }
    assert!((100_000..=ENTRIES_MAX).contains(&cache.len()), "{}", cache.len());
    assert!(cache.entries.weights()[0] <= CACHED_BYTES_MAX);
}

/// A read of the agent that can't be decoded.
fn fail(cache: &ProfileCache, agent: u64, now: u64) {
    let (_, ticket) = cache.begin(id(agent), now);
    let cause = Arc::new(std::io::Error::other("absurd"));
    let fault = ChainFault { endpoint: Arc::from("http://node"), method: "eth_call", cause };
    cache.keep_fault(&ticket, &fault, now);
}

#[test]
fn that_an_agent_can_not_be_read_is_said_for_an_interval_and_until_something_is_dropped_that_may_be_why() {
    for (name, drop, _) in DROPPINGS {
        let cache = warm(AGENT);
        fail(&cache, AGENT, 12 * SECOND);
        assert!(cache.fault(id(MEMBER), 12 * SECOND).is_none());
        assert!(cache.fault(id(AGENT), 12 * SECOND + INTERVAL - 1).is_some());
        drop(&cache);
        // Which organizations it lists is not known: each of these concerns it, but for one.
        let is_said = name == "a log that names the member";
        assert_eq!(cache.fault(id(AGENT), 12 * SECOND).is_some(), is_said, "{name}");
    }
    let cache = warm(AGENT);
    fail(&cache, AGENT, 12 * SECOND);
    assert!(cache.fault(id(AGENT), 12 * SECOND + INTERVAL).is_none());
}

#[test]
fn a_flood_of_agents_that_can_not_be_read_stays_within_the_bounds() {
    let cache = cache();
    for agent in 0..10_000 {
        fail(&cache, agent, 10 * SECOND);
    }
    assert!(cache.faults.len() <= FAULTS_MAX, "{}", cache.faults.len());
    assert_eq!(cache.len(), 0);
}
