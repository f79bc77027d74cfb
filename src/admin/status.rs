//! `GET /status.json`: metrics, readiness and facts as one JSON object, for the page.

use std::cmp::Reverse;
use std::collections::HashSet;

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Map, Value, json};

use crate::pipeline::readiness::{Health, Report};

/// The family with a series for each route, method and status.
const ROUTES: &str = "http_server_request_duration_seconds";

/// How many series of routes are shown.
const ROUTES_SHOWN_MAX: usize = 200;

/// The object.
pub(super) fn of(report: &Report, families: &[MetricFamily], facts: Value) -> Value {
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
    let reason = |health: &Health| health.as_ref().err().map(ToString::to_string);
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

    use super::{ROUTES, ROUTES_SHOWN_MAX, Report, of};

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
        let status = of(&report, &routes.collect(), json!({}));
        assert_eq!(status["durations"]["gateway"]["count"], 31_375, "all of them are counted");
        let shown = status["metrics"][ROUTES].as_array().unwrap();
        assert_eq!(shown.len(), ROUTES_SHOWN_MAX);
        assert_eq!(shown[0]["labels"]["http_route"], format!("/{}", ROUTES_SHOWN_MAX + 49));
        assert!(shown.iter().all(|route| route["count"].as_u64().unwrap() > 50), "{shown:?}");
    }
}
