//! Counters of requests, and the log's queue.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs::File, io::Read, os::unix::fs::OpenOptionsExt, process::Command};

use crate::outcomes::leave_an_upload;
use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::site::{IMPATIENT, Site};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::upstream::{Then, Upstream};
use crate::rig::{certificates::Files, credentials::signed, gateway::Gateway, scripts, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::signing::{BOB, Draft};
use crate::support::time::{SOON, until};
use crate::support::{relay::Relay, wire::Request};

pub(crate) const CASES: &[Case] =
    cases![each_outcome_and_error_of_a_request_is_counted_exactly_once, a_full_log_queue_delays_nobody,];

/// Every series that a request at the gateway may change, by the sum of its counts.
fn counted(gateway: &Gateway) -> BTreeMap<String, f64> {
    let samples = gateway.service.samples();
    let of_gateway = |series: &&str| {
        let name = series.split('{').next().unwrap_or_default();
        ["tiergate_gateway_requests_total", "tiergate_limiter_decisions_total"].contains(&name)
            || (!name.ends_with("_bucket")
                && name != "tiergate_connections"
                && !name.ends_with("_sum")
                && series.contains("listener=\"gateway\""))
    };
    samples.series().filter(of_gateway).map(|series| (series.to_owned(), samples.get(series))).collect()
}

/// Waits until exactly these series are counted once more, and nothing else is.
fn until_counted(gateway: &Gateway, before: &BTreeMap<String, f64>, expected: &[String]) {
    let expected: BTreeMap<String, f64> = expected.iter().map(|series| (series.clone(), 1.0)).collect();
    until(&format!("counted once: {expected:#?}"), SOON, || {
        let mut more = counted(gateway);
        for (series, count) in before {
            *more.entry(series.clone()).or_default() -= count;
        }
        more.retain(|_, count| *count != 0.0);
        assert!(more.len() <= expected.len(), "{more:#?}, not {expected:#?}");
        (more == expected).then_some(())
    });
}

/// The series of a request by tenant and outcome, and some more.
fn of(tenant: &str, outcome: &str, more: &[String]) -> Vec<String> {
    let request = format!("tiergate_gateway_requests_total{{outcome=\"{outcome}\",tenant=\"{tenant}\"}}");
    [&[request], more].concat()
}

fn denied(error_type: &str) -> String {
    format!("tiergate_denials_total{{error_type=\"{error_type}\",listener=\"gateway\"}}")
}

fn refused(error_type: &str) -> Vec<String> {
    of("t", "refused", &[denied(error_type)])
}

fn at_agents() -> Request {
    Request::get(ACME, &agents_path())
}

/// Leaves while the upstream says nothing.
fn leave_before_the_answer(gateway: &Gateway, upstream: &Upstream) {
    let path = public_path();
    upstream.on(&path, scripts::hang(""));
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    until("the request is under way", SOON, || upstream.seen_at(&path).pop());
}

/// Leaves in the middle of an answer.
fn leave_a_download(gateway: &Gateway, upstream: &Upstream) {
    let path = public_path();
    let begun = scripts::answer("200 OK", &[], &[b'x'; 1_000_000]);
    upstream.on(&path, scripts::hang(&begun[..100_000]));
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    wire.head().unwrap();
    wire.take(1_000).unwrap();
}

fn each_outcome_and_error_of_a_request_is_counted_exactly_once(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let strict = |tenant: Tenant| {
        let tenant = tenant.route("/denied", "access = \"deny\"").set("max_body_bytes", 10);
        tenant.set("on_endpoint_mismatch", "deny")
    };
    let site = Site::of(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    let site = site.tenant(strict).impatient();
    let site = site.also(|_| Tenant::new("gone", "gone.test", free_port(own_ip())).public());
    let Site { gateway, upstream, .. } = &site.start();
    let agent = stage.world().agent(4);
    let key = agent.generate_for(&gateway.service, "https://app.test/");
    let hung = public_path();
    upstream.on(&hung, scripts::hang(""));
    let [empty, broken] = ["204 No Content", "500 Internal Server Error"].map(|status| {
        let path = public_path();
        upstream.on(&path, scripts::bytes(scripts::answer(status, &[], b""), Then::Goes));
        Request::get(ACME, &path)
    });
    let public = |host: &str| Request::get(host, &public_path());
    let by_signature = |draft: &Draft| at_agents().with_all(&signed(draft));
    let malformed = vec!["tiergate_malformed_requests_total{listener=\"gateway\"}".to_owned()];
    let steps = [
        (public(ACME), 200, of("t", "forwarded", &[])),
        (empty, 204, of("t", "forwarded", &[])),
        (broken, 500, of("t", "forwarded", &[])),
        (at_agents(), 401, refused("INVALID_API_KEY")),
        (by_signature(&agent.draft().by(BOB)), 401, refused("SIGNATURE_INVALID")),
        (Request::get(ACME, "/denied"), 403, refused("FORBIDDEN")),
        (at_agents().key(&key).with("Origin", "https://evil.test"), 403, refused("ENDPOINT_MISMATCH")),
        (Request::new("TRACE", ACME, &public_path()), 405, refused("METHOD_NOT_ALLOWED")),
        (Request::new("POST", ACME, &public_path()).body(&[0; 11]), 413, refused("PAYLOAD_TOO_LARGE")),
        (public("unknown.test"), 404, of("(none)", "refused", &[denied("NOT_FOUND")])),
        (public("gone.test"), 502, of("gone", "failed", &[denied("UPSTREAM_ERROR")])),
        (Request::get(IMPATIENT, &hung), 504, of("impatient", "failed", &[denied("UPSTREAM_TIMEOUT")])),
        (public(ACME).with("Content-Length", "x"), 400, malformed),
    ];
    for (request, status, expected) in steps {
        let before = counted(gateway);
        assert_eq!(gateway.ask(&request).status, status, "{request:?}");
        until_counted(gateway, &before, &expected);
    }
    let before = counted(gateway);
    let request = Message::request(http::Method::GET, ACME, &public_path());
    let request = (0..129).fold(request, |request, at| request.with(&format!("x-{at}"), "x"));
    assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 431);
    // It is refused before it is routed.
    let too_many = denied("REQUEST_HEADER_FIELDS_TOO_LARGE");
    until_counted(gateway, &before, &of("(none)", "refused", &[too_many]));
    for leave in [leave_before_the_answer, leave_a_download] {
        let before = counted(gateway);
        leave(gateway, upstream);
        until_counted(gateway, &before, &of("t", "abandoned", &[]));
    }
    let before = counted(gateway);
    leave_an_upload(gateway, &[upstream]);
    until_counted(gateway, &before, &of("t", "abandoned", &[]));
    relay.close();
    let before = counted(gateway);
    assert_eq!(gateway.ask(&by_signature(&agent.draft())).status, 503);
    until_counted(gateway, &before, &of("t", "failed", &[denied("RPC_ERROR")]));
}

/// How many requests are made while nobody reads the log. Each is more than a hundred lines; the queue holds 16,384.
const UNREAD: usize = 300;

fn a_full_log_queue_delays_nobody(stage: &Stage) {
    let files = Files::new();
    let pipe = files.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // O_NONBLOCK. Open for writing too, so that neither end waits for the other.
    let mut log = File::options().read(true).write(true).custom_flags(0o4_000).open(&pipe).unwrap();
    let to_pipe = format!(
        "export TIERGATE__LOG__LEVEL=trace,h2=trace,access=info
         log=$1; shift; set -- \"$log\" sh -c 'exec \"$@\" 2>{pipe}' sh \"$@\""
    );
    let Site { gateway, .. } = &Site::of(stage).under(&to_pipe).start();
    let ask = |id: &str| {
        let request = Message::request(http::Method::GET, ACME, "/agents/x").with("x-request-id", id);
        assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 401);
    };
    for at in 0..UNREAD {
        ask(&format!("unread-{at}"));
    }
    gateway.service.await_ready();
    assert!(gateway.service.samples().get("tiergate_log_lines_dropped_total") > 0.0);
    let mut bytes = Vec::new();
    until("lines are written again", SOON, || {
        ask("read");
        // Until there is no more to read for now.
        let _ = log.read_to_end(&mut bytes);
        let log = String::from_utf8_lossy(&bytes);
        log.contains("request_id=\"read\"").then_some(())
    });
    let log = String::from_utf8_lossy(&bytes).into_owned();
    let ids = log.lines().filter_map(|line| line.split("request_id=\"unread-").nth(1)?.split('"').next());
    let unread: BTreeSet<usize> = ids.map(|at| at.parse().unwrap()).collect();
    assert!(unread.contains(&0), "the first ones found room in the queue");
    assert!(!unread.contains(&(UNREAD - 1)), "the queue was full, {} of {UNREAD}", unread.len());
}
