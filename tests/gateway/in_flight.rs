//! Requests under way are bounded, and a refusal for lack of room spends nothing.

use std::net::IpAddr;
use std::sync::{Arc, mpsc};

use http::Method;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::scripts::{self, Cue, script};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Script, Then};
use crate::support::client::Answer;
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::upgrades::{open_socket, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    an_agent_at_its_cap_is_429_and_is_charged_nothing,
    a_tenant_at_its_cap_has_requests_wait_and_then_503_with_retry_after,
    streams_have_a_cap_of_their_own,
    a_place_comes_back_however_a_request_ends,
    a_reload_keeps_the_places_and_changes_their_number,
];

/// A site whose tenant has these limits, and no line unless they say so.
fn limited<'a>(stage: &'a Stage, limits: &[(&str, i64)]) -> SiteBuilder<'a> {
    Site::of(stage).agent(4).tenant(|tenant| with_limits(tenant, limits))
}

fn with_limits(tenant: Tenant, limits: &[(&str, i64)]) -> Tenant {
    let tenant = tenant.set("limits.max_queued", 0);
    limits.iter().fold(tenant, |tenant, (key, value)| tenant.set(&format!("limits.{key}"), *value))
}

/// Answers when the cue is given.
pub(crate) fn on_cue(cue: &Arc<Cue>) -> Script {
    let cue = Arc::clone(cue);
    script(move |exchange| {
        exchange.read_body()?;
        cue.wait()?;
        exchange.write(&scripts::answer("200 OK", &[], b"at last"))?;
        Ok(Then::Goes)
    })
}

/// Sends a request that hangs, and waits until it is at the upstream.
fn hold(site: &Site, request: &Request, path: &str) -> Wire {
    hold_from(site, site.gateway.connect(), request, path)
}

fn hold_from(site: &Site, mut wire: Wire, request: &Request, path: &str) -> Wire {
    let before = site.upstream.count_at(path);
    wire.send(&request.bytes());
    until("it is under way", SOON, || (site.upstream.count_at(path) > before).then_some(()));
    wire
}

fn from(last: u8, site: &Site) -> Wire {
    Wire::open_from(IpAddr::from([127, 0, 0, last]), site.gateway.address)
}

#[track_caller]
fn is_overloaded(answer: &Answer) {
    assert_eq!((answer.status, &answer.json()["errorType"]), (503, &json!("OVERLOADED")), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
}

/// The limit that it names is that of the agent's tier; the cap stands in the text.
#[track_caller]
fn is_at_its_cap(site: &Site, answer: &Answer, max: u32) {
    assert_eq!(answer.is_limited(json!(site.agent().text()), json!(4), 2_700), 1);
    let text = answer.json()["error"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains(&format!("has {max} requests under way")), "{text}");
}

fn overloads(site: &Site, limit: &str) -> f64 {
    let samples = site.gateway.service.samples();
    samples.get(&format!("tiergate_overload_total{{limit=\"{limit}\",tenant=\"t\"}}"))
}

// threat: One client or tenant takes all places
fn an_agent_at_its_cap_is_429_and_is_charged_nothing(stage: &Stage) {
    let site = limited(stage, &[("max_in_flight_per_agent", 2)]).start();
    let (path, cue) = (agents_path(), Cue::new());
    site.upstream.on(&path, on_cue(&cue));
    let hanging = Request::get(ACME, &path).key(site.key());
    let held = [hold(&site, &hanging, &path), hold(&site, &hanging, &path)];
    let signed = site.by_signature();
    for request in [&site.by_key(), &signed] {
        let answer = site.gateway.ask(request);
        is_at_its_cap(&site, &answer, 2);
    }
    assert_eq!(overloads(&site, "agent"), 2.0);
    assert_eq!(site.status(), 200, "strangers go on");
    cue.give();
    for mut wire in held {
        assert_eq!(wire.answer().status, 200);
    }
    // Its nonce is unused, and the window has the two that were held.
    let answer = until("there is room", SOON, || {
        Some(site.gateway.ask(&signed)).filter(|answer| answer.status != 429)
    });
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("2697")), "{answer:?}");
}

// threat: One client or tenant takes all places
fn a_tenant_at_its_cap_has_requests_wait_and_then_503_with_retry_after(stage: &Stage) {
    let limits = [("max_in_flight", 2), ("max_queued", 1)];
    let site = limited(stage, &limits).tenant(|tenant| tenant.set("limits.queue_timeout", "10s")).start();
    let (path, cue) = (public_path(), Cue::new());
    site.upstream.on(&path, on_cue(&cue));
    let hanging = Request::get(ACME, &path);
    let _held = [1, 2].map(|last| hold_from(&site, from(last, &site), &hanging, &path));
    let (sender, statuses) = mpsc::channel();
    std::thread::scope(|scope| {
        for sender in [sender.clone(), sender] {
            let ask = || site.gateway.ask(&site.by_key()).status;
            scope.spawn(move || sender.send(ask()));
        }
        assert_eq!(statuses.recv(), Ok(503), "the line is full");
        cue.give();
        assert_eq!(statuses.recv(), Ok(200), "the other one has waited for a place");
    });

    let site = limited(stage, &limits).tenant(|tenant| tenant.set("limits.queue_timeout", "50ms")).start();
    site.upstream.on(&path, scripts::hang(b"".as_slice()));
    let _held = [1, 2].map(|last| hold_from(&site, from(last, &site), &hanging, &path));
    is_overloaded(&site.gateway.ask(&site.by_key()));
    assert_eq!(overloads(&site, "tenant"), 1.0);
    assert_eq!(site.passed(), 0);
    assert_eq!(site.gateway.service.get("/readyz").status, 200);
}

// threat: One client or tenant takes all places
fn streams_have_a_cap_of_their_own(stage: &Stage) {
    let limits = [("max_streams_per_agent", 2), ("max_in_flight_per_agent", 1)];
    let site = limited(stage, &limits).tenant(|tenant| tenant.route("/socket/*", "upgrades = true")).start();
    let (events, socket) = (agents_path(), format!("/socket/{}", unique()));
    site.upstream.on(&events, scripts::hang(b"HTTP/1.1 200 OK\r\n\r\n".as_slice()));
    site.upstream.on(&socket, websocket_echo());
    let stream = |kind| Request::get(ACME, &events).key(site.key()).with("Accept", kind);
    let of_events = stream("text/event-stream");
    let _held = hold(&site, &of_events, &events);
    let mut wire = site.gateway.connect();
    let tunnel = open_socket(&mut wire, &Request::get(ACME, &socket).key(site.key()));
    let is_full = |request: &Request| {
        is_at_its_cap(&site, &site.gateway.ask(request), 2);
    };
    is_full(&of_events);
    is_full(&stream("TEXT/Event-Stream; charset=utf-8"));
    assert_eq!(overloads(&site, "streams"), 2.0);
    assert_eq!(site.gateway.ask(&site.by_key()).status, 200, "other requests have places of their own");
    let either = site.by_key().with("Accept", "application/json, text/event-stream");
    // The place of the request before is free a moment after its answer.
    until("one that takes a single answer is no stream", SOON, || {
        (site.gateway.ask(&either).status == 200).then_some(())
    });
    drop((tunnel, wire));
    until("the tunnel's place is free", SOON, || {
        let mut wire = site.gateway.connect();
        wire.send(&of_events.bytes());
        wire.head().ok().filter(|head| head.status == 200)
    });
}

/// A site with one place for strangers, whose tenant waits this long for its upstream.
fn narrow(stage: &Stage, patience: &str) -> Site {
    let tenant = |tenant: Tenant| {
        let tenant = tenant.impatient().set("timeouts.read", patience).set("max_body_bytes", 10);
        tenant.set("connect_retries", 0).route("/socket/*", "access = \"public\"\nupgrades = true")
    };
    // A client knows of its answer's end before the gateway is done with it.
    limited(stage, &[("max_in_flight_public", 1), ("max_queued", 4)]).tenant(tenant).start()
}

/// The place is free again, and was not while the request was under way.
#[track_caller]
fn is_free_again(site: &Site, ending: &str) {
    until(&format!("there is room after {ending}"), SOON, || (site.status() == 200).then_some(()));
}

// threat: One client or tenant takes all places
fn a_place_comes_back_however_a_request_ends(stage: &Stage) {
    let path = public_path();
    let request = Request::get(ACME, &path);
    let message = Message::request(Method::GET, ACME, &path);
    let over_http_2 = |site: &Site, message: &Message, status: u16, ending: &str| {
        let answer = || h2c::ask(site.gateway.address, message).unwrap();
        until(&format!("{ending}, over HTTP/2"), SOON, || (answer().status == status).then_some(()));
        is_free_again(site, ending);
    };
    let endings: [(&str, Script, u16); 5] = [
        ("a whole answer", scripts::echo(), 200),
        ("an upstream that closes", scripts::bytes(b"".as_slice(), Then::Closes), 502),
        ("an answer that can't be read", scripts::bytes(b"garbage\r\n\r\n".as_slice(), Then::Closes), 502),
        ("an upstream that hangs", scripts::hang(b"".as_slice()), 504),
        ("an early answer", scripts::early(scripts::answer("200 OK", &[], b"early")), 200),
    ];
    let site = narrow(stage, "500ms");
    for (ending, upstream, status) in endings {
        site.upstream.on(&path, upstream);
        until(ending, SOON, || (site.gateway.ask(&request).status == status).then_some(()));
        is_free_again(&site, ending);
        over_http_2(&site, &message, status, ending);
    }
    let site = narrow(stage, "2m");
    // The client of a last answer keeps its side open, for longer than a request waits for a place.
    site.upstream.on(&path, scripts::echo());
    until("there is room at once", SOON, || {
        let mut lingers = site.gateway.connect();
        let answer = request.clone().with("Connection", "close").ask_on(&mut lingers);
        (answer.status == 200 && site.status() == 200).then_some(())
    });
    let longer = "12345678901";
    over_http_2(&site, &message.clone().body(longer.as_bytes()), 413, "a body that is too long");
    let mut wire = site.gateway.connect();
    wire.send(
        format!(
            "POST {path} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{longer}\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(wire.answer().status, 413);
    is_free_again(&site, "a body that is too long");

    // Clients that go away while the upstream hangs or answers.
    for hanging in [b"".to_vec(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec()] {
        site.upstream.on(&path, scripts::hang(hanging));
        let wire = hold(&site, &request, &path);
        assert_eq!(site.status(), 503, "the only place is taken");
        drop(wire);
        is_free_again(&site, "a client that left");
        h2c::run(async {
            let before = site.upstream.count_at(&path);
            let client = h2c::connect(site.gateway.address).await.unwrap();
            let stream = tokio::spawn({
                let (client, message) = (client.clone(), message.clone());
                async move { h2c::exchange(client, &message).await.map(|answer| answer.status) }
            });
            while site.upstream.count_at(&path) == before {
                tokio::task::yield_now().await;
            }
            let other = Message::request(Method::GET, ACME, &public_path());
            assert_eq!(h2c::exchange(client.clone(), &other).await.unwrap().status, 503);
            stream.abort();
            while h2c::exchange(client.clone(), &other).await.unwrap().status != 200 {}
        });
    }
    let socket = format!("/socket/{}", unique());
    site.upstream.on(&socket, websocket_echo());
    let mut wire = site.gateway.connect();
    let tunnel = open_socket(&mut wire, &Request::get(ACME, &socket));
    assert_eq!(site.status(), 503, "a tunnel holds its place");
    drop((tunnel, wire));
    is_free_again(&site, "a tunnel");
}

// threat: One client or tenant takes all places
fn a_reload_keeps_the_places_and_changes_their_number(stage: &Stage) {
    let site = limited(stage, &[("max_in_flight_public", 1)]).in_files();
    let rules = Tenant::new("t", ACME, site.upstream().address).public();
    let site = site.start();
    let (path, cue) = (public_path(), Cue::new());
    site.upstream.on(&path, on_cue(&cue));
    let mut held = hold(&site, &Request::get(ACME, &path), &path);
    assert_eq!(site.status(), 503);
    site.gateway.put("t.toml", &with_limits(rules.clone(), &[("max_in_flight_public", 2)]).text());
    site.gateway.reread("applied");
    assert_eq!(site.status(), 200, "there are two places");
    site.gateway.put("t.toml", &with_limits(rules, &[("max_in_flight_public", 1)]).text());
    site.gateway.reread("applied");
    // That of the request before may not be free yet.
    until("the one place is taken", SOON, || (site.status() == 503).then_some(()));
    cue.give();
    assert_eq!(held.answer().status, 200);
    is_free_again(&site, "the reload");
}
