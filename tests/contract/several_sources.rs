//! Several sources of tiers: the highest counts and is named. One that fails makes the whole answer fail, whatever the others say.

use alloy::primitives::{Address, U256, address};
use serde_json::json;
use toml::Table;

use crate::erc8004::Registries;
use crate::following::{self, Scene, await_polls};
use crate::support::agents::{Agent, THRESHOLDS};
use crate::support::client::{Answer, once_read};
use crate::support::harness::{Case, cases};
use crate::support::signing::{ALICE, BOB};
use crate::support::tier_sources::{Kind, Scores, Token, UNITS, named, tier, with_sources};
use crate::support::{service::Service, settings::Settings, world::World};
use crate::tier_sources::feedback;

pub(crate) const CASES: &[Case<World>] = cases![
    a_source_that_reverts_is_503_and_never_another_tier_and_well_when_it_stops,
    a_score_that_reverts_about_one_agent_is_503_for_that_one_alone,
    the_highest_of_several_sources_counts_and_is_named,
    check_names_a_source_that_has_no_code_or_lacks_the_function,
    a_source_that_has_no_code_or_lacks_the_function_is_not_ready_and_503_whatever_another_says,
    without_multicall_each_source_gives_the_same,
];

/// An address where no contract was ever deployed.
const NOWHERE: Address = address!("0x00000000000000000000000000000000DeaDBeef");

fn settings(world: &World, sources: &[Table]) -> Settings {
    with_sources(following::settings(world.settings()), sources)
}

fn unreadable(answer: &Answer) -> bool {
    answer.status == 503 && answer.json()["errorType"] == json!("RPC_ERROR")
}

/// Something that gives an agent tier 4, can break, and can tell a change of nothing.
struct Breaking<'a> {
    source: Table,
    raise: Box<dyn Fn(U256) + 'a>,
    set_broken: Box<dyn Fn(bool) + 'a>,
}

fn breaking(world: &World) -> [Breaking<'_>; 3] {
    let scores = Scores::new(world.chain());
    let of_token = |kind| {
        let token = Token::new(world.chain(), kind);
        let has = std::cell::Cell::new(0);
        let raise = move |_| {
            let most = has.get().max(token.thresholds()[3] - 1) + 1;
            token.change(ALICE, has.replace(most), most);
        };
        Breaking {
            source: token.source("owner"),
            raise: Box::new(raise),
            set_broken: Box::new(move |is_broken| token.set_broken(is_broken)),
        }
    };
    let of_scores = Breaking {
        source: scores.source(),
        raise: Box::new(move |agent| scores.set(agent, UNITS[3])),
        set_broken: Box::new(move |is_broken| scores.set_broken(is_broken)),
    };
    [of_token(Kind::Erc20), of_token(Kind::Erc721), of_scores]
}

// threat: A failure admits somebody, or looks like an answer
fn a_source_that_reverts_is_503_and_never_another_tier_and_well_when_it_stops(world: &World) {
    for Breaking { source, raise, set_broken } in breaking(world) {
        let agent = world.agent(0);
        raise(agent.id);
        let scene = Scene::with(settings(world, &[source]), agent);
        assert_eq!(tier(&scene.answer()), Some(4));
        let unknown = world.agent(0);
        set_broken(true);
        await_polls(&scene.service, 2.0);
        let asked = || scene.service.verify_signature(&unknown.signed());
        assert!(unreadable(&asked()), "{}", asked().text());
        // A log drops what is cached.
        scene.shows(|| raise(scene.agent.id), unreadable);
        set_broken(false);
        raise(unknown.id);
        await_polls(&scene.service, 2.0);
        for answer in [asked(), scene.answer()] {
            assert_eq!(tier(&answer), Some(4), "{}", answer.text());
        }
    }
}

fn a_score_that_reverts_about_one_agent_is_503_for_that_one_alone(world: &World) {
    let scores = Scores::new(world.chain());
    let agents: Vec<Agent> = std::iter::repeat_with(|| world.agent(0)).take(8).collect();
    let service = Service::start(settings(world, &[scores.source()]));
    let keys: Vec<String> = agents.iter().map(|agent| agent.generate(&service)).collect();
    for broken in [3, 0] {
        agents.iter().for_each(|agent| scores.set(agent.id, UNITS[3]));
        scores.break_for(agents[broken].id);
        await_polls(&service, 2.0);
        // At once, so that some are read together.
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let asked = keys.iter().map(|key| scope.spawn(|| service.verify(key)));
            asked.collect::<Vec<_>>().into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        for (at, answer) in answers.iter().enumerate() {
            let is_right = if at == broken { unreadable(answer) } else { tier(answer) == Some(4) };
            assert!(is_right, "{at}: {}", answer.text());
        }
    }
}

fn the_highest_of_several_sources_counts_and_is_named(world: &World) {
    let (token, scores) = (Token::new(world.chain(), Kind::Erc20), Scores::new(world.chain()));
    let sources = [scores.source(), named("stake_vault"), token.source("owner")];
    let scene_agent = world.agent(1);
    let scene = Scene::with(settings(world, &sources), scene_agent);
    let id = scene.agent.id;
    let is = |expected: u64, source: &'static str| {
        move |answer: &Answer| {
            let shown = tier(answer) == Some(expected) && answer.json()["tierSource"] == json!(source);
            shown && answer.json()["stakedAmount"].is_string()
        }
    };
    assert!(is(1, "stake_vault")(&scene.answer()), "{}", scene.answer().text());
    scene.shows(|| token.change(ALICE, 0, UNITS[1]), is(2, "erc20"));
    scene.shows(|| scores.set(id, UNITS[2]), is(3, "call"));
    scene.shows(|| world.chain().stake(id, THRESHOLDS[3] - THRESHOLDS[0]), is(4, "stake_vault"));
    // Of equal ones the vault is named, then the first of the numbers.
    scene.shows(|| world.chain().unstake(id, THRESHOLDS[3] - THRESHOLDS[2]), is(3, "stake_vault"));
    scene.shows(|| world.chain().unstake(id, THRESHOLDS[2]), is(3, "call"));
    token.change(ALICE, UNITS[1], UNITS[2]);
    await_polls(&scene.service, 3.0);
    assert!(is(3, "call")(&scene.answer()), "{}", scene.answer().text());
    scene.shows(|| scores.set(id, 0), is(3, "erc20"));
    scene.shows(|| token.change(ALICE, UNITS[2], UNITS[0] - 1), |answer| tier(answer) == Some(0));
    scene.answer().error(403, "TIER_BLOCKED");
}

fn at(mut source: Table, contract: Address) -> Table {
    source.insert("contract".into(), contract.to_checksum(None).into());
    source
}

fn check_names_a_source_that_has_no_code_or_lacks_the_function(world: &World) {
    let (token, scores) = (Token::new(world.chain(), Kind::Erc20), Scores::new(world.chain()));
    let other = world.chain().deploy("ValidationRegistry");
    let run = |sources: &[Table]| {
        let service = Service::prepare(settings(world, sources));
        let output = service.command("check", &["--online"]);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    let mut both = [token.source("owner"), scores.source()];
    let (is_well, text) = run(&both);
    let wrong = format!("tiers.decimals: is 3, and the token {} has 18\n", token.address);
    assert!(!is_well && text.contains(&wrong), "{text}");
    both[0].insert("decimals".into(), 18.into());
    let (is_well, text) = run(&both);
    assert!(text.contains(&format!("tiers.decimals: 18, as the token {} says\n", token.address)), "{text}");
    assert!(is_well && text.contains(&token.address.to_checksum(None)), "{text}");
    assert!(text.contains(&scores.address.to_checksum(None)), "{text}");
    for (sources, contract) in [
        ([at(both[0].clone(), NOWHERE), both[1].clone()], NOWHERE),
        ([both[0].clone(), at(both[1].clone(), NOWHERE)], NOWHERE),
        ([at(both[0].clone(), other), both[1].clone()], other),
        ([both[0].clone(), at(both[1].clone(), other)], other),
    ] {
        let (is_well, text) = run(&sources);
        let named = text.lines().any(|line| line.contains(&contract.to_checksum(None)));
        assert!(!is_well && named, "{text}");
    }
}

// threat: A failure admits somebody, or looks like an answer
fn a_source_that_has_no_code_or_lacks_the_function_is_not_ready_and_503_whatever_another_says(world: &World) {
    let (token, scores) = (Token::new(world.chain(), Kind::Erc20), Scores::new(world.chain()));
    let agent = world.agent(4);
    let other = world.chain().deploy("ValidationRegistry");
    for source in [token.source("owner"), scores.source()] {
        for contract in [NOWHERE, other] {
            let sources = [named("stake_vault"), at(source.clone(), contract)];
            let service = Service::start_unready(settings(world, &sources));
            assert_eq!(service.get("/readyz").status, 503, "{sources:?}");
            let answer = service.verify_signature(&agent.signed());
            assert!(unreadable(&answer), "{sources:?}: {}", answer.text());
            service.await_log(&["tiers.contract"]);
        }
    }
}

fn without_multicall_each_source_gives_the_same(world: &World) {
    let registries = Registries::new(world);
    let chain = registries.chain;
    let [coins, pictures] = [Kind::Erc20, Kind::Erc721].map(|kind| Token::new(chain, kind));
    let (scores, agent) = (Scores::new(chain), registries.unstaked(ALICE));
    let sources = [
        coins.source("owner"),
        pictures.source("agent_wallet"),
        scores.source(),
        feedback(["1", "2", "3", "4"], Some(1)),
    ];
    let settings = with_sources(registries.settings(world), &sources);
    let with = Service::start(settings.clone());
    let without = Service::start(settings.at("chain.multicall", NOWHERE));
    let gives = |source: &str, expected: u64| {
        for service in [&with, &without] {
            await_polls(service, 2.0);
            let answer = once_read(|| service.verify_signature(&agent.signed()));
            assert_eq!(tier(&answer), Some(expected), "{source}: {}", answer.text());
            if expected > 0 {
                assert_eq!(answer.json()["tierSource"], json!(source));
            }
        }
    };
    gives("none", 0);
    coins.change(ALICE, 0, UNITS[0]);
    gives("erc20", 1);
    pictures.change(ALICE, 0, 2);
    gives("erc721", 2);
    scores.set(agent.id, UNITS[2]);
    gives("call", 3);
    registries.on.feedback(chain, BOB.address, agent.id, (4, 0), "starred");
    gives("reputation", 4);
}
