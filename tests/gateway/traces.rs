//! Traces: what a collector gets by OTLP, and what upstreams see of a trace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path, unique};
use crate::rig::upstream::{Then, Upstream};
use crate::rig::{scripts, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    without_a_collector_the_headers_of_a_trace_pass_untouched,
    a_trace_is_continued_with_each_step_and_the_upstream_as_spans,
    refusals_are_spans_with_their_error_type,
    only_failures_of_ours_or_of_an_upstream_are_errors,
    the_client_decides_about_its_trace_and_the_ratio_about_requests_without_one,
    each_try_at_an_upstream_is_a_span_of_its_own,
    requests_to_the_api_are_spans,
];

/// The example of W3C Trace Context.
pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

pub(crate) fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// A test server that keeps what it is sent.
pub(crate) fn collector() -> Upstream {
    let collector = Upstream::start();
    collector.on("/v1/traces", scripts::bytes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Then::Goes));
    collector
}

pub(crate) fn traced<'a>(stage: &'a Stage, collector: &Upstream, one_in: i64) -> SiteBuilder<'a> {
    Site::of(stage)
        .set("traces.endpoint", format!("http://{}/v1/traces", collector.address))
        .set("traces.one_in", one_in)
        .under("export OTEL_BSP_SCHEDULE_DELAY=50")
}

/// All spans that the collector has got.
pub(crate) fn spans(collector: &Upstream) -> Vec<Span> {
    let mut spans = Vec::new();
    for export in collector.seen_that(|seen| seen.target == "/v1/traces" && seen.whole) {
        assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
        for resource in ExportTraceServiceRequest::decode(&export.body[..]).unwrap().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let name = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
            let name = name.value.clone().unwrap().value.unwrap();
            assert_eq!(name, Value::StringValue("tiergate".to_owned()));
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    spans
}

/// The spans of the trace whose request has this id; the request's own comes first.
pub(crate) fn trace_of(collector: &Upstream, request_id: &str) -> Vec<Span> {
    until("the spans have come", SOON, || {
        let spans = spans(collector);
        let is_it = |span: &&Span| text_of(span, "tiergate.request_id").as_deref() == Some(request_id);
        let request = spans.iter().find(is_it)?.clone();
        let of_request = spans.into_iter().filter(|span| span.parent_span_id == request.span_id);
        Some(std::iter::once(request.clone()).chain(of_request).collect())
    })
}

fn text_of(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    let value = found.value.clone()?.value?;
    let Value::StringValue(text) = value else {
        let Value::IntValue(number) = value else { panic!("{key} is {value:?}") };
        return Some(number.to_string());
    };
    Some(text)
}

pub(crate) fn names(spans: &[Span]) -> Vec<&str> {
    let mut spans: Vec<&Span> = spans.iter().skip(1).collect();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn without_a_collector_the_headers_of_a_trace_pass_untouched(stage: &Stage) {
    let site = stage.site();
    // One that is malformed passes too.
    for parent in [&traceparent("01"), "00-00000000000000000000000000000000-0-xx"] {
        let paths = [public_path(), public_path()];
        let request = Request::get(ACME, &paths[0]).with("TraceParent", parent).with("tracestate", STATE);
        assert_eq!(site.gateway.ask(&request).status, 200);
        let request = Message::request(Method::GET, ACME, &paths[1]);
        let request = request.with("traceparent", parent).with("tracestate", STATE);
        assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200);
        for path in paths {
            let seen = site.upstream.only(&path);
            assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(parent), Some(STATE)));
        }
    }
    let path = public_path();
    site.gateway.ask(&Request::get(ACME, &path));
    assert_eq!(site.upstream.only(&path).header("traceparent"), None);
}

fn a_trace_is_continued_with_each_step_and_the_upstream_as_spans(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 0).agent(4).start();
    let gateway = &site.gateway;
    let (agent, tier) = (site.agent().text(), "4".to_owned());
    for over_http_2 in [false, true] {
        let (path, id) = (format!("/agents/{}", unique()), unique());
        let target = format!("{path}?secret=query");
        if over_http_2 {
            let request = Message::request(Method::GET, ACME, &target).with("x-api-key", site.key());
            let request = request.with("traceparent", &traceparent("01")).with("tracestate", STATE);
            assert_eq!(h2c::ask(gateway.address, &request.with("x-request-id", &id)).unwrap().status, 200);
        } else {
            let request = Request::get(ACME, &target).key(site.key()).with("traceparent", &traceparent("01"));
            assert_eq!(gateway.ask(&request.with("tracestate", STATE).with("X-Request-Id", &id)).status, 200);
        }
        let spans = trace_of(&collector, &id);
        assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:?}");
        let request = &spans[0];
        assert_eq!((hex(&request.parent_span_id), request.kind()), (PARENT.to_owned(), SpanKind::Server));
        assert_eq!(names(&spans), ["route", "verify", "place", "charge", "upstream"]);
        let shown: BTreeMap<&str, String> = request
            .attributes
            .iter()
            .map(|attribute| (attribute.key.as_str(), text_of(request, &attribute.key).unwrap()))
            .collect();
        let expected = [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("tiergate.agent", &agent),
            ("tiergate.decision", "admitted"),
            ("tiergate.request_id", &id),
            ("tiergate.tenant", "t"),
            ("tiergate.tier", &tier),
            ("url.path", &path),
        ];
        assert_eq!(shown, expected.map(|(key, value)| (key, value.to_owned())).into());
        let upstream = spans.iter().find(|span| span.name == "upstream").unwrap();
        assert_eq!(upstream.kind(), SpanKind::Client);
        assert_eq!(text_of(upstream, "http.response.status_code").as_deref(), Some("200"));
        assert_eq!(text_of(upstream, "server.port"), Some(site.upstream.address.port().to_string()));
        let seen = site.upstream.only(&path);
        let expected = format!("00-{TRACE}-{}-01", hex(&upstream.span_id));
        assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(&*expected), Some(STATE)));
        for span in &spans {
            let (begun, ended) = (span.start_time_unix_nano, span.end_time_unix_nano);
            assert!(begun <= ended, "{span:?}");
            assert!(request.start_time_unix_nano <= begun && ended <= request.end_time_unix_nano, "{span:?}");
        }
    }
}

fn refusals_are_spans_with_their_error_type(stage: &Stage) {
    let collector = collector();
    let site =
        traced(stage, &collector, 1).tenant(|tenant| tenant.route("/denied/*", "access = \"deny\"")).start();
    for (request, status, error_type, route, steps) in [
        (Request::get("unknown.test", "/x"), 404, "NOT_FOUND", None, &[][..]),
        (Request::get(ACME, "/denied/x"), 403, "FORBIDDEN", Some("/denied/*"), &["route"]),
        (Request::get(ACME, "/x").key(&unknown_key(3)), 401, "INVALID_API_KEY", None, &["route", "verify"]),
    ] {
        let id = unique();
        assert_eq!(site.gateway.ask(&request.with("X-Request-Id", &id)).status, status);
        let spans = trace_of(&collector, &id);
        assert_eq!(text_of(&spans[0], "error.type").as_deref(), Some(error_type));
        assert_eq!(text_of(&spans[0], "http.response.status_code"), Some(status.to_string()));
        assert_eq!(text_of(&spans[0], "http.route").as_deref(), route);
        assert_eq!(spans[0].name, route.map_or_else(|| "GET".to_owned(), |route| format!("GET {route}")));
        assert_eq!(names(&spans), steps);
    }
}

fn the_client_decides_about_its_trace_and_the_ratio_about_requests_without_one(stage: &Stage) {
    let collector = collector();
    let (all, none) = (traced(stage, &collector, 1).start(), traced(stage, &collector, 0).start());
    let ask = |site: &Site, parent: Option<&str>| {
        let (path, id) = (public_path(), unique());
        let request = Request::get(ACME, &path).with("X-Request-Id", &id);
        let request = parent.iter().fold(request, |request, parent| request.with("traceparent", parent));
        // The tracestate goes with the trace that it belongs to, or not at all.
        assert_eq!(site.gateway.ask(&request.with("tracestate", STATE)).status, 200);
        let seen = site.upstream.only(&path);
        (id, [seen.header("traceparent").map(str::to_owned), seen.header("tracestate").map(str::to_owned)])
    };
    let unsampled = traceparent("00");
    for site in [&all, &none] {
        let (_, headers) = ask(site, Some(&unsampled));
        assert_eq!(headers, [Some(unsampled.clone()), Some(STATE.to_owned())], "passed untouched");
        let (id, _) = ask(site, Some(&traceparent("01")));
        assert_eq!(hex(&trace_of(&collector, &id)[0].trace_id), TRACE);
    }
    let (_, headers) = ask(&none, None);
    assert_eq!(headers, [None, Some(STATE.to_owned())]);
    let zeros = format!("00-{}-{PARENT}-01", "0".repeat(32));
    for malformed in [None, Some(zeros.as_str()), Some("00-1-1-01"), Some("nonsense")] {
        let (id, [parent, state]) = ask(&all, malformed);
        let spans = trace_of(&collector, &id);
        assert!(spans[0].parent_span_id.is_empty() && state.is_none(), "a trace of its own: {state:?}");
        let trace = hex(&spans[0].trace_id);
        assert!(trace != TRACE && parent.unwrap().contains(&trace));
    }
    let requests = spans(&collector).into_iter().filter(|span| text_of(span, "tiergate.tenant").is_some());
    assert_eq!(requests.count(), 6, "those that were to be traced, and no other");
    let third = traced(stage, &collector, 3).start();
    let are_traced: Vec<bool> = (0..9).map(|_| ask(&third, None).1[0].is_some()).collect();
    assert_eq!(are_traced, [[true, false, false]; 3].concat());
}

/// The ports of the upstreams that a request has tried, and if a try failed.
fn tries(collector: &Upstream, id: &str) -> Vec<(String, bool)> {
    let mut spans = trace_of(collector, id);
    spans.retain(|span| span.name == "upstream");
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans.iter().map(|span| (text_of(span, "server.port").unwrap(), is_error(span))).collect()
}

fn each_try_at_an_upstream_is_a_span_of_its_own(stage: &Stage) {
    let collector = collector();
    let gone = free_port(own_ip());
    let site = traced(stage, &collector, 1);
    let good = site.upstream().address;
    let site = site.tenant(|tenant| {
        let tenant = tenant.set("upstreams", vec![gone.to_string(), good.to_string()]);
        tenant.set("health.interval", "0s").set("health.eject_after", 0)
    });
    let one = Tenant::new("one", "one.test", good).public();
    let site = site.also(|_| one).start();
    let port = good.port().to_string();
    // The upstream that is gone has every second turn, and each request takes two.
    let expected = [(gone.port().to_string(), true), (port.clone(), false)];
    let id = unique();
    let request = Request::get(ACME, &public_path()).with("X-Request-Id", &id);
    assert_eq!(site.gateway.ask(&request).status, 200);
    assert_eq!(tries(&collector, &id), expected);
    let id = unique();
    let request = Message::request(Method::GET, ACME, &public_path()).with("x-request-id", &id);
    assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200);
    assert_eq!(tries(&collector, &id), expected);
    // The upstream closes a kept connection instead of answering.
    let (path, id, asked) = (public_path(), unique(), AtomicUsize::new(0));
    site.upstream.on(
        &path,
        scripts::script(move |exchange| {
            exchange.read_body()?;
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                return Ok(Then::Closes);
            }
            exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
            Ok(Then::Goes)
        }),
    );
    let mut wire = site.gateway.connect();
    assert_eq!(Request::get("one.test", &public_path()).ask_on(&mut wire).status, 200);
    let request = Request::get("one.test", &path).with("X-Request-Id", &id);
    assert_eq!(request.ask_on(&mut wire).status, 200);
    assert_eq!(tries(&collector, &id), [(port.clone(), true), (port, false)]);
}

fn only_failures_of_ours_or_of_an_upstream_are_errors(stage: &Stage) {
    let collector = collector();
    let gone = free_port(own_ip());
    let site = traced(stage, &collector, 1).also(|_| Tenant::new("gone", "gone.test", gone).public()).start();
    for (status, is_of_server, is_of_upstream) in
        [("200", false, false), ("404", false, true), ("503", true, true)]
    {
        let (path, id) = (public_path(), unique());
        let answer = format!("HTTP/1.1 {status} Any\r\nContent-Length: 0\r\n\r\n");
        site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
        site.gateway.ask(&Request::get(ACME, &path).with("X-Request-Id", &id));
        let spans = trace_of(&collector, &id);
        assert_eq!(text_of(&spans[0], "http.response.status_code").as_deref(), Some(status));
        let upstream = spans.iter().find(|span| span.name == "upstream").unwrap();
        assert_eq!((is_error(&spans[0]), is_error(upstream)), (is_of_server, is_of_upstream), "{status}");
    }
    let id = unique();
    let request = Request::new("BREW", "gone.test", &public_path()).with("X-Request-Id", &id);
    assert_eq!(site.gateway.ask(&request).status, 502);
    let spans = trace_of(&collector, &id);
    assert_eq!(spans[0].name, "HTTP /public/*", "a method that no standard has is no name");
    assert_eq!(text_of(&spans[0], "http.request.method").as_deref(), Some("_OTHER"));
    let upstream = spans.iter().find(|span| span.name == "upstream").unwrap();
    assert_eq!(text_of(upstream, "error.type").as_deref(), Some("UPSTREAM_ERROR"));
    assert!(is_error(upstream) && is_error(&spans[0]));
}

fn requests_to_the_api_are_spans(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 0).agent(2).start();
    let body = json!({ "apiKey": site.key() }).to_string();
    for (method, path, status, name, error_type) in
        [("POST", "/verify", 200, "POST /verify", None), ("GET", "/nowhere", 404, "GET", Some("NOT_FOUND"))]
    {
        let (id, parent) = (unique(), traceparent("01"));
        let headers = [("X-Request-Id", id.as_str()), ("traceparent", parent.as_str())];
        let body = (method == "POST").then_some(body.as_bytes());
        let mut connection = site.gateway.service.connect();
        assert_eq!(connection.send(method, path, &headers, body).unwrap().status, status);
        let span = trace_of(&collector, &id).remove(0);
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert_eq!((span.name.as_str(), text_of(&span, "error.type").as_deref()), (name, error_type));
        assert_eq!(text_of(&span, "tiergate.agent").is_some(), status == 200);
    }
}
