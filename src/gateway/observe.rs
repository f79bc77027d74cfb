//! What the gateway tells operators of each request: counters per tenant, a line per failure, and the access log.
//!
//! Nothing that a client wrote reaches the log unescaped, and no query does.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use prometheus::Histogram;

use crate::domain::quota::Allowance;
use crate::domain::tier::Tier;
use crate::domain::upstream::Upstream;
use crate::gateway::Gateway;
use crate::gateway::context::Context;
use crate::gateway::corridor::Passage;
use crate::gateway::counters::SiteCounters;
use crate::gateway::rule::path_of;
use crate::gateway::upstreams::state;
use crate::http1::fields::Fields;
use crate::http1::head::REPEATED;
use crate::http1::name::Name;
use crate::pipeline::permit::Permit;
use crate::ports::clock::Clock;
use crate::telemetry::access::{self, Line, Shown};
use crate::telemetry::http::RouteSeries;
use crate::telemetry::metrics::{Metrics, NO_TENANT};
use crate::telemetry::traces::Outcome;
use crate::verdicts::{Verdicts, about};
use crate::wire::client_ip::address_of;
use crate::wire::errors::ErrorCause;
use crate::wire::request_id::RequestId;
use crate::wire::trace::remote_span;

/// Counts and logs for the gateway.
pub(super) struct Observer {
    /// The listener's name.
    listener: &'static str,
    pub(super) verdicts: Verdicts,
    overhead: Histogram,
    /// Of requests without a tenant.
    without_tenant: SiteCounters,
    /// Of requests without a tenant, which have no route either.
    without_route: RouteSeries,
}

/// A request that is over.
pub(super) struct Ended<'a, F> {
    pub(super) method: &'a [u8],
    /// Path and query.
    pub(super) target: &'a [u8],
    /// The version of HTTP.
    pub(super) protocol: &'static str,
    /// The host that it is for, where no header says that.
    pub(super) authority: &'a str,
    pub(super) fields: &'a F,
    /// The address that it came from.
    pub(super) peer: Option<IpAddr>,
    /// The status of its answer; 0: there was none.
    pub(super) status: u16,
    /// How much of the answer's body was sent, in bytes.
    pub(super) sent: u64,
    pub(super) ending: Ending,
}

/// How a request ended that was not answered by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its answer was sent whole.
    Whole,
    /// Its client left, or broke its own request.
    ClientLeft,
    /// The answer broke off.
    Failed,
}

/// A request that failed on an upstream, for the log.
#[derive(Debug, thiserror::Error)]
#[error("a request of tenant {tenant} failed at {upstream}: {kind} ({request_id})")]
struct UpstreamFault<'a> {
    tenant: &'a str,
    upstream: &'a Upstream,
    kind: &'a str,
    request_id: &'a str,
}

/// A request that had nowhere to go, for the log.
#[derive(Debug, thiserror::Error)]
#[error(
    "no upstream of tenant {tenant} has an address: its names can't be looked up, or lead where they may not"
)]
struct NoUpstream<'a> {
    tenant: &'a str,
}

impl Observer {
    pub(super) fn new(listener: &'static str, metrics: &Metrics, clock: &Arc<dyn Clock>) -> Self {
        let no_tenant = NO_TENANT.into();
        Self {
            listener,
            verdicts: Verdicts::new(listener, metrics, clock),
            overhead: metrics.overhead.clone(),
            without_tenant: SiteCounters::new(metrics, &no_tenant),
            without_route: RouteSeries::new(metrics, &no_tenant, "", None),
        }
    }

    /// A request is answered with an error.
    pub(super) fn refused(&self, cause: &ErrorCause, error_type: &'static str, ctx: &mut Context) {
        self.verdicts.refused(cause, error_type);
        ctx.error_type = Some(error_type);
        if ctx.passage.is_some() {
            return; // It was let through, and has failed.
        }
        if access::is_on() {
            ctx.refused = Some(Box::new(about(cause)));
        }
        tracing::debug!(
            request_id = request_id(ctx),
            tenant = tenant(ctx),
            route = ctx.route(),
            credential = credential(ctx),
            agent = about(cause).agent.map(tracing::field::display),
            tier = about(cause).tier.map(Tier::number),
            min_tier = ctx.min_tier(),
            error_type,
            "refused",
        );
    }

    fn count<F>(&self, ended: &Ended<'_, F>, ctx: &Context, seconds: f64) {
        if let Some(own) = ctx.times.own(ctx.begun_at) {
            self.overhead.observe(own.as_secs_f64());
        }
        let (counters, route) = match &ctx.site {
            Some(site) => (&*site.counters, site.routes.of(ctx.decision.and_then(|decision| decision.route))),
            None => (&self.without_tenant, &self.without_route),
        };
        route.observe(ended.method, ended.status, seconds);
        let Some(series) = counters.series() else { return };
        if let Some(upstreams) = ctx.times.upstreams() {
            series.first_byte.observe(upstreams.as_secs_f64());
        }
        series.received.inc_by(ctx.body_bytes);
        series.sent.inc_by(ended.sent);
        let counter = match (ctx.error_type, ended.ending) {
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
        let upstream = &member.state.upstream;
        site.counters.faults(&self.clock).note(&UpstreamFault {
            tenant: &site.tenant.id,
            upstream,
            kind,
            request_id: request_id(ctx),
        });
        if !REPEATED.contains(&kind) && member.state.failed(self.clock.monotonic_micros()) {
            site.counters.ejected();
            tracing::warn!(tenant = &*site.tenant.id, %upstream, "takes no requests for a while: too many failed in a row");
        }
    }

    /// None of a tenant's upstreams has an address.
    pub(super) fn note_no_upstream(&self, ctx: &Context) {
        if let Some(site) = &ctx.site {
            site.counters.faults(&self.clock).note(&NoUpstream { tenant: &site.tenant.id });
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

    /// Counts a request that is over, ends its trace, and writes its line in the access log, if that is on.
    pub(super) fn finished<F: Fields>(&self, ended: &Ended<'_, F>, ctx: &Context) {
        let now = self.clock.monotonic_micros();
        let micros = now.saturating_sub(ctx.begun);
        self.observer.count(ended, ctx, micros as f64 / 1e6);
        end_trace(ended, ctx, now);
        if access::is_on() {
            self.log_access(ended, ctx, micros);
        }
    }

    fn log_access<F: Fields>(&self, ended: &Ended<'_, F>, ctx: &Context, micros: u64) {
        let refused = ctx.refused.as_deref().copied().unwrap_or_default();
        let spent = refused.limit.map(|limit| Allowance { limit, remaining: 0 });
        let trace_id = access::trace_id(ctx.notes.trace.as_deref(), remote_span(ended.fields));
        let host = Some(ended.authority.as_bytes()).filter(|authority| !authority.is_empty());
        let host = host.or_else(|| ended.fields.values(Name::Host).next()).unwrap_or_default();
        let line = Line {
            listener: self.observer.listener,
            request_id: ctx.request_id.as_ref().map(RequestId::as_str),
            trace_id: trace_id.as_deref(),
            client: ended.peer.map(|peer| address_of(peer, ended.fields, &self.rules.client_proxies)),
            tenant: Some(tenant(ctx)),
            // No name of a user.
            host: host.rsplit(|byte| *byte == b'@').next().map(Shown),
            route: ctx.route(),
            credential: Some(credential(ctx)),
            agent: ctx.permit().map(Permit::agent).or(refused.agent),
            tier: ctx.permit().map(Permit::tier).or(refused.tier),
            min_tier: ctx.min_tier(),
            domain: ctx.domain(),
            allowance: ctx.passage.as_ref().and_then(Passage::allowance).or(spent),
            decision: decision(ctx),
            method: Some(Shown(ended.method)),
            protocol: Some(ended.protocol),
            path: Some(Shown(path_of(ended.target))),
            status: ended.status,
            error_type: ctx.error_type,
            reason: ctx.closed_for,
            received: ctx.body_bytes,
            sent: ended.sent,
            micros: Some(micros),
            own_micros: Some(ctx.times.own(ctx.begun_at).map_or(micros, state::micros)),
            upstream_micros: ctx.times.upstreams().map(state::micros),
            upstream: ctx.member().map(|member| &member.state.upstream as &dyn Display),
        };
        line.write();
    }
}

/// The end of a request's trace. The names of attributes are OpenTelemetry's, where it has one; no query is shown.
fn end_trace<F>(ended: &Ended<'_, F>, ctx: &Context, now: u64) {
    let Some(trace) = &ctx.notes.trace else { return };
    let outcome = Outcome {
        method: ended.method,
        route: ctx.route(),
        status: ended.status,
        error_type: ctx.error_type,
        is_broken: ended.ending == Ending::Failed,
    };
    let permit = ctx.permit();
    let text = |text: &str| text.to_owned().into();
    let attributes = [
        ("url.path", Some(Shown(path_of(ended.target)).to_string().into())),
        ("tiergate.request_id", Some(text(request_id(ctx)))),
        ("tiergate.tenant", Some(text(tenant(ctx)))),
        ("tiergate.decision", decision(ctx).map(text)),
        ("tiergate.agent", permit.map(|permit| permit.agent().to_string().into())),
        ("tiergate.tier", permit.map(|permit| i64::from(permit.tier().number()).into())),
    ];
    trace.end(&outcome, attributes, now);
}

fn request_id(ctx: &Context) -> &str {
    ctx.request_id.as_ref().map_or("", RequestId::as_str)
}

fn tenant(ctx: &Context) -> &str {
    ctx.site.as_ref().map_or(NO_TENANT, |site| &*site.tenant.id)
}

fn credential(ctx: &Context) -> &'static str {
    ctx.notes.credential.unwrap_or("none")
}

/// The decision about a request; `None`: there was none to be made, as for preflights.
fn decision(ctx: &Context) -> Option<&'static str> {
    match &ctx.passage {
        Some(_) if ctx.permit().is_some() => Some("admitted"),
        Some(_) => Some("public"),
        None => ctx.error_type.map(|_| "refused"),
    }
}
