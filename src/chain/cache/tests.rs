//! Bounds and faults of the cache.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, U256};

use super::status::{Entry, Status, Ticket};
use super::{FAULTS_MAX, ProfileCache};
use crate::chain::block::Block;
use crate::chain::fault::ReadError;
use crate::chain::registries::logs::{Cause, Drops};
use crate::domain::agent_id::AgentId;
use crate::domain::chain_settings::Lifetimes;
use crate::domain::holders::Holders;
use crate::domain::profile::{Texts, TrustProfile};
use crate::ports::chain::ChainFault;

fn cache() -> ProfileCache {
    cache_of(false)
}

fn cache_of(by_holder: bool) -> ProfileCache {
    let (poll_interval, max_staleness) = (Duration::from_secs(1), Duration::from_secs(5));
    ProfileCache::new(Lifetimes { poll_interval, max_staleness, reread_after: None }, by_holder)
}

fn id(agent: u64) -> AgentId {
    AgentId::new(U256::from(agent))
}

fn fault() -> ChainFault {
    ReadError::Reverted("getStake(uint256)").at("http://node".into(), "eth_call")
}

fn keep_fault(cache: &ProfileCache, agent: u64) {
    cache.keep_fault(id(agent), &cache.begin_latest(), &fault(), 0);
}

fn block(number: u64) -> Block {
    Block { number, hash: B256::ZERO, parent: B256::ZERO, timestamp: 0 }
}

#[test]
fn no_more_than_1024_faults_are_remembered_however_many_agents_are_absurd() {
    let cache = cache();
    for agent in 0..20_000 {
        keep_fault(&cache, agent);
        assert!(cache.fault(id(agent), 0).is_some(), "the last one is remembered");
    }
    let remembered = (0..20_000).filter(|agent| cache.fault(id(*agent), 0).is_some()).count();
    assert_eq!(FAULTS_MAX, 1_024);
    assert!((512..=FAULTS_MAX).contains(&remembered), "{remembered}");
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_fault_is_remembered_for_an_interval_or_until_a_log_concerns_the_agent() {
    let agent = |at| Drops { agents: [(id(1), at)].into(), ..Drops::default() };
    let organization = |at| Drops { organizations: [(U256::ONE, at)].into(), ..Drops::default() };
    let everybody = |block| {
        let cause = Cause { contract: Address::ZERO, topic: None, block };
        Drops { everybody: Some(cause), ..Drops::default() }
    };
    for (drops, is_remembered) in [
        (Drops::default(), true),
        (agent(11), false),
        (agent(10), true),
        (organization(11), false),
        (organization(10), true),
        (everybody(11), false),
        (everybody(10), true),
    ] {
        let cache = cache();
        cache.restart(Some(block(10)));
        keep_fault(&cache, 1);
        assert!(cache.fault(id(1), 999_999).is_some() && cache.fault(id(1), 1_000_000).is_none());
        cache.advance(block(12), &drops);
        assert_eq!(cache.fault(id(1), 0).is_some(), is_remembered, "{drops:?}");
        cache.restart(None);
        assert!(cache.fault(id(1), 0).is_none(), "what is known is of another beginning");
    }
}

const NOBODY: Holders = Holders::owned_by(Address::ZERO);

/// A profile with this owner.
fn profile(owner: Address) -> Arc<TrustProfile> {
    Arc::new(TrustProfile {
        holders: Holders::owned_by(owner),
        stake: Some(U256::ZERO),
        measured: None,
        details: None,
        texts: Texts::default(),
    })
}

// threat: A neighbour's bad keys
#[test]
fn an_agent_whose_read_is_overtaken_by_a_block_is_known_by_its_owner_and_not_served() {
    let (cache, owner) = (cache(), Address::repeat_byte(7));
    cache.restart(Some(block(10)));
    cache.confirm(0);
    let ticket = cache.begin(id(1), 0);
    cache.advance(block(11), &Drops::default());
    cache.keep(id(1), &ticket, (&profile(owner), 10), 0);
    assert_eq!(cache.last_holders(id(1)), Some(Holders::owned_by(owner)));
    assert!(cache.get(id(1), 0).is_none(), "a log of block 11 may be missing in it");
    // Nor does an older read take the place of what is known.
    cache.keep(id(1), &ticket, (&profile(Address::ZERO), 10), 0);
    assert_eq!(cache.last_holders(id(1)), Some(Holders::owned_by(owner)));
    cache.keep(id(1), &cache.begin(id(1), 0), (&profile(owner), 11), 0);
    assert!(cache.get(id(1), 0).is_some());
}

/// The agents of these owners, read at block 10, in a cache that followed to there.
fn held(owners: &[(u64, Address)]) -> ProfileCache {
    let cache = cache_of(true);
    cache.restart(Some(block(10)));
    cache.confirm(0);
    for (agent, owner) in owners {
        cache.keep(id(*agent), &cache.begin(id(*agent), 0), (&profile(*owner), 10), 0);
        assert!(cache.get(id(*agent), 0).is_some());
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
    assert_eq!(cache.advance(block(11), &of_holder(one, 11)).held, 2);
    assert!([1, 2].iter().all(|agent| cache.get(id(*agent), 0).is_none()));
    assert!(cache.get(id(3), 0).is_some());
    assert_eq!(cache.advance(block(12), &of_holder(one, 10)).held, 0, "it has the change");
    // A dropped agent is still known to be held by this account.
    let ticket = cache.begin(id(1), 0);
    assert_eq!(ticket.pinned, Some(block(12)));
    cache.advance(block(13), &of_holder(one, 13));
    cache.keep(id(1), &ticket, (&profile(one), 12), 0);
    assert!(cache.get(id(1), 0).is_none(), "the read lacks the change of block 13");
}

#[test]
fn a_read_that_finds_another_holder_is_not_kept_if_a_log_since_may_have_named_that_one() {
    let [seller, buyer] = [1, 2].map(Address::repeat_byte);
    let sold = |named: Address, at: u64| {
        let cache = held(&[(1, seller)]);
        let transfer = Drops { agents: [(id(1), 11)].into(), ..Drops::default() };
        cache.advance(block(11), &transfer);
        let ticket = cache.begin(id(1), 0);
        // The cache does not know yet that the buyer holds the agent.
        cache.advance(block(12), &of_holder(named, at));
        cache.keep(id(1), &ticket, (&profile(buyer), 11), 0);
        cache.get(id(1), 0).is_some()
    };
    assert!(!sold(buyer, 12), "the buyer's tokens moved in block 12");
    assert!(sold(buyer, 11), "the read has the change");
    let cache = held(&[(1, seller)]);
    cache.advance(block(12), &of_holder(buyer, 12));
    assert!(cache.get(id(1), 0).is_some(), "who holds it is known, and was not named");
}

#[test]
fn a_log_drops_what_was_read_at_a_block_before_it_and_may_be_applied_again() {
    let mut status = Status::default();
    status.restart(Some(block(10)));
    let ticket = status.begin_latest();
    let read = |known| status.keep(&ticket, ((), NOBODY, 12), (false, false), (known, 0));
    let entry = read(None).unwrap();
    assert!(status.dropped(&entry, NOBODY, 12).is_none(), "it has the change");
    let dropped = status.dropped(&entry, NOBODY, 13).unwrap();
    assert!(status.dropped(&dropped, NOBODY, 13).is_none());
    assert!(read(Some(&dropped)).is_none(), "a read that lacks the change is not kept");
}

#[test]
fn a_read_of_before_a_beginning_lowers_no_floor() {
    let mut status = Status::default();
    status.restart(Some(block(10)));
    let began_before = status.begin_latest();
    status.restart(Some(block(25)));
    let pinned = Ticket { pinned: Some(block(25)), ..status.begin_latest() };
    let keep = |ticket: &Ticket, at, known| status.keep(ticket, ((), NOBODY, at), (false, false), (known, 0));
    let floor = Entry::Dropped { holders: NOBODY, floor: 27, epoch: status.begin_latest().epoch };
    let known = keep(&began_before, 24, Some(&floor)).unwrap();
    assert_eq!(known, floor);
    assert!(keep(&pinned, 25, Some(&known)).is_none(), "it lacks the change of block 27");
    assert!(keep(&pinned, 25, Some(&keep(&began_before, 24, None).unwrap())).is_some());
}

#[test]
fn a_fault_that_was_found_before_what_is_accounted_for_now_is_not_remembered() {
    let cache = cache();
    cache.restart(Some(block(12)));
    let ticket = cache.begin_latest();
    cache.advance(block(13), &Drops { agents: [(id(1), 13)].into(), ..Drops::default() });
    cache.keep_fault(id(1), &ticket, &fault(), 0);
    assert!(cache.fault(id(1), 0).is_none());
}
