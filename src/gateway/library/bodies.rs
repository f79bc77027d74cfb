//! Bodies of requests: counted and bounded, compared with their digest, and held as a whole where nothing may go before that.
//!
//! Requests toward upstreams of HTTP/2, whose times the library counts from their heads on. It is given small bodies whole;
//! others have a stall timeout to the end of their answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::header::EXPECT;
use pingora::proxy::Session;
use tokio::time::timeout;

use crate::gateway::library::faults::{admitted, error_of};
use crate::gateway::library::requests::{ended, next_piece, peer_of};
use crate::gateway::{
    BODY_READ_TIME_MAX, Gateway, admission::announced, context::Context, failure::Failure,
    library::LibraryProxy, library::answering::give_leave, mcp::ReadMessage,
};
use crate::serve::{Timer, WRITE_TIME_MAX};
use crate::{http1::Fields, record::Ending};

/// How much of a body the library keeps for another try, in bytes.
pub(super) const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// The longest frame of HTTP/2 that clients may send, in bytes.
const FRAME_BYTES_MAX: u64 = 16 * 1024;

impl LibraryProxy {
    /// Reads a body that is held, unless it was read as a message, before an upstream is asked: none waits in silence for it. The library asks for it later if it
    /// has kept its end. So a body that announces no length is left to come then where its end might not be kept.
    pub(super) async fn hold(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        longest: Duration,
    ) -> pingora::Result<()> {
        let message = ctx.message.take();
        if ctx.checked_body.as_ref().is_none_or(|body| body.held.is_none()) {
            return Ok(());
        }
        if let Some(message) = message {
            let mut whole = Some(message.into());
            take_piece(session, &mut whole, true, ctx)?;
            (ctx.held_body, ctx.checked_body) = (whole, None);
            return Ok(());
        }
        let length = announced(&session.req_header().headers);
        if session.req_header().headers.expects_continue() {
            session.req_header_mut().remove_header(&EXPECT);
            give_leave(session).await?;
        }
        while !session.as_ref().retry_buffer_truncated() {
            // The library knows the end of a stream with its last frame, and would never ask for one that it could not keep.
            if length.is_none()
                && session.is_http2()
                && ctx.record.received > KEPT_BYTES_MAX - FRAME_BYTES_MAX
            {
                ctx.record.received = 0;
                ctx.checked_body.iter_mut().for_each(|body| body.restart());
                break;
            }
            if length.is_none_or(|length| length.saturating_sub(ctx.record.received) <= KEPT_BYTES_MAX) {
                session.as_mut().enable_retry_buffering();
            }
            let mut piece = next_piece(session, longest).await?;
            let is_last = piece.is_none();
            self.check_overdue(ctx, is_last)?;
            take_piece(session, &mut piece, is_last, ctx)?;
            if is_last {
                (ctx.held_body, ctx.checked_body) = (piece, None);
                break;
            }
        }
        Ok(())
    }
}

impl LibraryProxy {
    /// Reads a message of MCP before its request is decided about. The library keeps it for the upstream.
    pub(super) async fn read_message(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> pingora::Result<ReadMessage> {
        let most = self.rules.mcp.body_bytes_max;
        if announced(&session.req_header().headers).is_some_and(|length| length > most as u64) {
            return Ok(ReadMessage::TooLong);
        }
        let peer = peer_of(session).ok_or_else(|| error_of(Failure::Internal))?;
        let held = self.reserve_message(peer, &session.req_header().headers, ctx);
        let mut held = held.map_err(error_of)?;
        if session.req_header().headers.expects_continue() {
            session.req_header_mut().remove_header(&EXPECT);
            give_leave(session).await?;
        }
        session.as_mut().enable_retry_buffering();
        let mut body = Vec::new();
        let read = async {
            while let Some(piece) = next_piece(session, BODY_READ_TIME_MAX).await? {
                body.extend_from_slice(&piece);
                held.grow_to(body.len() as u64).map_err(error_of)?;
                if body.len() > most {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let in_time = timeout(BODY_READ_TIME_MAX, read).await;
        let is_whole = in_time.unwrap_or_else(|_| Err(error_of(Failure::ClientSlow)))?;
        if let Some(notes) = &mut ctx.mcp {
            notes.held = Some(held);
        }
        Ok(if is_whole { ReadMessage::Apart(body) } else { ReadMessage::TooLong })
    }
}

/// Counts a piece of a request's body, and keeps back what may be another than the digest says.
pub(super) fn take_piece(
    session: &Session,
    body: &mut Option<Bytes>,
    is_last: bool,
    ctx: &mut Context,
) -> pingora::Result<()> {
    if let (Some(whole), Some(kept)) = (&ctx.held_body, &mut *body) {
        *kept = whole.clone();
        return Ok(());
    }
    ctx.record.received = ctx.record.received.saturating_add(body.as_ref().map_or(0, Bytes::len) as u64);
    // The limit is not for the bytes of another protocol.
    if session.was_upgraded() {
        return Ok(());
    }
    let longest = admitted(ctx)?.route.site.tenant.proxy.body_bytes_max;
    if longest.is_some_and(|longest| ctx.record.received > longest) {
        return Err(error_of(Failure::TooLarge));
    }
    if let Some(checked) = &mut ctx.checked_body {
        let piece = checked.pass(body.take(), is_last).map_err(error_of)?;
        *body = Some(piece).filter(|piece| !is_last || !piece.is_empty());
    }
    Ok(())
}

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
