//! Two replicas of the service at one Redis: keys, nonces and limits are one, at once.

use serde_json::{Value, json};

use crate::support::agents::{Agent, key_of};
use crate::support::client::Connection;
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_key_that_one_replica_replaced_is_refused_by_the_other_on_the_very_next_request,
    a_nonce_that_one_replica_took_is_used_at_the_other,
    at_once_exactly_the_limit_passes_at_both_together,
    the_budget_of_key_management_is_one,
    redis_holds_no_key_and_no_signature,
    a_key_in_redis_never_expires,
];

/// How often a key is replaced.
const ROTATIONS: usize = 100;

fn two(world: &World) -> [Service; 2] {
    let plenty = vec![1, 16, 1_000_000, 1_000_000];
    let settings = world.settings().set("tiers.requests_per_minute", plenty);
    let settings = settings.set("keys.requests_per_hour", 1_000_000);
    [Service::start(settings.clone()), Service::start(settings)]
}

fn a_key_that_one_replica_replaced_is_refused_by_the_other_on_the_very_next_request(world: &World) {
    let [one, other] = two(world);
    let agent = world.agent(4);
    let mut key = agent.generate(&one);
    for _ in 0..ROTATIONS {
        // It knows the key before it is replaced.
        other.verify(&key).success(200);
        let new = key_of(&one.rotate(&agent.signed()).success(200));
        other.verify(&key).error(401, "INVALID_API_KEY");
        key = new;
    }
    other.verify(&key).success(200);
    one.revoke(&agent.signed()).success(200);
    other.verify(&key).error(401, "INVALID_API_KEY");
    assert_eq!(other.status(&agent.text()).success(200)["hasKey"], json!(false));
}

fn a_nonce_that_one_replica_took_is_used_at_the_other(world: &World) {
    let [one, other] = two(world);
    let agent = world.agent(4);
    let used = agent.signed();
    one.verify_signature(&used).success(200);
    for service in [&other, &one] {
        for endpoint in SIGNED_ENDPOINTS {
            service.signed(endpoint, &used).error(400, "REPLAY_DETECTED");
        }
    }
}

fn at_once_exactly_the_limit_passes_at_both_together(world: &World) {
    let services = two(world);
    let agent = world.agent(2);
    let key = agent.generate(&services[0]);
    let mut left: Vec<u32> = std::thread::scope(|scope| {
        let (services, key) = (&services, &key);
        let ask = |number: usize| scope.spawn(move || ask_ten_times(&services[number % 2], key));
        let askers: Vec<_> = (0..8).map(ask).collect();
        askers.into_iter().flat_map(|asker| asker.join().unwrap()).collect()
    });
    left.sort_unstable();
    assert_eq!(left, (0..16).collect::<Vec<_>>(), "each place was given once");
}

/// The requests that were left after each one that passed.
fn ask_ten_times(service: &Service, key: &str) -> Vec<u32> {
    let mut connection: Connection = service.connect();
    let answers = (0..10).map(|_| connection.post("/verify", &json!({ "apiKey": key })).unwrap());
    let passed = answers.filter(|answer| match answer.status {
        200 => true,
        429 => false,
        status => panic!("{status}: {}", answer.text()),
    });
    passed.map(|answer| answer.allowance().1).collect()
}

fn the_budget_of_key_management_is_one(world: &World) {
    let settings = world.settings();
    let services = [Service::start(settings.clone()), Service::start(settings)];
    let agent: Agent = world.agent(0);
    for left in (0..10).rev() {
        let answer = services[left % 2].revoke(&agent.signed());
        assert_eq!(answer.allowance(), (10, u32::try_from(left).unwrap()));
    }
    for service in &services {
        service.revoke(&agent.signed()).is_limited(json!(agent.text()), Value::Null, 10);
    }
}

fn redis_holds_no_key_and_no_signature(world: &World) {
    let database = world.redis().database();
    let service = Service::start(world.settings().set("store.redis.url", database.clone()));
    let agent = world.agent(4);
    let signed = agent.signed();
    let key = key_of(&service.generate(&signed).success(201));
    service.verify(&key).success(200);
    let number = database.rsplit_once('/').unwrap().1.parse().unwrap();
    let held = world.redis().dump(number);
    assert!(held.len() > 2 * 1_024, "more than epochs");
    for secret in [&key[12..], &signed["signature"].as_str().unwrap()[2..]] {
        let raw = alloy::primitives::hex::decode(secret).unwrap();
        for form in [secret.as_bytes(), &raw[..32]] {
            let shows = |piece: &Vec<u8>| piece.windows(form.len()).any(|window| window == form);
            assert!(!held.iter().any(shows), "a secret in Redis");
        }
    }
}

fn a_key_in_redis_never_expires(world: &World) {
    let database = world.redis().database();
    let service = Service::start(world.settings().set("store.redis.url", database.clone()));
    world.agent(4).generate(&service);
    let number = database.rsplit_once('/').unwrap().1.parse().unwrap();
    let never = |kind| {
        let expiries = world.redis().expiries(number, kind);
        expiries.len() == 1 && expiries[0].1 == -1
    };
    assert!(never('k') && never('d'));
}
