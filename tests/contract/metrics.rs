//! `GET /metrics`: what is counted, and that nothing there names an agent, a key or a client.

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, client::Connection, service::Service, world::World};

/// About operations of the store.
pub(crate) const OPERATIONS: &[Case<World>] = cases![rpc_store_and_cache_series_move];

pub(crate) const CASES: &[Case<World>] = cases![
    requests_denials_and_limiter_decisions_are_counted,
    requests_about_keys_are_counted_by_their_outcome,
    the_admin_address_answers_nothing_else,
];

fn requests_denials_and_limiter_decisions_are_counted(world: &World) {
    let service = Service::start(world.settings());
    let (bronze, blocked) = (world.agent(1), world.agent(0));
    let key = bronze.generate(&service);
    let before = service.samples();
    service.verify(&key).success(200);
    service.verify(&key).error(429, "RATE_LIMITED");
    service.verify(&unknown_key(7)).error(401, "INVALID_API_KEY");
    service.verify_signature(&blocked.signed()).error(403, "TIER_BLOCKED");
    service.verify_signature(&json!({})).error(400, "VALIDATION_ERROR");
    service.get("/nowhere").error(404, "NOT_FOUND");
    let mut connection = service.connect();
    connection.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
    assert_eq!(connection.read(false).unwrap().status, 400);
    let after = service.samples();
    assert_eq!(after.get("tiergate_malformed_requests_total{listener=\"api\"}"), 1.0);
    let moved = |name: &str, pieces: &[&str]| after.sum(name, pieces) - before.sum(name, pieces);
    for (status, times) in [("200", 1.0), ("429", 1.0), ("401", 1.0)] {
        let labels = ["listener=\"api\"", "endpoint=\"/verify\"", &format!("status=\"{status}\"")];
        assert_eq!(moved("tiergate_requests_total", &labels), times, "{status}");
    }
    for error_type in ["RATE_LIMITED", "INVALID_API_KEY", "TIER_BLOCKED", "VALIDATION_ERROR", "NOT_FOUND"] {
        let labels = ["listener=\"api\"", &format!("error_type=\"{error_type}\"")];
        assert_eq!(moved("tiergate_denials_total", &labels), 1.0, "{error_type}");
    }
    for (tier, decision) in [("1", "admitted"), ("1", "limited"), ("0", "blocked")] {
        let labels = [format!("tier=\"{tier}\""), format!("decision=\"{decision}\"")];
        let labels = [labels[0].as_str(), labels[1].as_str()];
        assert_eq!(moved("tiergate_limiter_decisions_total", &labels), 1.0, "{tier} {decision}");
    }
    assert_eq!(moved("http_server_request_duration_seconds_count", &["http_route=\"/verify\""]), 3.0);
    assert_eq!(after.sum("tiergate_build_info", &[]), 1.0);
}

fn rpc_store_and_cache_series_move(world: &World) {
    let relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let service = Service::start(world.settings().set("chain.rpc_urls", vec![node]));
    let agent = world.agent(4);
    let before = service.samples();
    let key = agent.generate(&service);
    service.verify(&key).success(200);
    service.verify(&key).success(200);
    relay.behave(Behaviour::Http(500, String::new()));
    service.verify_signature(&agent.signed()).error(503, "RPC_ERROR");
    let after = service.samples();
    let moved = |name: &str, pieces: &[&str]| after.sum(name, pieces) - before.sum(name, pieces);
    assert!(moved("tiergate_rpc_calls_total", &["method=\"eth_call\""]) >= 3.0);
    assert!(moved("tiergate_rpc_duration_seconds_count", &["method=\"eth_call\""]) >= 3.0);
    let failed = ["method=\"eth_call\"", "kind=\"http_status\""];
    // Each try of the one read that fails, and probes until its time is over.
    assert!((1.0..=20.0).contains(&moved("tiergate_rpc_errors_total", &failed)));
    assert!(moved("tiergate_profile_cache_total", &["result=\"miss\""]) >= 1.0);
    assert_eq!(moved("tiergate_profile_cache_total", &[]), 2.0, "one look-up for each verification");
    for (verb, times) in [("find", 2.0), ("admit", 2.0), ("change_key", 1.0), ("charge", 1.0)] {
        let labels = [format!("verb=\"{verb}\""), "outcome=\"ok\"".to_owned()];
        let labels = [labels[0].as_str(), labels[1].as_str()];
        assert_eq!(moved("tiergate_store_operations_total", &labels), times, "{verb}");
    }
}

fn requests_about_keys_are_counted_by_their_outcome(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let node = format!("http://{}", relay.address);
    let service = Service::start(world.settings().set("chain.rpc_urls", vec![node]));
    let agent = world.agent(1);
    let counts = |operation: &str| {
        let samples = service.samples();
        ["done", "refused", "failed"].map(|outcome| {
            let labels = format!("{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
            samples.get(&format!("tiergate_key_operations_total{labels}"))
        })
    };
    let operations = ["generate", "rotate", "revoke", "status"];
    let before = operations.map(counts);
    agent.generate(&service);
    service.generate(&agent.signed()).error(409, "KEY_ALREADY_EXISTS");
    service.rotate(&agent.signed()).success(200);
    service.revoke(&agent.signed()).success(200);
    service.status(&agent.text()).success(200);
    service.status("x").error(400, "VALIDATION_ERROR");
    relay.close();
    service.generate(&agent.signed()).error(503, "RPC_ERROR");
    let more = [[1.0; 3], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]];
    for ((operation, before), more) in operations.into_iter().zip(before).zip(more) {
        let after = counts(operation);
        assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), more, "{operation}");
    }
    let conflict = ["\"POST\"", "\"409\"", "http_route=\"/keys/generate\"", "tenant=\"\""];
    assert_eq!(service.samples().sum("http_server_request_duration_seconds_count", &conflict), 1.0);
    let in_flight = || service.samples().get("tiergate_api_requests_in_flight");
    until("no request is in flight", SOON, || (in_flight() == 0.0).then_some(()));
}

fn the_admin_address_answers_nothing_else(world: &World) {
    let service = world.service();
    for (method, path, status) in [
        ("GET", "/page", 404),
        ("POST", "/verify", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("POST", "/", 405),
    ] {
        let answer = Connection::open(service.admin).unwrap().send(method, path, &[], None).unwrap();
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let scraped = Connection::open(service.admin).unwrap().send("GET", "/metrics", &[], None).unwrap();
    assert!(scraped.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
}
