//! A Redis that fails behind the gateway: 500 for agents and nothing to the public, nothing spent, and as before when it
//! is over. What the API says meanwhile is in the contract's cases.

use serde_json::Value;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::gateway::Gateway;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::agents::Agent;
use crate::support::redis::Redis;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_redis_that_fails_is_500_for_agents_and_nothing_to_the_public,
    a_full_redis_spends_neither_nonce_nor_budget,
    at_once_exactly_the_limit_passes_at_two_gateways_together,
];

/// Two gateways at one Redis, and an upstream behind both.
struct Rig {
    gateways: [Gateway; 2],
    upstream: Upstream,
    agent: Agent,
    key: String,
}

impl Rig {
    fn start(stage: &Stage, redis: &Redis) -> Self {
        let upstream = Upstream::start();
        let url = redis.database();
        let settings = stage.settings().set("store.url", url).set("store.timeout", "500ms");
        let tenants = [Tenant::new("t", ACME, upstream.address).public()];
        let gateways = [(), ()].map(|()| Gateway::start_with(settings.clone(), &tenants, &[]));
        let agent = stage.world().agent(3);
        let key = agent.generate(&gateways[0].service);
        Self { gateways, upstream, agent, key }
    }

    fn by_key(&self) -> Request {
        Request::get(ACME, &agents_path()).key(&self.key)
    }

    fn by_signature(&self) -> Request {
        Request::get(ACME, &agents_path()).with_all(&signed(&self.agent.draft()))
    }

    /// How many requests of agents have come through.
    fn passed(&self) -> usize {
        self.upstream.seen_with("/agents/").len()
    }

    /// Agents get 500, and nobody of them comes through; the public notices nothing.
    #[track_caller]
    fn is_closed(&self) {
        let passed = self.passed();
        for gateway in &self.gateways {
            for _ in 0..10 {
                for request in [self.by_key(), self.by_signature()] {
                    let answer = gateway.ask(&request);
                    answer.is_error(500, "INTERNAL_ERROR", Value::Null);
                    assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
                }
                assert_eq!(gateway.ask(&Request::get(ACME, &public_path())).status, 200);
            }
        }
        assert_eq!(self.passed(), passed, "nobody came through");
    }

    /// Agents pass again, at both.
    #[track_caller]
    fn is_open(&self) {
        for gateway in &self.gateways {
            until("agents pass", SOON, || {
                let answer = gateway.ask(&self.by_key());
                assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
                (answer.status == 200).then_some(())
            });
        }
    }
}

fn a_redis_that_fails_is_500_for_agents_and_nothing_to_the_public(stage: &Stage) {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let rig = Rig::start(stage, &redis);
    rig.is_open();
    redis.freeze(true);
    rig.is_closed();
    redis.freeze(false);
    rig.is_open();
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]);
    rig.is_closed();
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    rig.is_open();
    redis.kill();
    rig.is_closed();
    redis.start_again();
    rig.is_open();
}

fn a_full_redis_spends_neither_nonce_nor_budget(stage: &Stage) {
    let redis = Redis::start(&[]);
    let rig = Rig::start(stage, &redis);
    let request = rig.by_signature();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for gateway in &rig.gateways {
        gateway.ask(&request).is_error(500, "INTERNAL_ERROR", Value::Null);
    }
    rig.is_closed();
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    // The very request that was refused passes, once, and is the first to spend anything.
    assert_eq!(rig.gateways[0].ask(&request).allowance(), (166, 165));
    for gateway in &rig.gateways {
        gateway.ask(&request).error(400, "REPLAY_DETECTED");
    }
    assert_eq!(rig.gateways[1].ask(&rig.by_key()).allowance(), (166, 164));
}

fn at_once_exactly_the_limit_passes_at_two_gateways_together(stage: &Stage) {
    let redis = Redis::start(&[]);
    let rig = Rig::start(stage, &redis);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (rig, gateway) = (&rig, &rig.gateways[number % 2]);
            scope.spawn(move || {
                for _ in 0..40 {
                    let answer = gateway.ask(&rig.by_key());
                    assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
                }
            });
        }
    });
    assert_eq!(rig.passed(), 166);
}
