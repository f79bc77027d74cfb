//! A chain or a store that fails behind the gateway: refusals with the right name, no request that passes for want of an
//! answer, nothing spent, and everything as before when it is over. And keys that change are judged as they are now.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, Message};
use crate::rig::refusals::{is_unauthenticated, is_unseen};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::agents::{Agent, key_of};
use crate::support::client::Answer;
use crate::support::relay::{Behaviour, Relay};
use crate::support::settings::Settings;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_rotated_or_revoked_key_is_refused_on_the_very_next_request,
    a_dead_chain_is_503_for_agents_and_nothing_to_the_public,
    a_chain_that_answers_anything_but_the_truth_lets_nobody_through,
    a_503_spends_neither_nonce_nor_budget,
    a_chain_that_hangs_delays_nobody_who_does_not_need_it,
    a_denied_endpoint_mismatch_spends_nothing,
];

/// About the embedded store's file.
pub(crate) const ON_A_DISK: &[Case] = cases![
    a_full_disk_is_500_for_signatures_and_heals_by_itself,
    a_500_spends_neither_nonce_nor_budget,
    what_passed_on_a_disk_that_is_nearly_full_is_remembered_and_the_rest_is_not,
];

/// How often keys are changed while requests with them run.
const KEY_CHANGES: u32 = 200;

/// A budget that no case uses up.
const PLENTY: i64 = 1_000_000;

/// A gateway and its upstream.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
}

impl Rig {
    fn start(settings: Settings) -> Self {
        let mut rig = Self::prepare(settings);
        rig.gateway.launch("");
        rig
    }

    fn prepare(settings: Settings) -> Self {
        let upstream = Upstream::start();
        let tenant = Tenant::new("t", ACME, upstream.address).public();
        let settings = settings.set("keys.requests_per_hour", PLENTY);
        Self { gateway: Gateway::prepare(settings, &[tenant], &[]), upstream }
    }

    fn by_key(&self, key: &str) -> Answer {
        self.gateway.ask(&Request::get(ACME, &agents_path()).key(key))
    }

    fn by_signature(&self, agent: &Agent) -> Answer {
        self.gateway.ask(&Request::get(ACME, &agents_path()).with_all(&signed(&agent.draft())))
    }

    #[track_caller]
    fn public_goes_on(&self) {
        let path = public_path();
        assert_eq!(self.gateway.ask(&Request::get(ACME, &path)).status, 200);
        self.upstream.only(&path);
        let request = Message::request(http::Method::GET, ACME, &public_path());
        assert_eq!(h2c::ask(self.gateway.address, &request).unwrap().status, 200);
    }

    /// How many requests of agents have come through.
    fn passed(&self) -> usize {
        self.upstream.seen_with("/agents/").len()
    }
}

fn behind(stage: &Stage, relay: &Relay) -> Settings {
    stage
        .settings()
        .set("chain.rpc_urls", vec![format!("http://{}", relay.address)])
        .set("chain.request_timeout", "500ms")
        .set("chain.max_staleness", "500ms")
}

#[track_caller]
fn is_unreadable(relay: &Relay, answer: &Answer) {
    answer.is_unreadable(relay.address, "eth_call");
    assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
}

/// Asks with a key until the cached profile has lapsed.
#[track_caller]
fn until_missed(rig: &Rig, relay: &Relay, key: &str) {
    let answer =
        until("the chain is missed", SOON, || Some(rig.by_key(key)).filter(|answer| answer.status != 200));
    is_unreadable(relay, &answer);
}

/// The answer once the node is used again: one that failed is left alone for a moment.
#[track_caller]
fn until_answered(ask: impl Fn() -> Answer) -> Answer {
    until("the node is used again", SOON, || Some(ask()).filter(|answer| answer.status != 503))
}

/// By key and by signature. Between the two an answer from before may have the node left alone once more.
#[track_caller]
fn is_used_again(rig: &Rig, agent: &Agent, key: &str) {
    assert_eq!(until_answered(|| rig.by_key(key)).status, 200);
    assert_eq!(until_answered(|| rig.by_signature(agent)).status, 200);
}

fn a_dead_chain_is_503_for_agents_and_nothing_to_the_public(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let rig = Rig::start(behind(stage, &relay));
    let agent = stage.world().agent(4);
    let key = agent.generate(&rig.gateway.service);
    assert_eq!(rig.by_key(&key).status, 200);
    relay.close();
    until_missed(&rig, &relay, &key);
    let passed = rig.passed();
    for _ in 0..5 {
        is_unreadable(&relay, &rig.by_key(&key));
        is_unreadable(&relay, &rig.by_signature(&agent));
        let request = Message::request(http::Method::GET, ACME, &agents_path()).with("x-api-key", &key);
        assert_eq!(h2c::ask(rig.gateway.address, &request).unwrap().status, 503);
        rig.public_goes_on();
    }
    // What needs no chain to be refused is refused as ever.
    is_unauthenticated(&rig.gateway.ask(&Request::get(ACME, &agents_path())));
    is_unauthenticated(&rig.by_key(&crate::support::agents::unknown_key(40)));
    assert_eq!(rig.passed(), passed, "nobody came through");
    relay.reopen();
    is_used_again(&rig, &agent, &key);
}

fn a_chain_that_answers_anything_but_the_truth_lets_nobody_through(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let rig = Rig::start(behind(stage, &relay));
    let agent = stage.world().agent(4);
    let key = agent.generate(&rig.gateway.service);
    for lie in [
        Behaviour::Close,
        Behaviour::Http(200, "<html>welcome</html>".to_owned()),
        Behaviour::Http(429, "slow down".to_owned()),
        Behaviour::Http(500, String::new()),
        Behaviour::Members(json!({ "result": "0x" })),
        Behaviour::Members(json!({ "result": Value::Null })),
        Behaviour::Members(json!({ "result": format!("0x{}", "f".repeat(64)) })),
        Behaviour::Members(json!({ "error": { "code": 3, "message": "execution reverted", "data": "0x" } })),
    ] {
        relay.behave(lie.clone());
        until_missed(&rig, &relay, &key);
        let passed = rig.passed();
        is_unreadable(&relay, &rig.by_key(&key));
        is_unreadable(&relay, &rig.by_signature(&agent));
        rig.public_goes_on();
        assert_eq!(rig.passed(), passed, "{lie:?}");
        relay.behave(Behaviour::Honest);
        is_used_again(&rig, &agent, &key);
    }
}

fn a_503_spends_neither_nonce_nor_budget(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let rig = Rig::start(behind(stage, &relay));
    let (one, other) = (stage.world().agent(1), stage.world().agent(1));
    let key = other.generate(&rig.gateway.service);
    let request = Request::get(ACME, &agents_path()).with_all(&signed(&one.draft()));
    relay.close();
    for _ in 0..3 {
        is_unreadable(&relay, &rig.gateway.ask(&request));
        is_unreadable(&relay, &rig.by_key(&key));
    }
    relay.reopen();
    for answer in [until_answered(|| rig.gateway.ask(&request)), until_answered(|| rig.by_key(&key))] {
        assert_eq!((answer.status, answer.allowance()), (200, (1, 0)), "{}", answer.text());
    }
    rig.gateway.ask(&request).error(400, "REPLAY_DETECTED");
    rig.by_key(&key).is_limited(json!(other.text()), json!(1), 1);
}

fn a_chain_that_hangs_delays_nobody_who_does_not_need_it(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let rig = Rig::start(behind(stage, &relay).set("chain.request_timeout", "5s"));
    let agents: Vec<Agent> = (0..20).map(|_| stage.world().agent(4)).collect();
    relay.behave(Behaviour::Hang);
    let answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for agent in &agents {
            scope.spawn(|| {
                is_unreadable(&relay, &rig.by_signature(agent));
                answered.store(true, Ordering::SeqCst);
            });
        }
        for _ in 0..10 {
            rig.public_goes_on();
        }
        is_unauthenticated(&rig.by_key(&crate::support::agents::unknown_key(41)));
        assert!(!answered.load(Ordering::SeqCst), "those who need the chain still wait");
    });
    assert_eq!(rig.passed(), 0);
    relay.behave(Behaviour::Honest);
    until_answered(|| rig.by_signature(&agents[0]));
    for agent in &agents {
        assert_eq!(rig.by_signature(agent).status, 200);
    }
}

/// A gateway whose disk can be filled up, and an agent with a key there.
fn with_disk(stage: &Stage) -> (Rig, Agent, String) {
    let mut rig = Rig::prepare(stage.settings().set("tiers.requests_per_minute", vec![PLENTY; 4]));
    // Whoever writes too much is told so, and not killed.
    rig.gateway.launch("trap '' XFSZ");
    let agent = stage.world().agent(4);
    let key = agent.generate(&rig.gateway.service);
    (rig, agent, key)
}

/// From now on the process can write so many bytes into a file and no more, as on a disk that is full.
fn limit_files(rig: &Rig, bytes: &str) {
    let pid = rig.gateway.service.process.as_ref().unwrap().pid.to_string();
    // The softer of two limits, which can be lifted again.
    let limit = format!("--fsize={bytes}:");
    let limited = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
    assert!(limited.success(), "the limit is set");
}

fn a_full_disk_is_500_for_signatures_and_heals_by_itself(stage: &Stage) {
    let (rig, agent, key) = with_disk(stage);
    assert_eq!(rig.by_signature(&agent).status, 200);
    let passed = rig.passed();
    limit_files(&rig, "0");
    for _ in 0..40 {
        let path = agents_path();
        let answer = rig.gateway.ask(&Request::get(ACME, &path).with_all(&signed(&agent.draft())));
        answer.is_error(500, "INTERNAL_ERROR", Value::Null);
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
        let request = Message::request(http::Method::GET, ACME, &path);
        let headers = signed(&agent.draft());
        let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
        assert_eq!(h2c::ask(rig.gateway.address, &request).unwrap().status, 500);
        is_unseen(&rig.upstream, &path);
        rig.public_goes_on();
    }
    assert_eq!(rig.passed(), passed, "nobody came through");
    // Keys are read from memory: they pass, or are told the truth, and are never taken for unknown.
    for _ in 0..20 {
        let answer = rig.by_key(&key);
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
    }
    limit_files(&rig, "unlimited");
    until("signatures pass again", SOON, || {
        let answer = rig.by_signature(&agent);
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        (answer.status == 200).then_some(())
    });
    for _ in 0..20 {
        assert_eq!((rig.by_signature(&agent).status, rig.by_key(&key).status), (200, 200));
    }
    rig.gateway.service.await_ready();
}

fn a_500_spends_neither_nonce_nor_budget(stage: &Stage) {
    let (rig, agent, key) = with_disk(stage);
    let request = Request::get(ACME, &agents_path()).with_all(&signed(&agent.draft()));
    limit_files(&rig, "0");
    for _ in 0..5 {
        rig.gateway.ask(&request).is_error(500, "INTERNAL_ERROR", Value::Null);
    }
    limit_files(&rig, "unlimited");
    // The very request that was refused passes, once, and is the first to spend anything.
    let answer = until("the request passes", SOON, || {
        Some(rig.gateway.ask(&request)).filter(|answer| answer.status != 500)
    });
    assert_eq!(answer.status, 200, "{}", answer.text());
    let plenty = u32::try_from(PLENTY).unwrap();
    assert_eq!(answer.allowance(), (plenty, plenty - 1));
    rig.gateway.ask(&request).error(400, "REPLAY_DETECTED");
    assert_eq!(rig.by_key(&key).allowance(), (plenty, plenty - 2));
}

/// On a disk that is nearly full some writes still succeed.
fn what_passed_on_a_disk_that_is_nearly_full_is_remembered_and_the_rest_is_not(stage: &Stage) {
    let (mut rig, agent, _) = with_disk(stage);
    let file = rig.gateway.service.data().join("tiergate.redb");
    limit_files(&rig, &(std::fs::metadata(file).unwrap().len() / 8).to_string());
    let mut asked: Vec<(Request, u16)> = Vec::new();
    until("requests fail for want of room", SOON * 3, || {
        let request = Request::get(ACME, &agents_path()).with_all(&signed(&agent.draft()));
        let answer = rig.gateway.ask(&request);
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        asked.push((request, answer.status));
        (asked.iter().filter(|(_, status)| *status == 500).count() == 40).then_some(())
    });
    rig.gateway.service.kill();
    rig.gateway.launch("");
    for (request, before) in asked.iter().rev().take(200) {
        let answer = rig.gateway.ask(request);
        assert_eq!(answer.status, if *before == 200 { 400 } else { 200 }, "{before}: {}", answer.text());
    }
}

fn a_rotated_or_revoked_key_is_refused_on_the_very_next_request(stage: &Stage) {
    let rig = Rig::start(stage.settings().set("tiers.requests_per_minute", vec![PLENTY; 4]));
    let (agent, other) = (stage.world().agent(4), stage.world().agent(4));
    let others = other.generate(&rig.gateway.service);
    let mut key = agent.generate(&rig.gateway.service);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Beside it, the other agent is never taken for this one.
        let beside = scope.spawn(|| {
            let (mut wire, mut asked) = (rig.gateway.connect(), 0);
            while !done.load(Ordering::SeqCst) {
                let answer = Request::get(ACME, &agents_path()).key(&others).ask_on(&mut wire);
                assert_eq!(answer.status, 200, "{}", answer.text());
                asked += 1;
            }
            asked
        });
        let mut wire = rig.gateway.connect();
        for round in 0..KEY_CHANGES {
            let path = agents_path();
            assert_eq!(Request::get(ACME, &path).key(&key).ask_on(&mut wire).status, 200, "{round}");
            let old = key.clone();
            let revokes = round % 2 == 0;
            if revokes {
                rig.gateway.service.revoke(&agent.signed()).success(200);
            } else {
                key = key_of(&rig.gateway.service.rotate(&agent.signed()).success(200));
            }
            let refused = agents_path();
            is_unauthenticated(&Request::get(ACME, &refused).key(&old).ask_on(&mut wire));
            is_unauthenticated(&rig.gateway.ask(&Request::get(ACME, &refused).key(&old)));
            is_unseen(&rig.upstream, &refused);
            if revokes {
                key = agent.generate(&rig.gateway.service);
            }
        }
        done.store(true, Ordering::SeqCst);
        assert!(beside.join().unwrap() > 20);
    });
    let ours = rig.upstream.seen();
    let ours = ours.iter().filter(|seen| seen.header("x-agent-id") == Some(&agent.text())).count();
    assert_eq!(u32::try_from(ours).unwrap(), KEY_CHANGES, "one for each key");
}

fn a_denied_endpoint_mismatch_spends_nothing(stage: &Stage) {
    let house = stage.house();
    let agent = stage.world().agent(1);
    let key = agent.generate_for(&house.gateway.service, "https://app.test/agent");
    let path = agents_path();
    let from = |origin: &str| Request::get("declared.test", &path).key(&key).with("Origin", origin);
    for origin in ["https://evil.test", "http://app.test", "https://app.test:8443", "https://app.test.evil"] {
        let answer = house.gateway.ask(&from(origin));
        assert_eq!(crate::rig::refusals::refused(&answer, 403), "ENDPOINT_MISMATCH", "{}", answer.text());
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
    }
    is_unseen(&house.upstream, &path);
    let answer = house.gateway.ask(&from("https://app.test"));
    assert_eq!((answer.status, answer.allowance()), (200, (1, 0)), "{}", answer.text());
    house.gateway.ask(&from("https://app.test")).is_limited(json!(agent.text()), json!(1), 1);
    // Whether there is a budget left changes nothing about who is denied.
    let answer = house.gateway.ask(&from("https://evil.test"));
    assert_eq!(answer.status, 403, "{}", answer.text());
    house.upstream.only(&path);
}
