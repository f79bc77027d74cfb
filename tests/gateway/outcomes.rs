//! What becomes of requests in counters and log: each is counted once and as what it was, clients that leave are no fault
//! of an upstream, and a flood of one failure is not a flood of lines.

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::lab::is_upstream_error;
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Then, Upstream};
use crate::support::metrics::Samples;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    every_request_is_counted_once_and_as_what_it_was,
    clients_that_leave_do_not_take_an_upstream_out,
    a_flood_of_failures_is_a_few_lines_and_counted_in_full,
];

/// The tenant's requests, by outcome.
fn counts(gateway: &Gateway) -> [f64; 4] {
    let samples = Samples::parse(&gateway.service.metrics());
    ["forwarded", "refused", "failed", "abandoned"].map(|outcome| {
        let pieces = ["tenant=\"t\"", &format!("outcome=\"{outcome}\"")];
        samples.sum("tiergate_gateway_requests_total", &pieces)
    })
}

/// A request is counted when it is over, which may be a moment after its client has its answer.
fn until_counted(gateway: &Gateway, expected: [f64; 4]) {
    until("every request is counted", SOON, || {
        (counts(gateway) == expected).then_some(()).or_else(|| {
            assert!(counts(gateway).iter().sum::<f64>() <= expected.iter().sum(), "{:?}", counts(gateway));
            None
        })
    });
}

/// A tenant of one upstream that is neither checked nor forgiven a failure.
fn tenant(upstream: &Upstream) -> Tenant {
    Tenant::of("t", &[ACME], &[&upstream.address.to_string()])
        .route("/public/*", "access = \"public\"")
        .set("connect_retries", 0)
        .set("health.interval", "0s")
        .set("health.eject_after", 1)
        .set("health.eject_for", "1h")
}

/// Begins an upload or a download, and leaves in the middle of it.
fn leave_midway(gateway: &Gateway, upstream: &Upstream) {
    let path = public_path();
    let begun = Cue::new();
    let cue = begun.clone();
    upstream.on(
        &path,
        script(move |exchange| {
            exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
            exchange.write(&[b'x'; 100_000])?;
            cue.give();
            exchange.until_closed();
            Ok(Then::Closes)
        }),
    );
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    begun.wait().unwrap();
    wire.head().unwrap();
    drop(wire);

    let path = public_path();
    let mut wire = gateway.connect();
    wire.send(format!("POST {path} HTTP/1.1\r\nHost: {ACME}\r\nContent-Length: 1000\r\n\r\nhalf").as_bytes());
    until("the upload has reached the upstream", SOON, || upstream.seen_at(&path).pop());
    drop(wire);
}

fn every_request_is_counted_once_and_as_what_it_was(stage: &Stage) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(stage, &[tenant(&upstream).set("health.eject_after", 0)]);
    for status in ["200 OK", "204 No Content", "404 Not Found", "500 Internal Server Error"] {
        let path = public_path();
        upstream.on(&path, scripts::bytes(scripts::answer(status, &[], b""), Then::Goes));
        assert_eq!(gateway.ask(&Request::get(ACME, &path)).status.to_string(), status[..3]);
    }
    until_counted(&gateway, [4.0, 0.0, 0.0, 0.0]);
    for _ in 0..3 {
        assert_eq!(gateway.ask(&Request::get(ACME, "/agents/x")).status, 401);
    }
    until_counted(&gateway, [4.0, 3.0, 0.0, 0.0]);
    leave_midway(&gateway, &upstream);
    until_counted(&gateway, [4.0, 3.0, 0.0, 2.0]);
    upstream.greet(Some(drop));
    is_upstream_error(&gateway.ask(&Request::get(ACME, &public_path())));
    until_counted(&gateway, [4.0, 3.0, 1.0, 2.0]);
}

fn clients_that_leave_do_not_take_an_upstream_out(stage: &Stage) {
    let (upstream, other) = (Upstream::start(), Upstream::start());
    let two =
        tenant(&upstream).set("upstreams", vec![upstream.address.to_string(), other.address.to_string()]);
    let gateway = Gateway::start(stage, &[two]);
    // Each is as likely to be the other's: the requests that leave go to whichever has its turn.
    for _ in 0..6 {
        leave_midway_at_either(&gateway, &[&upstream, &other]);
    }
    let served = || [&upstream, &other].map(|upstream| upstream.seen_with("/public/counted").len());
    for _ in 0..20 {
        assert_eq!(gateway.ask(&Request::get(ACME, &format!("/public/counted-{}", unique()))).status, 200);
    }
    assert_eq!(served(), [10, 10], "both are in");
    assert!(!gateway.service.log().contains("takes no requests for a while"));
}

/// Begins an upload at one of several upstreams, and leaves in the middle of it.
fn leave_midway_at_either(gateway: &Gateway, upstreams: &[&Upstream]) {
    let path = public_path();
    let mut wire = gateway.connect();
    wire.send(format!("POST {path} HTTP/1.1\r\nHost: {ACME}\r\nContent-Length: 1000\r\n\r\nhalf").as_bytes());
    let seen = |upstream: &&Upstream| upstream.seen_at(&path).pop();
    until("the upload has reached an upstream", SOON, || upstreams.iter().find_map(seen));
    let before = counts(gateway);
    drop(wire);
    until("it is counted as abandoned", SOON, || (counts(gateway)[3] > before[3]).then_some(()));
}

fn a_flood_of_failures_is_a_few_lines_and_counted_in_full(stage: &Stage) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(stage, &[tenant(&upstream).set("health.eject_after", 0)]);
    upstream.greet(Some(drop));
    let failures = 300;
    for _ in 0..failures {
        is_upstream_error(&gateway.ask(&Request::get(ACME, &public_path())));
    }
    until_counted(&gateway, [0.0, 0.0, f64::from(failures), 0.0]);
    let log = gateway.service.log();
    let lines = log.lines().filter(|line| line.contains("failed at")).count();
    // One a second at most, and a slow machine takes a few seconds.
    assert!((1..=60).contains(&lines), "{lines} lines of {failures} failures:\n{log}");
}
