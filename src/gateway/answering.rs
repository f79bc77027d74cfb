//! What clients see: refusals and failures out of the error table, and the limits on what upstreams answer.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use crate::domain::denial::Denial;
use crate::domain::quota::Allowance;
use crate::gateway::Gateway;
use crate::gateway::context::Context;
use crate::pipeline::refusal::Refusal;
use crate::serve::whole::head_of;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
use crate::wire::headers::{REQUEST_ID, is_about_limits, write_allowance, write_ietf};

/// What a client may show, where it has shown nothing that counts (RFC 9110, section 11.6.1).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"agents\"");

impl Gateway {
    /// Answers a request that nobody lets through.
    pub(super) async fn refuse(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        cause: &ErrorCause,
    ) -> pingora::Result<()> {
        let answer = self.answer_to(cause, ctx);
        let head_only = session.req_header().method == Method::HEAD;
        let (parts, body) = answer.into_parts();
        let is_bare = head_only || body.is_empty();
        session.write_response_header(Box::new(head_of(&parts)?), is_bare).await?;
        if !is_bare {
            session.write_response_body(Some(body.into()), true).await?;
        }
        Ok(())
    }

    /// Answers a request that failed on its way; gives the status. An answer that had begun breaks off.
    pub(super) async fn answer_failure(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        cause: &ErrorCause,
    ) -> u16 {
        let answer = self.answer_to(cause, ctx);
        let status = answer.status().as_u16();
        let (parts, mut body) = answer.into_parts();
        if session.req_header().method == Method::HEAD {
            body.clear();
        }
        let written = match head_of(&parts) {
            Ok(head) => session.write_error_response(head, body.into()).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            tracing::debug!("a client did not take its answer");
        }
        status
    }

    fn answer_to(&self, cause: &ErrorCause, ctx: &mut Context) -> Answer {
        let (error_type, mut answer) = cause.answer(self.clock.unix_millis());
        self.observer.refused(cause, error_type);
        ctx.error_type = Some(error_type);
        let is_unproven = answer.status() == StatusCode::UNAUTHORIZED;
        let headers = answer.headers_mut();
        if let ErrorCause::Refused(Refusal::Denied(Denial::RateLimited { limit, retry_after, .. })) = cause {
            write_ietf(headers, Allowance { limit: *limit, remaining: 0 }, Some(*retry_after));
        } else if let Some(permit) = ctx.permit() {
            write_allowance(headers, permit.allowance());
            write_ietf(headers, permit.allowance(), None);
        }
        if is_unproven {
            headers.insert(http::header::WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Some(id) = &ctx.request_id {
            headers.insert(REQUEST_ID, id.value().clone());
        }
        answer
    }
}

/// Writes the limits into an upstream's answer, instead of its own.
pub(super) fn dress(response: &mut ResponseHeader, ctx: &Context) -> Result<(), Box<Error>> {
    for name in about_limits(&response.headers) {
        response.remove_header(&name);
    }
    if response.status != StatusCode::SWITCHING_PROTOCOLS {
        for name in of_one_hop(&response.headers) {
            response.remove_header(&name);
        }
        if response.status.is_informational() {
            return Ok(());
        }
    }
    if let Some((permit, quota)) = ctx.permit().zip(ctx.quota_headers()) {
        for (name, value) in quota.with_remaining(permit.allowance().remaining) {
            response.insert_header(name, value)?;
        }
    }
    if let Some(id) = &ctx.request_id {
        response.insert_header("X-Request-Id", id.value())?;
    }
    Ok(())
}

/// What an upstream says to us alone: what `Connection` names, and what always goes with it (RFC 9110, section 7.6.1).
fn of_one_hop(headers: &HeaderMap) -> Vec<HeaderName> {
    let named = headers.get_all(http::header::CONNECTION).iter();
    let named = named.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let named = named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let always = [HeaderName::from_static("keep-alive"), HeaderName::from_static("proxy-connection")];
    // What frames the answer is the library's, and stays whatever is said of it.
    let framing = [http::header::TRANSFER_ENCODING, http::header::CONTENT_LENGTH];
    named.chain(always).filter(|name| headers.contains_key(name) && !framing.contains(name)).collect()
}

/// Takes what an upstream says about limits out of its trailers.
pub(super) fn strip_limits(trailers: &mut HeaderMap) {
    for name in about_limits(trailers) {
        trailers.remove(&name);
    }
}

fn about_limits(headers: &HeaderMap) -> Vec<HeaderName> {
    headers.keys().filter(|name| is_about_limits(name)).cloned().collect()
}
