//! A chain or a store that fails behind the gateway: refusals with the right name, no request that passes for want of an
//! answer, nothing spent, and everything as before when it is over. And keys that change are judged as they are now.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::identity::{expected, identity_headers};
use crate::rig::scope::{Running, beside};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{credentials::signed, refusals::is_unauthenticated};
use crate::support::agents::{Agent, key_of, unknown_key};
use crate::support::client::Answer;
use crate::support::relay::{Behaviour, Relay};
use crate::support::time::{SOON, is_undelayed, quickest, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![a_rotated_or_revoked_key_is_refused_on_the_very_next_request,];

pub(crate) const OF_THE_CHAIN: &[Case] = cases![
    a_dead_chain_is_503_for_agents_and_nothing_to_the_public,
    a_chain_that_hangs_delays_nobody_who_does_not_need_it,
    requests_that_wait_for_a_chain_are_bounded_and_one_network_leaves_others_their_room,
    an_agent_that_strangers_take_into_1300_organizations_passes_and_only_its_profile_is_503,
];

/// About the embedded store's file.
pub(crate) const ON_A_DISK: &[Case] = cases![a_full_disk_is_500_for_signatures_and_heals_by_itself,];

/// How often keys are changed while requests with them run.
const KEY_CHANGES: u32 = 200;

/// How long polls may be silent before cached profiles lapse.
const STALENESS: Duration = Duration::from_millis(500);

fn by_key(site: &Site) -> Answer {
    site.gateway.ask(&site.by_key())
}

fn by_signature(site: &Site) -> Answer {
    site.gateway.ask(&site.by_signature())
}

#[track_caller]
fn public_goes_on(site: &Site) {
    let path = public_path();
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
    site.upstream.only(&path);
    let request = Message::request(http::Method::GET, ACME, &public_path());
    assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200);
}

/// A site whose chain is behind a relay, and whose cached profiles lapse at once.
fn behind<'a>(stage: &'a Stage, relay: &Relay) -> SiteBuilder<'a> {
    let site = Site::of(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    site.set("chain.request_timeout", "5s").set("chain.max_staleness", format!("{}ms", STALENESS.as_millis()))
}

#[track_caller]
fn is_unreadable(relay: &Relay, answer: &Answer) {
    answer.is_unreadable(relay.address, "eth_call");
    assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
}

/// Asks with a key until the cached profile has lapsed.
#[track_caller]
fn until_missed(site: &Site, relay: &Relay) {
    let answer =
        until("the chain is missed", SOON, || Some(by_key(site)).filter(|answer| answer.status != 200));
    is_unreadable(relay, &answer);
}

/// The answer once the node is used again: one that failed is left alone for a moment.
#[track_caller]
fn until_answered(ask: impl Fn() -> Answer) -> Answer {
    until("the node is used again", SOON, || Some(ask()).filter(|answer| answer.status != 503))
}

/// By key and by signature. Between the two an answer from before may have the node left alone once more.
#[track_caller]
fn is_used_again(site: &Site) {
    assert_eq!(until_answered(|| by_key(site)).status, 200);
    assert_eq!(until_answered(|| by_signature(site)).status, 200);
}

// threat: A failure admits somebody, or looks like an answer
fn a_dead_chain_is_503_for_agents_and_nothing_to_the_public(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let site = behind(stage, &relay).agent(4).start();
    assert_eq!(by_key(&site).status, 200);
    relay.close();
    until_missed(&site, &relay);
    let passed = site.passed();
    for _ in 0..2 {
        is_unreadable(&relay, &by_key(&site));
        is_unreadable(&relay, &by_signature(&site));
        let request = Message::request(http::Method::GET, ACME, &agents_path()).with("x-api-key", site.key());
        assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 503);
        public_goes_on(&site);
    }
    // What needs no chain to be refused is refused as ever.
    is_unauthenticated(&site.gateway.ask(&Request::get(ACME, &agents_path())));
    is_unauthenticated(&site.gateway.ask(&Request::get(ACME, &agents_path()).key(&unknown_key(40))));
    assert_eq!(site.passed(), passed, "nobody came through");
    relay.reopen();
    is_used_again(&site);
}

// threat: One client or tenant takes all places
fn requests_that_wait_for_a_chain_are_bounded_and_one_network_leaves_others_their_room(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let site = behind(stage, &relay).set("gateway.max_in_flight", 8).agent(4).start();
    relay.behave(Behaviour::Hang);
    let greedy = || Wire::open_from([127, 0, 0, 5].into(), site.gateway.address);
    let mut wires: Vec<Wire> = (0..10).map(|_| greedy()).collect();
    wires.iter_mut().for_each(|wire| wire.send(&site.by_signature().bytes()));
    // Six of eight, and the first of them alone asks the node.
    until("the network has its share", SOON, || {
        let text = site.gateway.service.metrics();
        text.contains("tiergate_overload_total{limit=\"share\",tenant=\"t\"} 4\n").then_some(())
    });
    let mut other = site.gateway.connect();
    other.send(&site.by_signature().bytes());
    public_goes_on(&site);
    relay.behave(Behaviour::Close);
    let mut errors: Vec<Value> =
        wires.iter_mut().map(|wire| wire.answer().json()["errorType"].clone()).collect();
    errors.sort_by_key(Value::to_string);
    let [overloaded, unread] = [json!("OVERLOADED"), json!("RPC_ERROR")];
    assert_eq!(errors, [vec![overloaded; 4], vec![unread.clone(); 6]].concat());
    assert_eq!(other.answer().json()["errorType"], unread, "another network has waited too");
    relay.behave(Behaviour::Honest);
    assert_eq!(until_answered(|| by_signature(&site)).status, 200);
}

// threat: A failure admits somebody, or looks like an answer
fn a_chain_that_hangs_delays_nobody_who_does_not_need_it(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let site = behind(stage, &relay).agent(4).start();
    let agents: Vec<Agent> = (0..20).map(|_| stage.world().agent(4)).collect();
    let ask = |agent: &Agent| {
        site.gateway.ask(&Request::get(ACME, &agents_path()).with_all(&signed(&agent.draft())))
    };
    let others = || {
        for _ in 0..3 {
            public_goes_on(&site);
            let unknown = Request::get(ACME, &agents_path()).key(&unknown_key(41));
            is_unauthenticated(&site.gateway.ask(&unknown));
        }
    };
    assert_eq!(until_answered(|| by_signature(&site)).status, 200);
    let (calm, passed) = (quickest(3, others), site.passed());
    relay.behave(Behaviour::Hang);
    let next = AtomicUsize::new(0);
    let wait = |_: &Running| is_unreadable(&relay, &ask(&agents[next.fetch_add(1, Ordering::SeqCst)]));
    beside(agents.len(), wait, |_| {
        // The gateway gives each call up after five seconds. Whoever waits for one of them is answered no earlier.
        until("the node holds a call", SOON, || (relay.held() > 0).then_some(()));
        is_undelayed(calm, others);
        relay.behave(Behaviour::Close);
    });
    assert_eq!(site.passed(), passed, "nobody came through");
    relay.behave(Behaviour::Honest);
    for agent in &agents {
        assert_eq!(until_answered(|| ask(agent)).status, 200);
    }
}

/// A site whose disk can be filled up. Whoever writes too much is told so, and not killed.
fn with_disk(stage: &Stage) -> Site {
    Site::of(stage).unlimited().agent(4).under("trap '' XFSZ").start()
}

/// From now on the process can write so many bytes into a file and no more, as on a disk that is full.
fn limit_files(site: &Site, bytes: &str) {
    site.gateway.limit("fsize", bytes);
}

// threat: A failure admits somebody, or looks like an answer
fn a_full_disk_is_500_for_signatures_and_heals_by_itself(stage: &Stage) {
    let site = with_disk(stage);
    assert_eq!(by_signature(&site).status, 200);
    let passed = site.passed();
    limit_files(&site, "0");
    for _ in 0..40 {
        let answer = by_signature(&site);
        answer.is_error(500, "INTERNAL_ERROR", Value::Null);
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
        let request = Message::request(http::Method::GET, ACME, &agents_path());
        let headers = signed(&site.agent().draft());
        let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
        assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 500);
        public_goes_on(&site);
    }
    assert_eq!(site.passed(), passed, "nobody came through");
    // Key checks need no disk and go on.
    for _ in 0..20 {
        assert_eq!(by_key(&site).status, 200);
    }
    limit_files(&site, "unlimited");
    until("signatures pass again", SOON, || {
        let answer = by_signature(&site);
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        (answer.status == 200).then_some(())
    });
    for _ in 0..20 {
        assert_eq!((by_signature(&site).status, by_key(&site).status), (200, 200));
    }
    site.gateway.service.await_ready();
}

// threat: A revoked key opens again
fn a_rotated_or_revoked_key_is_refused_on_the_very_next_request(stage: &Stage) {
    let site = Site::crowded(stage);
    let (service, agent) = (&site.gateway.service, stage.world().agent(4));
    let mut key = agent.generate(service);
    let asked = AtomicU32::new(0);
    // Beside it, the other agent is never taken for this one.
    let other = |running: &Running| {
        let mut wire = site.gateway.connect();
        while running.is_on() {
            let answer = site.by_key().ask_on(&mut wire);
            assert_eq!(answer.status, 200, "{}", answer.text());
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    beside(1, other, |running| {
        let mut wire = site.gateway.connect();
        for round in 0..KEY_CHANGES {
            let path = agents_path();
            assert_eq!(Request::get(ACME, &path).key(&key).ask_on(&mut wire).status, 200, "{round}");
            let old = key.clone();
            let revokes = round % 2 == 0;
            if revokes {
                service.revoke(&agent.signed()).success(200);
            } else {
                key = key_of(&service.rotate(&agent.signed()).success(200));
            }
            let refused = agents_path();
            is_unauthenticated(&Request::get(ACME, &refused).key(&old).ask_on(&mut wire));
            is_unauthenticated(&site.gateway.ask(&Request::get(ACME, &refused).key(&old)));
            site.is_unseen(&refused);
            if revokes {
                key = agent.generate(service);
            }
        }
        until("the other has asked too", SOON, || {
            assert!(running.is_on());
            (asked.load(Ordering::SeqCst) > 20).then_some(())
        });
    });
    let ours = site.upstream.count(|seen| seen.header("x-agent-id") == Some(&agent.text()));
    assert_eq!(u32::try_from(ours).unwrap(), KEY_CHANGES, "one for each key");
}

// threat: An agent's data are unreadable or heavy
fn an_agent_that_strangers_take_into_1300_organizations_passes_and_only_its_profile_is_503(stage: &Stage) {
    let chain = stage.world().chain();
    let registry = chain.deploy("OrganizationRegistry");
    let site = Site::of(stage).set("chain.contracts.organization", registry.to_checksum(None));
    let site = site.agent(4).start();
    let (service, agent) = (&site.gateway.service, site.agent());
    service.verify(site.key()).success(200);
    chain.join_crowd(registry, agent.id, (1_300, 256));
    let profile = || Some(service.verify(site.key())).filter(|answer| answer.status == 503);
    let answer = until("the organizations are too many", SOON, profile);
    assert_eq!(answer.error(503, "RPC_ERROR")["method"], json!("eth_call"));
    service.verify_signature(&agent.signed()).error(503, "RPC_ERROR");
    for by_key in [true, false] {
        let path = agents_path();
        let request = Request::get(ACME, &path);
        let request =
            if by_key { request.key(site.key()) } else { request.with_all(&signed(&agent.draft())) };
        assert_eq!(site.gateway.ask(&request).status, 200);
        assert_eq!(identity_headers(&site.upstream.only(&path)), expected(agent, 4));
    }
    let rotated = key_of(&service.signed(("POST", "/keys/rotate"), &agent.signed()).success(200));
    assert_eq!(site.gateway.ask(&Request::get(ACME, &agents_path()).key(&rotated)).status, 200);
    let other = stage.world().agent(4);
    service.verify(&other.generate(service)).success(200);
}
