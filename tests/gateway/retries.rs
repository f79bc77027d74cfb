//! Connections to upstreams: used again where that is safe, tried elsewhere where nothing was sent, and nothing sent twice.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::lab::{Lab, impatient, is_upstream_error};
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Script, Then, Upstream};
use crate::support::process::{free_port, own_ip};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    connections_to_the_upstream_are_used_again,
    a_failed_connection_is_tried_elsewhere,
    a_request_that_may_have_been_processed_is_not_sent_twice,
    a_stale_connection_costs_no_request,
    an_upstream_that_is_gone_and_back_serves_again,
];

fn connections_to_the_upstream_are_used_again(stage: &Stage) {
    let lab = Lab::new(stage);
    let mut connections: Vec<usize> = (0..20)
        .map(|_| {
            let path = public_path();
            assert_eq!(lab.gateway.ask(&Request::get(ACME, &path)).status, 200);
            lab.upstream.only(&path).connection
        })
        .collect();
    connections.sort_unstable();
    connections.dedup();
    // An answer may reach the client a moment before its connection is free.
    assert!(connections.len() < 10, "{connections:?}");
}

fn a_failed_connection_is_tried_elsewhere(stage: &Stage) {
    let upstream = Upstream::start();
    let (one, other) = (free_port(own_ip()).to_string(), free_port(own_ip()).to_string());
    let all = [one.as_str(), &upstream.address.to_string(), &other];
    let tenant = impatient(Tenant::of("t", &[ACME], &all)).set("connect_retries", 2);
    let gateway = Gateway::start(stage, &[tenant]);
    for _ in 0..12 {
        for method in ["GET", "POST"] {
            let path = public_path();
            let answer = gateway.ask(&Request::new(method, ACME, &path).body(b"body"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(upstream.only(&path).body, b"body");
        }
    }
}

fn a_request_that_may_have_been_processed_is_not_sent_twice(stage: &Stage) {
    let (one, other) = (Upstream::start(), Upstream::start());
    let all = [one.address.to_string(), other.address.to_string()];
    let tenant = impatient(Tenant::of("t", &[ACME], &[&all[0], &all[1]])).set("connect_retries", 2);
    let gateway = Gateway::start(stage, &[tenant]);
    let scripts: [fn() -> Script; 4] = [
        || script(|_| Ok(Then::Closes)),
        || scripts::bytes("garbage", Then::Closes),
        || scripts::hang(""),
        || scripts::bytes("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", Then::Closes),
    ];
    for script in scripts {
        for method in ["GET", "PUT", "POST"] {
            let (warm, path) = (public_path(), public_path());
            for upstream in [&one, &other] {
                upstream.on(&path, script());
            }
            // Once on a fresh connection, and once on one that was used before.
            for _ in 0..4 {
                assert_eq!(gateway.ask(&Request::get(ACME, &warm)).status, 200);
            }
            let mut wire = gateway.connect();
            wire.send(&Request::new(method, ACME, &path).body(b"pay").bytes());
            if let Ok(answer) = wire.try_answer() {
                assert!(matches!(answer.status, 502 | 504), "{}", answer.text());
            }
            let seen = one.seen_at(&path).len() + other.seen_at(&path).len();
            assert_eq!(seen, 1, "{method} was sent {seen} times");
        }
    }
}

/// An upstream closes idle connections when it likes; the gateway notices, or tries where nothing was sent yet.
fn a_stale_connection_costs_no_request(stage: &Stage) {
    let lab = Lab::new(stage);
    for _ in 0..10 {
        let path = public_path();
        assert_eq!(lab.gateway.ask(&Request::get(ACME, &path)).status, 200);
        lab.upstream.hang_up();
        let path = public_path();
        let answer = lab.gateway.ask(&Request::get(ACME, &path));
        assert_eq!(answer.status, 200, "{}", answer.text());
        lab.upstream.only(&path);
    }
}

fn an_upstream_that_is_gone_and_back_serves_again(stage: &Stage) {
    let lab = Lab::new(stage);
    lab.upstream.greet(Some(drop));
    lab.upstream.hang_up();
    for _ in 0..10 {
        is_upstream_error(&lab.gateway.ask(&Request::get(ACME, &public_path())));
    }
    lab.upstream.greet(None);
    let path = public_path();
    assert_eq!(lab.gateway.ask(&Request::get(ACME, &path)).json()["target"], json!(path));
}
