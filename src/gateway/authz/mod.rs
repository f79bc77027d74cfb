//! The listener for other gateways: they ask about a request before they forward it themselves. The corridor judges it, and
//! each dialect has its way to say the verdict.
//!
//! A gateway must not be able to misread an answer: 200 is for a request that passes, and for nothing else.

pub(in crate::gateway) mod dialect;

mod answers;
mod grpc;
mod original;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use subtle::{Choice, ConstantTimeEq};
use tokio::time::timeout;

use crate::domain::secret::Secret;
use crate::gateway::Gateway;
use crate::gateway::authz::dialect::Dialect;
use crate::gateway::authz::grpc::GrpcService;
use crate::gateway::authz::original::Original;
use crate::gateway::context::Context;
use crate::gateway::observe::{Ended, Ending};
use crate::gateway::policy::identity;
use crate::gateway::refusals::End;
use crate::http1::fields::Fields;
use crate::http1::head::RequestHead;
use crate::serve::connection::Connection;
use crate::serve::turns::Turn;
use crate::serve::whole::{Request, WholeAnswers, WholeService};
use crate::serve::{Door, Place};
use crate::telemetry::faults::FaultLog;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;

/// The header in which a gateway sends the secret.
const SECRET: &str = "x-authz-secret";

/// How other gateways are answered.
pub(crate) struct AuthzRules {
    /// Secrets of which a gateway sends one; empty: any may ask.
    pub(crate) secrets: Vec<Secret>,
    /// The longest that a decision takes.
    pub(crate) timeout: Duration,
}

/// Judges the requests of other gateways.
pub(crate) struct Authz {
    gateway: Arc<Gateway>,
    rules: AuthzRules,
    faults: FaultLog,
}

/// Somebody asks without the secret, for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0} asks about requests without the secret of [authz]")]
struct NoSecret(IpAddr);

/// The verdict about a request.
struct Verdict {
    /// The headers for its upstream, where it passes.
    identity: Option<HeaderMap>,
    /// The answer to its client, or the headers of ours for the upstream's.
    answer: Answer,
}

impl Authz {
    pub(crate) fn new(gateway: Arc<Gateway>, rules: AuthzRules) -> Self {
        let faults = FaultLog::new("authz", Arc::clone(&gateway.clock));
        Self { gateway, rules, faults }
    }

    /// True if a call shows the secret, once.
    fn knows(&self, fields: &impl Fields, peer: IpAddr) -> bool {
        let mut shown = fields.all().filter(|(name, _)| name.eq_ignore_ascii_case(SECRET.as_bytes()));
        let one = shown.next().map(|(_, value)| value).filter(|_| shown.next().is_none()).unwrap_or_default();
        let is_any = |found: Choice, secret: &Secret| found | secret.reveal().as_bytes().ct_eq(one);
        let is_known = self.rules.secrets.is_empty()
            || bool::from(self.rules.secrets.iter().fold(Choice::from(0), is_any));
        if !is_known {
            self.faults.note(&NoSecret(peer));
        }
        is_known
    }

    /// Judges a request of a tenant. `fields` are those that the client sent.
    async fn judge<F: Fields + Sync>(
        &self,
        dialect: Dialect,
        tenant: &str,
        original: &Original,
        fields: &F,
    ) -> (Context, Verdict) {
        let mut ctx = Context::new(self.gateway.clock.monotonic_micros());
        ctx.request_id = Some(self.gateway.request_ids.of(fields));
        let outcome = self.corridor(dialect, tenant, original, fields, &mut ctx).await;
        let verdict = match outcome {
            Ok(()) => self.admitted(&ctx),
            Err(end) => Verdict { identity: None, answer: self.gateway.answer_to(end, &mut ctx) },
        };
        let status = verdict.answer.status().as_u16();
        let ended = Ended {
            method: original.method(),
            target: original.target(),
            protocol: "HTTP/1.1",
            authority: original.authority(),
            fields,
            peer: Some(original.peer()),
            status,
            sent: verdict.answer.body().len() as u64,
            ending: Ending::Whole,
        };
        self.gateway.finished(&ended, &ctx);
        (ctx, verdict)
    }

    async fn corridor<F: Fields + Sync>(
        &self,
        dialect: Dialect,
        tenant: &str,
        original: &Original,
        fields: &F,
        ctx: &mut Context,
    ) -> Result<(), End> {
        let gateway = &self.gateway;
        let site = gateway.table.load().named(tenant).map(Arc::clone).ok_or(ErrorCause::NotFound)?; // 404
        let request = original.incoming(dialect, fields);
        let route = gateway.route_at(site, &request, ctx)?;
        gateway.begin_trace(fields, ctx);
        let admitted = timeout(self.rules.timeout, gateway.admit(&request, route, &mut ctx.notes)).await;
        match admitted.unwrap_or(Err(ErrorCause::Overloaded)) {
            Ok(passage) => ctx.let_through(passage),
            Err(cause) => return Err(gateway.show_way(cause, &request, ctx)), // 503, if it takes too long
        }
        Ok(())
    }

    fn admitted(&self, ctx: &Context) -> Verdict {
        let (mut identity, mut answer) = (HeaderMap::new(), Answer::new(Vec::new()));
        self.gateway.write_identity(ctx, &mut identity);
        ctx.write_answer_headers(answer.headers_mut());
        Verdict { identity: Some(identity), answer }
    }

    /// The names that a gateway strips from a request that passes with these headers.
    fn to_strip(&self, fields: &impl Fields, identity: &HeaderMap) -> Vec<String> {
        identity::to_strip(fields, self.gateway.pipeline.key_format(), identity)
    }

    /// The answer to a call that asks about no request that could be judged. The log shows the call's own path.
    fn refuse(&self, cause: ErrorCause, path: &str, fields: &impl Fields, peer: IpAddr) -> Answer {
        let mut ctx = Context::new(self.gateway.clock.monotonic_micros());
        let answer = self.gateway.answer_to(cause.into(), &mut ctx);
        let ended = Ended {
            method: b"",
            target: path.as_bytes(),
            protocol: "HTTP/1.1",
            authority: "",
            fields,
            peer: Some(peer),
            status: answer.status().as_u16(),
            sent: answer.body().len() as u64,
            ending: Ending::Whole,
        };
        self.gateway.finished(&ended, &ctx);
        answer
    }

    async fn answer_call(&self, dialect: Dialect, call: &Request<'_>) -> Result<Answer, ErrorCause> {
        if !self.knows(&call.fields, call.peer) {
            return Err(ErrorCause::Forbidden);
        }
        let (tenant, target) = tenant_and_target(dialect, call.path).ok_or(ErrorCause::NotFound)?;
        let original = Original::of_call(dialect, call, target)?;
        let (_, Verdict { identity, answer }) = self.judge(dialect, tenant, &original, &call.fields).await;
        let Some(identity) = identity else { return Ok(answer) };
        let stripped = (dialect == Dialect::Envoy).then(|| self.to_strip(&call.fields, &identity));
        Ok(answers::admitted(answer, identity, stripped))
    }
}

impl WholeService for Arc<Authz> {
    type Endpoint = Dialect;
    type Notes = ();

    fn begin(&self, _: &Request<'_>) {}

    fn find(&self, request: &Request<'_>) -> Result<(Dialect, usize), ErrorCause> {
        let known =
            [("/forward/", Dialect::Forward), ("/nginx/", Dialect::Nginx), ("/envoy/", Dialect::Envoy)];
        let found = known.into_iter().find(|(path, _)| request.path.starts_with(path));
        found.map(|(_, dialect)| (dialect, 0)).ok_or(ErrorCause::NotFound)
    }

    async fn answer(
        &self,
        dialect: Dialect,
        request: &Request<'_>,
        _: &[u8],
        (): &mut (),
    ) -> Result<Answer, ErrorCause> {
        let answer = self.answer_call(dialect, request).await;
        let refuse = |cause| self.refuse(cause, request.path, &request.fields, request.peer);
        let answer = answer.unwrap_or_else(refuse);
        Ok(if dialect == Dialect::Nginx { answers::for_nginx(answer) } else { answer })
    }
}

/// The tenant that a path names, and what stands behind it.
fn tenant_and_target(dialect: Dialect, path: &str) -> Option<(&str, &str)> {
    let (_, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (tenant, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (target.is_empty() != (dialect == Dialect::Envoy)).then_some((tenant, target))
}

/// The listener: HTTP/1, and gRPC over HTTP/2.
pub(crate) struct AuthzDoor {
    calls: WholeAnswers<Arc<Authz>>,
    checks: GrpcService,
}

impl AuthzDoor {
    pub(crate) fn new(authz: Authz) -> Self {
        let clock = Arc::clone(&authz.gateway.clock);
        let authz = Arc::new(authz);
        Self { calls: WholeAnswers::new(Arc::clone(&authz), clock), checks: GrpcService::new(authz) }
    }
}

impl Door for AuthzDoor {
    const SPEAKS_HTTP2: bool = true;

    async fn serve_http1(&self, connection: Box<Connection>, head: RequestHead) -> Option<Box<Connection>> {
        self.calls.serve_http1(connection, head).await
    }

    async fn serve_http2(&self, stream: Stream, turn: Turn, place: Place, shutdown: &ShutdownWatch) {
        self.checks.serve(stream, turn, place, shutdown).await;
    }
}
