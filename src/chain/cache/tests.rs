//! The cache keeps reads, and serves each for as long as it may.

use std::{sync::Arc, time::Duration};

use alloy::primitives::{Address, B256, U256};

use super::{CachedProfile, Details, Entry, ProfileCache, Status, Ticket};
use crate::chain::block::{Block, Date, ReadAt};
use crate::chain::{fault::ReadError, registries::logs::Drops};
use crate::domain;
use crate::domain::{AgentId, Holders, Lifetimes, Texts, TrustProfile};
use crate::ports::Parts;

fn cache_of(by_holder: bool) -> ProfileCache {
    let (poll_interval, max_staleness) = (Duration::from_secs(1), Duration::from_secs(5));
    ProfileCache::new(Lifetimes { poll_interval, max_staleness, reread_after: None }, by_holder)
}

fn id(agent: u64) -> AgentId {
    AgentId::new(U256::from(agent))
}

fn block(number: u64) -> Block {
    Block { number, hash: B256::ZERO, parent: B256::ZERO, timestamp: 0 }
}

const NOBODY: Holders = Holders::owned_by(Address::ZERO);

/// A read of what decides at a block of the followed chain.
fn at(block: u64) -> ReadAt {
    let (date, before) = (Date { timestamp: 0, number: block }, Some(B256::ZERO));
    ReadAt { date, before, is_followed: true }
}

/// A profile with this owner.
fn profile(owner: Address) -> CachedProfile {
    let profile = TrustProfile {
        holders: Holders::owned_by(owner),
        stake: Some(U256::ZERO),
        measured: None,
        details: None,
        texts: Texts::default(),
    };
    (Arc::new(profile), None)
}

// threat: A neighbour's bad keys
#[test]
fn an_agent_whose_read_is_overtaken_by_a_block_is_known_by_its_owner_and_not_served() {
    let (cache, owner) = (cache_of(false), Address::repeat_byte(7));
    cache.restart(Some(block(10)));
    cache.confirm(0);
    let ticket = cache.begin(0);
    cache.advance(block(11), &Drops::default(), &[]);
    cache.keep(id(1), &ticket, &profile(owner), at(10));
    assert_eq!(cache.last_holders(id(1)), Some(Holders::owned_by(owner)));
    assert!(cache.get(id(1), Parts::Gate, 0).is_none(), "a log of block 11 may be missing in it");
    // Nor does an older read take the place of what is known.
    cache.keep(id(1), &ticket, &profile(Address::ZERO), at(10));
    assert_eq!(cache.last_holders(id(1)), Some(Holders::owned_by(owner)));
    cache.keep(id(1), &cache.begin(0), &profile(owner), at(11));
    assert!(cache.get(id(1), Parts::Gate, 0).is_some());
}

/// The agents of these owners, read at block 10, in a cache that followed to there.
fn held(owners: &[(u64, Address)]) -> ProfileCache {
    let cache = cache_of(true);
    cache.restart(Some(block(10)));
    cache.confirm(0);
    for (agent, owner) in owners {
        cache.keep(id(*agent), &cache.begin(0), &profile(*owner), at(10));
        assert!(cache.get(id(*agent), Parts::Gate, 0).is_some());
    }
    cache
}

fn of_holder(holder: Address, at: u64) -> Drops {
    Drops { holders: [(holder, at)].into(), ..Drops::default() }
}

#[test]
fn a_log_that_names_an_account_drops_the_agents_that_it_holds_and_no_others() {
    let [one, other] = [1, 2].map(Address::repeat_byte);
    let cache = held(&[(1, one), (2, one), (3, other)]);
    assert_eq!(cache.advance(block(11), &of_holder(one, 11), &[]).0, [0, 0, 2]);
    assert!([1, 2].iter().all(|agent| cache.get(id(*agent), Parts::Gate, 0).is_none()));
    assert!(cache.get(id(3), Parts::Gate, 0).is_some());
    assert_eq!(cache.advance(block(12), &of_holder(one, 10), &[]).0, [0; 3], "it has the change");
    // A dropped agent is still known to be held by this account.
    let ticket = cache.begin(0);
    assert_eq!(ticket.followed, Some(block(12)));
    cache.advance(block(13), &of_holder(one, 13), &[]);
    cache.keep(id(1), &ticket, &profile(one), at(12));
    assert!(cache.get(id(1), Parts::Gate, 0).is_none(), "the read lacks the change of block 13");
}

#[test]
fn a_read_that_finds_another_holder_is_not_kept_if_a_log_since_may_have_named_that_one() {
    let [seller, buyer] = [1, 2].map(Address::repeat_byte);
    let sold = |named: Address, moved: u64| {
        let cache = held(&[(1, seller)]);
        let transfer = Drops { agents: [(id(1), 11)].into(), ..Drops::default() };
        cache.advance(block(11), &transfer, &[]);
        let ticket = cache.begin(0);
        // The cache does not know yet that the buyer holds the agent.
        cache.advance(block(12), &of_holder(named, moved), &[]);
        cache.keep(id(1), &ticket, &profile(buyer), at(11));
        cache.get(id(1), Parts::Gate, 0).is_some()
    };
    assert!(!sold(buyer, 12), "the buyer's tokens moved in block 12");
    assert!(sold(buyer, 11), "the read has the change");
    let cache = held(&[(1, seller)]);
    cache.advance(block(12), &of_holder(buyer, 12), &[]);
    assert!(cache.get(id(1), Parts::Gate, 0).is_some(), "who holds it is known, and was not named");
}

#[test]
fn a_read_of_before_a_beginning_changes_no_floor() {
    let mut status = Status::default();
    status.restart(Some(block(10)));
    let began_before = status.begin(0);
    status.restart(Some(block(25)));
    let now = status.begin(0);
    let keep = |ticket: &Ticket, number, known| {
        status.keep(ticket, ((), Details::Unasked, NOBODY), at(number), false, known)
    };
    let floor = Entry::Dropped { holders: NOBODY, floor: 27, epoch: status.begin(0).epoch };
    assert!(keep(&began_before, 24, Some(&floor)).is_none());
    assert!(keep(&now, 25, Some(&floor)).is_none(), "it lacks the change of block 27");
    // However high its block was: the chain may have begun anew.
    assert!(keep(&now, 25, Some(&keep(&began_before, 1_000, None).unwrap())).is_some());
}

#[test]
fn details_that_can_not_be_read_are_asked_for_once_an_interval_and_those_that_are_there_stay() {
    let cache = held(&[]);
    let details = Some(domain::profile::Details::default());
    let whole = TrustProfile { details, ..(*profile(Address::ZERO).0).clone() };
    let whole = (Arc::new(whole), None);
    let serves = |now| [Parts::Gate, Parts::Whole].map(|parts| cache.get(id(1), parts, now).is_some());
    let fault = ReadError::Busy.at(Arc::from("node"), "eth_call");
    let lacking = (profile(Address::ZERO).0, Some(Arc::new(fault)));
    cache.keep(id(1), &cache.begin(0), &lacking, at(11));
    assert_eq!((serves(0), serves(1_000_000)), ([true, true], [true, false]));
    cache.keep(id(1), &cache.begin(0), &whole, at(11));
    cache.keep(id(1), &cache.begin(0), &profile(Address::ZERO), at(12));
    assert_eq!(serves(0), [true, true], "a read of what decides displaces no details");
}

#[test]
fn a_block_that_a_read_shows_while_logs_are_read_is_compared_at_the_next_poll() {
    let cache = held(&[]);
    let compared = cache.shown(11);
    cache.keep(id(1), &cache.begin(0), &profile(Address::ZERO), at(11));
    for (number, compared, left) in [(11, compared, 1), (12, vec![(at(11).date, B256::ZERO)], 0)] {
        cache.advance(block(number), &Drops::default(), &compared);
        assert_eq!(cache.shown(number + 1).len(), left, "block {number}");
    }
}

#[test]
fn what_is_not_known_to_be_of_the_followed_chain_serves_for_one_interval() {
    let cache = held(&[]);
    let serves = |now| cache.get(id(1), Parts::Gate, now).is_some();
    cache.keep(id(1), &cache.begin(0), &profile(Address::ZERO), ReadAt { is_followed: false, ..at(10) });
    assert!(serves(999_999) && !serves(1_000_000));
    cache.keep(id(1), &cache.begin(0), &profile(Address::ZERO), at(10));
    assert!(serves(1_000_000) && !serves(5_000_000), "until touch is lost");
}
