//! A Redis that dies, hangs, forgets, fills up, or is no master any more, while two replicas of the service are asked all
//! the time: never a wrong 200, a 500 of the contract instead, unready while it lasts, and well again by itself.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::agents::{Agent, key_of};
use crate::support::harness::{Case, cases};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{client::Connection, redis::Redis, service::Service, stop::Stop, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_redis_that_hangs_is_full_a_replica_or_killed_lets_nobody_through_and_goes_on,
    a_replica_that_is_missing_is_shown_where_health_is_and_nothing_else_suffers,
    what_a_redis_may_lose_is_said_once_with_its_name_and_no_secret,
];

/// The limited agent's requests in a minute.
const LIMIT: u32 = 16;

/// Two replicas of the service, and agents in every state that a fault could mix up.
struct Scene {
    services: [Service; 2],
    agent: Agent,
    key: String,
    /// The key before it was rotated.
    rotated: String,
    /// The key of an agent that has none any more.
    revoked: String,
    /// A signature that has been used.
    used: Value,
    /// The key of an agent that has [`LIMIT`] requests.
    limited: String,
    passed: AtomicU32,
    began_secs: u64,
}

impl Scene {
    fn new(world: &World, url: &str, wait_replicas: i64) -> Self {
        let settings = world.settings().set("store.redis.url", url);
        // Signatures are refused for longer after a start of Redis than any case takes.
        let settings =
            settings.set("signature.max_ahead", "5m").set("store.redis.wait_replicas", wait_replicas);
        let plenty = vec![1, i64::from(LIMIT), 1_000_000, 1_000_000];
        let settings = settings.set("tiers.requests_per_minute", plenty);
        let services = [Service::start(settings.clone()), Service::start(settings)];
        let [agent, bare, limited] = [world.agent(4), world.agent(4), world.agent(2)];
        let rotated = agent.generate(&services[0]);
        let key = key_of(&services[0].rotate(&agent.signed()).success(200));
        let revoked = bare.generate(&services[0]);
        services[0].revoke(&bare.signed()).success(200);
        let used = agent.signed();
        services[0].verify_signature(&used).success(200);
        let limited = limited.generate(&services[0]);
        Self {
            services,
            agent,
            key,
            rotated,
            revoked,
            used,
            limited,
            passed: AtomicU32::new(0),
            began_secs: unix_seconds(),
        }
    }

    /// At one Redis.
    fn at(world: &World, redis: &Redis) -> Self {
        Self::new(world, &redis.database(), 0)
    }

    /// Does something to Redis while everything is asked of both replicas, again and again.
    fn while_asked(&self, fault: impl FnOnce()) {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            for service in &self.services {
                scope.spawn(|| {
                    let mut connection = service.connect();
                    while !stop.is_set() {
                        self.ask_everything(&mut connection);
                    }
                });
            }
            let _stops = stop.at_end();
            let has_passed = || (self.passed.load(Ordering::SeqCst) > 0).then_some(());
            until("some pass before the fault", SOON, has_passed);
            fault();
        });
        let passed = self.passed.load(Ordering::SeqCst);
        // On a machine so slow that a case takes longer than the window, that many windows have begun.
        let windows = u32::try_from((unix_seconds() - self.began_secs) / 60).unwrap() + 1;
        assert!((1..=LIMIT * windows).contains(&passed), "{passed} passed, {LIMIT} a minute");
    }

    /// Each answer is the right one, or says that the store failed.
    fn ask_everything(&self, connection: &mut Connection) {
        let mut ask = |path: &str, body: &Value, right: &[u16]| {
            let answer = connection.post(path, body).unwrap();
            if answer.status == 500 {
                answer.is_error(500, "INTERNAL_ERROR", Value::Null);
            } else {
                assert!(right.contains(&answer.status), "{path}: {}", answer.text());
            }
            answer.status
        };
        for key in [&self.rotated, &self.revoked] {
            ask("/verify", &json!({ "apiKey": key }), &[401]);
        }
        ask("/verify/signature", &self.used, &[400]);
        // Without its record no key counts; a Redis that came back empty has none.
        ask("/verify", &json!({ "apiKey": self.key }), &[200, 401]);
        if ask("/verify", &json!({ "apiKey": self.limited }), &[200, 401, 429]) == 200 {
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Nobody is let through, and the service says that it is its store.
    fn is_unready(&self) {
        for service in &self.services {
            let shown = service.await_readiness("/readyz", 503, |shown| {
                let checks = &shown["checks"];
                [&shown["status"], &checks["store"], &checks["chain"]] == ["unavailable", "error", "ok"]
            });
            let checks = shown["checks"].as_object().unwrap();
            assert!(checks.keys().all(|check| ["store", "chain", "signatures"].contains(&check.as_str())));
            for _ in 0..3 {
                service.verify(&self.key).is_error(500, "INTERNAL_ERROR", Value::Null);
                let signed = self.agent.signed();
                service.verify_signature(&signed).is_error(500, "INTERNAL_ERROR", Value::Null);
            }
            service.get("/livez").success(200);
        }
    }

    fn is_ready(&self) {
        self.services.iter().for_each(Service::await_ready);
    }

    /// Keys are as they were, and a change of one works.
    fn goes_on(&self) {
        for service in &self.services {
            until("keys pass", SOON, || (service.verify(&self.key).status == 200).then_some(()));
            service.verify(&self.rotated).error(401, "INVALID_API_KEY");
            service.verify(&self.revoked).error(401, "INVALID_API_KEY");
            service.verify_signature(&self.used).error(400, "REPLAY_DETECTED");
        }
    }

    /// A signature of now might have been used in what Redis lost. Its owner is told when to sign again, and an operator
    /// finds the reason where readiness is asked.
    fn says_when_to_sign_again(&self) {
        for service in &self.services {
            let refused = service.verify_signature(&self.agent.signed());
            refused.error(400, "REPLAY_DETECTED");
            assert!(refused.text().contains("sign again at 20"), "{}", refused.text());
            let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=601).contains(&wait), "{wait}");
            let ready = service.await_readiness("/readyz", 200, |_| true);
            assert!(
                ready["checks"]["signatures"].as_str().unwrap().starts_with("refused until 20"),
                "{ready}"
            );
        }
    }

    /// Signatures made now pass again without a wait: Redis is the process that it was.
    fn takes_signatures(&self) {
        for service in &self.services {
            service.verify_signature(&self.agent.signed()).success(200);
        }
    }
}

// threat: A failure admits somebody, or looks like an answer
fn a_redis_that_hangs_is_full_a_replica_or_killed_lets_nobody_through_and_goes_on(world: &World) {
    type Step = fn(&mut Redis);
    let full: [Step; 2] = [
        |redis| drop(redis.command(&["CONFIG", "SET", "maxmemory", "1"])),
        |redis| drop(redis.command(&["CONFIG", "SET", "maxmemory", "0"])),
    ];
    let replica: [Step; 2] = [
        |redis| drop(redis.command(&["REPLICAOF", "127.0.0.1", "1"])),
        |redis| drop(redis.command(&["REPLICAOF", "NO", "ONE"])),
    ];
    let hangs: [Step; 2] = [|redis| redis.freeze(true), |redis| redis.freeze(false)];
    let killed: [Step; 2] = [Redis::kill, Redis::start_again];
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let scene = Scene::at(world, &redis);
    scene.while_asked(|| {
        // A process that goes on has the nonces that it had; one that was a master before a turn or a start may not.
        for ([fails, is_mended], takes_signatures) in
            [(hangs, true), (full, true), (replica, false), (killed, false)]
        {
            fails(&mut redis);
            scene.is_unready();
            is_mended(&mut redis);
            scene.is_ready();
            scene.goes_on();
            if takes_signatures {
                scene.takes_signatures();
            }
        }
    });
    scene.says_when_to_sign_again();
}

fn a_replica_that_is_missing_is_shown_where_health_is_and_nothing_else_suffers(world: &World) {
    let master = Redis::start(&[]);
    let mut replica = Redis::start(&["--replicaof", master.host(), "6379"]);
    until("the replica follows", SOON, || (master.acknowledged() == 1).then_some(()));
    let settings = world.settings().set("store.redis.url", master.database());
    let settings = settings.set("store.redis.wait_replicas", 1).set("store.redis.wait_timeout", "3s");
    let service = Service::start(settings);
    let missing = || service.samples().get("tiergate_store_replicas_missing");
    let agent = world.agent(4);
    let key = agent.generate(&service);
    let is_whole = |body: &Value| body.get("degraded").is_none() && missing() == 0.0;
    service.await_readiness("/readyz", 200, is_whole);
    replica.kill();
    service.await_readiness("/readyz", 200, |body| {
        body["status"] == "ready" && body["degraded"] == json!(["store_replicas"]) && missing() == 1.0
    });
    service.verify(&key).success(200);
    service.rotate(&agent.signed()).error(500, "INTERNAL_ERROR");
    for (text, named) in [
        ("fewer replicas than store.redis.wait_replicas", format!("server={master}")),
        ("replicas of", format!("0 of 1 replicas of {master} acknowledged")),
    ] {
        service.await_log(&[text, &named]);
    }
    replica.start_again();
    service.await_readiness("/readyz", 200, is_whole);
    service.await_log(&["as many replicas again"]);
}

// threat: A store forgets
fn what_a_redis_may_lose_is_said_once_with_its_name_and_no_secret(world: &World) {
    let keeps = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let redis = Redis::start(&keeps);
    redis.command(&["ACL", "SETUSER", "tiergate", "on", ">SECRET", "~tg2:*", "+@all"]);
    let url = redis.url(0).replace("redis://", "redis://tiergate:SECRET@");
    let service =
        Service::start(world.settings().set("store.redis.url", url).set("store.redis.wait_replicas", 1));
    for connections in 1..=3 {
        until("it is connected", SOON, || {
            (service.log().matches("connected to Redis").count() >= connections).then_some(())
        });
        redis.command(&["CLIENT", "KILL", "USER", "tiergate"]);
    }
    let named = format!("server={redis}");
    for finding in ["appendfsync is everysec", "it has fewer replicas than store.redis.wait_replicas"] {
        let log = service.await_log(&[finding]);
        assert!(!log.contains("SECRET"), "{log}");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(finding)).collect();
        assert!(lines.len() == 1 && lines[0].contains(&named) && lines[0].contains("WARN"), "{lines:?}");
    }
}
