//! The series of a tenant and of its routes, the log of its faults, and what is counted when a request is over.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter, IntCounterVec};

use crate::domain::Tenant;
use crate::ports::Clock;
use crate::record::{Ending, RequestRecord};
use crate::telemetry::{FaultLog, Metrics, OVERLOAD_LIMITS, RouteSeries, TenantSeries};

/// The counters of one tenant, made at its first request: most of many tenants get none. They outlive reloads.
pub(super) struct SiteCounters {
    metrics: Metrics,
    tenant: Arc<str>,
    series: OnceLock<Series>,
    /// Requests without room, in the order of the limits, each begun by the first request that met it.
    overload: [OnceLock<IntCounter>; OVERLOAD_LIMITS.len()],
    /// Made when its first request fails.
    faults: OnceLock<Box<FaultLog>>,
    /// True once the tenant is gone. Held while a series begins.
    has_ended: Mutex<bool>,
}

/// A tenant's requests by outcome, and what they take.
struct Series {
    forwarded: IntCounter,
    refused: IntCounter,
    failed: IntCounter,
    abandoned: IntCounter,
    received: IntCounter,
    sent: IntCounter,
    first_byte: Histogram,
}

impl SiteCounters {
    pub(super) fn new(metrics: &Metrics, tenant: &Arc<str>) -> Self {
        Self {
            metrics: metrics.clone(),
            tenant: Arc::clone(tenant),
            series: OnceLock::new(),
            overload: [const { OnceLock::new() }; OVERLOAD_LIMITS.len()],
            faults: OnceLock::new(),
            has_ended: Mutex::new(false),
        }
    }

    /// The log of the tenant's faults. Each tenant has its own, so that a broken one hides no other.
    pub(super) fn faults(&self, clock: &Arc<dyn Clock>) -> &FaultLog {
        self.faults.get_or_init(|| Box::new(FaultLog::new("upstream", Arc::clone(clock))))
    }

    /// How many requests there were.
    pub(super) fn requests(&self) -> u64 {
        self.series.get().map_or(0, |Series { forwarded, refused, failed, abandoned, .. }| {
            [forwarded, refused, failed, abandoned].into_iter().map(IntCounter::get).sum()
        })
    }

    /// Counts a request that is over.
    pub(super) fn count(&self, record: &RequestRecord, sent: u64, ending: Ending) {
        if let Some(own) = record.times.own() {
            self.metrics.overhead.observe(own.as_secs_f64());
        }
        let series = self.series.get().or_else(|| self.begin(&self.series, || self.new_series()));
        // Else the tenant is gone, and had no request before.
        let Some(series) = series else { return };
        if let Some(upstreams) = record.times.upstreams() {
            series.first_byte.observe(upstreams.as_secs_f64());
        }
        series.received.inc_by(record.received);
        series.sent.inc_by(sent);
        let counter = match (record.error_type, ending) {
            (Some("INTERNAL_ERROR" | "RPC_ERROR" | "UPSTREAM_ERROR" | "UPSTREAM_TIMEOUT"), _) => {
                &series.failed
            }
            (Some(_), _) => &series.refused,
            (None, Ending::Whole) => &series.forwarded,
            (None, Ending::ClientLeft) => &series.abandoned,
            (None, Ending::Failed) => &series.failed,
        };
        counter.inc();
    }

    /// There was no room for a request under this limit.
    pub(super) fn overloaded(&self, limit: &str) {
        let known = OVERLOAD_LIMITS.iter().zip(&self.overload).find(|(known, _)| **known == limit);
        let Some((_, counter)) = known else { return };
        let new = || self.metrics.overload.with_label_values(&[&*self.tenant, limit]);
        if let Some(counter) = counter.get().or_else(|| self.begin(counter, new)) {
            counter.inc();
        }
    }

    /// A request goes to another connection.
    pub(super) fn retried(&self, reason: &str) {
        self.count_rare(&self.metrics.upstream_retries, &[&*self.tenant, reason]);
    }

    /// An upstream is left out for a while.
    pub(super) fn ejected(&self) {
        self.count_rare(&self.metrics.upstream_ejections, &[&*self.tenant]);
    }

    fn count_rare(&self, family: &IntCounterVec, labels: &[&str]) {
        let has_ended = self.has_ended.lock();
        if !*has_ended {
            family.with_label_values(labels).inc();
        }
    }

    /// The tenant is gone, and its series with it.
    pub(super) fn end(&self) {
        *self.has_ended.lock() = true;
        self.metrics.forget_tenant(&self.tenant);
    }

    /// Begins series, unless the tenant is gone.
    fn begin<'a, T>(&self, place: &'a OnceLock<T>, new: impl FnOnce() -> T) -> Option<&'a T> {
        let has_ended = self.has_ended.lock();
        (!*has_ended).then(|| place.get_or_init(new))
    }

    fn new_series(&self) -> Series {
        let outcome = |outcome| self.metrics.gateway_requests.with_label_values(&[&*self.tenant, outcome]);
        let bytes = |direction| self.metrics.body_bytes.with_label_values(&[&*self.tenant, direction]);
        Series {
            forwarded: outcome("forwarded"),
            refused: outcome("refused"),
            failed: outcome("failed"),
            abandoned: outcome("abandoned"),
            received: bytes("received"),
            sent: bytes("sent"),
            first_byte: self.metrics.upstream_first_byte.with_label_values(&[&*self.tenant]),
        }
    }
}

/// The series of a tenant's routes. Routes of one template share theirs, which outlive reloads.
pub(super) struct Routes {
    /// In the order of the routes.
    routes: Vec<Arc<RouteSeries>>,
    /// Of requests that no route takes.
    rest: Arc<RouteSeries>,
    /// Shared by all of them.
    shared: Arc<TenantSeries>,
}

impl Routes {
    pub(super) fn new(metrics: &Metrics, tenant: &Tenant, former: Option<&Self>) -> Self {
        let shared = former.map(|former| Arc::clone(&former.shared));
        let shared = shared.unwrap_or_else(|| Arc::new(TenantSeries::new(metrics, &tenant.id)));
        let mut known: HashMap<Box<str>, Arc<RouteSeries>> = former
            .into_iter()
            .flat_map(Self::all)
            .map(|series| (series.route.clone(), Arc::clone(series)))
            .collect();
        let mut of = |route: String| {
            let new = || Arc::new(RouteSeries::new(metrics, &tenant.id, &route, Some(Arc::clone(&shared))));
            Arc::clone(known.entry(route.clone().into()).or_insert_with(new))
        };
        let routes = tenant.routes.iter().map(|route| of(route.name())).collect();
        let rest = of(String::new());
        Self { routes, rest, shared }
    }

    /// The series of a route by its index.
    pub(super) fn of(&self, route: Option<usize>) -> &RouteSeries {
        route.and_then(|at| self.routes.get(at)).unwrap_or(&self.rest)
    }

    /// Ends the series of routes that `newer` has no more.
    pub(super) fn end(&self, newer: Option<&Self>) {
        let kept: HashSet<_> = newer.into_iter().flat_map(Self::all).map(Arc::as_ptr).collect();
        self.all().filter(|series| !kept.contains(&Arc::as_ptr(series))).for_each(|series| series.end());
        if newer.is_none() {
            self.shared.others.end();
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<RouteSeries>> {
        self.routes.iter().chain([&self.rest])
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::SiteCounters;
    use crate::telemetry::Metrics;

    #[test]
    fn an_overloaded_request_takes_no_lock_once_its_limit_was_met_before() {
        let metrics = Metrics::new().unwrap();
        let counters = SiteCounters::new(&metrics, &"acme".into());
        counters.overloaded("tenant");
        std::thread::scope(|scope| {
            let (counted, is_counted) = mpsc::channel();
            let lock = counters.has_ended.lock();
            let counters = &counters;
            scope.spawn(move || {
                counters.overloaded("tenant");
                let _ = counted.send(());
            });
            let in_time = is_counted.recv_timeout(Duration::from_secs(60));
            drop(lock);
            in_time.unwrap();
        });
        assert_eq!(metrics.overload.with_label_values(&["acme", "tenant"]).get(), 2);
    }

    #[test]
    fn an_overloaded_request_begins_no_series_of_a_tenant_that_is_gone() {
        let metrics = Metrics::new().unwrap();
        let counters = SiteCounters::new(&metrics, &"acme".into());
        counters.overloaded("tenant");
        counters.end();
        counters.overloaded("tenant");
        counters.overloaded("agent");
        assert!(!metrics.render().unwrap().contains("acme"));
    }
}
