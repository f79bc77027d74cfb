//! Traces under trouble: collectors that fail, clients that ask for too much, the end of the process, and secrets.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::Signal;

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, public_path, unique};
use crate::rig::{credentials::signed, scripts};
use crate::support::time::{SOON, Stopwatch, is_undelayed, quickest, until};
use crate::support::{agents::unknown_key, wire::Request};
use crate::traces::{collector, names, spans, trace_of, traced, traceparent};

pub(crate) const CASES: &[Case] = cases![
    spans_that_wait_are_sent_before_the_process_ends,
    a_request_that_is_cut_off_is_an_error,
    a_collector_that_is_gone_is_named_in_the_log,
    a_collector_that_hangs_delays_neither_requests_nor_the_end,
    of_the_traces_that_clients_ask_for_few_are_continued_each_second,
    no_credential_is_in_a_trace,
];

/// How long the exporter waits for one batch.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);

fn spans_that_wait_are_sent_before_the_process_ends(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 1).under("export OTEL_BSP_SCHEDULE_DELAY=3600000").start();
    let id = unique();
    let request = Request::get(ACME, &public_path()).with("X-Request-Id", &id);
    assert_eq!(site.gateway.ask(&request).status, 200);
    assert!(spans(&collector).is_empty());
    site.gateway.signal(Signal::TERM);
    assert_eq!(names(&trace_of(&collector, &id)), ["route", "place", "upstream"]);
}

fn a_request_that_is_cut_off_is_an_error(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 1).set("shutdown.delay", "0s").set("shutdown.grace", "0s").start();
    let path = public_path();
    site.upstream.on(&path, scripts::hang(Vec::new()));
    let mut wire = site.gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    until("the request is at its upstream", SOON, || (site.upstream.count_at(&path) > 0).then_some(()));
    site.gateway.signal(Signal::TERM);
    until("its span has come", SOON, || {
        let is_cut_off = |span: &Span| span.status.as_ref().is_some_and(|status| status.message == "cut off");
        spans(&collector).iter().any(|span| span.kind() == SpanKind::Server && is_cut_off(span)).then_some(())
    });
}

fn a_collector_that_is_gone_is_named_in_the_log(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 1).start();
    let service = &site.gateway.service;
    let exports = |result: &str| {
        let label = format!("result=\"{result}\"");
        service.samples().sum("tiergate_trace_exports_total", &[&label])
    };
    assert_eq!(site.status(), 200);
    until("an export was taken", SOON, || (exports("taken") > 0.0).then_some(()));
    assert_eq!(exports("failed"), 0.0);
    collector.close();
    until("an export has failed", SOON, || {
        assert_eq!(site.status(), 200);
        (exports("failed") > 0.0).then_some(())
    });
    let line = "the collector of traces did not take a batch: no connection";
    service.await_log(&[line]);
}

// threat: Traces of everything, or a hanging collector
fn a_collector_that_hangs_delays_neither_requests_nor_the_end(stage: &Stage) {
    // A busy machine is late now and then.
    assert!((0..3).any(|_| ends_in_time(stage)), "the end waits for the collector");
}

/// True when a service whose collector hangs has ended before a batch is given up. No request is delayed.
fn ends_in_time(stage: &Stage) -> bool {
    let collector = collector();
    let site = traced(stage, &collector, 1).set("shutdown.delay", "0s").start();
    let mut wire = site.gateway.connect();
    let mut ask = |count| {
        for _ in 0..count {
            assert_eq!(Request::get(ACME, "/public/x").ask_on(&mut wire).status, 200);
        }
    };
    let calm = quickest(5, || ask(20));
    collector.on("/v1/traces", scripts::hang(Vec::new()));
    let before = collector.count_at("/v1/traces");
    until("a batch is there", SOON, || {
        ask(1);
        (collector.count_at("/v1/traces") > before).then_some(())
    });
    // More spans than the queue has room for.
    ask(1_000);
    is_undelayed(calm, || ask(20));
    drop(wire);
    site.gateway.signal(Signal::TERM);
    let begun = Stopwatch::start();
    let process = site.gateway.service.process.as_ref().unwrap();
    until("the process has ended", SOON, || process.exit_code());
    begun.elapsed() < EXPORT_TIME_MAX
}

// threat: Traces of everything, or a hanging collector
fn of_the_traces_that_clients_ask_for_few_are_continued_each_second(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 0).set("traces.continued_per_second", 1).start();
    let (mut wire, begun) = (site.gateway.connect(), Stopwatch::start());
    let paths: Vec<String> = (0..40).map(|_| public_path()).collect();
    for path in &paths {
        let request = Request::get(ACME, path).with("traceparent", &traceparent("01"));
        assert_eq!(request.ask_on(&mut wire).status, 200);
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let is_continued =
        |path: &&String| site.upstream.only(path).header("traceparent") != Some(&traceparent("01"));
    let continued = paths.iter().filter(is_continued).count();
    assert!((1..=2 + seconds).contains(&continued), "{continued} within {seconds} s");
}

// threat: Credentials upstream, in logs, metrics or traces
fn no_credential_is_in_a_trace(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 1).agent(4).start();
    let credential = signed(&site.agent().draft());
    let signature = credential.iter().find(|(name, _)| name.eq_ignore_ascii_case("X-Agent-Signature"));
    let signature = signature.unwrap().1.clone();
    let secrets = [signature, site.key().to_owned(), unknown_key(9), "hidden-query".to_owned()];
    let by_signature = Request::get(ACME, "/x").with_all(&credential);
    let refused =
        Request::get(ACME, &format!("/x?key={}&more=hidden-query", site.key())).key(&unknown_key(9));
    for (request, status) in [(site.by_key(), 200), (by_signature, 200), (refused, 401)] {
        let id = unique();
        assert_eq!(site.gateway.ask(&request.with("X-Request-Id", &id)).status, status);
        trace_of(&collector, &id);
    }
    for export in collector.seen() {
        let text = String::from_utf8_lossy(&[export.head, export.body].concat()).into_owned();
        for secret in &secrets {
            assert!(!text.contains(secret.trim_start_matches("0x")), "{secret} is in a trace");
        }
    }
}
