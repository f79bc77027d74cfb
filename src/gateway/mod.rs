//! The gateway: a proxy in front of tenants' APIs that lets verified agents through.
//!
//! [`Gateway::admit`] shows the way of every request: it runs once, whatever protocol the request came by and whichever way it
//! leaves. The relay or the library forwards it then; `policy` has the rules about headers for both. Must not know chain or
//! store.

mod authz;
mod in_flight;
pub(crate) mod library;
pub(crate) mod policy;
pub(crate) mod relay;
pub(crate) mod rule;
mod site;
pub(crate) mod watch;

mod admission;
mod context;
mod counters;
mod discovery;
mod failure;
mod held;
mod mcp;
mod refusals;
mod tries;
mod upstreams;

pub(crate) use authz::{Authz, AuthzHandler, TenantSecret};
pub(crate) use site::{LiveTable, Site, SiteBuilder, Table};
pub(crate) use watch::Watch;

use std::{fmt::Display, sync::Arc, time::Duration};

use ipnet::IpNet;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;

use crate::bots::Bots;
use crate::domain::{McpRules, RouteAccess};
use crate::error::Error;
use crate::gateway::policy::forwarded::{self, Arrival, Believed};
use crate::gateway::relay::{Relay, incoming};
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{
    context::Context, context::destination_of, counters::SiteCounters, held::Memory,
    in_flight::InFlightLimits, library::LibraryHandler, policy::answers, policy::forwarded::Via,
    refusals::End, relay::pool::Pool, rule::Dialect,
};
use crate::http1::{FIELDS_MAX, Fields, Lines, RequestHead, name::Name};
use crate::message_signature::Terms;
use crate::pipeline::Pipeline;
use crate::ports::{Clock, Entropy, NoEntropy};
use crate::record::{Destination, Ended, Ending, Recorder};
use crate::serve::{Handler, Slot, Timer, connection::Connection, fair_scheduler::FairShare};
use crate::telemetry::{Metrics, NO_TENANT, RouteSeries, Tracer};
use crate::wire::{Discovery, RequestIds, TRACESTATE, client_ip::is_trusted};

/// How long a client may pause in its body.
const BODY_READ_TIME_MAX: Duration = Duration::from_secs(30);

/// The gateway's listener, of one worker.
pub(crate) struct GatewayHandler {
    relay: Relay,
    library: LibraryHandler,
}

impl Handler for GatewayHandler {
    const SPEAKS_HTTP2: bool = true;

    async fn serve_http1(
        &self,
        mut connection: Box<Connection>,
        head: RequestHead,
    ) -> Option<Box<Connection>> {
        let gateway = &self.relay.gateway;
        let mut ctx = Context::new();
        ctx.record.request_id = Some(gateway.request_ids.of(&connection.fields()));
        let mut admitted = self.admit(&connection, &head, Message::Unread, &mut ctx).await;
        if matches!(admitted, Err(End::NeedsMessage)) {
            // In a box, as below.
            match Box::pin(self.relay.read_message(&mut connection, &head, &mut ctx)).await {
                Ok(read) => {
                    let message = read.message(&connection.ahead);
                    admitted = self.admit(&connection, &head, message, &mut ctx).await;
                }
                Err(failure) => match failure.cause(None) {
                    Some(cause) => admitted = Err(cause.into()),
                    None => {
                        self.relay.note(&connection, &head, &ctx, 0, 0, Ending::ClientLeft);
                        return None;
                    }
                },
            }
        }
        match admitted {
            Ok(()) if relay::takes(&ctx, &head) => self.relay.forward(connection, &head, &mut ctx).await,
            // In a box: its future is large, and most requests don't need it.
            Ok(()) => Box::pin(self.library.forward(connection, head, ctx)).await,
            Err(end) => self.relay.refuse(connection, &head, &mut ctx, end).await,
        }
    }

    async fn serve_http2(&self, stream: Stream, share: FairShare, slot: Slot, shutdown: &ShutdownWatch) {
        let peer = stream.get_socket_digest().and_then(|digest| digest.peer_addr()?.as_inet().copied());
        let is_shared =
            peer.is_some_and(|peer| is_trusted(peer.ip(), &self.relay.gateway.rules.believed.proxies));
        self.library.serve_http2(stream, share, slot, is_shared, shutdown).await;
    }
}

impl GatewayHandler {
    async fn admit(
        &self,
        connection: &Connection,
        head: &RequestHead,
        message: Message<'_>,
        ctx: &mut Context,
    ) -> Result<(), End> {
        let fields = connection.fields();
        let request = incoming(connection, head, &fields, message)
            .ok_or(Error::Malformed { problem: "its method is no text" })?;
        self.relay.gateway.admit(&request, ctx).await
    }

    /// The handler of one worker.
    pub(crate) fn new(gateway: Arc<Gateway>, library: LibraryHandler, pool: Arc<Pool>) -> Self {
        Self { relay: Relay { gateway, pool }, library }
    }
}

/// How requests are forwarded, to whatever tenant.
pub(crate) struct GatewayRules {
    /// Proxies that are believed, and which of their headers.
    pub(crate) believed: Believed,
    /// Networks of those whose `X-Forwarded-For` names the client.
    pub(crate) client_proxies: Vec<IpNet>,
    /// How long a connection of HTTP/2 may be idle.
    pub(crate) idle: Duration,
    /// How many requests may be under way at once.
    pub(crate) in_flight_max: u32,
    /// How messages of MCP are read.
    pub(crate) mcp: McpRules,
    /// The terms of requests that are signed themselves.
    pub(crate) terms: Terms,
    /// The bots that prove their domain; `None`: none does.
    pub(crate) bots: Option<Arc<Bots>>,
    /// The documents about the service.
    pub(crate) discovery: Arc<Discovery>,
    /// The name in `Via`; `None`: one of its own.
    pub(crate) via: Option<Box<str>>,
    /// Begins traces; `None`: no request is traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The listener's name in metrics and logs.
    pub(crate) listener: &'static str,
    /// The longest that it takes to verify an agent; `None`: as long as the chain has. A charge is not broken off.
    pub(crate) verify_time_max: Option<Duration>,
}

/// The part of the gateway that all workers share.
pub(crate) struct Gateway {
    table: Arc<LiveTable>,
    pipeline: Arc<Pipeline>,
    rules: GatewayRules,
    clock: Arc<dyn Clock>,
    request_ids: RequestIds,
    via: Via,
    recorder: Recorder,
    /// The counters of requests without a tenant.
    without_tenant: SiteCounters,
    /// The series of requests without a tenant, which have no route either.
    without_route: RouteSeries,
    in_flight: Arc<InFlightLimits>,
    /// Memory for bodies that are held.
    memory: Arc<Memory>,
}

impl Gateway {
    /// The gateway to the tenants of this table.
    pub(crate) fn new(
        table: Arc<LiveTable>,
        pipeline: Arc<Pipeline>,
        rules: GatewayRules,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        metrics: &Metrics,
    ) -> Result<Self, NoEntropy> {
        let request_ids = RequestIds::new(entropy)?;
        let (names, proxies) = ((rules.listener, rules.listener), rules.client_proxies.clone());
        let recorder = Recorder::new(names, proxies, rules.tracer.clone(), metrics, &clock);
        let no_tenant = NO_TENANT.into();
        let via = Via::new(rules.via.clone(), &request_ids);
        let in_flight = Arc::new(InFlightLimits::new(rules.in_flight_max));
        Ok(Self {
            table,
            pipeline,
            rules,
            clock,
            request_ids,
            via,
            recorder,
            without_tenant: SiteCounters::new(metrics, &no_tenant),
            without_route: RouteSeries::new(metrics, &no_tenant, "", None),
            in_flight,
            memory: Arc::default(),
        })
    }

    /// The way of a request to its upstream, up to the proof that it may go there, which the context keeps. It keeps what was
    /// found of a request that is refused, too.
    async fn admit<F: Fields + Sync>(&self, request: &Incoming<'_, F>, ctx: &mut Context) -> Result<(), End> {
        if matches!(request.message, Message::Unread) {
            self.recorder.begin_trace(request.fields, &mut ctx.record, Timer::now());
        }
        let is_stream = self.route(request, ctx)?; // 400, 403, 404, 405, 413, 431, 508
        let Context { site: Some(site), decision: Some(decision), record, .. } = &mut *ctx else {
            return Err(Error::Internal.into());
        };
        match self.authorize(request, (site, *decision, is_stream), record).await {
            Ok((admitted, body)) => (ctx.admitted, ctx.checked_body) = (Some(admitted), body),
            Err(cause) => return Err(self.challenge(cause, request, ctx)), // 400, 401, 403, 404, 413, 429, 500, 503
        }
        Ok(())
    }

    /// Finds the tenant of a request and the tenant's rule for it, which the context keeps. True if the answer to its call of MCP
    /// lasts. Error: also the answer to a request that needs no upstream.
    fn route<F: Fields>(&self, request: &Incoming<'_, F>, ctx: &mut Context) -> Result<bool, End> {
        debug_assert!(ctx.admitted.is_none(), "what is forwarded is what was judged");
        if request.fields.count() > FIELDS_MAX {
            return Err(Error::HeadTooLarge.into()); // 431, for HTTP/2; HTTP/1 has been counted before
        }
        let table = self.table.load();
        let site = match request.tenant {
            Some(id) => table.named(id).ok_or(Error::NotFound)?, // 404
            None => request.authority.and_then(|host| table.find(host)).ok_or(Error::UnknownHost)?, // 404
        };
        ctx.site = Some(Arc::clone(site));
        if let Some(rules) = &site.tenant.cors {
            let origin = request.fields.only(Name::Origin).filter(|origin| rules.allows(origin));
            ctx.origin = origin.map(Into::into);
            if let Some(method) = answers::preflight(request.method, request.fields) {
                let is_denied = site.decide(method, request.path()).access == RouteAccess::Deny;
                ctx.origin = ctx.origin.take().filter(|_| !is_denied);
                let is_answered = request.dialect.is_none_or(Dialect::takes_success);
                return Err(if is_answered { End::Preflight } else { Error::Forbidden.into() });
            }
        }
        if request.dialect.is_none() && self.via.has_passed(request.fields) {
            return Err(Error::Loop.into()); // 508
        }
        let mcp = self.read_mcp(site, request, ctx)?; // 400, 403, 404, 405, 413
        let calls = mcp.as_ref().map(|mcp| &*mcp.calls);
        let (decision, checked) = site.rule(request, calls, &self.pipeline.rules().key_format)?; // 405
        ctx.decision = Some(decision);
        let has_min_tier = decision.access == RouteAccess::Agents;
        ctx.record.min_tier = has_min_tier.then(|| decision.min_tier.number());
        ctx.has_documents = request.dialect.is_none();
        if let Some(document) = checked? // 403, 404
            && let Some(answer) = self.document(document, request, site)
        {
            return Err(End::Document(Box::new(answer)));
        }
        Ok(mcp.is_some_and(|mcp| mcp.is_stream))
    }

    /// Writes the headers of a forwarded request that are ours: who calls, how the request came, and its id.
    fn write_ours<F: Fields>(
        &self,
        fields: &F,
        authority: &[u8],
        ctx: &Context,
        arrival: &Arrival<'_>,
        lines: &mut impl Lines,
    ) {
        ctx.write_identity(lines);
        forwarded::write(fields, arrival, authority, lines);
        self.via.write(fields, arrival.version, lines);
        if let Some(id) = &ctx.record.request_id {
            lines.set("X-Request-Id", id.as_str().as_bytes());
        }
        if let Some(trace) = &ctx.record.trace {
            let [parent, state] = trace.headers();
            lines.set("traceparent", parent.as_bytes());
            if !state.is_empty() {
                lines.set(TRACESTATE, state.as_bytes());
            }
        }
    }

    /// Counts a request that is over, and writes its record.
    fn finished<F: Fields>(&self, ended: &Ended<'_, F>, ctx: &Context) {
        let route = ctx.decision.and_then(|decision| decision.route);
        let own = ctx.site.as_ref().map(|site| (&*site.counters, site.routes.of(route)));
        let (counters, series) = own.unwrap_or((&self.without_tenant, &self.without_route));
        counters.count(&ctx.record, ended.sent, ended.ending);
        let upstream = ctx.member().map(|member| &member.state.upstream as &dyn Display);
        let destination = Destination {
            domain: ctx.domain(),
            upstream,
            ..destination_of(ctx.site.as_deref(), ctx.decision)
        };
        self.recorder.end(&ctx.record, ended, &destination, series);
    }
}
