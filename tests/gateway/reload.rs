//! Tenants come, change and go while requests run; a configuration with a mistake changes nothing.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::refusals::{is_unauthenticated, refused};
use crate::rig::scripts::{self, Cue};
use crate::rig::stage::{Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_file_that_comes_changes_and_goes_counts_without_a_signal,
    a_signal_reads_the_main_file_again,
    a_broken_file_changes_nothing_and_every_problem_is_named,
    a_mistake_in_one_file_holds_back_all_others,
    a_connection_that_is_open_sees_the_new_tenants_on_its_next_request,
    a_request_under_way_ends_as_it_began,
    a_window_outlives_a_reload,
    reloads_under_load_drop_and_misroute_nothing,
];

/// How many times the tenants change while requests run.
const RELOADS: usize = 200;

/// The status of a request for a public path of a host.
fn status(gateway: &Gateway, host: &str) -> u16 {
    gateway.ask(&Request::get(host, &public_path())).status
}

fn until_status(gateway: &Gateway, host: &str, wanted: u16) {
    until(&format!("{host} answers {wanted}"), SOON, || (status(gateway, host) == wanted).then_some(()));
}

fn a_file_that_comes_changes_and_goes_counts_without_a_signal(stage: &Stage) {
    let (one, other) = (Upstream::start(), Upstream::start());
    let first = Tenant::new("first", "first.test", one.address).public();
    let gateway = Gateway::start_with(stage.settings(), &[], &[("first.toml", &first.text())]);
    assert_eq!((status(&gateway, "first.test"), status(&gateway, "second.test")), (200, 404));
    let second = |upstream: &Upstream| Tenant::new("second", "second.test", upstream.address);
    gateway.put("second.toml", &second(&one).public().text());
    until_status(&gateway, "second.test", 200);
    gateway.put("second.toml", &second(&other).public().text());
    until("the other upstream is asked", SOON, || {
        let path = public_path();
        assert_eq!(gateway.ask(&Request::get("second.test", &path)).status, 200);
        (!other.seen_at(&path).is_empty()).then_some(())
    });
    gateway.put("second.toml", &second(&other).text());
    until_status(&gateway, "second.test", 401);
    gateway.remove("second.toml");
    until_status(&gateway, "second.test", 404);
    assert_eq!(status(&gateway, "first.test"), 200);
    gateway.put("not-a-tenant.txt", "colour = 1");
    gateway.put("third.toml", &Tenant::new("third", "third.test", one.address).public().text());
    until_status(&gateway, "third.test", 200);
}

fn a_signal_reads_the_main_file_again(stage: &Stage) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(stage, &[Tenant::new("first", "first.test", upstream.address).public()]);
    let file = gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("first.test", "renamed.test")).unwrap();
    gateway.hang_up();
    until_status(&gateway, "renamed.test", 200);
    assert_eq!(status(&gateway, "first.test"), 404);
    fs::write(&file, text).unwrap();
    gateway.hang_up();
    until_status(&gateway, "first.test", 200);
}

fn a_broken_file_changes_nothing_and_every_problem_is_named(stage: &Stage) {
    let upstream = Upstream::start();
    let good = Tenant::new("good", "good.test", upstream.address).public();
    let gateway = Gateway::start_with(stage.settings(), &[], &[("good.toml", &good.text())]);
    let broken = good.clone().set("min_tier", 9).set("colour", "red").set("timeouts.read", "soon");
    gateway.put("good.toml", &broken.text());
    until("the log names every problem", SOON, || {
        let log = gateway.service.log();
        let named =
            ["good.toml", "min_tier", "colour", "timeouts.read"].iter().all(|name| log.contains(name));
        named.then_some(())
    });
    assert_eq!(status(&gateway, "good.test"), 200, "the last good one stays");
    let refused = until("a metric counts it", SOON, || {
        let metrics = gateway.service.metrics();
        let counted =
            metrics.lines().find(|line| line.contains("reload") && !line.starts_with('#')).map(str::to_owned);
        counted.filter(|line| !line.ends_with(" 0"))
    });
    assert!(!refused.is_empty());
    gateway.put("good.toml", "this is not TOML");
    gateway.put("second.toml", &Tenant::new("second", "second.test", upstream.address).public().text());
    gateway.hang_up();
    assert_eq!((status(&gateway, "good.test"), status(&gateway, "second.test")), (200, 404));
    gateway.put("good.toml", &good.text());
    until_status(&gateway, "second.test", 200);
    assert_eq!(status(&gateway, "good.test"), 200);
}

fn a_mistake_in_one_file_holds_back_all_others(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = |id: &str, host: &str| Tenant::new(id, host, upstream.address).public();
    let gateway = Gateway::start_with(stage.settings(), &[], &[("a.toml", &tenant("a", "a.test").text())]);
    // Two tenants that want the same host, then the same id: nobody gets it, and the right one of them does not come.
    for (id, host) in [("b", "a.test"), ("a", "b.test")] {
        gateway.put("c.toml", &tenant("c", "c.test").text());
        until_status(&gateway, "c.test", 200);
        let named = gateway.service.log().matches("b.toml").count();
        gateway.put("b.toml", &tenant(id, host).text());
        gateway.remove("c.toml");
        until("the log tells of it", SOON, || {
            (gateway.service.log().matches("b.toml").count() > named).then_some(())
        });
        assert_eq!((status(&gateway, "a.test"), status(&gateway, "b.test")), (200, 404));
        gateway.remove("b.toml");
        until_status(&gateway, "c.test", 404);
    }
}

fn a_connection_that_is_open_sees_the_new_tenants_on_its_next_request(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", "t.test", upstream.address);
    let gateway = Gateway::start_with(stage.settings(), &[], &[("t.toml", &tenant.clone().public().text())]);
    let mut wire = gateway.connect();
    assert_eq!(Request::get("t.test", &public_path()).ask_on(&mut wire).status, 200);
    gateway.put("t.toml", &tenant.clone().route("/public/*", r#"access = "deny""#).text());
    until_status(&gateway, "t.test", 403);
    refused(&Request::get("t.test", &public_path()).ask_on(&mut wire), 403);
    gateway.put("t.toml", &tenant.text());
    until_status(&gateway, "t.test", 401);
    is_unauthenticated(&Request::get("t.test", &public_path()).ask_on(&mut wire));
}

fn a_request_under_way_ends_as_it_began(stage: &Stage) {
    let (one, other) = (Upstream::start(), Upstream::start());
    let tenant = |upstream: &Upstream| Tenant::new("t", "t.test", upstream.address).public().text();
    let gateway = Gateway::start_with(stage.settings(), &[], &[("t.toml", &tenant(&one))]);
    let path = public_path();
    let cue = Cue::new();
    one.on(
        &path,
        scripts::chunks_on_cue("HTTP/1.1 200 OK\r\n", &["before", "after"], &[std::sync::Arc::clone(&cue)]),
    );
    let mut wire = gateway.connect();
    wire.send(&Request::get("t.test", &path).bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    assert_eq!(wire.chunk().unwrap().unwrap(), b"before");
    gateway.put("t.toml", &tenant(&other));
    until("the other upstream is asked", SOON, || {
        let path = public_path();
        assert_eq!(gateway.ask(&Request::get("t.test", &path)).status, 200);
        (!other.seen_at(&path).is_empty()).then_some(())
    });
    gateway.remove("t.toml");
    until_status(&gateway, "t.test", 404);
    cue.give();
    assert_eq!(wire.chunk().unwrap().unwrap(), b"after");
    assert_eq!(wire.chunk().unwrap(), None);
    Request::get("t.test", &public_path()).ask_on(&mut wire).error(404, "NOT_FOUND");
}

fn a_window_outlives_a_reload(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", "t.test", upstream.address);
    let gateway = Gateway::start_with(stage.settings(), &[], &[("t.toml", &tenant.text())]);
    let agent = stage.world().agent(1);
    let key = agent.generate(&gateway.service);
    let request = Request::get("t.test", &agents_path()).key(&key);
    assert_eq!(gateway.ask(&request).status, 200);
    gateway.put("t.toml", &tenant.public().text());
    until_status(&gateway, "t.test", 200);
    gateway.ask(&request).is_limited(json!(agent.text()), json!(1), 1);
}

fn reloads_under_load_drop_and_misroute_nothing(stage: &Stage) {
    let upstreams = [Upstream::start(), Upstream::start()];
    let hosts = ["a.test", "b.test"];
    let tenant = |at: usize| Tenant::new(["a", "b"][at], hosts[at], upstreams[at].address).public();
    let files = [tenant(0).text(), tenant(1).text()];
    let gateway = Gateway::start_with(stage.settings(), &[], &[("a.toml", &files[0]), ("b.toml", &files[1])]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in [0, 1, 0, 1] {
            let (gateway, done) = (&gateway, &done);
            scope.spawn(move || {
                let mut wire = gateway.connect();
                let mut asked = 0;
                while !done.load(Ordering::SeqCst) || asked < 100 {
                    let path = public_path();
                    let answer = Request::get(hosts[at], &path).ask_on(&mut wire);
                    assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(path)));
                    asked += 1;
                }
            });
        }
        for round in 0..RELOADS {
            let at = round % 2;
            let changed = tenant(at).route(&format!("/r{round}/*"), r#"access = "deny""#);
            gateway.put(["a.toml", "b.toml"][at], &changed.text());
            gateway.hang_up();
            if round % 20 == 0 {
                until("the reload counts", SOON, || {
                    let answer = gateway.ask(&Request::get(hosts[at], &format!("/r{round}/x")));
                    (answer.status == 403).then_some(())
                });
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    for (upstream, host) in upstreams.iter().zip(hosts) {
        let seen = upstream.seen();
        assert!(seen.len() >= 200, "{host}: {}", seen.len());
        assert!(seen.iter().all(|seen| seen.all("host") == [host]), "another tenant's request");
    }
}
