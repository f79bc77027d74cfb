//! ERC-8004's registries on the development chain.

use std::time::Duration;

use alloy::primitives::{Address, B256, U256};
use serde_json::Value;

use crate::chain::dated::{At, Call3};
use crate::chain::fixture::{
    Bench, CHAIN_ID, ERC8004, MULTICALL, PATIENT, Reply, TestNode, bench_with, details, kind_of,
};
use crate::chain::tests::results::{aggregate_at, hex};
use crate::chain::{block::Date, fault::ReadError, pool::Input, tests::development::DevScene};
use crate::dev::fixture::START_SECONDS;
use crate::dev::{accounts::SAMPLE_ACCOUNTS, erc8004_rig::Erc8004};
use crate::domain::{AgentId, Details, Holders, Registries, RegistrySet, TrustProfile};
use crate::ports::{Asker, Chain, Parts};

mod evidence;
mod feedback;
mod parts;

/// The account that gives feedback and validates.
const REVIEWER: usize = 9;

fn account(index: usize) -> Address {
    SAMPLE_ACCOUNTS[index].address
}

struct Scene {
    dev: DevScene,
    on: Erc8004,
    registries: Registries,
    bench: Bench,
}

impl Scene {
    async fn new() -> Self {
        Self::looking_at(1_000).await
    }

    async fn looking_at(feedback_max: u32) -> Self {
        let dev = DevScene::new().await;
        let on = Erc8004::deploy(&*dev.chain, account(0));
        let registries = Registries {
            identity: on.identity,
            reputation: Some(on.reputation),
            validation: Some(on.validation),
            set: RegistrySet::Erc8004 { feedback_max },
            ..dev.registries
        };
        let bench = bench_with(&[dev.node.url()], (registries, dev.multicall), PATIENT);
        Self { dev, on, registries, bench }
    }

    /// Registers an agent of the first account.
    fn register(&self) -> AgentId {
        AgentId::new(self.on.register(&*self.dev.chain, account(1), "ipfs://card"))
    }

    async fn profile(&self, agent: AgentId) -> TrustProfile {
        let read = self.bench.reader.latest_profile(agent, Parts::Whole).await;
        (*read.unwrap().unwrap()).clone()
    }

    fn feedback(&self, agent: AgentId, value: (i128, u8)) {
        self.on.feedback(&*self.dev.chain, account(REVIEWER), agent.token_id(), value, "starred");
    }

    /// Lets the node refuse calls without `to`.
    fn refuse_creations(&self) {
        self.dev.play(|request| {
            is_creation(request).then(|| Reply::Error(-32_602, "missing to".to_owned(), None))
        });
    }
}

fn is_creation(request: &Value) -> bool {
    request["method"] == "eth_call" && request["params"][0].get("to").is_none()
}

#[tokio::test]
async fn agent_0_is_read_with_its_owner_its_wallet_and_its_uri_as_they_change() {
    let scene = Scene::new().await;
    let chain = &*scene.dev.chain;
    let agent = scene.register();
    let id = agent.token_id();
    assert!(id.is_zero() && !scene.bench.reader.reserves(agent));
    let holders = async || {
        let read = scene.profile(agent).await.holders;
        let asked = scene.bench.reader.holders(agent, Asker::Stranger).await.unwrap();
        assert_eq!(asked, Some(read));
        read
    };
    let [owner, buyer, wallet] = [1, 2, 3].map(account);
    assert_eq!(holders().await, Holders { owner, wallet: Some(owner) });
    scene.on.set_wallet(chain, owner, id, SAMPLE_ACCOUNTS[3].key);
    assert_eq!(holders().await, Holders { owner, wallet: Some(wallet) });
    let asked = scene.bench.reader.ask_holders(agent, B256::ZERO, &[0; 65]).await.unwrap().unwrap();
    assert_eq!(asked.holders(), Holders { owner, wallet: Some(wallet) });
    scene.on.transfer(chain, owner, buyer, id);
    assert_eq!(holders().await, Holders { owner: buyer, wallet: None });
    let asked = scene.bench.reader.ask_holders(agent, B256::ZERO, &[0; 65]).await.unwrap().unwrap();
    assert_eq!(asked.holders(), Holders { owner: buyer, wallet: None });
    assert_eq!(details(&scene.profile(agent).await).metadata_uri, "ipfs://card");
    let long = "u".repeat(20_000);
    scene.on.set_uri(chain, buyer, id, &long);
    assert_eq!(details(&scene.profile(agent).await).metadata_uri, long[..16 * 1024]);
    let nobody = AgentId::new(U256::from(1));
    assert_eq!(scene.bench.reader.latest_profile(nobody, Parts::Whole).await.unwrap(), None);
    assert_eq!(scene.bench.reader.holders(nobody, Asker::Stranger).await.unwrap(), None);
}

#[tokio::test]
async fn a_log_says_what_to_read_and_never_who_the_owner_or_the_wallet_is() {
    let scene = Scene::new().await;
    let follower = scene.bench.reader.follower();
    let mut following = follower.begin();
    following.poll().await;
    // The last logs name the contract that registered the agent, which had passed it on by then.
    let id = scene.on.register_and_pass_on(&*scene.dev.chain, account(0), account(4));
    let agent = AgentId::new(id);
    following.poll().await;
    let read = scene.bench.reader.profile(agent, Parts::Whole).await.unwrap().unwrap();
    assert_eq!(read.holders.owner, account(4));
    assert_eq!(read.holders, scene.profile(agent).await.holders);
}

#[tokio::test]
async fn an_upgrade_drops_everybody() {
    let scene = Scene::new().await;
    let follower = scene.bench.reader.follower();
    let mut following = follower.begin();
    following.poll().await;
    scene.on.upgrade_to_the_same(&*scene.dev.chain);
    following.poll().await;
    let drops = scene.bench.metrics.profile_drops.with_label_values(&["unknown_log"]).get();
    assert_eq!(drops, 1);
}

#[tokio::test]
async fn feedback_is_summed_exactly_over_decimals_without_what_is_revoked() {
    let scene = Scene::new().await;
    let agent = scene.register();
    let none = details(&scene.profile(agent).await).reputation;
    assert_eq!((none.total_text(), none.average_rating(), none.is_bounded), ("0".into(), None, false));
    let most = 10_i128.pow(38);
    for value in [(most, 0), (most, 0), (-most, 18), (1, 18), (45, 1), (7, 0)] {
        scene.feedback(agent, value);
    }
    scene.on.revoke(&*scene.dev.chain, account(REVIEWER), agent.token_id(), 6);
    scene.on.feedback(&*scene.dev.chain, account(8), agent.token_id(), (-5, 2), "");
    let read = details(&scene.profile(agent).await).reputation;
    assert_eq!(
        (read.total_text().as_str(), read.feedback_count, read.is_bounded),
        ("199999999999999999900000000000000000004.450000000000000001", 6, false)
    );
}

#[tokio::test]
async fn the_latest_answer_of_a_validator_counts_with_its_evidence_and_a_request_alone_does_not() {
    let scene = Scene::new().await;
    let agent = scene.register();
    let (chain, id) = (&*scene.dev.chain, agent.token_id());
    let [owner, validator] = [1, REVIEWER].map(account);
    let [one, two] = [0, 2].map(B256::repeat_byte);
    let read = async || {
        let validation = details(&scene.profile(agent).await).validation.clone();
        assert!(!validation.is_bounded);
        (validation.count, validation.latest.map(|it| (it.passed, it.evidence, it.validator)))
    };
    let latest = |passed, evidence: &str| Some((passed, evidence.to_owned(), validator));
    assert_eq!(read().await, (0, None));
    scene.on.request(chain, owner, validator, id, one);
    assert_eq!(read().await, (0, None));
    scene.on.answer(chain, validator, one, (100, "ipfs://one"));
    assert_eq!(read().await, (1, latest(true, "ipfs://one")));
    scene.dev.clock.set(START_SECONDS + 100);
    scene.on.request(chain, owner, validator, id, two);
    assert_eq!(read().await, (1, latest(true, "ipfs://one")), "the second one has no answer");
    scene.on.answer(chain, validator, two, (99, "ipfs://two"));
    assert_eq!(read().await, (2, latest(false, "ipfs://two")));
    scene.dev.clock.set(START_SECONDS + 200);
    scene.on.answer(chain, validator, one, (100, "ipfs://again"));
    assert_eq!(read().await, (2, latest(true, "ipfs://again")));
    // Without logs the rest is known.
    scene.dev.play(|request| {
        (request["method"] == "eth_getLogs").then(|| Reply::Error(-32_000, "range".to_owned(), None))
    });
    assert_eq!(read().await, (2, latest(true, "")));
    let asked = scene.dev.node.calls("eth_getLogs");
    assert_eq!(read().await, (2, latest(true, "")));
    assert_eq!(scene.dev.node.calls("eth_getLogs"), asked, "logs that are not to be had are not asked for");
}

#[tokio::test]
async fn a_registry_that_is_upgraded_to_another_version_says_nothing_and_is_named_within_a_minute() {
    let scene = Scene::new().await;
    let (chain, agent) = (&*scene.dev.chain, scene.register());
    scene.feedback(agent, (7, 0));
    let hash = B256::repeat_byte(5);
    scene.on.request(chain, account(1), account(REVIEWER), agent.token_id(), hash);
    scene.on.answer(chain, account(REVIEWER), hash, (100, "ipfs://one"));
    let follower = scene.bench.reader.follower();
    let mut following = follower.begin();
    following.poll().await;
    let probe = async || scene.bench.reader.probe().await.map_err(|fault| fault.cause);
    let look = async || _ = follower.contracts.check(u64::MAX).await;
    assert_eq!(probe().await, Ok(()));
    let calls = scene.dev.node.calls("eth_call");
    look().await;
    assert_eq!((probe().await, scene.dev.node.calls("eth_call")), (Ok(()), calls), "found once for all");
    scene.bench.clock.advance(Duration::from_secs(61));
    following.poll().await;
    let probed = (probe().await, scene.dev.node.calls("eth_call"));
    assert_eq!(probed, (Ok(()), calls), "who asks whether all is well waits for no look");
    look().await;
    assert_eq!(
        (probe().await, scene.dev.node.calls("eth_call")),
        (Ok(()), calls + 1),
        "it is looked at again"
    );
    let Erc8004 { reputation, validation, .. } = scene.on;
    for (key, registry) in
        [("chain.contracts.validation", validation), ("chain.contracts.reputation", reputation)]
    {
        scene.on.downgrade(chain, registry);
        scene.bench.clock.advance(Duration::from_secs(61));
        following.poll().await;
        look().await;
        assert_eq!((probe().await, scene.bench.reader.lacks_details()), (Ok(()), true), "{key}");
    }
    let calls = scene.dev.node.calls("eth_call");
    look().await;
    assert_eq!(scene.dev.node.calls("eth_call"), calls, "no look each second");
    scene.bench.clock.advance(Duration::from_secs(61));
    look().await;
    assert_eq!(scene.dev.node.calls("eth_call"), calls + 1);
    let read = scene.profile(agent).await;
    let Details { reputation, validation, .. } = details(&read);
    assert_eq!((reputation.feedback_count, reputation.is_bounded), (0, true));
    assert_eq!((validation.count, &validation.latest, validation.is_bounded), (0, &None, true));
}

#[tokio::test]
async fn a_registry_that_nobody_upgraded_is_refused_by_its_version() {
    let scene = Scene::new().await;
    scene.bench.reader.probe().await.unwrap();
    let unfinished = Erc8004::deploy_unfinished(&*scene.dev.chain, account(0));
    type Change = fn(&mut Registries, Address);
    let changes: [(&str, Change); 3] = [
        ("chain.contracts.identity", |on, to| on.identity = to),
        ("chain.contracts.reputation", |on, to| on.reputation = Some(to)),
        ("chain.contracts.validation", |on, to| on.validation = Some(to)),
    ];
    for (key, change) in changes {
        let mut registries = scene.registries;
        change(&mut registries, unfinished);
        let bench = bench_with(&[scene.dev.node.url()], (registries, scene.dev.multicall), PATIENT);
        let probed = bench.reader.probe().await.map_err(|fault| fault.cause);
        let decides = key.ends_with("identity");
        let fault = ReadError::Version { key, version: "0.0.1".into() }.to_string().into();
        assert_eq!(probed, if decides { Err(fault) } else { Ok(()) });
        assert_eq!(bench.reader.lacks_details(), !decides, "{key}");
        let sight = bench.reader.contracts().inspect().await.unwrap();
        let refused: Vec<_> = sight.contracts.iter().filter(|(_, _, answer)| answer.is_err()).collect();
        assert!(refused.len() == 1 && refused[0].0 == key, "check --online tells it");
    }
    let registries = Registries { identity: unfinished, ..scene.registries };
    let bench = bench_with(&[scene.dev.node.url()], (registries, scene.dev.multicall), PATIENT);
    let agent = AgentId::new(U256::ZERO);
    assert_eq!(kind_of(&bench.reader.profile(agent, Parts::Whole).await.unwrap_err().cause), "version");
    let asked = bench.reader.ask_holders(agent, B256::ZERO, &[0; 65]).await;
    assert_eq!(kind_of(&asked.unwrap_err().cause), "version");
    assert_eq!(kind_of(&bench.reader.holders(agent, Asker::Stranger).await.unwrap_err().cause), "version");
}

/// A block may be replaced between the two reads of one profile.
#[tokio::test]
async fn a_second_read_counts_only_if_it_is_of_the_very_block_of_the_first() {
    let first = Date { timestamp: 1_700_000_000, number: 500 };
    for (number, timestamp, counts) in
        [(500, 1_700_000_000, true), (500, 1_700_000_001, false), (501, 1_700_000_000, false)]
    {
        let node = TestNode::answering(move |request: &Value| {
            let is_asked = request["params"][1] == "0x1f4";
            assert!(is_asked, "{request}");
            Reply::Result(hex(aggregate_at((CHAIN_ID, number, timestamp), &[])))
        })
        .await;
        let bench = bench_with(&[node.url()], (ERC8004, MULTICALL), PATIENT);
        let calls: [Call3; 0] = [];
        let state = &bench.reader.agents.state;
        let at = (At::Dated(first), Input::Ours);
        let read = state.read(at, state.pool.deadline(), &calls).await;
        assert_eq!(read.is_ok(), counts, "{number} {timestamp}");
    }
}
