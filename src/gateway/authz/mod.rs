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

use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use subtle::{Choice, ConstantTimeEq};
use tokio::time::timeout;

use crate::domain::secret::Secret;
use crate::gateway::Gateway;
use crate::gateway::authz::dialect::Dialect;
use crate::gateway::authz::original::Original;
use crate::gateway::context::Context;
use crate::gateway::observe::{Ended, Ending};
use crate::gateway::policy::identity;
use crate::gateway::refusals::End;
use crate::http1::fields::Fields;
use crate::http1::head::RequestHead;
use crate::serve::connection::Connection;
use crate::serve::turns::Turn;
use crate::serve::whole::Request;
use crate::serve::{Door, Place, end_head};
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

    /// Judges a request of a tenant. `fields` are those that the client sent. Error: the answer to a request that does not pass.
    async fn judge<F: Fields + Sync>(
        &self,
        dialect: Dialect,
        tenant: &str,
        original: &Original,
        fields: &F,
    ) -> Result<Context, Answer> {
        let mut ctx = Context::new(self.gateway.clock.monotonic_micros());
        ctx.request_id = Some(self.gateway.request_ids.of(fields));
        let outcome = self.corridor(dialect, tenant, original, fields, &mut ctx).await;
        let refused = outcome.err().map(|end| self.gateway.answer_to(end, &mut ctx));
        let ended = Ended {
            method: original.method(),
            target: original.target(),
            protocol: "HTTP/1.1",
            authority: original.authority(),
            fields,
            peer: Some(original.peer()),
            status: refused.as_ref().map_or(200, |answer| answer.status().as_u16()),
            sent: refused.as_ref().map_or(0, |answer| answer.body().len() as u64),
            ending: Ending::Whole,
        };
        self.gateway.finished(&ended, &ctx);
        refused.map_or(Ok(ctx), Err)
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

    /// The names that a gateway strips from a request that passes.
    fn to_strip(&self, fields: &impl Fields, ctx: &Context) -> Vec<String> {
        let set = identity::count_set(ctx.permit().is_some());
        identity::to_strip(fields, self.gateway.pipeline.key_format(), set)
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

    /// The head of the answer to a call about a request that passes, or the whole answer to another one.
    async fn answer(&self, call: &Request<'_>) -> Result<Vec<u8>, Answer> {
        let refuse = |cause| self.refuse(cause, call.path, &call.fields, call.peer);
        let (dialect, tenant, target) = asked_at(call.path).ok_or_else(|| refuse(ErrorCause::NotFound))?;
        let answer = async {
            if !self.knows(&call.fields, call.peer) {
                return Err(refuse(ErrorCause::Forbidden));
            }
            let original = Original::of_call(dialect, call, target).map_err(refuse)?;
            let ctx = self.judge(dialect, tenant, &original, &call.fields).await?;
            let stripped = (dialect == Dialect::Envoy).then(|| self.to_strip(&call.fields, &ctx));
            Ok(answers::admitted(&self.gateway, &ctx, stripped))
        };
        let answer = answer.await;
        answer.map_err(|answer| if dialect == Dialect::Nginx { answers::for_nginx(answer) } else { answer })
    }
}

/// The dialect and the tenant that a path names, and what stands behind them, where the dialect has the original's own there.
fn asked_at(path: &str) -> Option<(Dialect, &str, &str)> {
    let (dialect, rest) = path.strip_prefix('/')?.split_once('/')?;
    let dialect = match dialect {
        "forward" => Dialect::Forward,
        "nginx" => Dialect::Nginx,
        "envoy" => Dialect::Envoy,
        _ => return None,
    };
    let (tenant, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (target.is_empty() != (dialect == Dialect::Envoy)).then_some((dialect, tenant, target))
}

/// The listener: HTTP/1, and gRPC over HTTP/2.
pub(crate) struct AuthzDoor(pub(crate) Arc<Authz>);

impl Door for AuthzDoor {
    const SPEAKS_HTTP2: bool = true;

    async fn serve_http1(
        &self,
        mut connection: Box<Connection>,
        head: RequestHead,
    ) -> Option<Box<Connection>> {
        let answer = self.0.answer(&Request::new(&head, connection.fields(), connection.peer.ip())).await;
        let is_to_head = connection.head().get(head.method.clone()) == Some(b"HEAD");
        let goes_on = connection.may_go_on(&head);
        match answer {
            Ok(mut text) => {
                end_head(&mut text, !goes_on);
                connection.write(&text).await
            }
            Err(answer) => connection.answer(&answer, is_to_head, !goes_on).await,
        }
        .ok()?;
        if goes_on && connection.skip_body(&head).await {
            return Some(connection);
        }
        connection.close().await;
        None
    }

    async fn serve_http2(&self, stream: Stream, turn: Turn, place: Place, shutdown: &ShutdownWatch) {
        grpc::serve(&self.0, stream, turn, place, shutdown).await;
    }
}
