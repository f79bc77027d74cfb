//! More connections than there is room for: those too many are turned away or wait, those held go on, and room comes back.

use std::net::{IpAddr, Ipv4Addr};
use std::{thread, time::Duration};

use http::Method;

use crate::in_flight::on_cue;
use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::listeners::{LISTENER, ListenerTls};
use crate::rig::scripts::{self, Cue};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{credentials::signed, refusals::is_unauthenticated, tenants::Tenant, upstream::Then};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};
use crate::support::{agents::unknown_key, process::own_ip, signing::BOB};

pub(crate) const CASES: &[Case] = cases![
    a_connection_too_many_is_turned_away_and_room_comes_back,
    streams_hold_the_place_of_their_connection_when_it_is_gone,
    stalled_handshakes_take_up_room_like_any_connection,
    without_descriptors_new_clients_wait_nothing_fails_open_and_room_comes_back,
    the_limit_of_descriptors_is_raised_and_an_idle_process_holds_less_than_its_reserve,
    without_descriptors_for_upstreams_requests_are_503_and_no_upstream_is_blamed,
];

/// A site whose gateway holds few connections. The test's own are not counted by network.
fn small(stage: &Stage) -> Site {
    small_to_strangers(stage).set("listen.trusted_proxies", vec!["127.0.0.1"]).start()
}

fn small_to_strangers(stage: &Stage) -> SiteBuilder<'_> {
    Site::of(stage).set("listen.max_connections", i64::try_from(ROOM).unwrap())
}

/// How many connections the gateway holds in the cases that follow.
const ROOM: usize = 8;

/// Nobody is answered on a connection of its own.
#[track_caller]
fn is_full(site: &Site) {
    let mut wire = site.gateway.connect();
    let _ = wire.write(&Request::get(ACME, &public_path()).bytes());
    assert_eq!(wire.rest(), b"", "it is closed without a word");
}

/// How many connections found no room.
fn turned_away(site: &Site) -> f64 {
    turned_away_by(site, "listener")
}

fn turned_away_by(site: &Site, reason: &str) -> f64 {
    let samples = site.gateway.service.samples();
    let series = "tiergate_connections_turned_away_total";
    samples.get(&format!("{series}{{listener=\"gateway\",reason=\"{reason}\"}}"))
}

fn until_there_is_room(site: &Site) -> Wire {
    until_there_is_room_for(Ipv4Addr::LOCALHOST.into(), site)
}

fn until_there_is_room_for(client: IpAddr, site: &Site) -> Wire {
    until("there is room", SOON, || {
        let mut wire = Wire::open_from(client, site.gateway.address);
        wire.write(&Request::get(ACME, &public_path()).bytes()).ok()?;
        wire.try_answer().is_ok_and(|answer| answer.status == 200).then_some(wire)
    })
}

// threat: Slow clients hold everything
fn a_connection_too_many_is_turned_away_and_room_comes_back(stage: &Stage) {
    let site = small(stage);
    let mut held: Vec<Wire> = (0..ROOM).map(|_| until_there_is_room(&site)).collect();
    for _ in 0..20 {
        is_full(&site);
        for wire in &mut held {
            assert_eq!(Request::get(ACME, &public_path()).ask_on(wire).status, 200, "the others go on");
        }
    }
    assert_eq!(site.gateway.service.get("/readyz").status, 200, "the API has room of its own");
    let turned_away = turned_away(&site);
    assert!(turned_away >= 20.0, "{turned_away}");
    for _ in 0..3 {
        held.truncate(ROOM / 2);
        while held.len() < ROOM {
            held.push(until_there_is_room(&site));
        }
        is_full(&site);
    }
}

// threat: All connections or descriptors taken
fn streams_hold_the_place_of_their_connection_when_it_is_gone(stage: &Stage) {
    assert!((0..3).any(|_| held_by_streams(stage) > 0), "each took longer than streams wait");
}

/// How often nobody else had room while the streams of two connections that were gone waited for a place.
fn held_by_streams(stage: &Stage) -> usize {
    // The longest that a configuration may say.
    const WAIT: Duration = Duration::from_secs(10);
    let other = |upstream| Tenant::new("other", "other.test", upstream).public();
    let site = Site::of(stage).also(other).set("listen.max_connections_per_network", 2);
    // Streams wait for a place, and don't look whether their client is still there.
    let full = |tenant: Tenant| tenant.set("limits.max_in_flight", 1).set("limits.queue_timeout", "10s");
    let site = site.tenant(full).start();
    let (path, cue) = (public_path(), Cue::new());
    site.upstream.on(&path, on_cue(&cue));
    let mut held = Wire::open_from(own_ip(), site.gateway.address);
    held.send(&Request::get(ACME, &path).bytes());
    until("the only place is taken", SOON, || (site.upstream.count_at(&path) > 0).then_some(()));
    let (waiting, passing, watch) = (public_path(), public_path(), Stopwatch::start());
    for _ in 0..2 {
        h2c::run(async {
            let client = h2c::connect(site.gateway.address).await.unwrap();
            let stream = Message::request(Method::GET, ACME, &waiting);
            let stream = tokio::spawn({
                let client = client.clone();
                async move { h2c::exchange(client, &stream).await.map(|answer| answer.status) }
            });
            tokio::task::yield_now().await;
            let behind_it = Message::request(Method::GET, "other.test", &passing);
            assert_eq!(h2c::exchange(client, &behind_it).await.unwrap().status, 200);
            assert!(!stream.is_finished() || watch.elapsed() >= WAIT, "it waits");
        });
    }
    let is_turned_away = |_: &usize| {
        let mut wire = site.gateway.connect();
        let _ = wire.write(&Request::get(ACME, &public_path()).bytes());
        let is_closed = wire.try_answer().is_err();
        let is_over = watch.elapsed() >= WAIT;
        assert!(is_closed || is_over, "nobody else is answered");
        !is_over
    };
    let full = (0..100).take_while(is_turned_away).count();
    cue.give();
    assert_eq!(held.answer().status, 200);
    until_there_is_room(&site);
    full
}

// threat: Slow clients hold everything
// threat: All connections or descriptors taken
fn stalled_handshakes_take_up_room_like_any_connection(stage: &Stage) {
    let site = small_to_strangers(stage).set("listen.trusted_proxies", vec!["127.0.0.1"]);
    let tenant = Tenant::new("t", LISTENER, site.upstream().address).public();
    let site = site.only(vec![tenant]).tls(ListenerTls::new()).start();
    let before = turned_away(&site);
    // All are kept: a connection that is closed gives its place back at an unknown time.
    let mut stalled: Vec<Wire> = (0..=ROOM).map(|_| Wire::open(site.tls().address)).collect();
    until("one of them is turned away", SOON, || (turned_away(&site) > before).then_some(()));
    let request = Request::get(LISTENER, &public_path());
    until("nobody else is served", SOON, || {
        let mut wire = site.gateway.connect();
        let _ = wire.write(&request.bytes());
        let is_served = wire.try_answer().is_ok();
        // A connection of the start has given its place back.
        stalled.extend(is_served.then(|| Wire::open(site.tls().address)));
        (!is_served).then_some(())
    });
    drop(stalled);
    until("there is room", SOON, || {
        let mut wire = site.gateway.connect();
        wire.write(&request.bytes()).ok()?;
        wire.try_answer().is_ok_and(|answer| answer.status == 200).then_some(())
    });
}

/// More connections than there are descriptors in the case that follows.
const WAITING_MAX: usize = 32;

// threat: Slow clients hold everything
fn without_descriptors_new_clients_wait_nothing_fails_open_and_room_comes_back(stage: &Stage) {
    let site = Site::crowded(stage);
    let public = Request::get(ACME, &public_path());
    let mut held: Vec<Wire> = (0..4).map(|_| site.gateway.connect()).collect();
    held.iter_mut().for_each(|wire| site.serves(wire));
    let pid = site.gateway.service.process.as_ref().unwrap().pid;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    site.gateway.limit("nofile", &open.to_string());
    let mut waiting = Vec::new();
    until("there are no descriptors", SOON, || {
        if waiting.len() < WAITING_MAX {
            let mut wire = site.gateway.connect();
            wire.send(&public.bytes());
            waiting.push(wire);
        }
        site.gateway.service.log().contains("cannot accept connections").then_some(())
    });
    let (passed, mut admitted) = (site.passed(), 0);
    for (number, wire) in (0..).zip(&mut held) {
        is_unauthenticated(&Request::get(ACME, &agents_path()).ask_on(wire));
        is_unauthenticated(&Request::get(ACME, &agents_path()).key(&unknown_key(number)).ask_on(wire));
        let stranger = site.agent().draft().by(BOB);
        let answer = Request::get(ACME, &agents_path()).with_all(&signed(&stranger)).ask_on(wire);
        assert!(matches!(answer.status, 401 | 503), "{}", answer.text());
        // A new connection to the upstream or to the chain may need a descriptor.
        for request in [site.by_key(), site.by_signature()] {
            let answer = request.ask_on(wire);
            assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
            admitted += usize::from(answer.status == 200);
        }
    }
    assert_eq!(site.passed(), passed + admitted);
    drop(held);
    // Each gives its place to another one when it is answered, in whatever order, which may find no descriptor for the upstream.
    thread::scope(|scope| {
        for mut wire in waiting {
            scope.spawn(move || {
                let answer = wire.answer();
                let is_overload = answer.status == 503 && answer.json()["errorType"] == "OVERLOADED";
                assert!(answer.status == 200 || is_overload, "{}", answer.text());
            });
        }
    });
    site.goes_on();
}

// threat: All connections or descriptors taken
fn without_descriptors_for_upstreams_requests_are_503_and_no_upstream_is_blamed(stage: &Stage) {
    let site = Site::of(stage).start();
    let path = public_path();
    // No connection is used again.
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    site.upstream.on(&path, scripts::bytes(last, Then::Closes));
    let request = Request::get(ACME, &path);
    let mut held: Vec<Wire> = (0..5).map(|_| site.gateway.connect()).collect();
    for wire in &mut held {
        assert_eq!(request.ask_on(wire).status, 200);
    }
    // Whatever is open stays open, and no new descriptor is below this.
    site.gateway.limit("nofile", "3");
    for wire in &mut held {
        let answer = request.ask_on(wire);
        assert_eq!((answer.status, &answer.json()["errorType"]), (503, &"OVERLOADED".into()));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    site.gateway.limit("nofile", "1000");
    assert_eq!(site.status(), 200);
    let samples = site.gateway.service.samples();
    assert_eq!(samples.get("tiergate_overload_total{limit=\"descriptors\",tenant=\"t\"}"), 5.0);
    let log = site.gateway.log_until_now();
    assert!(!log.contains("takes no requests for a while") && !log.contains("a request of tenant"), "{log}");
}

// threat: All connections or descriptors taken
fn the_limit_of_descriptors_is_raised_and_an_idle_process_holds_less_than_its_reserve(stage: &Stage) {
    let site = Site::of(stage).under("ulimit -S -n 128").start();
    let log = site.gateway.service.await_log(&["file descriptors"]);
    let line = log.lines().find(|line| line.contains("file descriptors")).unwrap();
    let figure = |name: &str| -> usize {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
        word.unwrap_or_else(|| panic!("no {name}: {line}")).parse().unwrap()
    };
    let caps = figure("api") + figure("gateway") + figure("requests") + 3 * figure("idle");
    assert!(figure("reserved") + caps <= figure("limit") && figure("limit") > 128, "{line}");
    assert_eq!(site.status(), 200);
    let pid = site.gateway.service.process.as_ref().unwrap().pid;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open < figure("reserved"), "{open}: {line}");
}
