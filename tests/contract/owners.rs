//! `listen.owners`: agents' owners reach their endpoints there, and nothing else of the API.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::client::{Answer, Connection};
use crate::support::harness::{Case, cases};
use crate::support::process::{free_ports, own_ip};
use crate::support::service::{KEY_ENDPOINTS, Service};
use crate::support::{agents::key_of, settings::Settings, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    owners_manage_keys_there_and_nobody_verifies_or_asks_for_health,
    the_proxy_protocol_is_spoken_there_where_it_is_named,
];

/// A service with such a listener, and its address.
fn start(settings: Settings) -> (Service, SocketAddr) {
    let (owners, _) = free_ports(own_ip());
    (Service::start(settings.set("listen.owners", vec![owners.to_string()])), owners)
}

fn send(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
    let body = body.map(|body| body.to_string().into_bytes());
    Connection::open(to).unwrap().send(method, path, headers, body.as_deref()).unwrap()
}

fn owners_manage_keys_there_and_nobody_verifies_or_asks_for_health(world: &World) {
    let (service, owners) = start(world.settings().set("console.enabled", true));
    let agent = world.agent(3);
    let key = key_of(&send(owners, "POST", "/keys/generate", &[], Some(&agent.signed())).success(201));
    service.verify(&key).success(200);
    let rotated = key_of(&send(owners, "POST", "/keys/rotate", &[], Some(&agent.signed())).success(200));
    service.verify(&key).error(401, "INVALID_API_KEY");
    service.verify(&rotated).success(200);
    let status = format!("/keys/status?agentId={}", agent.text());
    for path in [
        status.as_str(),
        "/.well-known/tiergate",
        "/.well-known/jwks.json",
        "/console",
        "/console/app.js",
        "/docs",
    ] {
        assert_eq!(send(owners, "GET", path, &[], None).status, 200, "{path}");
    }
    send(owners, "POST", "/profile", &[], Some(&json!({}))).error(400, "VALIDATION_ERROR");
    send(owners, "DELETE", "/keys", &[], Some(&agent.signed())).success(200);
    service.verify(&rotated).error(401, "INVALID_API_KEY");

    let body = json!({ "apiKey": rotated });
    for (method, path, body) in [
        ("POST", "/verify", Some(&body)),
        ("GET", "/verify", None),
        ("POST", "/verify/signature", Some(&agent.signed())),
        ("GET", "/livez", None),
        ("GET", "/readyz", None),
        ("GET", "/metrics", None),
        ("GET", "/", None),
    ] {
        send(owners, method, path, &[], body).is_error(404, "NOT_FOUND", Value::Null);
    }
    for (method, path) in KEY_ENDPOINTS {
        let other = if method == "POST" { "GET" } else { "PUT" };
        send(owners, other, path, &[], None).error(405, "METHOD_NOT_ALLOWED");
    }
    // The API's own listener has everything.
    service.signed(("POST", "/keys/generate"), &agent.signed()).success(201);
    let parts =
        |listener: &str, route: &str| [format!("listener=\"{listener}\""), format!("route=\"{route}\"")];
    for [listener, route] in [parts("owners", "/keys/rotate"), parts("api", "/verify")] {
        service.await_log(&[&listener, &route]);
    }
    // The last answer's.
    let [listener, route] = parts("api", "/keys/generate");
    let log = service.await_log(&[&listener, &route]);
    let not = parts("owners", "/verify");
    assert!(!log.lines().any(|line| not.iter().all(|part| line.contains(part))), "{log}");
}

fn the_proxy_protocol_is_spoken_there_where_it_is_named(world: &World) {
    let settings = world.settings().set("listen.proxy_protocol", vec!["owners"]);
    // The API goes without.
    let (_service, owners) = start(settings.set("listen.trusted_proxies", vec!["127.0.0.0/8"]));
    let agent = world.agent(0);
    let behind = |header: &[u8]| {
        let body = agent.signed().to_string();
        let mut connection = Connection::open(owners).unwrap();
        connection.write(header).unwrap();
        connection.send("DELETE", "/keys", &[], Some(body.as_bytes()))
    };
    let one = b"PROXY TCP4 203.0.113.1 192.0.2.1 4711 80\r\n";
    assert_eq!([behind(one), behind(one)].map(|answer| answer.unwrap().allowance()), [(10, 9), (10, 8)]);
    assert_eq!(behind(b"PROXY TCP4 203.0.113.2 192.0.2.1 1 2\r\n").unwrap().allowance(), (10, 9));
    assert!(behind(b"").is_err(), "closed without an answer");
}
