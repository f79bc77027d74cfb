//! `GET /livez` and `GET /readyz`.

use std::time::Duration;

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::{client::Connection, service::Service, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    both_are_200_on_both_listeners_under_any_name,
    head_has_the_headers_and_no_body,
    a_hung_node_makes_unready_within_the_time_limit_and_hides_nothing_of_the_store,
    readiness_comes_and_goes_with_the_node_and_balancers_are_told_what_goes_on,
    a_node_of_another_chain_makes_unready_and_the_log_says_so,
];

fn both_are_200_on_both_listeners_under_any_name(world: &World) {
    let service = world.service();
    let ready = json!({ "status": "ready", "checks": { "store": "ok", "chain": "ok" } });
    for (path, body) in [("/livez", json!({ "status": "ok" })), ("/readyz", ready)] {
        for listener in [service.api, service.admin] {
            until(path, SOON, || {
                let mut connection = Connection::open(listener).unwrap();
                let request = format!("GET {path} HTTP/1.1\r\nHost: tiergate.example\r\n\r\n");
                connection.write(request.as_bytes()).unwrap();
                let answer = connection.read(false).unwrap();
                (answer.status == 200 && answer.success(200) == body).then_some(())
            });
        }
    }
}

fn head_has_the_headers_and_no_body(world: &World) {
    let service = world.service();
    let refused = ["/nowhere", "/verify"];
    for path in ["/livez", "/readyz", "/keys/status?agentId=999999", "/openapi.json", "/.well-known/tiergate"]
        .into_iter()
        .chain(refused)
    {
        let get = service.get(path);
        let mut connection = service.connect();
        let head = connection.send("HEAD", path, &[], None).unwrap();
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty());
        for name in ["content-length", "content-type", "x-ratelimit-limit", "x-ratelimit-remaining"] {
            assert_eq!(head.header(name), get.header(name), "{name}");
        }
        // No stray byte: the next answer on the same connection is whole.
        connection.send("GET", "/livez", &[], None).unwrap().success(200);
    }
}

/// The two seconds that a probe may take, and more for a machine that is busy with other things.
const UNREADY_WITHIN: Duration = Duration::from_secs(20);

/// It hangs from the start, and again when it was well: scrapes between two probes once cancelled these.
fn a_hung_node_makes_unready_within_the_time_limit_and_hides_nothing_of_the_store(world: &World) {
    let relay = Relay::new(world.chain().node);
    relay.behave(Behaviour::Hang);
    let settings = world.settings().set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    let service = Service::start_unready(settings);
    service.await_readiness("/readyz", 503, |shown| *shown == unready());
    let watch = Stopwatch::start();
    assert_eq!(service.get("/readyz").status, 503);
    // The node never lets go.
    assert!(watch.elapsed() < UNREADY_WITHIN, "{:?}", watch.elapsed());
    assert_eq!(service.get("/readyz?for=balancer").status, 503, "it has never been ready");
    service.get("/livez").success(200);
    relay.behave(Behaviour::Honest);
    service.await_ready();
    relay.behave(Behaviour::Hang);
    let ready = |check: &str| service.samples().get(&format!("tiergate_ready{{check=\"{check}\"}}"));
    until("the scrapes say that the chain is not ready", SOON, || {
        (ready("chain") == 0.0 && ready("store") == 1.0).then_some(())
    });
    until("the operator is shown the same", SOON, || {
        let mut admin = Connection::open(service.admin).unwrap();
        let shown = admin.send("GET", "/status.json", &[], None).unwrap().json()["readiness"].take();
        let is_chain = shown["store"].is_null() && shown["chain"].is_string();
        (is_chain && shown["isReady"] == json!(false)).then_some(())
    });
    service.await_readiness("/readyz", 503, |shown| *shown == unready());
    service.await_log(&["not ready: "]);
    relay.behave(Behaviour::Honest);
    until("the scrapes say that it is ready again", SOON, || (ready("chain") == 1.0).then_some(()));
}

fn readiness_comes_and_goes_with_the_node_and_balancers_are_told_what_goes_on(world: &World) {
    const PATH: &str = "/readyz?for=balancer";
    let mut relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let service = Service::start(world.settings().set("chain.rpc_urls", vec![node]));
    let serves = |status: &str, chain: &str, serves: &[&str]| {
        let checks = json!({ "store": "ok", "chain": chain });
        json!({ "status": status, "checks": checks, "serves": serves })
    };
    for _ in 0..2 {
        let all = serves("ready", "ok", &["public_routes", "limited_public_routes", "agents"]);
        service.await_readiness(PATH, 200, |shown| *shown == all);
        relay.close();
        until("unready", SOON, || (service.get("/readyz").status == 503).then_some(()));
        let some = serves("partly", "error", &["public_routes", "limited_public_routes"]);
        service.await_readiness(PATH, 200, |shown| *shown == some);
        for query in ["", "?", "?for=balancers", "?x=1&for=balancer", "?for=balancer&x=1"] {
            service.await_readiness(&format!("/readyz{query}"), 503, |shown| *shown == unready());
        }
        assert_eq!(service.get("/readyz").header("retry-after"), Some("1"));
        relay.reopen();
        until("ready again", SOON, || (service.get("/readyz").status == 200).then_some(()));
    }
}

fn unready() -> serde_json::Value {
    json!({ "status": "unavailable", "checks": { "store": "ok", "chain": "error" } })
}

// threat: A node is behind or on another chain
fn a_node_of_another_chain_makes_unready_and_the_log_says_so(world: &World) {
    let service = Service::start_unready(world.settings().set("chain.chain_id", 5));
    // A disk that stalls for two seconds makes the store unready as well, for a second.
    let is_unready = || (service.get("/readyz").success(503) == unready()).then_some(());
    until("unready, and the store answers", SOON, is_unready);
    service.get("/livez").success(200);
    let line = format!("the node is on chain {}, not on chain 5", world.chain().contracts.chain_id);
    service.await_log(&[&line]);
}
