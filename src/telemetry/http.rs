//! `http_server_request_duration_seconds`, as OpenTelemetry's semantic conventions for HTTP have it: the series of a route,
//! each looked up once. Requests allocate nothing and take no lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use parking_lot::Mutex;
use prometheus::Histogram;

use crate::telemetry::metrics::Metrics;

/// The label of methods and statuses that no standard has.
const OTHER: &str = "_OTHER";

/// The status of answers with a code that is not registered.
const STATUS_OTHER: u16 = u16::MAX;

/// So many pairs of method and status of a route have a series of their own. All others share one for each class of
/// statuses. Clients choose the method, and upstreams the status.
const SERIES_MAX: usize = 32;

/// So many series all routes of a tenant have together. Further ones are those of [`OTHER`] routes.
const TENANT_SERIES_MAX: usize = 1_000;

/// The series of a tenant's routes beyond [`TENANT_SERIES_MAX`].
pub(crate) struct TenantSeries {
    begun: AtomicUsize,
    /// Series that end with the tenant.
    pub(crate) others: RouteSeries,
}

/// The series of one route: a list in the order of their first requests, one for each pair of method and status.
pub(crate) struct RouteSeries {
    metrics: Metrics,
    tenant: Arc<str>,
    /// The template of its path.
    pub(crate) route: Box<str>,
    /// The part that the routes of its tenant share; `None`: it has no tenant.
    shared: Option<Arc<TenantSeries>>,
    first: OnceLock<Box<Series>>,
    /// True once the route is gone. Held while a series begins.
    has_ended: Mutex<bool>,
}

struct Series {
    method: &'static str,
    status: u16,
    histogram: Histogram,
    next: OnceLock<Box<Self>>,
}

impl TenantSeries {
    /// Of a tenant whose routes have none yet.
    pub(crate) fn new(metrics: &Metrics, tenant: &Arc<str>) -> Self {
        Self { begun: AtomicUsize::new(0), others: RouteSeries::new(metrics, tenant, OTHER, None) }
    }

    fn is_full(&self) -> bool {
        self.begun.load(Ordering::Relaxed) >= TENANT_SERIES_MAX
    }

    /// True if one more may begin, which is counted then.
    fn begin(&self) -> bool {
        let one_more = |begun| (begun < TENANT_SERIES_MAX).then_some(begun + 1);
        self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

impl RouteSeries {
    /// A route by its template, which may be empty, as the tenant may.
    pub(crate) fn new(
        metrics: &Metrics,
        tenant: &Arc<str>,
        route: &str,
        shared: Option<Arc<TenantSeries>>,
    ) -> Self {
        let (metrics, tenant, route) = (metrics.clone(), Arc::clone(tenant), route.into());
        let has_ended = Mutex::new(false);
        Self { metrics, tenant, route, shared, first: OnceLock::new(), has_ended }
    }

    /// A request has its answer. A status of 0: it has none.
    pub(crate) fn observe(&self, method: &[u8], status: u16, seconds: f64) {
        self.observe_known(known_method(method), known_status(status), seconds);
    }

    fn observe_known(&self, mut method: &'static str, mut status: u16, seconds: f64) {
        let (asked, of_answer) = (method, status);
        let mut place = &self.first;
        for position in 0.. {
            if position == SERIES_MAX {
                (method, status) = (OTHER, if status == STATUS_OTHER { status } else { status / 100 });
            }
            let known = place.get().map(|series| &**series);
            let Some(series) = known.or_else(|| self.begin(place, method, status)) else {
                if let Some(shared) = self.shared.as_ref().filter(|shared| shared.is_full()) {
                    shared.others.observe_known(asked, of_answer, seconds);
                }
                return;
            };
            if series.status == status && series.method == method {
                series.histogram.observe(seconds);
                return;
            }
            place = &series.next;
        }
    }

    /// Begins a series at the end of the list, unless the route is gone or its tenant has no room for another. Another thread
    /// may have begun another there.
    fn begin<'a>(
        &self,
        place: &'a OnceLock<Box<Series>>,
        method: &'static str,
        status: u16,
    ) -> Option<&'a Series> {
        // Routes that came too late ask this for each request.
        if self.shared.as_ref().is_some_and(|shared| shared.is_full()) {
            return None;
        }
        let has_ended = self.has_ended.lock();
        if *has_ended || (place.get().is_none() && self.shared.as_ref().is_some_and(|shared| !shared.begin()))
        {
            return None;
        }
        let begin = || {
            let labels = [&*self.tenant, method, &status_label(status), &self.route];
            let histogram = self.metrics.http_requests.with_label_values(&labels);
            Box::new(Series { method, status, histogram, next: OnceLock::new() })
        };
        Some(place.get_or_init(begin))
    }

    /// The route is gone, and its series with it.
    pub(crate) fn end(&self) {
        // Routes of one template share it, and each of them may end it.
        if std::mem::replace(&mut *self.has_ended.lock(), true) {
            return;
        }
        let mut place = &self.first;
        while let Some(series) = place.get() {
            let labels = [&*self.tenant, series.method, &status_label(series.status), &self.route];
            let _ = self.metrics.http_requests.remove_label_values(&labels);
            if let Some(shared) = &self.shared {
                shared.begun.fetch_sub(1, Ordering::Relaxed);
            }
            place = &series.next;
        }
    }
}

/// The methods of RFC 9110 and RFC 5789.
pub(crate) fn known_method(method: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| known.as_bytes() == method).unwrap_or(OTHER)
}

/// A status that a standard has, 0, or [`STATUS_OTHER`].
fn known_status(status: u16) -> u16 {
    let known = StatusCode::from_u16(status).is_ok_and(|status| status.canonical_reason().is_some());
    if known || status == 0 { status } else { STATUS_OTHER }
}

fn status_label(status: u16) -> String {
    match status {
        0 => String::new(),
        class @ 1..=5 => format!("{class}xx"),
        STATUS_OTHER => OTHER.to_owned(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{RouteSeries, SERIES_MAX, TENANT_SERIES_MAX, TenantSeries};
    use crate::telemetry::metrics::Metrics;

    const NAME: &str = "http_server_request_duration_seconds_count";

    /// The series and their counts.
    fn counts(metrics: &Metrics) -> Vec<String> {
        let text = metrics.render().unwrap();
        text.lines().filter_map(|line| line.strip_prefix(NAME)).map(str::to_owned).collect()
    }

    fn series(method: &str, status: &str, route: &str, count: u32) -> String {
        let method = format!("http_request_method=\"{method}\",http_response_status_code=\"{status}\"");
        format!("{{{method},http_route=\"{route}\",tenant=\"acme\"}} {count}")
    }

    #[test]
    fn methods_and_statuses_that_no_standard_has_are_one_and_no_answer_is_no_status() {
        let metrics = Metrics::new().unwrap();
        let route = RouteSeries::new(&metrics, &"acme".into(), "/a/*", None);
        for (method, status) in [
            ("GET", 200),
            ("get", 200),
            ("FOO{}=\"", 200),
            ("GET", 299),
            ("GET", 999),
            ("GET", 0),
            ("GET", 1),
        ] {
            route.observe(method.as_bytes(), status, 0.1);
        }
        route.observe(b"\xff", 200, 0.1);
        let expected = [("GET", "", 1), ("GET", "200", 1), ("GET", "_OTHER", 3), ("_OTHER", "200", 3)];
        assert_eq!(counts(&metrics), expected.map(|(method, status, n)| series(method, status, "/a/*", n)));
    }

    #[test]
    fn the_series_of_a_route_end_with_it_and_none_begins_afterwards() {
        let (metrics, tenant) = (Metrics::new().unwrap(), "acme".into());
        let [one, other] = ["/a", "/b"].map(|route| RouteSeries::new(&metrics, &tenant, route, None));
        for route in [&one, &other] {
            route.observe(b"GET", 200, 0.1);
            route.observe(b"PUT", 201, 0.1);
        }
        one.end();
        // Of requests that were under way.
        one.observe(b"GET", 200, 0.1);
        one.observe(b"GET", 404, 0.1);
        assert_eq!(counts(&metrics), [series("GET", "200", "/b", 1), series("PUT", "201", "/b", 1)]);
        // The route is back.
        RouteSeries::new(&metrics, &tenant, "/a", None).observe(b"GET", 200, 0.1);
        assert_eq!(counts(&metrics)[0], series("GET", "200", "/a", 1));
    }

    /// How many requests these series count.
    fn sum(counts: &[String]) -> u32 {
        counts.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum()
    }

    #[test]
    fn a_route_has_a_bounded_number_of_series_and_counts_further_ones_by_the_class_of_their_status() {
        let metrics = Metrics::new().unwrap();
        let route = RouteSeries::new(&metrics, &"acme".into(), "/a", None);
        route.observe(b"GET", 200, 0.1);
        let methods =
            ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "MINE"];
        let mut requests = 1;
        for _ in 0..2 {
            for status in (100..600).chain([0]) {
                methods.iter().for_each(|method| route.observe(method.as_bytes(), status, 0.1));
                requests += 10;
            }
        }
        let shown = counts(&metrics);
        assert_eq!(sum(&shown), requests, "each request is counted");
        // Each class of 1xx to 5xx, no answer, and the codes that are not registered.
        assert_eq!(shown.len(), SERIES_MAX + 7, "{shown:?}");
        assert!(shown.contains(&series("GET", "200", "/a", 3)), "the first ones keep theirs: {shown:?}");
        let is_class =
            |line: &&String| line.contains("http_request_method=\"_OTHER\"") && line.contains("xx\"");
        assert_eq!(shown.iter().filter(is_class).count(), 5, "{shown:?}");
        route.end();
        assert_eq!(counts(&metrics), [""; 0]);
    }

    #[test]
    fn threads_that_begin_series_at_once_count_in_the_same_ones() {
        let metrics = Metrics::new().unwrap();
        let route = Arc::new(RouteSeries::new(&metrics, &"acme".into(), "/a", None));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for status in (200..230).chain(400..430) {
                        route.observe(b"GET", status, 0.1);
                    }
                });
            }
        });
        let counts = counts(&metrics);
        assert_eq!(sum(&counts), 4 * 60);
        assert!(counts.iter().all(|line| !line.ends_with(" 0")), "{counts:?}");
    }

    // threat: A tenant takes what is another's or shared
    #[test]
    fn a_tenant_has_a_bounded_number_of_series_and_counts_further_routes_as_one() {
        let (metrics, tenant) = (Metrics::new().unwrap(), "acme".into());
        let shared = Arc::new(TenantSeries::new(&metrics, &tenant));
        let of = |number: usize| {
            RouteSeries::new(&metrics, &tenant, &format!("/{number}"), Some(Arc::clone(&shared)))
        };
        let routes: Vec<RouteSeries> = (0..1_000).map(of).collect();
        let statuses = [200, 201, 204, 400, 404, 500];
        for _ in 0..2 {
            for route in &routes {
                statuses.iter().for_each(|status| route.observe(b"GET", *status, 0.1));
            }
        }
        let shown = counts(&metrics);
        assert_eq!(sum(&shown), 12_000, "each request is counted");
        assert_eq!(shown.len(), TENANT_SERIES_MAX + statuses.len(), "{shown:?}");
        assert!(shown.contains(&series("GET", "200", "/0", 2)), "the first ones keep theirs");
        // Each route that has one has all of them but for the last.
        let late = 1_000 - TENANT_SERIES_MAX / statuses.len();
        assert!(
            shown.contains(&series("GET", "500", "_OTHER", 2 * u32::try_from(late).unwrap())),
            "{shown:?}"
        );
        // Routes that go leave their room to others.
        for _ in 0..2 {
            routes[..10].iter().for_each(RouteSeries::end);
        }
        assert_eq!(counts(&metrics).len(), TENANT_SERIES_MAX + statuses.len() - 60);
        routes[999].observe(b"GET", 200, 0.1);
        assert!(counts(&metrics).contains(&series("GET", "200", "/999", 1)));
        routes[10..].iter().for_each(RouteSeries::end);
        shared.others.end();
        assert_eq!(counts(&metrics), [""; 0]);
    }
}
