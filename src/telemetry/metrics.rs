//! Every metric of the product, by name. No label ever holds an agent, a key or an IP: labels come from closed sets and
//! from the configuration.

use std::{fmt, ops::Deref, sync::Arc};

use parking_lot::Mutex;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, core::Collector, proto::MetricFamily,
};

/// Seconds; the buckets of OpenTelemetry's semantic conventions for HTTP.
const HTTP_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Seconds; from a key check out of memory to a slow read of the chain.
const OVERHEAD_BUCKETS: &[f64] =
    &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Seconds; from an upstream on the same machine to one that computes for long.
const UPSTREAM_BUCKETS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Seconds; from what a cached verification takes to what a time-out takes.
const REQUEST_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Seconds; from a look-up in memory to a slow sync.
const STORE_BUCKETS: &[f64] =
    &[0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// The values of the label `limit`.
pub const OVERLOAD_LIMITS: [&str; 9] =
    ["descriptors", "agent", "streams", "share", "public", "tenant", "process", "upstream", "bodies"];

/// The label `tenant` of what has none.
pub const NO_TENANT: &str = "(none)";

/// Makes [`Metrics`] of rows: a metric's HELP, field, type, constructor, name and labels, the buckets of a histogram, and the
/// values of its label that are shown before anything is counted.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $type:ty =
        $make:ident($name:literal $(, $labels:expr)?) $(in $buckets:ident)? $(from [$($first:literal),+])?;)+) => {
        /// The counters, gauges and histograms.
        #[derive(Debug)]
        pub struct Families {
            registry: Registry,
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl Families {
            fn unregistered() -> Result<Self, prometheus::Error> {
                $(
                    let help = concat!($($help),+).trim_start();
                    let opts = Opts::new(name_of($name), help);
                    $(let opts = HistogramOpts::from(opts).buckets($buckets.to_vec());)?
                    let $field = <$type>::$make(opts $(, $labels)?)?;
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
    /// Time from a request's last header byte to its answer at the API, to the answer's end at the gateway.
    http_requests: HistogramVec = new(
        "http_server_request_duration_seconds",
        // The library tells series apart by the joined values: in this order no two are joined to the same.
        &["tenant", "http_request_method", "http_response_status_code", "http_route"]
    ) in HTTP_BUCKETS;
    /// Requests answered.
    requests: IntCounterVec = new("requests_total", &["listener", "endpoint", "status"]);
    /// Time from a request's last header byte until it turns to its upstream.
    overhead: Histogram = with_opts("gateway_overhead_seconds") in OVERHEAD_BUCKETS;
    /// Time from the last part of a request to the first byte of its upstream's answer.
    upstream_first_byte: HistogramVec = new("upstream_first_byte_seconds", &["tenant"]) in UPSTREAM_BUCKETS;
    /// Further tries of requests, by the reason why the one before failed.
    upstream_retries: IntCounterVec = new("upstream_retries_total", &["tenant", "reason"]);
    /// Times an upstream was left out after failures in a row.
    upstream_ejections: IntCounterVec = new("upstream_ejections_total", &["tenant"]);
    /// Upstreams.
    upstreams: IntGaugeVec = new("upstreams", &["tenant"]);
    /// Upstreams that get requests.
    upstreams_healthy: IntGaugeVec = new("upstreams_healthy", &["tenant"]);
    /// Bodies forwarded.
    body_bytes: IntCounterVec = new("gateway_body_bytes_total", &["tenant", "direction"]);
    /// Requests to the gateway that are under way.
    gateway_in_flight: IntGaugeVec = new("gateway_requests_in_flight", &["tenant"]);
    /// Requests to the API that are being answered.
    api_in_flight: IntGauge = with_opts("api_requests_in_flight");
    /// Open connections of clients.
    connections: IntGaugeVec = new("connections", &["listener"]);
    /// Requests about keys.
    key_operations: IntCounterVec = new("key_operations_total", &["operation", "outcome"]);
    /// Error answers by errorType.
    denials: IntCounterVec = new("denials_total", &["listener", "error_type"]);
    /// Requests that bots have signed, on routes that know bots.
    bot_proofs: IntCounterVec = new("bot_proofs_total", &["result"]) from ["proven", "unknown", "refused"];
    /// Reads of key directories of bots.
    bot_directory_reads: IntCounterVec = new("bot_directory_reads_total", &["result"]) from ["taken", "failed", "full"];
    /// Decisions of the tier gate and the limiter.
    limiter_decisions: IntCounterVec = new("limiter_decisions_total", &["tier", "decision"]);
    /// JSON-RPC calls sent.
    rpc_calls: IntCounterVec = new("rpc_calls_total", &["method"]);
    /// JSON-RPC calls without a usable answer.
    rpc_errors: IntCounterVec = new("rpc_errors_total", &["method", "kind"]);
    /// Duration of JSON-RPC calls.
    rpc_duration: HistogramVec = new("rpc_duration_seconds", &["method"]) in REQUEST_BUCKETS;
    /// 1 when the JSON-RPC node is healthy.
    rpc_node_healthy: IntGaugeVec = new("rpc_node_healthy", &["endpoint"]);
    /// Profile look-ups.
    profile_cache: IntCounterVec = new("profile_cache_total", &["result"]);
    /// Cached profiles that were dropped, by cause.
    profile_drops: IntCounterVec = new("profile_drops_total", &["kind"]);
    /// Polls for new blocks and logs.
    follower_polls: IntCounterVec = new("follower_polls_total", &["result"]);
    /// Follower state; exactly one state is 1.
    follower_mode: IntGaugeVec = new("follower_mode", &["state"]);
    /// Tries to send a batch of spans to the collector of traces.
    trace_exports: IntCounterVec = new("trace_exports_total", &["result"]) from ["taken", "failed"];
    /// Background tasks begun anew.
    task_restarts: IntCounterVec = new("task_restarts_total", &["task"]);
    /// The block up to which everything is accounted for.
    follower_block: IntGauge = with_opts("follower_block");
    /// Time of the latest block.
    follower_block_time: IntGauge = with_opts("follower_block_timestamp_seconds");
    /// Store operations.
    store_operations: IntCounterVec = new("store_operations_total", &["verb", "outcome"]);
    /// Duration of store operations.
    store_duration: HistogramVec = new("store_operation_duration_seconds", &["verb"]) in STORE_BUCKETS;
    /// Servers of the store by the state of their breaker.
    store_breakers: IntGaugeVec = new("store_breakers", &["state"]);
    /// Tries to connect to a server of the store.
    store_connects: IntCounterVec = new("store_connects_total", &["result"]);
    /// Size of the embedded store's file.
    store_size: IntGaugeVec = new("store_size_bytes", &[]);
    /// Redis' clock minus this machine's.
    store_clock_offset: GaugeVec = new("store_clock_offset_seconds", &[]);
    /// Replicas that Redis lacks of those that must acknowledge changes of keys.
    store_replicas_missing: IntGaugeVec = new("store_replicas_missing", &[]);
    /// Entries held in memory.
    entries: IntGaugeVec = new("entries", &["kind"]);
    /// 1 when the last check succeeded.
    ready: IntGaugeVec = new("ready", &["check"]);
    /// Connections closed at once.
    connections_turned_away: IntCounterVec = new("connections_turned_away_total", &["listener", "reason"]);
    /// Requests that came to the gateway.
    gateway_requests: IntCounterVec = new("gateway_requests_total", &["tenant", "outcome"]);
    /// Requests that the gateway had no room for.
    overload: IntCounterVec = new("overload_total", &["tenant", "limit"]);
    /// Times the tenants were read again.
    config_reloads: IntCounterVec =
        new("config_reloads_total", &["result"]) from ["applied", "refused"];
    /// 1 when the last reading of the configuration was applied whole.
    config_last_successful: IntGauge = with_opts("config_last_reload_successful");
    /// Time of the last reading that was applied whole.
    config_last_time: IntGauge = with_opts("config_last_reload_success_timestamp_seconds");
    /// Files that are not used as they are.
    config_refused_files: IntGauge = with_opts("config_refused_files");
    /// 1 when a section has changed that needs a restart.
    config_restart_required: IntGauge = with_opts("config_restart_required");
    /// Requests refused for their head.
    malformed: IntCounterVec = new("malformed_requests_total", &["listener"]);
    /// Connections that ended before TLS was agreed on.
    tls_failures: IntCounterVec = new("tls_handshake_failures_total", &["listener"]);
    /// Time at which the first certificate of a chain expires.
    certificate_expiry: IntGaugeVec = new("certificate_expiry_timestamp_seconds", &["kind", "tenant"]);
    /// Log lines dropped because the queue was full, or lost because they could not be written.
    log_lines_dropped: IntCounter = with_opts("log_lines_dropped_total");
}

/// The metrics of one process.
#[derive(Clone)]
pub struct Metrics(Arc<Shared>);

struct Shared {
    families: Families,
    /// Set gauges at each scrape. Locked during a scrape.
    setters: Mutex<Vec<Setter>>,
}

/// Sets gauges at a scrape.
type Setter = Box<dyn Fn(&Families) + Send + Sync>;

impl Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.0.families
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.families.fmt(out)
    }
}

impl Metrics {
    /// The metrics, all at zero.
    /// Error: only when two of the names above collide.
    pub fn new() -> Result<Self, prometheus::Error> {
        let families = Families::unregistered()?;
        let registry = &families.registry;
        for collector in families.collectors() {
            registry.register(collector)?;
        }
        let what =
            Opts::new("tiergate_build_info", "The running version, its commit and its cargo features.");
        let build = IntGaugeVec::new(what, &["version", "commit", "features"])?;
        let values = [env!("CARGO_PKG_VERSION"), env!("BUILD_REVISION"), env!("BUILD_FEATURES")];
        build.with_label_values(&values).set(1);
        registry.register(Box::new(build))?;
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Self(Arc::new(Shared { families, setters: Mutex::default() })))
    }

    /// The metrics with their series as they are now.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let setters = self.0.setters.lock();
        setters.iter().for_each(|set| set(self));
        self.registry.gather()
    }

    /// The text that Prometheus scrapes.
    /// Error: when a collector gives something that the text format can't hold.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.gather())
    }

    /// Sets gauges at each scrape.
    pub fn at_scrape(&self, set: impl Fn(&Families) + Send + Sync + 'static) {
        self.0.setters.lock().push(Box::new(set));
    }

    /// Sets gauges from `source` at each scrape, until it is dropped.
    pub fn at_scrape_from<T: Send + Sync + 'static>(
        &self,
        source: &Arc<T>,
        set: impl Fn(&Families, &T) + Send + Sync + 'static,
    ) {
        let source = Arc::downgrade(source);
        self.at_scrape(move |families| {
            if let Some(source) = source.upgrade() {
                set(families, &source);
            }
        });
    }

    /// Changes gauges in one step: a scrape sees all of it or nothing.
    pub fn change(&self, change: impl FnOnce(&Families)) {
        let _setters = self.0.setters.lock();
        change(self);
    }

    /// Shows how many entries a map holds, as `tiergate_entries{kind}`.
    pub fn count_entries<T: Send + Sync + 'static>(
        &self,
        kind: &'static str,
        map: &Arc<T>,
        len: fn(&T) -> usize,
    ) {
        self.at_scrape_from(map, move |families, map| {
            let count = i64::try_from(len(map)).unwrap_or(i64::MAX);
            families.entries.with_label_values(&[kind]).set(count);
        });
    }

    /// Drops the series of a tenant that is no longer configured.
    pub fn forget_tenant(&self, tenant: &str) {
        // There is none of what has not happened.
        let remove = |family: &IntCounterVec, values: &[&str]| {
            for value in values {
                let _ = family.remove_label_values(&[tenant, value]);
            }
        };
        remove(&self.gateway_requests, &["forwarded", "refused", "failed", "abandoned"]);
        remove(&self.overload, &OVERLOAD_LIMITS);
        remove(&self.upstream_retries, &["unreachable", "unprocessed"]);
        remove(&self.body_bytes, &["received", "sent"]);
        let _ = self.upstream_ejections.remove_label_values(&[tenant]);
        let _ = self.upstream_first_byte.remove_label_values(&[tenant]);
    }
}

/// The whole name of a metric. OpenTelemetry's keep theirs.
fn name_of(name: &str) -> String {
    if name.starts_with("http_") { name.to_owned() } else { format!("tiergate_{name}") }
}

#[cfg(test)]
mod tests;
