//! Names, labels, and gauges that are set at each scrape.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;

use super::{Families, Metrics};

/// The labels of the product. Each takes its values from a closed set: nothing that a client or a chain chooses.
const LABELS: [&str; 22] = [
    "check",
    "decision",
    "direction",
    "endpoint",
    "error_type",
    "http_request_method",
    "http_response_status_code",
    "http_route",
    "kind",
    "limit",
    "listener",
    "method",
    "operation",
    "outcome",
    "reason",
    "result",
    "state",
    "status",
    "task",
    "tenant",
    "tier",
    "verb",
];

#[test]
fn every_metric_is_named_after_the_product_or_by_opentelemetry_and_labelled_from_closed_sets() {
    let families = Families::unregistered().unwrap();
    let mut labels = BTreeSet::new();
    for collector in families.collectors() {
        for desc in collector.desc() {
            let is_ours = desc.fq_name.starts_with("tiergate_");
            assert!(is_ours || desc.fq_name.starts_with("http_server_"), "{}", desc.fq_name);
            assert!(!desc.help.is_empty() && desc.const_label_pairs.is_empty());
            labels.extend(desc.variable_labels.clone());
        }
    }
    assert_eq!(labels.iter().map(String::as_str).collect::<Vec<_>>(), LABELS);
}

#[test]
fn entries_are_counted_at_each_scrape() {
    let metrics = Metrics::new().unwrap();
    let maps = [Arc::new(Mutex::new(vec![1])), Arc::default()];
    metrics.count_entries("one", &maps[0], |map| map.lock().len());
    metrics.count_entries("other", &maps[1], |map| map.lock().len());
    let shows = |kind, count| {
        let text = metrics.render().unwrap();
        assert!(text.contains(&format!("tiergate_entries{{kind=\"{kind}\"}} {count}\n")), "{text}");
    };
    shows("one", 1);
    shows("other", 0);
    maps[1].lock().extend([1, 2]);
    shows("other", 2);
}

#[test]
fn what_is_scraped_is_ours_or_the_usual_word_about_the_process() {
    let metrics = Metrics::new().unwrap();
    metrics.ready.with_label_values(&["store"]).set(1);
    let text = metrics.render().unwrap();
    assert!(text.contains("tiergate_ready{check=\"store\"} 1"), "{text}");
    assert!(text.contains("tiergate_build_info{commit=\""), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("tiergate_") || line.starts_with("process_"), "{line}");
    }
}
