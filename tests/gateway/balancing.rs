//! Several upstreams: who gets a request, who gets none for a while, and that no request fails where another upstream
//! would have served it. Weights, turns and the less busy one are in `gateway::upstreams`, checks of many in `gateway::watch`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::scope::{Running, beside};
use crate::rig::scripts::{self, Cue, script};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::{Script, Then, Upstream};
use crate::rig::{refusals::is_upstream_error, tenants::Tenant};
use crate::support::metrics::Samples;
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_check_takes_a_sick_upstream_out_and_brings_it_back_and_no_request_fails,
    a_check_without_a_path_finds_a_closed_port,
    a_check_over_http_2_has_a_connection_of_its_own,
    requests_are_spread_evenly,
    routes_with_upstreams_of_their_own_use_those_alone,
    an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured,
    answers_that_say_their_framing_twice_are_named_in_the_log_and_eject_nobody,
    without_ejection_an_upstream_is_tried_again_and_again,
    an_upstream_that_dies_costs_no_request,
    when_all_are_ejected_they_are_still_tried,
    a_reload_keeps_who_is_ejected,
    every_one_of_many_names_is_looked_up_before_the_first_request,
    a_name_that_leads_nowhere_costs_no_request_while_another_upstream_serves,
    checks_come_with_the_upstreams_name_and_no_identity,
    without_descriptors_no_upstream_is_ejected_or_unhealthy,
    an_upstream_gets_no_more_than_its_cap_and_a_bounded_queue_waits,
];

/// Where checks look.
const CHECKED: &str = "/healthz";

/// Longer than any case takes.
const LONG: &str = "1h";

/// A site with so many upstreams that are neither checked nor tried elsewhere.
fn site(stage: &Stage, count: usize) -> SiteBuilder<'_> {
    let plain = |tenant: Tenant| tenant.set("connect_retries", 0).set("health.interval", "0s");
    Site::of(stage).upstreams(count).tenant(plain)
}

/// The same, with checks of a path as often as possible.
fn checked(stage: &Stage, count: usize) -> SiteBuilder<'_> {
    site(stage, count).tenant(|tenant| {
        let tenant = tenant.set("health.interval", "10ms").set("health.timeout", "10s");
        tenant.set("health.path", CHECKED).set("health.eject_after", 0)
    })
}

/// Ejects after so many failures, for so long.
fn ejecting(after: i64, time: &str) -> impl FnOnce(Tenant) -> Tenant {
    move |tenant| tenant.set("health.eject_after", after).set("health.eject_for", time)
}

/// How many requests of clients an upstream has seen.
fn served(upstream: &Upstream) -> usize {
    upstream.count(|seen| seen.target.contains("/public/"))
}

/// Answers whatever is asked with this status.
fn always(status: &'static str) -> Script {
    scripts::bytes(scripts::answer(status, &[], b""), Then::Goes)
}

/// Sends so many requests; each must succeed, and one upstream must see none of them.
#[track_caller]
fn all_pass_by(site: &Site, count: usize, upstream: &Upstream) {
    let before = served(upstream);
    (0..count).for_each(|_| assert_eq!(site.status(), 200));
    assert_eq!(served(upstream), before, "it gets no requests");
}

fn until_served(site: &Site, upstream: &Upstream) {
    let before = served(upstream);
    until("the upstream gets requests", SOON, || {
        assert_eq!(site.status(), 200);
        (served(upstream) > before).then_some(())
    });
}

/// Waits until a check has found an upstream to be sick, while every request succeeds.
fn until_passed_by(site: &Site, upstream: &Upstream) {
    until("the upstream gets no requests", SOON, || {
        let before = served(upstream);
        (0..6).for_each(|_| assert_eq!(site.status(), 200));
        (served(upstream) == before).then_some(())
    });
}

fn requests_are_spread_evenly(stage: &Stage) {
    let site = site(stage, 3).start();
    let mut wire = site.gateway.connect();
    for _ in 0..30 {
        assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
        assert_eq!(site.status(), 200);
    }
    assert_eq!(site.upstreams().map(served), [20, 20, 20]);
}

fn routes_with_upstreams_of_their_own_use_those_alone(stage: &Stage) {
    let others = [Upstream::start(), Upstream::start()];
    let addresses = others.each_ref().map(|other| other.address.to_string());
    let own = format!("access = \"public\"\nupstreams = {addresses:?}");
    let site = site(stage, 1).tenant(|tenant| tenant.route("/own/*", &own)).start();
    for _ in 0..10 {
        assert_eq!(site.status(), 200);
        assert_eq!(site.gateway.ask(&Request::get(ACME, "/own/x")).status, 200);
    }
    let counts = [&site.upstream, &others[0], &others[1]].map(|one| (one.count_at("/own/x"), served(one)));
    assert_eq!(counts, [(0, 10), (5, 0), (5, 0)]);
}

/// Breaks every connection to an upstream at once, and counts how many of so many requests fail for it.
fn failures(site: &Site, upstream: &Upstream, requests: usize) -> usize {
    upstream.greet(Some(drop));
    upstream.hang_up();
    let ask = |_: &usize| {
        let answer = site.gateway.ask(&Request::get(ACME, &public_path()));
        (answer.status != 200).then(|| is_upstream_error(&answer)).is_some()
    };
    (0..requests).filter(ask).count()
}

// threat: A sick upstream keeps its share
fn an_upstream_that_fails_is_ejected_after_as_many_failures_as_configured(stage: &Stage) {
    for eject_after in [1, 3] {
        let site = site(stage, 2).tenant(ejecting(eject_after, LONG)).start();
        assert_eq!(failures(&site, &site.upstream, 40), usize::try_from(eject_after).unwrap());
        site.upstream.greet(None);
        all_pass_by(&site, 20, &site.upstream);
    }
}

/// Frameworks that write such a header twice are well otherwise.
fn answers_that_say_their_framing_twice_are_named_in_the_log_and_eject_nobody(stage: &Stage) {
    for way in ["relay", "library"] {
        for (header, framed) in [
            (
                "Transfer-Encoding",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ),
            ("Content-Length", "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let (site, path) = (site(stage, 1).tenant(ejecting(1, LONG)).start(), public_path());
            site.upstream.on(&path, scripts::bytes(format!("HTTP/1.1 200 OK\r\n{framed}"), Then::Closes));
            for _ in 0..3 {
                let status = if way == "relay" {
                    site.gateway.ask(&Request::get(ACME, &path)).status
                } else {
                    h2c::ask(site.gateway.address, &Message::request(Method::GET, ACME, &path))
                        .unwrap()
                        .status
                };
                assert_eq!(status, 502, "{way}, {header}");
            }
            let warning = format!("{header} stands more than once");
            let log = || site.gateway.service.log();
            site.gateway.service.await_log(&[&warning]);
            until("all are in the log", SOON, || (log().matches("status=502").count() == 3).then_some(()));
            assert!(!log().contains("takes no requests"), "{way}, {header}: {}", log());
        }
    }
}

fn without_ejection_an_upstream_is_tried_again_and_again(stage: &Stage) {
    let site = site(stage, 2).tenant(ejecting(0, LONG)).start();
    assert_eq!(failures(&site, &site.upstream, 40), 20);
}

// threat: A sick upstream keeps its share
fn an_upstream_that_dies_costs_no_request(stage: &Stage) {
    let site = site(stage, 3).tenant(ejecting(1, "500ms"));
    let site = site.tenant(|tenant| tenant.set("connect_retries", 1)).start();
    for upstream in site.upstreams::<3>() {
        (0..6).for_each(|_| assert_eq!(site.status(), 200));
        upstream.close();
        (0..30).for_each(|_| assert_eq!(site.status(), 200));
        upstream.reopen();
        until_served(&site, upstream);
    }
}

// threat: A sick upstream keeps its share
fn a_check_takes_a_sick_upstream_out_and_brings_it_back_and_no_request_fails(stage: &Stage) {
    let site = checked(stage, 3).start();
    let [one, sick, other] = site.upstreams();
    let asked = AtomicUsize::new(0);
    // Beside the changes there is traffic on a connection that stays.
    let traffic = |running: &Running| {
        let mut wire = site.gateway.connect();
        while running.is_on() {
            assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    beside(1, traffic, |_| {
        for status in ["500 Sick", "404 Unknown", "503 Busy"] {
            let before = asked.load(Ordering::SeqCst);
            sick.on(CHECKED, always(status));
            until_passed_by(&site, sick);
            all_pass_by(&site, 10, sick);
            let before_both = [served(one), served(other)];
            (0..10).for_each(|_| assert_eq!(site.status(), 200));
            assert!(served(one) > before_both[0] && served(other) > before_both[1]);
            sick.on(CHECKED, always("302 Elsewhere"));
            until_served(&site, sick);
            until("there is traffic", SOON, || (asked.load(Ordering::SeqCst) > before).then_some(()));
        }
    });
    let log = site.gateway.service.await_log(&["answers its checks again"]);
    assert!(log.contains("fails its checks"), "{log}");
}

fn a_check_over_http_2_has_a_connection_of_its_own(stage: &Stage) {
    let upstream = H2Upstream::that_first_says(Vec::new());
    let site = checked(stage, 1).h2c(&upstream).tenant(|tenant| tenant.set("health.timeout", "200ms"));
    let site = site.start();
    site.gateway.service.await_log(&["fails its checks"]);
    site.gateway.service.await_log(&["answers its checks again"]);
}

fn a_check_without_a_path_finds_a_closed_port(stage: &Stage) {
    let site = site(stage, 2);
    let site =
        site.tenant(|tenant| tenant.set("health.interval", "10ms").set("health.eject_after", 0)).start();
    site.upstream.close();
    site.gateway.service.await_log(&["fails its checks"]);
    all_pass_by(&site, 20, &site.upstream);
    site.upstream.reopen();
    until_served(&site, &site.upstream);
}

// threat: A sick upstream keeps its share
fn when_all_are_ejected_they_are_still_tried(stage: &Stage) {
    let site = site(stage, 2).tenant(ejecting(1, LONG)).start();
    let [one, other] = site.upstreams();
    other.greet(Some(drop));
    assert_eq!(failures(&site, one, 6), 6, "nobody serves, and each is told so");
    [one, other].iter().for_each(|upstream| upstream.greet(None));
    (0..10).for_each(|_| assert_eq!(site.status(), 200));
    assert_eq!([one, other].map(served), [5, 5]);
}

/// Has a gateway read this tenant again, several times; each time one upstream is passed by from the first request on.
#[track_caller]
fn reloads_pass_by(site: &Site, rules: &Tenant, upstream: &Upstream) {
    for round in 0..5 {
        let path = format!("/round/{round}");
        site.gateway.put("t.toml", &rules.clone().route(&path, "access = \"deny\"").text());
        site.gateway.hang_up();
        until("the reload is in force", SOON, || {
            (site.gateway.ask(&Request::get(ACME, &path)).status == 403).then_some(())
        });
        all_pass_by(site, 10, upstream);
    }
}

// threat: A sick upstream keeps its share
fn a_reload_keeps_who_is_ejected(stage: &Stage) {
    let site = site(stage, 2).tenant(ejecting(2, LONG));
    let rules = site.rules();
    let site = site.in_files().start();
    assert_eq!(failures(&site, &site.upstream, 12), 2);
    site.upstream.greet(None);
    reloads_pass_by(&site, &rules, &site.upstream);
    // Other rules don't make it healthy.
    for (key, value) in [("health.eject_after", 3), ("upstream_limits.max_in_flight", 7)] {
        reloads_pass_by(&site, &rules.clone().set(key, value), &site.upstream);
    }
}

/// Each keeps the name as its host.
fn every_one_of_many_names_is_looked_up_before_the_first_request(stage: &Stage) {
    let upstream = Upstream::start_at("127.0.0.1".parse().unwrap());
    let name = format!("localhost:{}", upstream.address.port());
    let hosts: Vec<String> = (0..200).map(|number| format!("n{number}.test")).collect();
    let tenant = |host: &String| Tenant::of(host, &[host], &[&name]).public().set("host_header", "upstream");
    let site = Site::of(stage).only(hosts.iter().map(tenant).collect()).start();
    for host in hosts {
        assert_eq!(site.gateway.ask(&Request::get(&host, &public_path())).status, 200, "{host}");
    }
    assert_eq!(upstream.count(|seen| seen.all("host") == [&name]), 200);
}

// threat: A sick upstream keeps its share
fn a_name_that_leads_nowhere_costs_no_request_while_another_upstream_serves(stage: &Stage) {
    let site = site(stage, 1);
    let good = site.upstream().address.to_string();
    let nowhere = ["nowhere.invalid:80", good.as_str(), &free_port(own_ip()).to_string()].map(str::to_owned);
    let none = Tenant::of("n", &["none.test"], &[&nowhere[0]]).public();
    let site = site.tenant(|tenant| {
        tenant.set("upstreams", nowhere.to_vec()).set("connect_retries", 1).set("health.eject_after", 0)
    });
    let site = site.also(|_| none).start();
    for _ in 0..20 {
        assert_eq!(site.status(), 200);
        is_upstream_error(&site.gateway.ask(&Request::get("none.test", &public_path())));
    }
    site.gateway.service.await_log(&["nowhere.invalid"]);
}

fn checks_come_with_the_upstreams_name_and_no_identity(stage: &Stage) {
    let site = checked(stage, 1).start();
    let upstream = &site.upstream;
    until("a check came", SOON, || (upstream.count_at(CHECKED) > 0).then_some(()));
    assert_eq!(site.status(), 200);
    let seen = upstream.seen_at(CHECKED).remove(0);
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.all("host"), [upstream.address.to_string()]);
    let head = String::from_utf8_lossy(&seen.head).to_lowercase();
    assert!(!head.contains("x-agent-") && !head.contains("x-forwarded-"), "{head}");
    assert!(upstream.broken().is_empty(), "{:?}", upstream.broken());
}

// threat: A sick upstream keeps its share
fn without_descriptors_no_upstream_is_ejected_or_unhealthy(stage: &Stage) {
    for path in [None, Some(CHECKED)] {
        let upstreams = [H2Upstream::start(H2Upstream::ok), H2Upstream::start(H2Upstream::ok)];
        let urls: Vec<String> = upstreams.iter().map(|one| format!("h2c://{}", one.address)).collect();
        let site = Site::of(stage).tenant(ejecting(1, LONG)).tenant(|tenant| {
            let tenant = tenant.set("upstreams", urls).set("health.interval", "10ms");
            let tenant = tenant.set("health.timeout", "30s");
            path.into_iter().fold(tenant, |tenant, path| tenant.set("health.path", path))
        });
        let site = site.set("listen.max_connections", 64).start();
        let nowhere = Request::get("unknown.test", &public_path());
        let mut held: Vec<Wire> = (0..6).map(|_| site.gateway.connect()).collect();
        held.iter_mut().for_each(|wire| assert_eq!(nowhere.ask_on(wire).status, 404));
        // Whatever is open stays open, and no new descriptor is below this.
        site.gateway.limit("nofile", "3");
        let mut idle = held.pop().unwrap();
        for wire in &mut held {
            let answer = Request::get(ACME, &public_path()).ask_on(wire);
            assert_eq!((answer.status, &answer.json()["errorType"]), (503, &"OVERLOADED".into()));
        }
        // Many checks are due in the meantime.
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_millis(600) {
            assert_eq!(nowhere.ask_on(&mut idle).status, 404);
        }
        site.gateway.limit("nofile", "1000");
        (0..20).for_each(|_| assert_eq!(site.status(), 200));
        let served = |one: &H2Upstream| one.seen().iter().filter(|seen| seen.uri.path() != CHECKED).count();
        assert_eq!(upstreams.each_ref().map(served), [10, 10]);
        let log = site.gateway.log_until_now();
        assert!(!log.contains("fails its checks") && !log.contains("takes no requests"), "{log}");
    }
}

/// A script that answers when a cue comes.
fn on_cue(cue: &Arc<Cue>) -> Script {
    let cue = Arc::clone(cue);
    script(move |exchange| {
        cue.wait()?;
        scripts::echo()(exchange)
    })
}

// threat: A buried upstream, a storm of retries
fn an_upstream_gets_no_more_than_its_cap_and_a_bounded_queue_waits(stage: &Stage) {
    let site = site(stage, 1).tenant(ejecting(1, LONG)).tenant(|tenant| {
        tenant.set("upstream_limits.max_in_flight", 2).set("upstream_limits.max_pending", 1)
    });
    let site = site.tenant(|tenant| tenant.set("timeouts.connect", "1m")).start();
    let (path, cue) = (public_path(), Cue::new());
    site.upstream.on(&path, on_cue(&cue));
    let refused = || {
        let samples = Samples::parse(&site.gateway.service.metrics());
        samples.sum("tiergate_overload_total", &["limit=\"upstream\""])
    };
    let mut answers = std::thread::scope(|scope| {
        let ask = || site.gateway.ask(&Request::get(ACME, &path));
        let asked: Vec<_> = (0..7).map(|_| scope.spawn(ask)).collect();
        until("those beyond the queue are refused", SOON, || (refused() == 4.0).then_some(()));
        until("as many as may are there", SOON, || (site.upstream.count_at(&path) == 2).then_some(()));
        cue.give();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    answers.sort_by_key(|answer| answer.status);
    for (at, answer) in answers.iter().enumerate() {
        let expected = if at < 3 { (200, None) } else { (503, Some("1")) };
        assert_eq!((answer.status, answer.header("retry-after")), expected);
    }
    assert_eq!((answers[6].json()["errorType"].as_str(), refused()), (Some("OVERLOADED"), 4.0));
    assert_eq!(site.upstream.count_at(&path), 3);
    (0..4).for_each(|_| assert_eq!(site.status(), 200));
    assert!(!site.gateway.log_until_now().contains("takes no requests"), "it is no failure");
}
