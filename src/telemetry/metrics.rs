//! Every metric of the product, by name. No label ever holds an agent, a key or an IP: labels come from closed sets.

use std::sync::Arc;

use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector,
};

use crate::telemetry::entries::Entries;

/// Seconds; from what a cached verification takes to what a time-out takes.
const REQUEST_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Seconds; from a look-up in memory to a slow sync.
const STORE_BUCKETS: &[f64] =
    &[0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// The values of the label `limit`.
const OVERLOAD_LIMITS: [&str; 8] =
    ["descriptors", "agent", "streams", "share", "public", "tenant", "process", "upstream"];

/// Makes [`Metrics`] of rows: a metric's HELP, field, type, name and labels, and the values of its label that are shown
/// before anything is counted.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $type:ty =
        $make:ident($name:literal $(, $shape:expr)*) $(from [$($first:literal),+])?;)+) => {
        /// The counters, gauges and histograms of one process.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            registry: Registry,
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl Metrics {
            fn unregistered() -> Result<Self, prometheus::Error> {
                $(
                    let help = concat!($($help),+).trim_start();
                    let $field = $make(Opts::new(concat!("tiergate_", $name), help) $(, $shape)*)?;
                    $($($field.with_label_values(&[$first]);)+)?
                )+
                Ok(Self { registry: Registry::new(), $($field),+ })
            }

            fn collectors(&self) -> Vec<Box<dyn Collector>> {
                vec![$(Box::new(self.$field.clone())),+]
            }
        }
    };
}

metrics! {
    /// Requests answered.
    requests: IntCounterVec = counter("requests_total", &["door", "endpoint", "status"]);
    /// Time from a request's last header byte to its answer.
    request_duration: HistogramVec =
        histogram("request_duration_seconds", &["door", "endpoint"], REQUEST_BUCKETS);
    /// Error answers by errorType.
    denials: IntCounterVec = counter("denials_total", &["door", "error_type"]);
    /// Decisions of the tier gate and the limiter.
    limiter_decisions: IntCounterVec = counter("limiter_decisions_total", &["tier", "decision"]);
    /// JSON-RPC calls sent.
    rpc_calls: IntCounterVec = counter("rpc_calls_total", &["method"]);
    /// JSON-RPC calls without a usable answer.
    rpc_errors: IntCounterVec = counter("rpc_errors_total", &["method", "kind"]);
    /// Duration of JSON-RPC calls.
    rpc_duration: HistogramVec = histogram("rpc_duration_seconds", &["method"], REQUEST_BUCKETS);
    /// 1 when the JSON-RPC node is healthy.
    rpc_node_healthy: IntGaugeVec = gauge("rpc_node_healthy", &["endpoint"]);
    /// Profile look-ups.
    profile_cache: IntCounterVec = counter("profile_cache_total", &["result"]);
    /// Cached profiles that were dropped, by cause.
    profile_drops: IntCounterVec = counter("profile_drops_total", &["kind"]);
    /// Polls for new blocks and logs.
    follower_polls: IntCounterVec = counter("follower_polls_total", &["result"]);
    /// Follower state; exactly one state is 1.
    follower_mode: IntGaugeVec = gauge("follower_mode", &["state"]);
    /// Batches of spans that the collector of traces took or did not take.
    trace_exports: IntCounterVec = counter("trace_exports_total", &["result"]) from ["taken", "failed"];
    /// Background tasks begun anew.
    task_restarts: IntCounterVec = counter("task_restarts_total", &["task"]);
    /// The block up to which everything is accounted for.
    follower_block: IntGauge = single("follower_block");
    /// Time of the latest block.
    follower_block_time: IntGauge = single("follower_block_timestamp_seconds");
    /// Store operations.
    store_operations: IntCounterVec = counter("store_operations_total", &["verb", "outcome"]);
    /// Duration of store operations.
    store_duration: HistogramVec = histogram("store_operation_duration_seconds", &["verb"], STORE_BUCKETS);
    /// Servers of the store by the state of their breaker.
    store_breakers: IntGaugeVec = gauge("store_breakers", &["state"]);
    /// Tries to connect to a server of the store.
    store_connects: IntCounterVec = counter("store_connects_total", &["result"]);
    /// 1 when the last check succeeded.
    ready: IntGaugeVec = gauge("ready", &["check"]);
    /// Connections closed at once.
    connections_turned_away: IntCounterVec = counter("connections_turned_away_total", &["door", "reason"]);
    /// Requests that came to the gateway.
    gateway_requests: IntCounterVec = counter("gateway_requests_total", &["tenant", "outcome"]);
    /// Requests that the gateway had no room for.
    overload: IntCounterVec = counter("overload_total", &["tenant", "limit"]);
    /// Times the tenants were read again.
    config_reloads: IntCounterVec =
        counter("config_reloads_total", &["result"]) from ["applied", "refused"];
    /// 1 when the last reading of the configuration was applied.
    config_last_successful: IntGauge = single("config_last_reload_successful");
    /// Time of the last reading that was applied.
    config_last_time: IntGauge = single("config_last_reload_success_timestamp_seconds");
    /// 1 when a section has changed that needs a restart.
    config_restart_required: IntGauge = single("config_restart_required");
    /// Requests refused for their head.
    malformed: IntCounterVec = counter("malformed_requests_total", &["door"]);
    /// Connections that ended before TLS was agreed on.
    tls_failures: IntCounterVec = counter("tls_handshake_failures_total", &["door"]);
}

impl Metrics {
    /// All metrics, at zero.
    ///
    /// # Errors
    ///
    /// Only when two of the names above collide.
    pub fn new() -> Result<Self, prometheus::Error> {
        let metrics = Self::unregistered()?;
        for collector in metrics.collectors() {
            metrics.registry.register(collector)?;
        }
        let build = gauge(Opts::new("tiergate_build_info", "The running version."), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics.registry.register(Box::new(build))?;
        #[cfg(target_os = "linux")]
        metrics.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(metrics)
    }

    /// The text that Prometheus scrapes.
    ///
    /// # Errors
    ///
    /// When a collector gives something that the text format can't hold.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Shows how many entries a map holds, as `tiergate_entries{kind}`, for as long as there is the map.
    ///
    /// # Errors
    ///
    /// Only when this kind is counted already.
    pub fn count_entries<T: Send + Sync + 'static>(
        &self,
        kind: &str,
        map: &Arc<T>,
        len: fn(&T) -> usize,
    ) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(Entries::of(kind, map, len)?))
    }

    /// Drops the series of a tenant that is no longer configured.
    pub fn forget_tenant(&self, tenant: &str) {
        for outcome in ["forwarded", "refused", "failed", "abandoned"] {
            // There is none when no request of that outcome came.
            let _ = self.gateway_requests.remove_label_values(&[tenant, outcome]);
        }
        for limit in OVERLOAD_LIMITS {
            let _ = self.overload.remove_label_values(&[tenant, limit]);
        }
    }
}

fn counter(opts: Opts, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(opts, labels)
}

fn gauge(opts: Opts, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(opts, labels)
}

fn single(opts: Opts) -> Result<IntGauge, prometheus::Error> {
    IntGauge::with_opts(opts)
}

fn histogram(opts: Opts, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec, prometheus::Error> {
    HistogramVec::new(HistogramOpts::from(opts).buckets(buckets.to_vec()), labels)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::Metrics;

    /// Every label of the product. Each takes its values from a closed set: nothing that a client or a chain chooses.
    const LABELS: [&str; 17] = [
        "check",
        "decision",
        "door",
        "endpoint",
        "error_type",
        "kind",
        "limit",
        "method",
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
    fn every_metric_is_named_after_the_product_and_labelled_from_closed_sets() {
        let metrics = Metrics::new().unwrap();
        let mut labels = BTreeSet::new();
        for collector in metrics.collectors() {
            for desc in collector.desc() {
                assert!(desc.fq_name.starts_with("tiergate_"), "{}", desc.fq_name);
                assert!(!desc.help.is_empty() && desc.const_label_pairs.is_empty());
                labels.extend(desc.variable_labels.clone());
            }
        }
        assert_eq!(labels.iter().map(String::as_str).collect::<Vec<_>>(), LABELS);
    }

    #[test]
    fn entries_are_counted_at_each_scrape_and_a_map_that_is_gone_has_none() {
        let metrics = Metrics::new().unwrap();
        let maps = [Arc::new(Mutex::new(vec![1])), Arc::default()];
        metrics.count_entries("one", &maps[0], |map| map.lock().len()).unwrap();
        metrics.count_entries("other", &maps[1], |map| map.lock().len()).unwrap();
        assert!(metrics.count_entries("one", &maps[1], |map| map.lock().len()).is_err());
        let shows = |kind, count| {
            let text = metrics.render().unwrap();
            assert!(text.contains(&format!("tiergate_entries{{kind=\"{kind}\"}} {count}\n")), "{text}");
        };
        shows("one", 1);
        shows("other", 0);
        maps[1].lock().extend([1, 2]);
        shows("other", 2);
        drop(maps);
        shows("one", 0);
    }

    #[test]
    fn what_is_scraped_is_ours_or_the_usual_word_about_the_process() {
        let metrics = Metrics::new().unwrap();
        metrics.ready.with_label_values(&["store"]).set(1);
        let text = metrics.render().unwrap();
        assert!(text.contains("tiergate_ready{check=\"store\"} 1"), "{text}");
        assert!(text.contains("tiergate_build_info{version="), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.starts_with("tiergate_") || line.starts_with("process_"), "{line}");
        }
    }
}
