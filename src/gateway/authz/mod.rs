//! The listener for other gateways: they ask about a request before they forward it themselves. `Gateway::admit` judges it, and
//! each dialect has its way to say the verdict.
//!
//! A gateway must not be able to misread an answer: 200 is for a request that passes, and for nothing else.

mod grpc;
mod original;

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use subtle::{Choice, ConstantTimeEq};

use crate::domain::Secret;
use crate::error::Error;
use crate::gateway::authz::original::Original;
use crate::gateway::{Gateway, context::Context, policy::requests, rule::Dialect};
use crate::http1::{Fields, Lines, RequestHead};
use crate::record::{Ended, Ending};
use crate::serve::{
    Handler, Request, Slot, Timer, connection::Connection, end_head, fair_scheduler::FairShare,
};
use crate::telemetry::FaultLog;
use crate::wire::{Answer, NO_STORE, grpc::is_spoken};

/// The header in which a gateway sends the secret.
const SECRET: &str = "x-authz-secret";

/// The names that Envoy strips from the request, in an answer that lets it pass.
const TO_REMOVE: &str = "x-envoy-auth-headers-to-remove";

/// The status that is meant. Only we set it: a gateway that demands it takes no other server's 200.
const STATUS: &str = "X-Authz-Status";

/// The reason why a request can't pass a gateway that strips headers by name.
const RESPELLED: Error =
    Error::Malformed { problem: "a header has a name of ours in another spelling, as X_Agent_Id" };

/// Judges the requests of other gateways.
pub(crate) struct Authz {
    gateway: Arc<Gateway>,
    /// Of which a gateway sends one; `None`: any gateway may ask.
    secrets: Option<Vec<TenantSecret>>,
    faults: FaultLog,
}

/// A secret, and the one tenant that it is good for; `None`: for all.
pub(crate) type TenantSecret = (Option<Box<str>>, Secret);

impl Authz {
    /// Judges by a gateway's rules.
    pub(crate) fn new(gateway: Arc<Gateway>, secrets: Option<Vec<TenantSecret>>) -> Self {
        let faults = FaultLog::new("authz", Arc::clone(&gateway.clock));
        Self { gateway, secrets, faults }
    }

    /// True if a call shows the secret, once. Where its tenant is known, a secret of that tenant or of all.
    fn knows(&self, fields: &impl Fields, peer: IpAddr, tenant: Option<&str>) -> bool {
        let Some(secrets) = &self.secrets else { return true };
        let mut shown = fields.all().filter(|(name, _)| name.eq_ignore_ascii_case(SECRET.as_bytes()));
        let one = shown.next().map(|(_, value)| value).filter(|_| shown.next().is_none()).unwrap_or_default();
        let is_for = |of: Option<&str>| of.zip(tenant).is_none_or(|(of, tenant)| of == tenant);
        let good = secrets.iter().filter(|(of, _)| is_for(of.as_deref()));
        let is_any =
            |found: Choice, (_, secret): &TenantSecret| found | secret.reveal().as_bytes().ct_eq(one);
        let is_known = bool::from(good.fold(Choice::from(0), is_any));
        if !is_known {
            self.faults.note(format_args!("{peer} asks about requests without the secret of [authz]"));
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
        let mut ctx = Context::new();
        ctx.record.request_id = Some(self.gateway.request_ids.of(fields));
        // Their answers are 200, which is leave elsewhere.
        ctx.speaks_grpc = dialect.takes_success() && is_spoken(fields);
        let request = original.incoming(dialect, tenant, fields);
        let refused = match self.gateway.admit(&request, &mut ctx).await {
            Ok(()) => None,
            Err(end) => Some(self.gateway.answer_to(end, &mut ctx)),
        };
        let parts = (original.method(), original.target(), original.authority(), original.peer);
        self.note(parts, fields, refused.as_ref(), &ctx);
        refused.map_or(Ok(ctx), Err)
    }

    /// Counts and logs a request that was judged, or a call: its method, target, host and client.
    fn note<F: Fields>(
        &self,
        (method, target, authority, peer): (&[u8], &[u8], &str, IpAddr),
        fields: &F,
        refused: Option<&Answer>,
        ctx: &Context,
    ) {
        let ended = Ended {
            method,
            target,
            protocol: "HTTP/1.1",
            authority,
            fields,
            peer: Some(peer),
            status: refused.map_or(200, |answer| answer.status().as_u16()),
            sent: refused.map_or(0, |answer| answer.body().len() as u64),
            ending: Ending::Whole,
            at: Timer::now(),
        };
        self.gateway.finished(&ended, ctx);
    }

    /// The names that a gateway strips from a request that passes.
    fn to_strip(&self, fields: &impl Fields, ctx: &Context) -> Vec<Bytes> {
        let mut set = Vec::<&str>::new();
        ctx.write_identity(&mut set);
        let believed = &self.gateway.rules.believed.headers;
        requests::to_strip(fields, &self.gateway.pipeline.rules().key_format, believed, &set)
    }

    /// The answer to a call that asks about no request that could be judged.
    fn refuse<F: Fields>(&self, cause: Error, method: &[u8], path: &str, fields: &F, peer: IpAddr) -> Answer {
        let mut ctx = Context::new();
        ctx.record.request_id = Some(self.gateway.request_ids.of(fields));
        let answer = self.gateway.answer_to(cause.into(), &mut ctx);
        self.note((method, path.as_bytes(), "", peer), fields, Some(&answer), &ctx);
        answer
    }

    /// The head of the answer to a call about a request that passes, or the whole answer to another one.
    async fn answer(&self, call: &Request<'_>) -> Result<Vec<u8>, Answer> {
        let (method, fields) = (call.method.as_bytes(), &call.fields);
        let refuse = |cause| self.refuse(cause, method, call.path, fields, call.peer);
        let asked = asked_at(call.path).ok_or(Error::NotFound);
        let (dialect, tenant, target) = asked.map_err(refuse)?;
        let original = if !self.knows(fields, call.peer, Some(tenant)) {
            Err(Error::Overloaded) // 503: it is no fault of the client's
        } else if dialect.strips_by_names() && requests::is_respelled(fields) {
            Err(RESPELLED)
        } else {
            Original::from_call(dialect, call, target)
        };
        let judged = match original {
            Ok(original) => self.judge(dialect, tenant, &original, fields).await,
            Err(cause) => Err(refuse(cause)),
        };
        let is_nginx = dialect == Dialect::Nginx;
        let ctx = judged.map_err(|answer| if is_nginx { for_nginx(answer) } else { answer })?;
        let stripped = (dialect == Dialect::Envoy).then(|| self.to_strip(fields, &ctx));
        Ok(admitted(&ctx, stripped.as_deref()))
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
pub(crate) struct AuthzHandler(pub(crate) Arc<Authz>);

impl Handler for AuthzHandler {
    const SPEAKS_HTTP2: bool = true;

    fn refused(answer: Answer) -> Answer {
        in_headers_too(answer)
    }

    async fn serve_http1(
        &self,
        mut connection: Box<Connection>,
        head: RequestHead,
    ) -> Option<Box<Connection>> {
        let answer = self.0.answer(&Request::new(&head, connection.fields(), connection.peer.ip())).await;
        let is_to_head = connection.head.get(head.method.clone()) == Some(b"HEAD");
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

    async fn serve_http2(&self, stream: Stream, share: FairShare, slot: Slot, shutdown: &ShutdownWatch) {
        grpc::serve(&self.0, stream, share, slot, shutdown).await;
    }
}

/// The head of the answer that lets a request pass, but for its end: 200 without a body, and the names to strip where the gateway
/// reads them.
fn admitted(ctx: &Context, stripped: Option<&[Bytes]>) -> Vec<u8> {
    let mut text = Vec::with_capacity(1_024);
    text.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    ctx.write_identity(&mut text);
    ctx.write_answer_headers(&mut text);
    text.set(STATUS, b"200");
    text.set("Cache-Control", NO_STORE.as_bytes());
    text.set("Content-Length", b"0");
    if let Some(names) = stripped {
        text.set(TO_REMOVE, &names.join(&b','));
    }
    text
}

/// A refusal as nginx takes it: 403 without a body, which would cost a connection, and the true status and body in headers.
fn for_nginx(answer: Answer) -> Answer {
    let (mut parts, _) = in_headers_too(answer).into_parts();
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.insert(CONTENT_LENGTH, 0.into());
    parts.status = StatusCode::FORBIDDEN;
    Answer::from_parts(parts, Vec::new())
}

/// A refusal with its status and body in headers too: nginx reads nothing else of it.
fn in_headers_too(mut answer: Answer) -> Answer {
    let (status, line) = (answer.status().as_u16().into(), HeaderValue::try_from(one_line(answer.body())));
    answer.headers_mut().insert(HeaderName::from_static("x-authz-status"), status);
    if let Ok(line) = line {
        answer.headers_mut().insert(HeaderName::from_static("x-authz-body"), line);
    }
    answer
}

/// JSON in printable ASCII.
fn one_line(json: &[u8]) -> String {
    let mut line = String::with_capacity(json.len());
    for character in String::from_utf8_lossy(json).chars() {
        match character {
            ' '..='~' => line.push(character),
            _ if character.is_control() => {}
            _ => character
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Dialect, asked_at};

    #[test]
    fn a_path_names_a_dialect_and_a_tenant_and_has_a_target_behind_them_for_envoy_alone() {
        for (path, asked) in [
            ("/forward/acme", (Dialect::Forward, "acme", "")),
            ("/nginx/acme", (Dialect::Nginx, "acme", "")),
            ("/envoy/acme/", (Dialect::Envoy, "acme", "/")),
            ("/envoy/acme//public/../x", (Dialect::Envoy, "acme", "//public/../x")),
            ("/forward/%61cme", (Dialect::Forward, "%61cme", "")),
            ("/envoy//public/x", (Dialect::Envoy, "", "/public/x")),
        ] {
            assert_eq!(asked_at(path), Some(asked), "{path}");
        }
        let others = "/ /forward /forward/acme/ /forward/acme/x /forward//acme /FORWARD/acme /forwards/acme /nginx \
                      /nginx/acme/x /envoy /envoy/ /envoy/acme /public/x /livez /metrics /./forward/acme \
                      forward/acme /forward/acme/../beta /envoy.service.auth.v3.Authorization/Check";
        assert!(others.split(' ').all(|path| asked_at(path).is_none()), "{others}");
    }
}
