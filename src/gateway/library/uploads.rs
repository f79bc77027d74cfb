//! Requests toward upstreams of HTTP/2, whose times the library counts from their heads on. It is given small bodies whole;
//! others have a stall timeout to the end of their answer.

use std::sync::Arc;

use pingora::proxy::Session;

use crate::gateway::library::requests::{ended, next_piece, peer_of};
use crate::gateway::{
    BODY_READ_TIME_MAX, Gateway, admission::announced, context::Context, library::LibraryProxy,
    library::bodies::KEPT_BYTES_MAX, library::faults::admitted,
};
use crate::http1::Fields;
use crate::record::Ending;
use crate::serve::{Timer, WRITE_TIME_MAX};

impl LibraryProxy {
    /// Reads a body that is announced and small, so that the library counts its upstream's time from its end on.
    pub(super) async fn take_small_body(&self, session: &mut Session, ctx: &Context) -> pingora::Result<()> {
        let headers = &session.req_header().headers;
        if announced(headers).is_none_or(|length| length > KEPT_BYTES_MAX) || headers.expects_continue() {
            return Ok(());
        }
        session.as_mut().enable_retry_buffering();
        let longest = BODY_READ_TIME_MAX.min(admitted(ctx)?.route.site.tenant.proxy.timeouts.read);
        while !session.is_body_done() && next_piece(session, longest).await?.is_some() {
            self.check_overdue(ctx, false)?;
        }
        Ok(())
    }
}

/// Has the end of a request noted that is dropped before its last phase, because it stalls.
pub(super) fn note_when_dropped(gateway: &Arc<Gateway>, session: &Session, ctx: &mut Context) {
    let (gateway, head, peer) = (Arc::clone(gateway), session.req_header().clone(), peer_of(session));
    ctx.on_drop = Some(Box::new(move |ctx| {
        let asked =
            ctx.record.times.asked.filter(|_| !ctx.awaits_body && ctx.record.times.answered.is_none());
        let read = ctx.site.as_ref().map(|site| site.tenant.proxy.timeouts.read);
        let is_silent = asked.zip(read).is_some_and(|(asked, read)| asked + read <= Timer::now());
        if let Some(member) = ctx.member().filter(|_| is_silent) {
            member.state.leave_connections();
            gateway.note_upstream_failure(ctx, "ReadTimedout");
        }
        let ending = if is_silent { Ending::Failed } else { Ending::ClientLeft };
        gateway.finished(&ended(&head, peer, (0, 0), ending), ctx);
    }));
}

/// Restarts the time limit of a request's bodies: a piece of one has moved.
pub(super) fn restart_timeout(session: &Session, ctx: &Context) {
    let (Some(timeout), Some(site)) = (&ctx.stall_timeout, &ctx.site) else { return };
    let read = site.tenant.proxy.timeouts.read;
    match session.response_written() {
        // The library bounds reads of a client of HTTP/1.
        _ if ctx.awaits_body && !session.is_http2() => timeout.stop(),
        None => timeout.restart(read),
        // A client may take so long for a piece of its answer.
        Some(_) => timeout.restart(read.max(WRITE_TIME_MAX)),
    }
}
