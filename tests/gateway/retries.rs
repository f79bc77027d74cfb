//! Connections to upstreams: used again where that is safe, tried elsewhere where nothing was sent, and nothing sent twice.

use crate::rig::case::{Case, cases};
use crate::rig::refusals::is_upstream_error;
use crate::rig::scripts::{self, script};
use crate::rig::site::{IMPATIENT, Site};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::{Then, Upstream};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    connections_to_the_upstream_are_used_again,
    a_failed_connection_is_tried_elsewhere,
    a_request_that_may_have_been_processed_is_not_sent_twice,
    a_stale_connection_costs_no_request,
];

fn connections_to_the_upstream_are_used_again(stage: &Stage) {
    let site = Site::start(stage);
    // The gateway reads a connection's next request when the one before has given its upstream back.
    let mut wire = site.gateway.connect();
    let mut connections: Vec<usize> = (0..20)
        .map(|_| {
            let path = public_path();
            assert_eq!(Request::get(ACME, &path).ask_on(&mut wire).status, 200);
            site.upstream.only(&path).connection
        })
        .collect();
    connections.dedup();
    assert_eq!(connections.len(), 1, "{connections:?}");
}

fn a_failed_connection_is_tried_elsewhere(stage: &Stage) {
    let (one, other) = (free_port(own_ip()).to_string(), free_port(own_ip()).to_string());
    let site = Site::of(stage);
    let all = vec![one, site.upstream().address.to_string(), other];
    let site = site.tenant(|tenant| tenant.set("upstreams", all).set("connect_retries", 2)).start();
    for _ in 0..12 {
        for method in ["GET", "POST"] {
            let path = public_path();
            let answer = site.gateway.ask(&Request::new(method, ACME, &path).body(b"body"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(site.upstream.only(&path).body, b"body");
        }
    }
}

fn a_request_that_may_have_been_processed_is_not_sent_twice(stage: &Stage) {
    let other = Upstream::start();
    let site = Site::of(stage).impatient();
    let all = vec![site.upstream().address.to_string(), other.address.to_string()];
    let site = site.each(|tenant| {
        tenant.set("upstreams", all.clone()).set("connect_retries", 2).set("health.eject_after", 0)
    });
    let site = site.start();
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut";
    let scripts = [
        (ACME, script(|_| Ok(Then::Closes)), 502),
        (ACME, scripts::bytes("garbage", Then::Closes), 502),
        (ACME, scripts::bytes(cut, Then::Closes), 200),
        (IMPATIENT, scripts::hang(""), 504),
    ];
    for (host, script, status) in scripts {
        for method in ["GET", "PUT", "POST"] {
            let (warm, path) = (public_path(), public_path());
            for upstream in [&site.upstream, &other] {
                upstream.on(&path, script.clone());
            }
            // Once on a fresh connection, and once on one that was used before.
            for _ in 0..4 {
                assert_eq!(site.gateway.ask(&Request::get(ACME, &warm)).status, 200);
            }
            let mut wire = site.gateway.connect();
            wire.send(&Request::new(method, host, &path).body(b"pay").bytes());
            let head = wire.head().unwrap();
            // The beginning of an answer with a length may be held back: then it is not begun.
            match (status, head.status) {
                (200, 200) => assert!(wire.body(head).is_err(), "it is cut off"),
                (200, _) => is_upstream_error(&wire.body(head).unwrap()),
                _ => assert_eq!(head.status, status, "{method}: {head:?}"),
            }
            let seen = || site.upstream.count_at(&path) + other.count_at(&path);
            // The gateway may give up before a slow upstream has looked at what it was sent.
            until("an upstream has seen it", SOON, || (seen() > 0).then_some(()));
            assert_eq!(site.status(), 200);
            assert_eq!(seen(), 1, "{method} was sent more than once");
        }
    }
}

/// An upstream closes idle connections when it likes; the gateway notices, or tries where nothing was sent yet.
fn a_stale_connection_costs_no_request(stage: &Stage) {
    let site = Site::start(stage);
    for _ in 0..10 {
        let path = public_path();
        assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
        site.upstream.hang_up();
        let path = public_path();
        let answer = site.gateway.ask(&Request::get(ACME, &path));
        assert_eq!(answer.status, 200, "{}", answer.text());
        site.upstream.only(&path);
    }
}
