//! Counts and lines of the gateway beside a request's record: counters per tenant, and a line per failure.

use std::{fmt::Display, sync::Arc};

use prometheus::Histogram;

use crate::gateway::{Gateway, GatewayRules, context::Context, counters::SiteCounters};
use crate::http1::{Fields, REPEATED};
use crate::ports::Clock;
use crate::record::{Destination, Ended, Ending, Recorder};
use crate::telemetry::{Metrics, NO_TENANT, RouteSeries};

/// Counts and logs for the gateway.
pub(super) struct Observer {
    pub(super) recorder: Recorder,
    overhead: Histogram,
    /// Of requests without a tenant.
    without_tenant: SiteCounters,
    /// Of requests without a tenant, which have no route either.
    without_route: RouteSeries,
}

impl Observer {
    pub(super) fn new(rules: &GatewayRules, metrics: &Metrics, clock: &Arc<dyn Clock>) -> Self {
        let no_tenant = NO_TENANT.into();
        let names = (rules.listener, rules.listener);
        let proxies = rules.client_proxies.clone();
        Self {
            recorder: Recorder::new(names, proxies, rules.tracer.clone(), metrics, clock),
            overhead: metrics.overhead.clone(),
            without_tenant: SiteCounters::new(metrics, &no_tenant),
            without_route: RouteSeries::new(metrics, &no_tenant, "", None),
        }
    }

    /// Counts a request that is over for its tenant.
    fn count(&self, counters: &SiteCounters, ctx: &Context, sent: u64, ending: Ending) {
        let record = &ctx.record;
        if let Some(own) = record.times.own() {
            self.overhead.observe(own.as_secs_f64());
        }
        let Some(series) = counters.series() else { return };
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
}

impl Gateway {
    /// A request failed on the upstream that it was at.
    pub(super) fn note_upstream_failure(&self, ctx: &Context, kind: &str) {
        let Some((member, site)) = ctx.member().zip(ctx.site.as_ref()) else { return };
        let (upstream, tenant) = (&member.state.upstream, &site.tenant.id);
        let request_id = ctx.record.id().unwrap_or_default();
        site.counters
            .faults(&self.clock)
            .note(format_args!("a request of tenant {tenant} failed at {upstream}: {kind} ({request_id})"));
        if !REPEATED.contains(&kind) && member.state.failed(self.clock.monotonic_micros()) {
            site.counters.ejected();
            tracing::warn!(tenant = &**tenant, %upstream, "takes no requests for a while: too many failed in a row");
        }
    }

    /// Logs that no upstream of a tenant has an address.
    pub(super) fn note_no_upstream(&self, ctx: &Context) {
        if let Some(site) = &ctx.site {
            let tenant = &site.tenant.id;
            site.counters.faults(&self.clock).note(format_args!(
                "no upstream of tenant {tenant} has an address: its names can't be looked up, or lead where they may not"
            ));
        }
    }

    /// There was no room for a request under this limit.
    pub(super) fn note_overload(&self, ctx: &Context, limit: &'static str) {
        if let Some(site) = &ctx.site {
            site.counters.overloaded(limit);
        }
    }

    /// A request goes to another connection.
    pub(super) fn note_retry(&self, ctx: &Context, reason: &str) {
        if let Some(site) = &ctx.site {
            site.counters.retried(reason);
        }
    }

    /// Counts a request that is over, and writes its record.
    pub(super) fn finished<F: Fields>(&self, ended: &Ended<'_, F>, ctx: &Context) {
        let observer = &self.observer;
        let (counters, route) = match &ctx.site {
            Some(site) => (&*site.counters, site.routes.of(ctx.decision.and_then(|decision| decision.route))),
            None => (&observer.without_tenant, &observer.without_route),
        };
        observer.count(counters, ctx, ended.sent, ended.ending);
        let upstream = ctx.member().map(|member| &member.state.upstream as &dyn Display);
        let destination = Destination { domain: ctx.domain(), upstream, ..ctx.destination() };
        observer.recorder.end(&ctx.record, ended, &destination, route);
    }
}
