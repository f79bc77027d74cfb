//! Refusals and failures as answers: the error table's, with the limits, the challenge and the request's id.

use http::{HeaderValue, StatusCode};

use crate::domain::denial::Denial;
use crate::domain::quota::Allowance;
use crate::gateway::Gateway;
use crate::gateway::context::Context;
use crate::http1::writing::Lines;
use crate::pipeline::refusal::Refusal;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
use crate::wire::headers::{write_allowance, write_ietf};

/// The credential that an unproven client may show (RFC 9110, section 11.6.1).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"agents\"");

impl Gateway {
    /// The answer to a request that is refused, or has failed.
    pub(in crate::gateway) fn answer_to(&self, cause: &ErrorCause, ctx: &mut Context) -> Answer {
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
            headers.set("x-request-id", id.as_str().as_bytes());
        }
        answer
    }
}
