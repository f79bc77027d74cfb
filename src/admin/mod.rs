//! The listener for operators alone: `GET /metrics` for Prometheus, health for probes, and a page that shows how the service is.
//!
//! The page has no password. Browsers keep it from other pages: it sends no header that would share it, and is shown only
//! under addresses and names that no stranger can have, so that no stranger's name can be pointed at it (DNS rebinding).

use std::{cmp::Reverse, collections::HashSet, net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, StatusCode};
use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::http1::{Fields, name::Name};
use crate::pipeline::{Health, Readiness, Report};
use crate::record::RequestRecord;
use crate::serve::{BufferedService, Request};
use crate::telemetry::Metrics;
use crate::wire::{Answer, answers, pages};

/// The Prometheus text format.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The page runs and loads only files of this listener.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Ends of names that nobody can register. Names below `.local` alone are not among them: by mDNS any machine on the same
/// link can answer for them.
const INSIDE: [&str; 4] = [".localhost", ".cluster.local", ".internal", ".svc"];

/// Facts that the page shows beside metrics and readiness.
pub(crate) trait Facts: Send + Sync + 'static {
    /// Tenants, upstreams, certificates and the last reload.
    fn status(&self) -> Value;

    /// The configuration that is in force, without secrets.
    fn configuration(&self) -> Value;
}

pub(crate) struct Admin {
    metrics: Metrics,
    readiness: Arc<Readiness>,
    facts: Arc<dyn Facts>,
}

/// The answers of the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `GET /metrics`
    Metrics,
    /// `GET /livez`
    Livez,
    /// `GET /readyz`
    Readyz,
    /// `GET /`, and its style and script.
    File { kind: &'static str, text: &'static str },
    /// `GET /status.json`
    Status,
    /// `GET /configuration.json`
    Configuration,
    /// The page under a name that a stranger could have.
    Elsewhere,
}

impl Admin {
    pub(crate) fn new(metrics: Metrics, readiness: Arc<Readiness>, facts: Arc<dyn Facts>) -> Self {
        Self { metrics, readiness, facts }
    }

    fn scrape(&self) -> Result<Answer, Error> {
        let report = self.readiness.report();
        self.metrics.ready.with_label_values(&["store"]).set(report.store.is_ok().into());
        self.metrics.ready.with_label_values(&["chain"]).set(report.chain.is_ok().into());
        let text = self.metrics.render().map_err(|_| Error::Internal)?;
        Ok(answers::text(StatusCode::OK, HeaderMap::new(), METRICS_TYPE, text.into_bytes()))
    }
}

impl Endpoint {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/livez" => Self::Livez,
            "/readyz" => Self::Readyz,
            "/" => Self::File { kind: "text/html; charset=utf-8", text: include_str!("page.html") },
            "/page.css" => Self::File { kind: "text/css; charset=utf-8", text: include_str!("page.css") },
            "/page.js" => {
                Self::File { kind: "text/javascript; charset=utf-8", text: include_str!("page.js") }
            }
            "/status.json" => Self::Status,
            "/configuration.json" => Self::Configuration,
            _ => return None,
        })
    }
}

impl BufferedService for Admin {
    type Endpoint = Endpoint;

    fn find(&self, request: &Request<'_>) -> Result<(Endpoint, usize), Error> {
        let endpoint = Endpoint::at(request.path).ok_or(Error::NotFound)?;
        if !matches!(request.method, "GET" | "HEAD") {
            return Err(Error::MethodNotAllowed { allow: "GET, HEAD".into() });
        }
        let is_page = !matches!(endpoint, Endpoint::Metrics | Endpoint::Livez | Endpoint::Readyz);
        let is_shown = !is_page || request.fields.only(Name::Host).is_some_and(is_inside);
        Ok((if is_shown { endpoint } else { Endpoint::Elsewhere }, 0))
    }

    async fn answer(
        &self,
        endpoint: Endpoint,
        _: &Request<'_>,
        _: &[u8],
        _: &mut RequestRecord,
    ) -> Result<Answer, Error> {
        let json = |value: &Value| answers::json(StatusCode::OK, HeaderMap::new(), value);
        let answer = match endpoint {
            Endpoint::Metrics => return self.scrape(),
            Endpoint::Livez => return Ok(answers::alive()),
            Endpoint::Readyz => return Ok(answers::readiness(&self.readiness.first_report().await, None)),
            Endpoint::Status => {
                json(&status(&self.readiness.report(), &self.metrics.gather(), self.facts.status()))
            }
            Endpoint::Configuration => json(&self.facts.configuration()),
            Endpoint::File { kind, text } => {
                answers::text(StatusCode::OK, HeaderMap::new(), HeaderValue::from_static(kind), text.into())
            }
            Endpoint::Elsewhere => {
                let text = "This page is shown under an IP address, localhost or an internal name.\n";
                let kind = HeaderValue::from_static("text/plain; charset=utf-8");
                answers::text(StatusCode::MISDIRECTED_REQUEST, HeaderMap::new(), kind, text.into())
            }
        };
        Ok(pages::guarded(answer, POLICY))
    }
}

/// True for an address, and for a name that no stranger can register.
fn is_inside(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    if host.starts_with('[') {
        return true; // Browsers write IPv6 addresses alone in brackets.
    }
    let name = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_of_one_label = !name.contains('.') && !name.is_empty();
    name.parse::<IpAddr>().is_ok() || is_of_one_label || INSIDE.iter().any(|end| name.ends_with(end))
}

/// The family with a series for each route, method and status.
const ROUTES: &str = "http_server_request_duration_seconds";

/// How many series of routes are shown.
const ROUTES_SHOWN_MAX: usize = 200;

fn status(report: &Report, families: &[MetricFamily], facts: Value) -> Value {
    let tenants = facts.get("tenants").and_then(Value::as_array).into_iter().flatten();
    let shown: HashSet<&str> = tenants.filter_map(|tenant| tenant.get("id")?.as_str()).collect();
    let metrics: Map<String, Value> =
        families.iter().map(|family| (family.name().to_owned(), series(family, &shown))).collect();
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        // The time of a start is in whole seconds, and two processes may begin in one.
        "process": std::process::id(),
        "readiness": readiness(report),
        "durations": durations(families),
        "metrics": metrics,
    });
    if let (Some(status), Value::Object(facts)) = (status.as_object_mut(), facts) {
        status.extend(facts);
    }
    status
}

fn readiness(report: &Report) -> Value {
    let reason = |health: &Health| health.clone().err().map(|unhealthy| unhealthy.reason.to_string());
    json!({
        "isReady": report.is_ready(),
        "isStopping": report.is_stopping,
        "store": reason(&report.store),
        "chain": reason(&report.chain),
        "ageSeconds": report.age_micros / 1_000_000,
        "lacksLogs": report.lacks_logs,
        "replicasMissing": report.replicas_missing,
        "signaturesAcceptedFrom": report.signatures_accepted_from.map(|from| from.0),
    })
}

/// Count and sum of all requests to the API, which have no tenant, and to the gateway.
fn durations(families: &[MetricFamily]) -> Value {
    let all = families.iter().filter(|family| family.name() == ROUTES).flat_map(MetricFamily::get_metric);
    let (mut api, mut gateway) = ((0, 0.0), (0, 0.0));
    for metric in all {
        let is_empty =
            |name| metric.get_label().iter().any(|label| label.name() == name && label.value().is_empty());
        if is_empty("tenant") && is_empty("http_route") {
            continue; // It had no endpoint, and costs nothing.
        }
        let (count, sum) = if is_empty("tenant") { &mut api } else { &mut gateway };
        *count += metric.get_histogram().get_sample_count();
        *sum += metric.get_histogram().get_sample_sum();
    }
    let shown = |(count, sum)| json!({ "count": count, "sum": sum });
    json!({ "api": shown(api), "gateway": shown(gateway) })
}

/// The series of a metric, but for those of tenants that are not shown. Of routes there are those with the most requests.
/// A histogram is its count and its sum.
fn series(family: &MetricFamily, tenants: &HashSet<&str>) -> Value {
    let is_shown = |metric: &&Metric| {
        let tenant =
            metric.get_label().iter().find(|label| label.name() == "tenant").map(|label| label.value());
        tenant.is_none_or(|tenant| ["", "(none)"].contains(&tenant) || tenants.contains(tenant))
    };
    let one = |metric: &Metric| {
        let labels: Map<String, Value> =
            metric.get_label().iter().map(|label| (label.name().to_owned(), label.value().into())).collect();
        match family.get_field_type() {
            MetricType::COUNTER => json!({ "labels": labels, "value": metric.get_counter().get_value() }),
            MetricType::GAUGE => json!({ "labels": labels, "value": metric.get_gauge().get_value() }),
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                json!({ "labels": labels, "count": histogram.get_sample_count(), "sum": histogram.get_sample_sum() })
            }
            MetricType::SUMMARY | MetricType::UNTYPED => Value::Null,
        }
    };
    let mut shown: Vec<&Metric> = family.get_metric().iter().filter(is_shown).collect();
    if family.name() == ROUTES {
        shown.sort_by_key(|metric| Reverse(metric.get_histogram().get_sample_count()));
        shown.truncate(ROUTES_SHOWN_MAX);
    }
    shown.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use prometheus::core::Collector;
    use prometheus::{HistogramOpts, HistogramVec};
    use serde_json::json;

    use super::{ROUTES, ROUTES_SHOWN_MAX, Report, is_inside, status};

    // threat: The operator's page leaks
    #[test]
    fn the_page_is_shown_under_names_that_no_stranger_can_register() {
        for host in
            ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "localhost:9090", "tiergate:9090", "LOCALHOST"]
        {
            assert!(is_inside(host.as_bytes()), "{host}");
        }
        for host in ["tiergate.prod.svc:9090", "t.svc.cluster.local", "ops.internal.", "a.localhost"] {
            assert!(is_inside(host.as_bytes()), "{host}");
        }
        for host in ["", ":9090", "attacker.example", "127.0.0.1.attacker.example:9090"] {
            assert!(!is_inside(host.as_bytes()), "{host}");
        }
        for host in
            ["evil.local", "evil.local.:9090", "svc.cluster.local.attacker.example", "evilcluster.local"]
        {
            assert!(!is_inside(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn the_routes_with_the_most_requests_are_shown() {
        let routes = HistogramVec::new(HistogramOpts::new(ROUTES, "routes"), &["http_route"]).unwrap();
        for number in 0..ROUTES_SHOWN_MAX + 50 {
            let route = routes.with_label_values(&[&format!("/{number}")]);
            (0..=number).for_each(|_| route.observe(1.0));
        }
        let report = Report {
            is_stopping: false,
            has_been_ready: true,
            store: Ok(()),
            chain: Ok(()),
            age_micros: 0,
            lacks_logs: false,
            lacks_details: false,
            replicas_missing: 0,
            signatures_accepted_from: None,
        };
        let status = status(&report, &routes.collect(), json!({}));
        assert_eq!(status["durations"]["gateway"]["count"], 31_375, "all of them are counted");
        let shown = status["metrics"][ROUTES].as_array().unwrap();
        assert_eq!(shown.len(), ROUTES_SHOWN_MAX);
        assert_eq!(shown[0]["labels"]["http_route"], format!("/{}", ROUTES_SHOWN_MAX + 49));
        assert!(shown.iter().all(|route| route["count"].as_u64().unwrap() > 50), "{shown:?}");
    }
}
