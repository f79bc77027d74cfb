//! Against the development chain: what is read, how many calls it costs, and what is kept.

use std::sync::Arc;

use alloy::primitives::{Address, I256, U256};

use crate::chain::fixture::{Bench, LIFETIME, PATIENT, agent, bench_with, details};
use crate::chain::{fault::ReadError, tests::development::DevScene};
use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::fixture::{Identity, create, send};
use crate::domain::{Holders, Registries, RegistrySet, TrustProfile};
use crate::ports::{Asker, Chain, Parts};

fn bench_of(scene: &DevScene, registries: Registries) -> Bench {
    bench_with(&[scene.node.url()], (registries, scene.multicall), PATIENT)
}

fn without_multicall(scene: &DevScene, registries: Registries) -> Bench {
    bench_with(&[scene.node.url()], (registries, SAMPLE_ACCOUNTS[9].address), PATIENT)
}

async fn profile(bench: &Bench, id: u64) -> Option<Arc<TrustProfile>> {
    bench.reader.profile(agent(id), Parts::Whole).await.unwrap()
}

#[tokio::test]
async fn a_profile_is_what_the_registries_say_what_decides_in_one_call_and_details_in_another() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    let read = profile(&bench, 4).await.unwrap();
    assert_eq!(read.holders.owner, SAMPLE_ACCOUNTS[4].address);
    assert_eq!(read.stake, Some(U256::from(500_000) * U256::from(10).pow(U256::from(18))));
    assert!(details(&read).metadata_uri.starts_with("ipfs://"));
    assert_eq!(
        (details(&read).reputation.total_score, details(&read).reputation.feedback_count),
        (I256::unchecked_from(17), 4)
    );
    assert_eq!((details(&read).validation.count, details(&read).validation.latest.is_none()), (0, true));
    let organizations: Vec<_> =
        details(&read).organizations.iter().map(|org| (&*org.name, org.verified)).collect();
    assert_eq!(organizations, [("Harbour Robotics", true), ("Night Market Collective", false)]);
    assert_eq!((scene.node.calls("eth_call"), scene.node.all_calls()), (2, 2));

    let validated = profile(&bench, 3).await.unwrap();
    let validated = details(&validated).validation.latest.clone().unwrap();
    assert!(!validated.passed && validated.evidence.starts_with("ipfs://"));
}

#[tokio::test]
async fn only_an_agent_that_is_not_minted_is_nobody() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    let owner = SAMPLE_ACCOUNTS[1].address;
    assert_eq!(
        bench.reader.holders(agent(1), Asker::Stranger).await.unwrap(),
        Some(Holders::owned_by(owner))
    );
    assert_eq!(profile(&bench, 1).await.unwrap().holders.owner, owner);
    for id in [0, 6, u64::MAX] {
        assert_eq!(bench.reader.holders(agent(id), Asker::Stranger).await.unwrap(), None, "{id}");
        assert_eq!(profile(&bench, id).await, None, "{id}");
        assert_eq!(bench.reader.latest_profile(agent(id), Parts::Whole).await.unwrap(), None, "{id}");
    }
}

#[tokio::test]
async fn a_cached_profile_costs_no_call_within_its_lifetime_and_two_afterwards() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    for _ in 0..3 {
        profile(&bench, 1).await.unwrap();
    }
    assert_eq!(scene.node.all_calls(), 2);
    bench.clock.advance(LIFETIME);
    for _ in 0..3 {
        profile(&bench, 1).await.unwrap();
    }
    assert_eq!(scene.node.all_calls(), 4);
}

// threat: A new owner or a reorganization is not seen
#[tokio::test]
async fn owners_and_latest_profiles_are_never_taken_from_the_cache() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    let (old, new) = (SAMPLE_ACCOUNTS[2].address, SAMPLE_ACCOUNTS[8].address);
    assert_eq!(profile(&bench, 2).await.unwrap().holders.owner, old);
    assert_eq!(bench.reader.holders(agent(2), Asker::Stranger).await.unwrap(), Some(Holders::owned_by(old)));
    scene.transfer(2, new);
    assert_eq!(bench.reader.holders(agent(2), Asker::Stranger).await.unwrap(), Some(Holders::owned_by(new)));
    assert_eq!(profile(&bench, 2).await.unwrap().holders.owner, old, "as stale as it may be");
    assert_eq!(
        bench.reader.latest_profile(agent(2), Parts::Whole).await.unwrap().unwrap().holders.owner,
        new
    );
    assert_eq!(profile(&bench, 2).await.unwrap().holders.owner, new, "the cache has the later read");
    assert_eq!(scene.node.all_calls(), 6);
}

// threat: Bad signatures cause work
#[tokio::test]
async fn a_thousand_askers_at_once_cost_at_most_two_calls() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    let ask = |id| {
        let reader = Arc::clone(&bench.reader);
        tokio::spawn(async move {
            let (holders, profile) = tokio::join!(
                reader.holders(agent(id), Asker::Stranger),
                reader.profile(agent(id), Parts::Whole)
            );
            assert_eq!(holders.unwrap(), profile.unwrap().map(|profile| profile.holders));
        })
    };
    // Agent 6 does not exist, so that its askers find nothing in the cache.
    for (id, at_most) in [(3, 2 + 1), (6, 2 + 2)] {
        let before = scene.node.all_calls();
        let askers: Vec<_> = (0..1_000).map(|_| ask(id)).collect();
        for asker in askers {
            asker.await.unwrap();
        }
        assert!(scene.node.all_calls() - before <= at_most, "{}", scene.node.all_calls() - before);
    }
}

// threat: "Unknown" is remembered
#[tokio::test]
async fn strangers_are_not_cached_and_leave_nothing() {
    let scene = DevScene::new().await;
    let bench = bench_of(&scene, scene.registries);
    for id in 100..150 {
        assert_eq!(profile(&bench, id).await, None);
    }
    assert_eq!(bench.reader.agents.cache.len(), 0);
    profile(&bench, 100).await;
    assert_eq!(scene.node.all_calls(), 51, "a token that is minted now is found now");

    profile(&bench, 1).await.unwrap();
    assert_eq!(bench.reader.agents.cache.len(), 1);
    scene.call_as(1, &Identity::burnCall { id: U256::from(1) });
    bench.clock.advance(LIFETIME);
    assert_eq!(profile(&bench, 1).await, None);
    assert_eq!(bench.reader.agents.cache.len(), 0, "who is gone is forgotten");
}

#[tokio::test]
async fn a_contract_that_decides_and_is_not_there_is_named_by_its_key_and_any_other_costs_details() {
    let scene = DevScene::new().await;
    let nowhere = SAMPLE_ACCOUNTS[9].address;
    type Change = fn(&mut Registries, Address);
    let changes: [(&str, Change); 5] = [
        ("chain.contracts.identity", |on, to| on.identity = to),
        ("chain.contracts.stake_vault", |on, to| on.stake_vault = Some(to)),
        ("chain.contracts.reputation", |on, to| on.reputation = Some(to)),
        ("chain.contracts.validation", |on, to| on.validation = Some(to)),
        ("chain.contracts.organization", |on, to| {
            on.set = RegistrySet::Documented { organization: Some(to) }
        }),
    ];
    for (name, change) in changes {
        let mut registries = scene.registries;
        change(&mut registries, nowhere);
        let bench = bench_of(&scene, registries);
        let probed = bench.reader.probe().await;
        let read = bench.reader.profile(agent(1), Parts::Whole).await;
        if ["chain.contracts.identity", "chain.contracts.stake_vault"].contains(&name) {
            let fault = probed.unwrap_err();
            assert_eq!(*fault.cause, *ReadError::NoCode(name).to_string());
            assert!(fault.to_string().contains(name), "{fault}");
            assert_eq!(read.unwrap_err().cause, fault.cause, "and nobody is 404 meanwhile");
        } else {
            assert!(probed.is_ok() && bench.reader.lacks_details(), "{name}");
            assert_eq!(read.unwrap().unwrap().details, None, "{name}");
            let fault = bench.reader.latest_profile(agent(1), Parts::Whole).await.unwrap_err();
            let error = ReadError::NoDetails(Arc::new(ReadError::NoCode(name)));
            assert_eq!(*fault.cause, *error.to_string());
        }
        let holders = bench.reader.holders(agent(1), Asker::Stranger).await;
        assert_eq!(holders.is_err(), name == "chain.contracts.identity", "{name}");
    }
    let bench = bench_of(&scene, scene.registries);
    bench.reader.probe().await.unwrap();
    let before = scene.node.all_calls();
    bench.reader.probe().await.unwrap();
    assert_eq!(scene.node.all_calls(), before + 1, "contracts that were found are not looked for again");
}

#[tokio::test]
async fn without_multicall_the_same_profile_is_read_in_as_many_calls() {
    let scene = DevScene::new().await;
    let with = bench_of(&scene, scene.registries);
    let without = without_multicall(&scene, scene.registries);
    for id in 0..7 {
        assert_eq!(profile(&without, id).await, profile(&with, id).await, "agent {id}");
    }
    let before = scene.node.all_calls();
    without.reader.latest_profile(agent(1), Parts::Whole).await.unwrap().unwrap();
    assert_eq!(scene.node.all_calls() - before, 2);
}

/// What a creation returns is bounded like a contract's code; a longer profile comes back in another way.
#[tokio::test]
async fn without_multicall_a_profile_longer_than_a_contract_may_be_is_read_too() {
    let scene = DevScene::new().await;
    let identity = create(&scene.chain, "AbsurdStrings");
    let to = SAMPLE_ACCOUNTS[1].address;
    send(&scene.chain, identity, &Identity::mintCall { to, uri: "u".into() });
    let with = Registries { identity, ..scene.registries };
    let (with, without) = (bench_of(&scene, with), without_multicall(&scene, with));
    for bytes in [1_000, 23_000, 24_576, 25_000, 100_000] {
        let set = Identity::setLengthCall { id: U256::from(1), uriBytes: U256::from(bytes) };
        send(&scene.chain, identity, &set);
        let read = without.reader.latest_profile(agent(1), Parts::Whole).await.unwrap().unwrap();
        assert_eq!(details(&read).metadata_uri.len(), bytes.min(16 * 1024));
        assert_eq!(Some(read), with.reader.latest_profile(agent(1), Parts::Whole).await.unwrap(), "{bytes}");
    }
}

// threat: Huge or costly heads and bodies
#[tokio::test]
async fn a_string_as_long_as_a_novel_is_cut() {
    let scene = DevScene::new().await;
    let identity = create(&scene.chain, "AbsurdStrings");
    let to = SAMPLE_ACCOUNTS[1].address;
    send(&scene.chain, identity, &Identity::mintCall { to, uri: "u".into() });
    send(
        &scene.chain,
        identity,
        &Identity::setLengthCall { id: U256::from(1), uriBytes: U256::from(300_000) },
    );
    let bench = bench_of(&scene, Registries { identity, ..scene.registries });
    let read = profile(&bench, 1).await.unwrap();
    assert_eq!((details(&read).metadata_uri.len(), read.holders.owner), (16 * 1024, to));
}
