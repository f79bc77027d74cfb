//! Refusals and failures as answers: the error table's, with an admitted agent's limits and the request's id.

use http::header::{LINK, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::error::Error;
use crate::gateway::context::{Context, destination_of};
use crate::gateway::{Gateway, policy::cors};
use crate::wire::Answer;

/// The link to the rules. It is relative, so that it is right whatever the host is called.
const HELP: HeaderValue = HeaderValue::from_static("</.well-known/tiergate>; rel=\"help\"");

/// Why a request goes no further.
pub(super) enum End {
    /// A refusal or a failure.
    Error(Error),
    /// A preflight: the request only asks what a page of another origin may do.
    Preflight,
    /// The message of MCP has to be read before anything is decided.
    NeedsMessage,
    /// The document about the way in that the request asks for.
    Document(Box<Answer>),
}

impl From<Error> for End {
    fn from(cause: Error) -> Self {
        Self::Error(cause)
    }
}

impl Gateway {
    /// The answer to a request that goes no further.
    pub(super) fn answer_to(&self, end: End, ctx: &mut Context) -> Answer {
        let mut answer = match end {
            End::Error(cause) => self.error(&cause, ctx),
            End::Preflight => preflight(ctx),
            End::Document(answer) => *answer,
            End::NeedsMessage => self.error(&Error::Internal, ctx),
        };
        ctx.write_answer_headers(answer.headers_mut());
        answer
    }

    fn error(&self, cause: &Error, ctx: &mut Context) -> Answer {
        let key_advice = self.key_advice(ctx);
        let (error_type, mut answer) = if ctx.speaks_grpc {
            cause.grpc_answer()
        } else {
            cause.gateway_answer(self.clock.unix_millis(), key_advice)
        };
        if cause.is_unauthenticated() {
            write_challenge(ctx, answer.headers_mut());
            self.write_accept_signature(cause.message_refusal(), ctx, answer.headers_mut());
        }
        let Context { site, decision, record, .. } = ctx;
        self.observer.recorder.refused(
            cause,
            error_type,
            record,
            &destination_of(site.as_deref(), *decision),
        );
        ctx.speak_mcp(&mut answer, key_advice.filter(|_| cause.is_unauthenticated()));
        answer
    }

    /// How one who has no key gets one, where that may be said.
    fn key_advice(&self, ctx: &Context) -> Option<&str> {
        let may_advise = ctx.site.as_ref().is_some_and(|site| site.may_advise_keys());
        may_advise.then(|| self.rules.discovery.key_advice())
    }
}

/// Writes the headers of a 401 that lead on.
fn write_challenge(ctx: &mut Context, headers: &mut HeaderMap) {
    if let Some(challenge) = ctx.challenge.take() {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    if ctx.has_documents && ctx.site.as_ref().is_some_and(|site| site.shown.rules) {
        headers.insert(LINK, HELP);
    }
}

/// The answer to a preflight. It says nothing to a page that may not use the API.
fn preflight(ctx: &Context) -> Answer {
    let mut answer = Answer::new(Vec::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    if let (Some(rules), Some(_)) = (ctx.cors(), &ctx.origin) {
        cors::write_preflight(rules, answer.headers_mut());
    }
    answer
}
