//! Tiers from feedback of listed clients, which a contract sums up on the chain. Of the other numbers that give tiers `several_sources`
//! has one case for each; their rules are in `chain::measures`.

use alloy::sol_types::SolCall;

use alloy::primitives::{Address, U256, address};
use serde_json::json;
use toml::Table;

use crate::changes::has;
use crate::erc8004::Registries;
use crate::following::{Scene, await_polls};
use crate::support::harness::{Case, cases};
use crate::support::signing::{ALICE, BOB, DEPLOYER};
use crate::support::tier_sources::{tier, with_sources};
use crate::support::{
    chain::Multicall, client::Answer, erc8004::entry_of_feedback, service::Service, world::World,
};

pub(crate) const CASES: &[Case<World>] = cases![
    the_sum_of_listed_clients_feedback_opens_each_tier_and_one_unit_less_does_not,
    an_average_counts_from_so_many_distinct_clients_and_one_unit_less_does_not,
    feedback_of_another_tag_counts_where_any_does_and_nowhere_else,
    of_two_thousand_entries_of_one_client_the_newest_share_counts_in_time,
    feedback_that_takes_too_much_gas_is_503_and_never_a_part_and_costs_no_other_agent_its_tier,
];

/// Account 4.
const STRANGER: Address = address!("0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65");

/// Account 3 of those that development nodes unlock.
const CAROL: Address = address!("0x90F79bf6EB2c4f870365E785982E1f101E93b906");

impl Scene {
    /// Makes a change, and sees this tier within two polls.
    #[track_caller]
    fn shows_tier(&self, change: impl FnOnce(), expected: u64) {
        self.shows(change, |answer| tier(answer) == Some(expected));
    }
}

/// The source of tiers that is what Bob, the deployer and Carol say.
pub(crate) fn feedback(thresholds: [&str; 4], average_over: Option<i64>) -> Table {
    feedback_of(BOB.address, thresholds, average_over)
}

/// The same with another client in Bob's place.
fn feedback_of(first: Address, thresholds: [&str; 4], average_over: Option<i64>) -> Table {
    let clients = [first, DEPLOYER.address, CAROL].map(|client| client.to_checksum(None));
    let mut source = Table::new();
    source.insert("source".into(), "reputation".into());
    source.insert("clients".into(), clients.to_vec().into());
    source.insert("thresholds".into(), thresholds.to_vec().into());
    if let Some(average_over) = average_over {
        source.insert("average_over".into(), average_over.into());
    }
    source
}

/// A tier beside all scores, strangers' too, which show that the feedback was read.
fn tier_and_total(expected: u64, total: &str) -> impl Fn(&Answer) -> bool {
    move |answer| tier(answer) == Some(expected) && has(answer, "/reputation/totalScore", json!(total))
}

fn the_sum_of_listed_clients_feedback_opens_each_tier_and_one_unit_less_does_not(world: &World) {
    let registries = Registries::new(world);
    let (on, chain, agent) = (registries.on, registries.chain, registries.unstaked(ALICE));
    let id = agent.id;
    let give = |client: Address, value| on.feedback(chain, client, id, value, "starred");
    let revoke = |client: Address, index| on.revoke(chain, client, id, index);
    let source = feedback(["1.5", "3", "4.5", "6"], None);
    give(BOB.address, (15, 1));
    let scene = Scene::with(with_sources(registries.settings(world), &[source]), agent);
    let below = (1_499_999_999_999_999_999, 18);
    scene.shows(|| give(CAROL, below), tier_and_total(1, "2.999999999999999999"));
    scene.shows_tier(|| give(DEPLOYER.address, (1, 18)), 2);
    scene.shows(|| give(STRANGER, (100, 0)), tier_and_total(2, "103"));
    scene.shows_tier(|| give(BOB.address, (3, 0)), 4);
    scene.shows_tier(|| revoke(BOB.address, 2), 2);
    scene.shows_tier(|| give(BOB.address, (15, 1)), 3);
    scene.shows_tier(|| give(BOB.address, (-6, 0)), 0);
    scene.shows_tier(|| revoke(BOB.address, 4), 3);
    scene.shows_tier(|| revoke(BOB.address, 3), 2);
    scene.shows_tier(|| revoke(DEPLOYER.address, 1), 1);
    scene.shows_tier(|| revoke(BOB.address, 1), 0);
    scene.answer().error(403, "TIER_BLOCKED");
}

fn an_average_counts_from_so_many_distinct_clients_and_one_unit_less_does_not(world: &World) {
    let registries = Registries::new(world);
    let (on, chain, agent) = (registries.on, registries.chain, registries.unstaked(ALICE));
    let id = agent.id;
    let give = |client: Address, value| on.feedback(chain, client, id, value, "starred");
    let revoke = |client: Address, index| on.revoke(chain, client, id, index);
    for client in [BOB.address, DEPLOYER.address] {
        give(client, (4, 0));
    }
    let source = feedback(["3", "4", "4.5", "4.9"], Some(2));
    let scene = Scene::with(with_sources(registries.settings(world), &[source]), agent);
    assert_eq!(tier(&scene.answer()), Some(2));
    scene.shows_tier(|| give(CAROL, (55, 1)), 3);
    scene.shows_tier(|| revoke(CAROL, 1), 2);
    let below = (5_499_999_999_999_999_999, 18);
    scene.shows(|| give(CAROL, below), tier_and_total(2, "13.499999999999999999"));
    scene.shows(|| give(STRANGER, (1_000, 0)), tier_and_total(2, "1013.499999999999999999"));
    scene.shows(|| revoke(CAROL, 2), tier_and_total(2, "1008"));
    scene.shows_tier(|| revoke(DEPLOYER.address, 1), 0);
    // Two entries, of one client.
    give(BOB.address, (5, 0));
    await_polls(&scene.service, 3.0);
    assert_eq!(tier(&scene.answer()), Some(0));
    scene.shows_tier(|| give(DEPLOYER.address, (5, 0)), 3);
}

fn feedback_of_another_tag_counts_where_any_does_and_nowhere_else(world: &World) {
    let registries = Registries::new(world);
    let (on, chain, agent) = (registries.on, registries.chain, registries.unstaked(ALICE));
    let source = feedback(["1", "5", "500", "1000"], None);
    let mut any = source.clone();
    any.insert("tag".into(), "".into());
    let alone = |source: Table| with_sources(registries.settings(world), &[source]);
    on.feedback(chain, BOB.address, agent.id, (5, 0), "starred");
    for tag in ["responseTime", "", "starred!", "Starred"] {
        on.feedback(chain, BOB.address, agent.id, (560, 0), tag);
    }
    for (source, expected) in [(source, 2), (any, 4)] {
        let service = Service::start(alone(source));
        assert_eq!(tier(&service.verify_signature(&agent.signed())), Some(expected));
    }
}

/// Has the contract that makes many calls in one transaction give so many entries of this value.
fn give_many(registries: &Registries<'_>, id: U256, count: usize, value: i128) {
    // Fits a transaction of 10,000,000 gas.
    const ENTRIES_OF_A_TRANSACTION: usize = 40;
    let chain = registries.chain;
    let entry = Multicall::Call {
        target: registries.on.reputation,
        allowFailure: false,
        callData: entry_of_feedback(id, (value, 0), "starred").abi_encode().into(),
    };
    for calls in vec![entry; count].chunks(ENTRIES_OF_A_TRANSACTION) {
        let call = Multicall::aggregate3Call { calls: calls.to_vec() };
        chain.send(DEPLOYER, chain.contracts.multicall, &call);
    }
}

fn of_two_thousand_entries_of_one_client_the_newest_share_counts_in_time(world: &World) {
    let own = world.another();
    let registries = Registries::of(own.chain());
    let agent = registries.unstaked(ALICE);
    give_many(&registries, agent.id, 1_700, 100);
    give_many(&registries, agent.id, 300, 1);
    let source = feedback_of(registries.chain.contracts.multicall, ["299", "300", "301", "1000"], None);
    let settings = with_sources(registries.settings(&own), &[source]).set("chain.feedback_max", 900);
    let scene = Scene::with(settings, agent);
    // A read that takes too long is a 503. A busy machine delays one of three.
    let mut reads = (0..3).map(|_| scene.service.verify_signature(&scene.agent.signed()));
    assert_eq!(tier(&reads.find(|answer| answer.status != 503).unwrap()), Some(2));
    // The oldest of the share makes room.
    scene.shows_tier(|| give_many(&registries, scene.agent.id, 1, 0), 1);
}

fn feedback_that_takes_too_much_gas_is_503_and_never_a_part_and_costs_no_other_agent_its_tier(world: &World) {
    let registries = Registries::new(world);
    let [much, little] = [(); 2].map(|()| registries.unstaked(ALICE));
    give_many(&registries, much.id, 300, 5);
    give_many(&registries, little.id, 1, 5);
    let source = feedback_of(registries.chain.contracts.multicall, ["1", "2", "3", "4"], None);
    let settings = with_sources(registries.settings(world), &[source]).set("chain.gas_cap", 1_500_000);
    let service = Service::start(settings);
    for _ in 0..2 {
        service.verify_signature(&much.signed()).error(503, "RPC_ERROR");
        assert_eq!(tier(&service.verify_signature(&little.signed())), Some(4));
    }
}
