//! `conf/compose` as it is shipped, without containers: the same files, with every service on a loopback address of its
//! own in place of its name, and a real balancer, a real Redis and two replicas behind them. Its chain is the program's
//! own development chain.
mod composition;
mod running;
mod shipped;

use std::net::{IpAddr, Ipv4Addr};
use std::{sync::atomic::Ordering, thread};

use self::running::{API, FAILURES_PER_MINUTE, GATEWAY, Load, OWNERS, REPLICAS, Running};
use crate::support::stop::Stop;
use crate::support::time::{SOON, until};

/// How many clients ask at once.
const CLIENTS: usize = 4;

/// How many requests all of them make before a replica ends, and again when it has ended.
const REQUESTS: usize = 200;

/// How many restarts there are, one replica after the other. `TG_RESTARTS` is another number.
const RESTARTS: usize = 2;

/// A client's address: no service has it.
fn client_ip(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 8, 0, last).into()
}

/// The balancer deletes the headers by which proxies say how a request came, and sets those that the replicas trust.
#[test]
fn no_word_of_a_stranger_about_how_its_request_came_gets_past_the_balancer() {
    let Some(running) = Running::shared() else { return };
    let mut balancer = running.client(client_ip(9), "balancer", API);
    let key = running.generate(&mut balancer, 1);
    let mut gateway = running.client(client_ip(9), "balancer", GATEWAY);
    let forged = [
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X_Forwarded_Host",
        "Forwarded",
        "X-Real-IP",
    ];
    let headers: Vec<(&str, &str)> = forged.iter().map(|name| (*name, "https")).collect();
    let answer = gateway.get("/forecast", &[&[("X-API-Key", key.as_str())], &headers[..]].concat());
    let seen = &answer.success(200)["headers"];
    let told = |name: &str| seen[name].as_str().unwrap_or_default().to_owned();
    let hops = told("x-forwarded-for");
    assert!(hops.starts_with(&format!("{}, ", client_ip(9))), "the balancer's word, then ours: {seen}");
    assert_eq!(told("x-forwarded-proto"), "http", "{seen}");
    assert!(!told("x-forwarded-host").contains("https"), "{seen}");
    assert!(!told("forwarded").contains("https") && !told("forwarded").contains(','), "{seen}");
    for name in ["x-forwarded-port", "x-forwarded-prefix", "x_forwarded_host", "x-real-ip"] {
        assert_eq!(told(name), "", "{name}: {seen}");
    }
}

#[test]
fn a_key_made_through_the_balancer_is_good_at_every_replica_until_every_replica_refuses_it() {
    let Some(running) = Running::shared() else { return };
    let mut balancer = running.client(client_ip(1), "balancer", OWNERS);
    let key = running.generate(&mut balancer, 4);
    balancer.verify(&key).error(404, "NOT_FOUND");
    let replicas = || REPLICAS.map(|replica| running.client(client_ip(1), replica, API));
    for mut replica in replicas() {
        replica.verify(&key).success(200);
    }
    let mut gateway = running.client(client_ip(1), "balancer", GATEWAY);
    let seen = gateway.get("/forecast", &[("X-API-Key", &key)]).success(200);
    assert_eq!(
        (&seen["headers"]["x-agent-id"], &seen["headers"]["x-agent-tier"]),
        (&"4".into(), &"4".into())
    );

    balancer.signed("DELETE", "/keys", 4).success(200);
    for mut replica in replicas() {
        replica.verify(&key).error(401, "INVALID_API_KEY");
    }
    for _ in 0..10 {
        gateway.get("/forecast", &[("X-API-Key", &key)]).error(401, "INVALID_API_KEY");
    }
}

#[test]
fn clients_behind_the_balancer_are_told_apart_and_can_not_say_who_they_are() {
    let Some(running) = Running::shared() else { return };
    let key = running.generate(&mut running.client(client_ip(3), "balancer", API), 2);
    let (mut guesser, mut other) = (
        running.client(client_ip(4), "balancer", GATEWAY),
        running.client(client_ip(5), "balancer", GATEWAY),
    );
    let wrong = format!("svc_live_v1_{}", "0".repeat(64));
    let mut refused = 0;
    let limited = (0..FAILURES_PER_MINUTE * REPLICAS.len() + 1).any(|number| {
        // Whoever believed this would see another client each time.
        let forged = format!("192.0.2.{}", number % 250);
        let answer = guesser.get("/", &[("X-API-Key", &wrong), ("X-Forwarded-For", &forged)]);
        refused += usize::from(answer.status == 401);
        answer.status == 429
    });
    assert!(limited && refused >= FAILURES_PER_MINUTE, "{refused} guesses were refused before the limit");
    other.get("/", &[("X-API-Key", &wrong)]).error(401, "INVALID_API_KEY");
    let seen = other.get("/", &[("X-API-Key", &key)]).success(200);
    let for_whom = seen["headers"]["x-forwarded-for"].as_str().unwrap();
    assert!(for_whom.split(", ").any(|hop| hop == client_ip(5).to_string()), "{for_whom}");
}

/// Many clients ask the gateway; in the middle something happens to the first replica.
fn under_load(running: &Running, key: &str, happens: impl FnOnce()) -> Load {
    let (load, stop) = (Load::default(), Stop::default());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| running.hammer(key, &load, &stop));
        }
        let _stops = stop.at_end();
        let await_requests = || {
            let goal = load.asked.load(Ordering::SeqCst) + REQUESTS;
            let is_reached = || (load.asked.load(Ordering::SeqCst) >= goal).then_some(());
            until("the load is on", SOON, is_reached);
        };
        await_requests();
        happens();
        load.is_over.store(true, Ordering::SeqCst);
        await_requests();
    });
    load
}

#[test]
fn a_replica_that_is_killed_takes_with_it_only_what_it_was_given_while_it_lived() {
    let Some(running) = Running::start() else { return };
    let key = running.generate(&mut running.client(client_ip(1), "balancer", API), 4);
    let victim = running.take(REPLICAS[0]);
    let load = under_load(&running, &key, || drop(victim));
    assert_eq!(load.lost_after.into_inner(), 0, "requests that began when it was gone");
    let lost = load.lost_before.into_inner();
    assert!(
        lost <= 2 * CLIENTS,
        "each had one under way, and may have come back to it while it died: {lost}"
    );

    running.launch(REPLICAS[0]);
    let mut client = running.client(client_ip(1), "balancer", GATEWAY);
    until("the replica gets requests again", SOON, || {
        // The balancer may not have noticed the kill. A replica that starts admits nobody until it has its store.
        let answer = client.get("/", &[("X-API-Key", &key)]);
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        (running.forwarded(REPLICAS[0]) > 0.0).then_some(())
    });
    assert_eq!(client.get("/", &[("X-API-Key", &key)]).status, 200);
}

#[test]
fn replicas_that_are_restarted_one_after_the_other_lose_no_request() {
    let Some(running) = Running::start() else { return };
    let key = running.generate(&mut running.client(client_ip(1), "balancer", API), 4);
    let restarts = std::env::var("TG_RESTARTS").map_or(RESTARTS, |count| count.parse().unwrap());
    let load = under_load(&running, &key, || {
        for restart in 0..restarts {
            let replica = REPLICAS[restart % REPLICAS.len()];
            let victim = running.take(replica);
            running::terminate(victim.pid);
            assert_eq!(until("it has ended", SOON, || victim.exit_code()), 0);
            running.launch(replica);
            until("the replica gets requests again", SOON, || {
                (running.forwarded(replica) > 0.0).then_some(())
            });
        }
    });
    let lost = (load.lost_before.into_inner(), load.lost_after.into_inner());
    assert_eq!(lost, (0, 0), "of {} requests", load.asked.into_inner());
}

#[test]
fn without_redis_nothing_passes_and_the_balancer_says_so_until_it_is_back() {
    let Some(running) = Running::start() else { return };
    let key = running.generate(&mut running.client(client_ip(1), "balancer", API), 4);
    let mut client = running.client(client_ip(1), "balancer", GATEWAY);
    client.get("/", &[("X-API-Key", &key)]).success(200);

    drop(running.take("redis"));
    until("the balancer has no replica left", SOON, || {
        let answer = running.client(client_ip(1), "balancer", GATEWAY).get("/", &[("X-API-Key", &key)]);
        assert!([500, 503].contains(&answer.status), "{}", answer.text());
        (running.balancer_health() == 503).then_some(())
    });
    for replica in REPLICAS {
        let mut replica = running.client(client_ip(1), replica, API);
        assert_eq!((replica.get("/livez", &[]).status, replica.get("/readyz", &[]).status), (200, 503));
        replica.verify(&key).error(500, "INTERNAL_ERROR");
    }

    running.launch("redis");
    until("the balancer has replicas again", SOON, || (running.balancer_health() == 200).then_some(()));
    // It gives public routes to either replica all the while, and a key to one that is not ready yet.
    for replica in REPLICAS {
        let mut replica = running.client(client_ip(1), replica, API);
        until("each has its store again", SOON, || (replica.get("/readyz", &[]).status == 200).then_some(()));
    }
    running.client(client_ip(1), "balancer", GATEWAY).get("/", &[("X-API-Key", &key)]).success(200);
}
