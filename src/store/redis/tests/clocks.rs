//! Clocks that step, Redis' and those of the product's replicas: no signature passes twice, and none is refused because
//! Redis' clock is wrong.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use redis::Value;

use crate::os::Os;
use crate::ports::{Admission, Clock, NonceRefused, Scope};
use crate::store::contract::{agent, claim, until};
use crate::store::redis::names::{self, Name, Shard};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{AHEAD_SECS, START_SECS, by_nonce, is_admitted, options, ready};
use crate::store::{
    redis::answers::admission, redis::info::Info, redis::scripts::Scripts, redis::tests::real::open,
};

/// How old a signature may be.
const AGE_SECS: u64 = 300;
const RETENTION_SECS: u64 = 900;

/// A moment of a schedule: a clock is stepped, or somebody asks.
#[derive(Debug, Clone)]
enum Event {
    /// Redis' clock, by so many seconds.
    StepRedis(i64),
    /// The clock of one of two callers.
    StepCaller(usize, i64),
    /// Time passes for everybody.
    Pass(u64),
    /// A caller gets a signature that was made so many seconds before its own time.
    Ask { caller: usize, nonce: u64, age_secs: i64 },
    /// A caller gets one again that was admitted.
    Again { caller: usize, which: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let step = prop_oneof![-2_000..2_000_i64, Just(-100_000), Just(100_000), Just(-900), Just(901)];
    let age_secs = -(AHEAD_SECS.cast_signed())..=AGE_SECS.cast_signed();
    let ask = (0..2_usize, 0..20_u64, age_secs).prop_map(|(caller, nonce, age_secs)| Event::Ask {
        caller,
        nonce,
        age_secs,
    });
    let again = (0..2_usize, any::<usize>()).prop_map(|(caller, which)| Event::Again { caller, which });
    let event = prop_oneof![
        1 => step.clone().prop_map(Event::StepRedis),
        1 => (0..2_usize, step).prop_map(|(caller, secs)| Event::StepCaller(caller, secs)),
        1 => (0..1_000_u64).prop_map(Event::Pass),
        4 => ask,
        4 => again,
    ];
    proptest::collection::vec(event, 1..60)
}

/// A Redis whose scripts are told the time, and the clocks of everybody in seconds.
struct Scene<'a> {
    connection: &'a mut redis::Connection,
    scripts: &'a Scripts,
    redis_secs: i64,
    callers_secs: [i64; 2],
    admitted: BTreeSet<(u64, u64)>,
}

impl Scene<'_> {
    fn ask(&mut self, caller: usize, nonce: u64, signed_at_secs: u64) -> bool {
        let shard = Shard::of_agent(agent(1));
        let keys = [Name::Epoch(shard), Name::Nonces(shard), Name::Window(agent(1), &Scope::Api)];
        let admit = self.scripts.admit_by_nonce.on(&keys).arg(self.callers_secs[caller]).arg(AHEAD_SECS);
        let admit = admit.arg(RETENTION_SECS).arg(signed_at_secs);
        let admit = admit.arg(names::nonce(agent(1), claim(nonce, 0).nonce)).arg(1_000_000).arg(60_000_000);
        let admit = admit.arg(self.redis_secs * 1_000_000);
        let answer: Value = admit.command.query(self.connection).unwrap();
        matches!(admission(&answer).unwrap(), Admission::Admitted { .. })
    }

    /// How many were admitted, none of them twice.
    fn play(&mut self, events: &[Event]) -> usize {
        for event in events {
            match *event {
                Event::StepRedis(secs) => self.redis_secs += secs,
                Event::StepCaller(caller, secs) => self.callers_secs[caller] += secs,
                Event::Pass(secs) => {
                    for clock in self.callers_secs.iter_mut().chain([&mut self.redis_secs]) {
                        *clock += secs.cast_signed();
                    }
                }
                Event::Ask { caller, nonce, age_secs } => {
                    let signed = (nonce, (self.callers_secs[caller] - age_secs).cast_unsigned());
                    if self.ask(caller, signed.0, signed.1) {
                        assert!(self.admitted.insert(signed), "{signed:?} passed twice");
                    }
                }
                Event::Again { caller, which } => {
                    let Some(signed) = self.admitted.iter().nth(which % self.admitted.len().max(1)).copied()
                    else {
                        continue;
                    };
                    let age_secs = self.callers_secs[caller] - signed.1.cast_signed();
                    let fresh = (-AHEAD_SECS.cast_signed()..=AGE_SECS.cast_signed()).contains(&age_secs);
                    assert!(!fresh || !self.ask(caller, signed.0, signed.1), "{signed:?} passed twice");
                }
            }
        }
        self.admitted.len()
    }
}

/// A scene in which time has passed since the first epoch.
fn scene<'a>(connection: &'a mut redis::Connection, scripts: &'a Scripts) -> Scene<'a> {
    redis::cmd("FLUSHALL").exec(connection).unwrap();
    scripts.admit_by_nonce.load().exec(connection).unwrap();
    let start_secs = START_SECS.cast_signed();
    let (admitted, callers_secs) = (BTreeSet::new(), [start_secs; 2]);
    let mut scene = Scene { connection, scripts, redis_secs: start_secs, callers_secs, admitted };
    assert!(!scene.ask(0, 0, START_SECS), "it might have been used before");
    scene.play(&[Event::Pass(2 * AGE_SECS)]);
    scene
}

// threat: A clock step frees used nonces
#[tokio::test]
async fn wherever_the_clocks_of_redis_and_callers_are_stepped_no_signature_passes_twice() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let (connection, scripts, admitted) = (RefCell::new(connection), Scripts::simulated(""), Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let played = runner.run(&events(), |events| {
        let passed = scene(&mut connection.borrow_mut(), &scripts).play(&events);
        admitted.set(admitted.get() + passed);
        Ok(())
    });
    played.unwrap();
    assert!(admitted.get() > 400, "{}", admitted.get());
}

// threat: A clock step frees used nonces
#[tokio::test]
async fn a_step_of_redis_clock_alone_frees_no_nonce_and_refuses_no_new_signature() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let scripts = Scripts::simulated("");
    let mut scene = scene(&mut connection, &scripts);
    let secs = scene.callers_secs[0].cast_unsigned();
    for (round, step) in (0..).zip([0, 901, 100_000, -100_901, -100_000, 99_000, 1_000]) {
        scene.redis_secs += step;
        for old in 0..round {
            assert!(!scene.ask(1, old, secs), "{old} again after {step}");
        }
        assert!(scene.ask(0, round, secs), "after {step}");
    }
}

// threat: A clock step frees used nonces
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_of_redis_that_jumps_ahead_and_back_frees_no_nonce() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clock");
    std::fs::write(&file, "+0").unwrap();
    let Some(server) = RedisServer::with_clock(&file).await else { return };
    let mut administrator = server.connected().await;
    let store = open(options(&server.url()));
    ready(&store).await;
    let signed_secs = Os::new().unix_seconds() + 2 * AHEAD_SECS;
    assert!(is_admitted(by_nonce(&store, 1, signed_secs).await));
    // What has an expiry of its own goes.
    say(&mut administrator, &["SET", "canary", "", "EX", "100000"]).await.unwrap();
    std::fs::write(&file, "+3d").unwrap();
    until("Redis has let go what is over", async || {
        let info = Info::of(&mut administrator).await.unwrap();
        (info.value("expired_keys") != "0").then_some(())
    })
    .await;
    assert_eq!(by_nonce(&store, 1, signed_secs).await, Some(Admission::NonceRefused(NonceRefused::Used)));
    assert!(is_admitted(by_nonce(&store, 2, signed_secs).await));
    std::fs::write(&file, "+0").unwrap();
    until("the clock is right again", async || {
        let (secs, _): (u64, u64) = redis::cmd("TIME").query_async(&mut administrator).await.unwrap();
        (secs < signed_secs + 3_600).then_some(())
    })
    .await;
    for nonce in [1, 2] {
        assert_eq!(
            by_nonce(&store, nonce, signed_secs).await,
            Some(Admission::NonceRefused(NonceRefused::Used))
        );
    }
    assert!(is_admitted(by_nonce(&store, 3, signed_secs).await));
}
