//! Answers over the HTTP library: refusals and failures written, upstreams' answers rewritten.

use http::{HeaderMap, HeaderName, Method, StatusCode};
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use crate::gateway::Gateway;
use crate::gateway::context::Context;
use crate::gateway::policy::answers::{is_about_limits, is_of_one_hop};
use crate::http1::name::Name;
use crate::wire::errors::ErrorCause;
use crate::wire::headers::contract_spelling;

impl Gateway {
    /// Answers a request that is refused.
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
}

/// Rewrites an upstream's answer for the client.
pub(super) fn rewrite(response: &mut ResponseHeader, ctx: &Context) -> Result<(), Box<Error>> {
    let switches = response.status == StatusCode::SWITCHING_PROTOCOLS;
    for name in names_that(&response.headers, |id, name| {
        is_about_limits(name) || (!switches && is_of_one_hop(&response.headers, id, name))
    }) {
        response.remove_header(&name);
    }
    if response.status.is_informational() && !switches {
        return Ok(());
    }
    let mut ours = HeaderMap::new();
    ctx.write_answer_headers(&mut ours);
    for (name, value) in &ours {
        match contract_spelling(name) {
            Some(spelling) => response.insert_header(spelling, value)?,
            None => response.insert_header(name, value)?,
        }
    }
    Ok(())
}

/// Strips an upstream's limits out of its trailers.
pub(super) fn strip_limits(trailers: &mut HeaderMap) {
    for name in names_that(trailers, |_, name| is_about_limits(name)) {
        trailers.remove(&name);
    }
}

/// The names of which this holds.
pub(super) fn names_that(headers: &HeaderMap, holds: impl Fn(Name, &[u8]) -> bool) -> Vec<HeaderName> {
    let text = |name: &HeaderName| holds(Name::of(name.as_str().as_bytes()), name.as_str().as_bytes());
    headers.keys().filter(|name| text(name)).cloned().collect()
}

/// The head with header names as the contract spells them, for clients that compare them letter by letter.
fn head_of(parts: &http::response::Parts) -> pingora::Result<ResponseHeader> {
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len()))?;
    for (name, value) in &parts.headers {
        match contract_spelling(name) {
            Some(spelling) => head.append_header(spelling, value)?,
            None => head.append_header(name, value)?,
        };
    }
    Ok(head)
}
