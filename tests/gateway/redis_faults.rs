//! A Redis that fails behind the gateway: 500 for agents and nothing to the public, nothing spent, and as before when it
//! is over. What the API says meanwhile is in the contract's cases.

use serde_json::Value;

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{gateway::Gateway, site::Site};
use crate::support::time::{SOON, until};
use crate::support::{redis::Redis, wire::Request};

pub(crate) const CASES: &[Case] =
    cases![a_redis_that_fails_is_500_for_agents_and_nothing_to_the_public_and_spends_nothing];

/// Two gateways at one Redis, with one upstream.
fn two(stage: &Stage, redis: &Redis) -> (Site, Gateway) {
    let url = redis.database();
    let site = Site::of(stage).set("store.redis.url", url).set("store.redis.timeout", "5s").agent(3).start();
    let twin = site.gateway.twin(|settings| settings);
    (site, twin)
}

/// Agents get 500, and nobody of them comes through; the public notices nothing.
#[track_caller]
fn is_closed(site: &Site, gateway: &Gateway) {
    let passed = site.passed();
    for _ in 0..10 {
        for request in [site.by_key(), site.by_signature()] {
            let answer = gateway.ask(&request);
            answer.is_error(500, "INTERNAL_ERROR", Value::Null);
            assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
        }
        assert_eq!(gateway.ask(&Request::get(ACME, &public_path())).status, 200);
    }
    assert_eq!(site.passed(), passed, "nobody came through");
}

/// The clock of a server that answers is compared with this machine's, and that of no other.
#[track_caller]
fn shows_a_clock(gateway: &Gateway, wanted: bool) {
    until("the offset is as it is wanted", SOON, || {
        let text = gateway.service.metrics();
        let mut lines = text.lines();
        let shown = lines.any(|line| line.starts_with("tiergate_store_clock_offset_seconds "));
        (shown == wanted).then_some(())
    });
}

/// Agents pass again.
#[track_caller]
fn is_open(site: &Site, gateway: &Gateway) {
    until("agents pass", SOON, || {
        let answer = gateway.ask(&site.by_key());
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        (answer.status == 200).then_some(())
    });
}

// threat: A failure admits somebody, or looks like an answer
fn a_redis_that_fails_is_500_for_agents_and_nothing_to_the_public_and_spends_nothing(stage: &Stage) {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (site, twin) = two(stage, &redis);
    let request = site.by_signature();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for gateway in [&site.gateway, &twin] {
        gateway.ask(&request).is_error(500, "INTERNAL_ERROR", Value::Null);
        is_closed(&site, gateway);
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    // The very request that was refused passes, once, and is the first to spend anything.
    assert_eq!(site.gateway.ask(&request).allowance(), (166, 165));
    for gateway in [&site.gateway, &twin] {
        gateway.ask(&request).error(400, "REPLAY_DETECTED");
    }
    assert_eq!(twin.ask(&site.by_key()).allowance(), (166, 164));
    // One that hangs is met by a gateway that does not wait for it.
    let impatient = site.gateway.twin(|settings| settings.set("store.redis.timeout", "500ms"));
    redis.freeze(true);
    is_closed(&site, &impatient);
    redis.freeze(false);
    is_open(&site, &impatient);
    for gateway in [&site.gateway, &twin] {
        is_open(&site, gateway);
        redis.command(&["REPLICAOF", "127.0.0.1", "1"]);
        is_closed(&site, gateway);
        redis.command(&["REPLICAOF", "NO", "ONE"]);
        is_open(&site, gateway);
        shows_a_clock(gateway, true);
        redis.kill();
        is_closed(&site, gateway);
        shows_a_clock(gateway, false);
        redis.start_again();
        is_open(&site, gateway);
    }
}
