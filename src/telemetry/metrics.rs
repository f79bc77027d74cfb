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

/// The counters, gauges and histograms of one process.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// `tiergate_requests_total{door,endpoint,status}`: answered requests.
    pub requests: IntCounterVec,
    /// `tiergate_request_duration_seconds{door,endpoint}`: from the request's last header byte to the answer.
    pub request_duration: HistogramVec,
    /// `tiergate_denials_total{door,error_type}`: answers that are errors, by the contract's `errorType`.
    pub denials: IntCounterVec,
    /// `tiergate_limiter_decisions_total{tier,decision}`: verifications that reached the limiter or the tier gate.
    pub limiter_decisions: IntCounterVec,
    /// `tiergate_rpc_calls_total{method}`: JSON-RPC calls sent.
    pub rpc_calls: IntCounterVec,
    /// `tiergate_rpc_errors_total{method,kind}`: JSON-RPC calls that gave no usable answer.
    pub rpc_errors: IntCounterVec,
    /// `tiergate_rpc_duration_seconds{method}`: how long JSON-RPC calls took.
    pub rpc_duration: HistogramVec,
    /// `tiergate_rpc_node_healthy{endpoint}`: 1 when the node is healthy, 0 when the log says why it is not.
    pub rpc_node_healthy: IntGaugeVec,
    /// `tiergate_profile_cache_total{result}`: profile look-ups by hit or miss.
    pub profile_cache: IntCounterVec,
    /// `tiergate_profile_drops_total{kind}`: agents and organizations whose profiles logs told to drop, and how often
    /// everything was dropped and why.
    pub profile_drops: IntCounterVec,
    /// `tiergate_follower_polls_total{result}`: how often the chain was polled for what is new.
    pub follower_polls: IntCounterVec,
    /// `tiergate_follower_mode{state}`: follower state; exactly one state is 1.
    pub follower_mode: IntGaugeVec,
    /// `tiergate_task_restarts_total{task}`: background tasks that ended, and were begun anew.
    pub task_restarts: IntCounterVec,
    /// `tiergate_follower_block`: the block up to which everything is accounted for.
    pub follower_block: IntGauge,
    /// `tiergate_follower_block_timestamp_seconds`: when the followed block was made, by its own time.
    pub follower_block_time: IntGauge,
    /// `tiergate_store_operations_total{verb,outcome}`: store operations.
    pub store_operations: IntCounterVec,
    /// `tiergate_store_operation_duration_seconds{verb}`: how long store operations waited, those that did.
    pub store_duration: HistogramVec,
    /// `tiergate_store_breakers{state}`: how many servers of the store are asked, are given up, and are being tried.
    pub store_breakers: IntGaugeVec,
    /// `tiergate_store_connects_total{result}`: how often a connection to a server of the store was made or failed.
    pub store_connects: IntCounterVec,
    /// `tiergate_ready{check}`: 1 when the last readiness check succeeded.
    pub ready: IntGaugeVec,
    /// `tiergate_connections_turned_away_total{door}`: connections closed at once because the door holds all it may.
    pub connections_turned_away: IntCounterVec,
    /// `tiergate_gateway_requests_total{tenant,outcome}`: requests that came to the gateway, by the tenant's configured
    /// id and what became of them: forwarded; refused, which is the client's affair; failed, which is ours or an
    /// upstream's; abandoned by the client.
    pub gateway_requests: IntCounterVec,
    /// `tiergate_config_reloads_total{result}`: how often the tenants were read again: applied or refused.
    pub config_reloads: IntCounterVec,
    /// `tiergate_malformed_requests_total{door}`: requests refused before any endpoint, because their head is malformed,
    /// too long or too slow.
    pub malformed: IntCounterVec,
    /// `tiergate_tls_handshake_failures_total{door}`: connections that ended before TLS was agreed on.
    pub tls_failures: IntCounterVec,
}

impl Metrics {
    /// All metrics, at zero.
    ///
    /// # Errors
    ///
    /// Only when two of the names below collide.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            requests: counter("requests_total", "Requests answered.", &["door", "endpoint", "status"])?,
            request_duration: histogram(
                "request_duration_seconds",
                "Time from a request's last header byte to its answer.",
                &["door", "endpoint"],
                REQUEST_BUCKETS,
            )?,
            denials: counter("denials_total", "Error answers by errorType.", &["door", "error_type"])?,
            limiter_decisions: counter(
                "limiter_decisions_total",
                "Decisions of the tier gate and the limiter.",
                &["tier", "decision"],
            )?,
            rpc_calls: counter("rpc_calls_total", "JSON-RPC calls sent.", &["method"])?,
            rpc_errors: counter(
                "rpc_errors_total",
                "JSON-RPC calls without a usable answer.",
                &["method", "kind"],
            )?,
            rpc_duration: histogram(
                "rpc_duration_seconds",
                "Duration of JSON-RPC calls.",
                &["method"],
                REQUEST_BUCKETS,
            )?,
            rpc_node_healthy: gauge(
                "rpc_node_healthy",
                "1 when the JSON-RPC node is healthy.",
                &["endpoint"],
            )?,
            profile_cache: counter("profile_cache_total", "Profile look-ups.", &["result"])?,
            profile_drops: counter(
                "profile_drops_total",
                "What cached profiles were dropped for.",
                &["kind"],
            )?,
            follower_polls: counter("follower_polls_total", "Polls for new blocks and logs.", &["result"])?,
            follower_mode: gauge("follower_mode", "Follower state; exactly one state is 1.", &["state"])?,
            task_restarts: counter("task_restarts_total", "Background tasks begun anew.", &["task"])?,
            follower_block: single("follower_block", "The block up to which everything is accounted for.")?,
            follower_block_time: single("follower_block_timestamp_seconds", "Time of the latest block.")?,
            store_operations: counter("store_operations_total", "Store operations.", &["verb", "outcome"])?,
            store_duration: histogram(
                "store_operation_duration_seconds",
                "Duration of store operations.",
                &["verb"],
                STORE_BUCKETS,
            )?,
            store_breakers: gauge(
                "store_breakers",
                "Servers of the store by the state of their breaker.",
                &["state"],
            )?,
            store_connects: counter(
                "store_connects_total",
                "Tries to connect to a server of the store.",
                &["result"],
            )?,
            ready: gauge("ready", "1 when the last check succeeded.", &["check"])?,
            connections_turned_away: counter(
                "connections_turned_away_total",
                "Connections closed at once for lack of room.",
                &["door"],
            )?,
            gateway_requests: counter(
                "gateway_requests_total",
                "Requests that came to the gateway.",
                &["tenant", "outcome"],
            )?,
            config_reloads: counter(
                "config_reloads_total",
                "Times the tenants were read again.",
                &["result"],
            )?,
            malformed: counter("malformed_requests_total", "Requests refused for their head.", &["door"])?,
            tls_failures: counter(
                "tls_handshake_failures_total",
                "Connections that ended before TLS was agreed on.",
                &["door"],
            )?,
            registry,
        };
        metrics.register_all()?;
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
    }

    fn collectors(&self) -> [Box<dyn Collector>; 25] {
        [
            Box::new(self.requests.clone()),
            Box::new(self.request_duration.clone()),
            Box::new(self.denials.clone()),
            Box::new(self.limiter_decisions.clone()),
            Box::new(self.rpc_calls.clone()),
            Box::new(self.rpc_errors.clone()),
            Box::new(self.rpc_duration.clone()),
            Box::new(self.rpc_node_healthy.clone()),
            Box::new(self.profile_cache.clone()),
            Box::new(self.profile_drops.clone()),
            Box::new(self.follower_polls.clone()),
            Box::new(self.follower_mode.clone()),
            Box::new(self.task_restarts.clone()),
            Box::new(self.follower_block.clone()),
            Box::new(self.follower_block_time.clone()),
            Box::new(self.store_operations.clone()),
            Box::new(self.store_duration.clone()),
            Box::new(self.store_breakers.clone()),
            Box::new(self.store_connects.clone()),
            Box::new(self.ready.clone()),
            Box::new(self.connections_turned_away.clone()),
            Box::new(self.gateway_requests.clone()),
            Box::new(self.config_reloads.clone()),
            Box::new(self.malformed.clone()),
            Box::new(self.tls_failures.clone()),
        ]
    }

    fn register_all(&self) -> Result<(), prometheus::Error> {
        for collector in self.collectors() {
            self.registry.register(collector)?;
        }
        // Both series exist from the start: an alert sees the first refusal as an increase.
        for result in ["applied", "refused"] {
            self.config_reloads.with_label_values(&[result]);
        }
        let build = IntGaugeVec::new(Opts::new("tiergate_build_info", "The running version."), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        self.registry.register(Box::new(build))?;
        #[cfg(target_os = "linux")]
        self.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(())
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(format!("tiergate_{name}"), help), labels)
}

fn single(name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    IntGauge::new(format!("tiergate_{name}"), help)
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(Opts::new(format!("tiergate_{name}"), help), labels)
}

fn histogram(
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> Result<HistogramVec, prometheus::Error> {
    HistogramVec::new(HistogramOpts::new(format!("tiergate_{name}"), help).buckets(buckets.to_vec()), labels)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::Metrics;

    /// Every label of the product. Each takes its values from a closed set: nothing that a client or a chain chooses.
    const LABELS: [&str; 15] = [
        "check",
        "decision",
        "door",
        "endpoint",
        "error_type",
        "kind",
        "method",
        "outcome",
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
