//! `GET /status.json`: metrics, readiness and facts as one JSON object, for the page.

use std::collections::HashSet;

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Map, Value, json};

use crate::pipeline::readiness::{Report, Word};

/// The object. No report: the dependencies have not answered in time.
pub(super) fn of(report: Option<&Report>, families: &[MetricFamily], facts: Value) -> Value {
    let tenants = facts.get("tenants").and_then(Value::as_array).into_iter().flatten();
    let shown: HashSet<&str> = tenants.filter_map(|tenant| tenant.get("id")?.as_str()).collect();
    let metrics: Map<String, Value> =
        families.iter().map(|family| (family.name().to_owned(), series(family, &shown))).collect();
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "readiness": report.map(readiness),
        "metrics": metrics,
    });
    if let (Some(status), Value::Object(facts)) = (status.as_object_mut(), facts) {
        status.extend(facts);
    }
    status
}

fn readiness(report: &Report) -> Value {
    let reason = |word: &Word| word.as_ref().err().map(ToString::to_string);
    json!({
        "isReady": report.is_ready(),
        "isStopping": report.is_stopping,
        "store": reason(&report.store),
        "chain": reason(&report.chain),
        "lacksLogs": report.lacks_logs,
        "signaturesAcceptedFrom": report.signatures_accepted_from.map(|from| from.0),
    })
}

/// The series of a metric, but for those of tenants that are not shown. A histogram is its count and its sum.
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
    family.get_metric().iter().filter(is_shown).map(one).collect()
}
