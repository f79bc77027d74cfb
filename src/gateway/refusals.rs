//! Refusals and failures as answers: the error table's, with an admitted agent's limits and the request's id.

use crate::gateway::Gateway;
use crate::gateway::context::Context;
use crate::http1::writing::Lines;
use crate::wire::answers::Answer;
use crate::wire::errors::ErrorCause;
use crate::wire::headers::{write_allowance, write_ietf};

impl Gateway {
    /// The answer to a request that is refused, or has failed.
    pub(super) fn answer_to(&self, cause: &ErrorCause, ctx: &mut Context) -> Answer {
        let (error_type, mut answer) = if ctx.speaks_grpc {
            cause.grpc_answer()
        } else {
            cause.gateway_answer(self.clock.unix_millis())
        };
        self.observer.refused(cause, error_type);
        ctx.error_type = Some(error_type);
        let headers = answer.headers_mut();
        if let Some(permit) = ctx.permit() {
            write_allowance(headers, permit.allowance());
            write_ietf(headers, permit.allowance(), None);
        }
        if let Some(id) = &ctx.request_id {
            headers.set("x-request-id", id.as_str().as_bytes());
        }
        answer
    }
}
