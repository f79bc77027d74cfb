//! Several upstreams: who gets a request, who gets none for a while, and that no request fails where another upstream
//! would have served it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::lab::{impatient, is_upstream_error};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Script, Then, Upstream};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upstream_that_was_ejected_comes_back_after_its_time_and_not_before,
    a_check_takes_a_sick_upstream_out_and_brings_it_back_and_no_request_fails,
    a_check_without_a_path_finds_a_closed_port,
    requests_are_spread_evenly,
    routes_with_upstreams_of_their_own_use_those_alone,
    an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured,
    a_success_between_failures_keeps_an_upstream_in,
    without_ejection_an_upstream_is_tried_again_and_again,
    an_upstream_that_dies_costs_no_request,
    a_check_that_is_never_answered_takes_an_upstream_out,
    when_all_are_sick_they_are_still_tried,
    when_all_are_ejected_they_are_still_tried,
    a_reload_keeps_who_is_ejected,
    a_reload_keeps_who_is_sick,
    names_of_upstreams_are_resolved,
    a_name_that_leads_nowhere_costs_no_request_while_another_upstream_serves,
    checks_come_with_the_upstreams_name_and_no_identity,
];

/// Where checks look.
const CHECKED: &str = "/healthz";

/// Longer than any case takes.
const LONG: &str = "1h";

/// Upstreams with nothing but what a case adds.
fn start(count: usize) -> Vec<Upstream> {
    (0..count).map(|_| Upstream::start()).collect()
}

/// A tenant of these upstreams that is neither checked nor tried elsewhere.
fn tenant(upstreams: &[Upstream]) -> Tenant {
    let addresses: Vec<String> = upstreams.iter().map(|upstream| upstream.address.to_string()).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    Tenant::of("t", &[ACME], &addresses).public().set("connect_retries", 0).set("health.interval", "0s")
}

/// The same, with checks of a path as often as possible.
fn checked(upstreams: &[Upstream]) -> Tenant {
    tenant(upstreams).set("health.interval", "10ms").set("health.path", CHECKED).set("health.eject_after", 0)
}

fn status(gateway: &Gateway) -> u16 {
    gateway.ask(&Request::get(ACME, &public_path())).status
}

/// How many requests of clients an upstream has seen.
fn served(upstream: &Upstream) -> usize {
    upstream.seen_with("/public/").len()
}

/// Answers whatever is asked with this status.
fn always(status: &'static str) -> Script {
    scripts::bytes(scripts::answer(status, &[], b""), Then::Goes)
}

/// Sends so many requests; each must succeed, and one upstream must see none of them.
#[track_caller]
fn all_pass_by(gateway: &Gateway, count: usize, upstream: &Upstream) {
    let before = served(upstream);
    for _ in 0..count {
        assert_eq!(status(gateway), 200);
    }
    assert_eq!(served(upstream), before, "it gets no requests");
}

fn until_served(gateway: &Gateway, upstream: &Upstream) {
    let before = served(upstream);
    until("the upstream gets requests", SOON, || {
        assert_eq!(status(gateway), 200);
        (served(upstream) > before).then_some(())
    });
}

/// Waits until a check has found an upstream to be sick, while every request succeeds.
fn until_passed_by(gateway: &Gateway, upstream: &Upstream) {
    until("the upstream gets no requests", SOON, || {
        let before = served(upstream);
        (0..6).for_each(|_| assert_eq!(status(gateway), 200));
        (served(upstream) == before).then_some(())
    });
}

fn requests_are_spread_evenly(stage: &Stage) {
    let upstreams = start(3);
    let gateway = Gateway::start(stage, &[tenant(&upstreams)]);
    let mut wire = gateway.connect();
    for at in 0..60 {
        let request = Request::get(ACME, &public_path());
        let answer = if at % 2 == 0 { request.ask_on(&mut wire) } else { gateway.ask(&request) };
        assert_eq!(answer.status, 200);
    }
    let counts: Vec<usize> = upstreams.iter().map(served).collect();
    assert_eq!(counts, [20, 20, 20]);
}

fn routes_with_upstreams_of_their_own_use_those_alone(stage: &Stage) {
    let upstreams = start(3);
    let own = format!(
        "access = \"public\"\nupstreams = [\"{}\", \"{}\"]",
        upstreams[1].address, upstreams[2].address
    );
    let gateway = Gateway::start(stage, &[tenant(&upstreams[..1]).route("/own/*", &own)]);
    for _ in 0..10 {
        assert_eq!(status(&gateway), 200);
        assert_eq!(gateway.ask(&Request::get(ACME, "/own/x")).status, 200);
    }
    let counts: Vec<usize> = upstreams.iter().map(|upstream| upstream.seen_at("/own/x").len()).collect();
    assert_eq!(counts, [0, 5, 5]);
    assert_eq!(upstreams.iter().map(served).collect::<Vec<_>>(), [10, 0, 0]);
}

/// Breaks every connection to an upstream at once, and counts how many of so many requests fail for it.
fn failures(gateway: &Gateway, upstream: &Upstream, requests: usize) -> usize {
    upstream.greet(Some(drop));
    upstream.hang_up();
    let mut failed = 0;
    for _ in 0..requests {
        let answer = gateway.ask(&Request::get(ACME, &public_path()));
        if answer.status != 200 {
            is_upstream_error(&answer);
            failed += 1;
        }
    }
    failed
}

fn an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured(stage: &Stage) {
    for eject_after in [1, 3] {
        let upstreams = start(2);
        let rules = tenant(&upstreams).set("health.eject_after", eject_after).set("health.eject_for", LONG);
        let gateway = Gateway::start(stage, &[rules]);
        assert_eq!(failures(&gateway, &upstreams[0], 40), usize::try_from(eject_after).unwrap());
        upstreams[0].greet(None);
        all_pass_by(&gateway, 20, &upstreams[0]);
    }
}

fn a_success_between_failures_keeps_an_upstream_in(stage: &Stage) {
    let upstreams = start(2);
    let rules = tenant(&upstreams).set("health.eject_after", 2).set("health.eject_for", LONG);
    let gateway = Gateway::start(stage, &[rules]);
    for round in 0..6 {
        assert_eq!(failures(&gateway, &upstreams[0], 2), 1, "round {round}: each gets its turn");
        upstreams[0].greet(None);
        assert_eq!([status(&gateway), status(&gateway)], [200, 200]);
    }
    assert!(served(&upstreams[0]) >= 6);
}

fn without_ejection_an_upstream_is_tried_again_and_again(stage: &Stage) {
    let upstreams = start(2);
    let gateway = Gateway::start(stage, &[tenant(&upstreams).set("health.eject_after", 0)]);
    assert_eq!(failures(&gateway, &upstreams[0], 40), 20);
}

fn an_upstream_that_was_ejected_comes_back_after_its_time_and_not_before(stage: &Stage) {
    let upstreams = start(2);
    let rules = tenant(&upstreams).set("health.eject_after", 2).set("health.eject_for", "2s");
    let gateway = Gateway::start(stage, &[rules]);
    upstreams[0].greet(Some(drop));
    let mut failed = 0;
    let watch = until("it is ejected", SOON, || {
        failed += usize::from(status(&gateway) != 200);
        (failed == 2).then(Stopwatch::start)
    });
    upstreams[0].greet(None);
    until_served(&gateway, &upstreams[0]);
    // The failure was a moment before the watch began.
    assert!(watch.elapsed().as_millis() >= 1_800, "{:?}", watch.elapsed());
}

fn an_upstream_that_dies_costs_no_request(stage: &Stage) {
    let mut upstreams = start(3);
    let rules = tenant(&upstreams)
        .set("connect_retries", 1)
        .set("health.eject_after", 1)
        .set("health.eject_for", "500ms");
    let gateway = Gateway::start(stage, &[rules]);
    for upstream in &mut upstreams {
        (0..6).for_each(|_| assert_eq!(status(&gateway), 200));
        upstream.close();
        (0..30).for_each(|_| assert_eq!(status(&gateway), 200));
        upstream.reopen();
        until_served(&gateway, upstream);
    }
}

fn a_check_takes_a_sick_upstream_out_and_brings_it_back_and_no_request_fails(stage: &Stage) {
    let upstreams = start(3);
    let gateway = Gateway::start(stage, &[checked(&upstreams)]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Beside the changes there is traffic on connections that stay.
        let traffic = scope.spawn(|| {
            let (mut wire, mut asked) = (gateway.connect(), 0);
            while !done.load(Ordering::SeqCst) {
                assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
                asked += 1;
            }
            asked
        });
        for sick in ["500 Sick", "404 Unknown", "503 Busy"] {
            upstreams[1].on(CHECKED, always(sick));
            until_passed_by(&gateway, &upstreams[1]);
            all_pass_by(&gateway, 10, &upstreams[1]);
            let before = [served(&upstreams[0]), served(&upstreams[2])];
            (0..10).for_each(|_| assert_eq!(status(&gateway), 200));
            assert!(served(&upstreams[0]) > before[0] && served(&upstreams[2]) > before[1]);
            upstreams[1].on(CHECKED, always("302 Elsewhere"));
            until_served(&gateway, &upstreams[1]);
        }
        done.store(true, Ordering::SeqCst);
        assert!(traffic.join().unwrap() > 20);
    });
    let log = gateway.service.log();
    assert!(log.contains("fails its checks") && log.contains("answers its checks again"), "{log}");
}

fn a_check_without_a_path_finds_a_closed_port(stage: &Stage) {
    let mut upstreams = start(2);
    let rules = tenant(&upstreams).set("health.interval", "10ms").set("health.eject_after", 0);
    let gateway = Gateway::start(stage, &[rules]);
    upstreams[0].close();
    until("the check fails", SOON, || gateway.service.log().contains("fails its checks").then_some(()));
    all_pass_by(&gateway, 20, &upstreams[0]);
    upstreams[0].reopen();
    until_served(&gateway, &upstreams[0]);
}

fn a_check_that_is_never_answered_takes_an_upstream_out(stage: &Stage) {
    let upstreams = start(2);
    upstreams[0].on(CHECKED, scripts::hang(""));
    let gateway = Gateway::start(stage, &[checked(&upstreams).set("health.timeout", "200ms")]);
    until_passed_by(&gateway, &upstreams[0]);
    all_pass_by(&gateway, 20, &upstreams[0]);
    upstreams[0].on(CHECKED, always("204 Fine"));
    until_served(&gateway, &upstreams[0]);
}

fn when_all_are_sick_they_are_still_tried(stage: &Stage) {
    let upstreams = start(2);
    for upstream in &upstreams {
        upstream.on(CHECKED, always("500 Sick"));
    }
    let gateway = Gateway::start(stage, &[checked(&upstreams)]);
    until("both are sick", SOON, || {
        (gateway.service.log().matches("fails its checks").count() == 2).then_some(())
    });
    for _ in 0..10 {
        assert_eq!(status(&gateway), 200);
    }
    assert_eq!(upstreams.iter().map(served).collect::<Vec<_>>(), [5, 5]);
}

fn when_all_are_ejected_they_are_still_tried(stage: &Stage) {
    let upstreams = start(2);
    let rules = tenant(&upstreams).set("health.eject_after", 1).set("health.eject_for", LONG);
    let gateway = Gateway::start(stage, &[rules]);
    upstreams[1].greet(Some(drop));
    assert_eq!(failures(&gateway, &upstreams[0], 6), 6, "nobody serves, and each is told so");
    for upstream in &upstreams {
        upstream.greet(None);
    }
    for _ in 0..10 {
        assert_eq!(status(&gateway), 200);
    }
    assert_eq!(upstreams.iter().map(served).collect::<Vec<_>>(), [5, 5]);
}

/// Has a gateway with this tenant read its configuration again, several times; each time one upstream is passed by from
/// the first request on.
#[track_caller]
fn reloads_pass_by(gateway: &Gateway, rules: &Tenant, upstream: &Upstream) {
    for round in 0..5 {
        let path = format!("/round/{round}");
        gateway.put("t.toml", &rules.clone().route(&path, "access = \"deny\"").text());
        gateway.hang_up();
        until("the reload is in force", SOON, || {
            (gateway.ask(&Request::get(ACME, &path)).status == 403).then_some(())
        });
        all_pass_by(gateway, 10, upstream);
    }
}

fn a_reload_keeps_who_is_ejected(stage: &Stage) {
    let upstreams = start(2);
    let rules = tenant(&upstreams).set("health.eject_after", 2).set("health.eject_for", LONG);
    let gateway = Gateway::start_with(stage.settings(), &[], &[("t.toml", &rules.text())]);
    assert_eq!(failures(&gateway, &upstreams[0], 12), 2);
    upstreams[0].greet(None);
    reloads_pass_by(&gateway, &rules, &upstreams[0]);
    // Other rules of health are another beginning.
    gateway.put("t.toml", &rules.set("health.eject_after", 3).text());
    gateway.hang_up();
    until_served(&gateway, &upstreams[0]);
}

fn a_reload_keeps_who_is_sick(stage: &Stage) {
    let upstreams = start(2);
    upstreams[0].on(CHECKED, always("500 Sick"));
    // The first check is the only one.
    let rules = checked(&upstreams).set("health.interval", LONG);
    let gateway = Gateway::start_with(stage.settings(), &[], &[("t.toml", &rules.text())]);
    until_passed_by(&gateway, &upstreams[0]);
    reloads_pass_by(&gateway, &rules, &upstreams[0]);
    assert_eq!(upstreams[0].seen_at(CHECKED).len(), 1);
}

fn names_of_upstreams_are_resolved(stage: &Stage) {
    let upstream = Upstream::start_at("127.0.0.1".parse().unwrap());
    let name = format!("localhost:{}", upstream.address.port());
    let rules = Tenant::of("t", &[ACME], &[&name]).public().set("host_header", "upstream");
    let gateway = Gateway::start(stage, &[rules]);
    // Until the name was looked up there is nowhere to go.
    until("the name is looked up", SOON, || (status(&gateway) == 200).then_some(()));
    for _ in 0..20 {
        assert_eq!(status(&gateway), 200);
    }
    assert!(upstream.seen().iter().all(|seen| seen.all("host") == [&name]));
}

fn a_name_that_leads_nowhere_costs_no_request_while_another_upstream_serves(stage: &Stage) {
    let upstream = Upstream::start();
    let good = upstream.address.to_string();
    let nowhere = ["nowhere.invalid:80", good.as_str(), &free_port(own_ip()).to_string()];
    let both = impatient(Tenant::of("t", &[ACME], &nowhere)).set("connect_retries", 1);
    let none = Tenant::of("n", &["none.test"], &nowhere[..1]).public();
    let gateway = Gateway::start(stage, &[both, none]);
    for _ in 0..20 {
        assert_eq!(status(&gateway), 200);
        is_upstream_error(&gateway.ask(&Request::get("none.test", &public_path())));
    }
    until("the log names it", SOON, || gateway.service.log().contains("nowhere.invalid").then_some(()));
}

fn checks_come_with_the_upstreams_name_and_no_identity(stage: &Stage) {
    let upstream = Upstream::start();
    let checks = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&checks);
    upstream.on(
        CHECKED,
        script(move |exchange| {
            seen.store(true, Ordering::SeqCst);
            exchange.read_body()?;
            exchange.write(&scripts::answer("200 OK", &[], b"fine"))?;
            Ok(Then::Goes)
        }),
    );
    let gateway = Gateway::start(stage, &[checked(std::slice::from_ref(&upstream))]);
    until("a check came", SOON, || checks.load(Ordering::SeqCst).then_some(()));
    assert_eq!(status(&gateway), 200);
    let seen = upstream.seen_at(CHECKED).remove(0);
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.all("host"), [upstream.address.to_string()]);
    let head = String::from_utf8_lossy(&seen.head).to_lowercase();
    assert!(!head.contains("x-agent-") && !head.contains("x-forwarded-"), "{head}");
    assert!(upstream.broken().is_empty(), "{:?}", upstream.broken());
}
