//! One way out: HTTP/1 between clients and upstreams in the clear, without the HTTP library, one request at a time.
//!
//! `exchange` is the state machine, `driver` moves the bytes, `pool` keeps connections. The heads are written here.

mod driver;
mod exchange;
pub(crate) mod pool;

use std::{ops::Range, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::domain::UpstreamScheme;
use crate::gateway::policy::requests::{Kept, is_of_one_hop};
use crate::gateway::relay::driver::{Driver, READ_BYTES};
use crate::gateway::relay::exchange::{Buffers, Exchange, copy_line};
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{
    BODY_READ_TIME_MAX, Gateway, context::Context, failure::Failure, mcp::ReadMessage,
    policy::forwarded::Arrival, refusals::End, relay::pool::Pool, upstreams::Member,
};
use crate::http1::{Body, Decoder, Fields, Lines, Options, Piece, RequestHead, SpanFields, name::Name};
use crate::record::{Ended, Ending};
use crate::serve::{Timer, connection::Connection};
use crate::{message_signature::Content, wire::Answer};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// So many times as long as a message may it be with the frames of its chunks.
const FRAMES_MAX: usize = 8;

/// The relay of one worker.
pub(super) struct Relay {
    pub(super) gateway: Arc<Gateway>,
    pub(super) pool: Arc<Pool>,
}

impl Relay {
    /// Forwards a request that has its admitted.
    pub(super) async fn forward(
        &self,
        mut connection: Box<Connection>,
        head: &RequestHead,
        ctx: &mut Context,
    ) -> Option<Box<Connection>> {
        let mut buffers = self.pool.buffers();
        let is_to_head = method_of(&connection, head) == b"HEAD";
        let fields = connection.fields();
        let expects = expects_continue(&fields, head);
        let limit = ctx.site.as_ref().and_then(|site| site.tenant.proxy.body_bytes_max);
        // A client that asks for another protocol may go on in it.
        let goes_on = !connection.stop.is_near() && !head.upgrades;
        let mut exchange = Exchange::new(head, is_to_head, expects, goes_on, limit);
        if let Some(checked) = ctx.checked_body.take() {
            exchange.check_body(*checked, &mut buffers);
        }
        let outcome = self.exchange(&mut connection, head, ctx, &mut exchange, &mut buffers).await;
        (ctx.slot, ctx.retrying) = (None, None);
        ctx.record.received = exchange.upload.bytes;
        let has_begun = exchange.has_begun || buffers.to_client.written > 0;
        self.pool.give_back(buffers);
        if let Err(failure) = outcome {
            return self.fail(connection, head, ctx, &exchange, failure, has_begun).await;
        }
        if let Some(member) = ctx.member() {
            member.state.succeeded();
        }
        self.note(&connection, head, ctx, exchange.status, exchange.sent(), Ending::Whole);
        if exchange.client_goes_on() {
            return Some(connection);
        }
        ctx.admitted = None;
        connection.close().await;
        None
    }

    /// Reads a message of MCP before its request is decided about. Its bytes stay ahead.
    pub(super) async fn read_message(
        &self,
        connection: &mut Connection,
        head: &RequestHead,
        ctx: &mut Context,
    ) -> Result<ReadMessage, Failure> {
        let most = self.gateway.rules.mcp.body_bytes_max;
        let mut held = self.gateway.reserve_message(connection.peer.ip(), &connection.fields(), ctx)?;
        let mut awaits_continue = expects_continue(&connection.fields(), head);
        let deadline = Timer::now() + BODY_READ_TIME_MAX;
        let (mut decoder, mut body, mut at) = (Decoder::default(), Vec::new(), 0);
        let read = loop {
            let ahead = &connection.ahead;
            match head.body {
                Body::Length(bytes) => match usize::try_from(bytes) {
                    Ok(bytes) if bytes > most => break ReadMessage::TooLong,
                    Ok(bytes) if bytes <= ahead.len() => break ReadMessage::Ahead(bytes),
                    Ok(_) => {}
                    Err(_) => break ReadMessage::TooLong,
                },
                Body::Chunked => {
                    let mut rest = ahead.get(at..).unwrap_or_default();
                    let is_over = loop {
                        match decoder.next(&mut rest).map_err(|_| Failure::Malformed)? {
                            Piece::Data(data) => body.extend_from_slice(data),
                            Piece::More => break false,
                            Piece::End => break true,
                        }
                    };
                    at = ahead.len() - rest.len();
                    if body.len() > most || at > most.saturating_mul(FRAMES_MAX) {
                        break ReadMessage::TooLong;
                    }
                    if is_over {
                        break ReadMessage::Apart(body);
                    }
                }
                Body::ToClose => return Err(Failure::Malformed),
            }
            read_on(connection, &mut awaits_continue, deadline).await?;
            held.grow_to((connection.ahead.len() + body.len()) as u64)?;
        };
        if let Some(notes) = &mut ctx.mcp {
            notes.held = Some(held);
        }
        Ok(read)
    }

    /// Sends the request to an upstream, and its answer to the client.
    async fn exchange(
        &self,
        connection: &mut Connection,
        head: &RequestHead,
        ctx: &mut Context,
        exchange: &mut Exchange,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        let timeouts = ctx.site.as_ref().ok_or(Failure::Internal)?.tenant.proxy.timeouts;
        let is_repeatable = head.body == Body::Length(0)
            && matches!(method_of(connection, head), b"GET" | b"HEAD" | b"OPTIONS");
        let mut now = ctx.record.times.begun;
        if buffers.to_upstream.held.is_some() {
            let end = timeouts.total.map(|total| now + total);
            Box::pin(hold(connection, exchange, buffers, timeouts.read, end)).await?;
            now = Timer::now();
        }
        let mut upstream = self.connect(ctx, now, None).await?;
        if let Some(notes) = &mut ctx.mcp {
            notes.held = None;
        }
        loop {
            let bytes = &mut buffers.to_upstream.bytes;
            let held = bytes.len();
            self.write_request(connection, head, ctx, bytes)?;
            bytes.rotate_left(held);
            let mut driver = Driver {
                client: connection,
                upstream: &mut upstream.stream,
                exchange,
                buffers,
                ctx,
                timeouts,
                uploaded: upstream.since,
                downloaded: upstream.since,
                read_bytes: READ_BYTES,
                is_deaf: false,
                is_reset: false,
                needs_flush: false,
            };
            match driver.run().await {
                Ok(()) => {
                    self.keep(upstream, exchange, buffers, ctx);
                    return Ok(());
                }
                // The upstream closed an unused connection while the request was on its way: nothing was processed.
                Err(Failure::Upstream(_)) if upstream.is_used && is_repeatable && !exchange.has_answer => {
                    ctx.site.iter().for_each(|site| site.counters.retried("unprocessed"));
                    buffers.clear();
                    exchange.upstream_goes_on = true;
                    upstream = self.connect(ctx, Timer::now(), Some(upstream.address)).await?;
                }
                Err(failure) => {
                    if let Some(kind) = failure.upstream_kind() {
                        self.gateway.note_upstream_failure(ctx, kind);
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// Answers a request that goes no further. The connection is kept if the rest of the request is small.
    pub(super) async fn refuse(
        &self,
        mut connection: Box<Connection>,
        head: &RequestHead,
        ctx: &mut Context,
        end: End,
    ) -> Option<Box<Connection>> {
        let answer = self.gateway.answer_to(end, ctx);
        let goes_on = connection.may_go_on(head);
        if !self.answer_alone(&mut connection, head, ctx, &answer, !goes_on).await {
            return None;
        }
        if goes_on && connection.skip_body(head).await {
            return Some(connection);
        }
        connection.close().await;
        None
    }

    /// Answers a request that failed on its way. An answer that has begun breaks off.
    async fn fail(
        &self,
        mut connection: Box<Connection>,
        head: &RequestHead,
        ctx: &mut Context,
        exchange: &Exchange,
        failure: Failure,
        has_begun: bool,
    ) -> Option<Box<Connection>> {
        if failure == Failure::Internal {
            tracing::warn!("a request failed inside the gateway");
        }
        let limit = ctx.site.as_ref().and_then(|site| site.tenant.proxy.body_bytes_max);
        let answer = failure.cause(limit).map(|cause| self.gateway.answer_to(cause.into(), ctx));
        let Some(answer) = answer.filter(|_| !has_begun) else {
            self.note(&connection, head, ctx, exchange.status, exchange.sent(), failure.ending());
            return None;
        };
        if self.answer_alone(&mut connection, head, ctx, &answer, true).await {
            ctx.admitted = None;
            connection.close().await;
        }
        None
    }

    /// Writes an answer of ours, and notes the end of the request. False if the client does not take it.
    async fn answer_alone(
        &self,
        connection: &mut Connection,
        head: &RequestHead,
        ctx: &Context,
        answer: &Answer,
        is_last: bool,
    ) -> bool {
        let is_to_head = method_of(connection, head) == b"HEAD";
        let is_taken = connection.answer(answer, is_to_head, is_last).await.is_ok();
        let sent = if is_to_head { 0 } else { answer.body().len() as u64 };
        let ending = if is_taken { Ending::Whole } else { Ending::ClientLeft };
        self.note(connection, head, ctx, answer.status().as_u16(), sent, ending);
        is_taken
    }

    /// Counts and logs a request that is over.
    pub(super) fn note(
        &self,
        connection: &Connection,
        head: &RequestHead,
        ctx: &Context,
        status: u16,
        sent: u64,
        ending: Ending,
    ) {
        let fields = connection.fields();
        let ended = Ended {
            method: method_of(connection, head),
            target: connection.head.get(head.target.clone()).unwrap_or_default(),
            protocol: if head.is_http_1_0 { "HTTP/1.0" } else { "HTTP/1.1" },
            authority: "",
            fields: &fields,
            peer: Some(connection.peer.ip()),
            status,
            sent,
            ending,
            at: Timer::now(),
        };
        self.gateway.finished(&ended, ctx);
    }

    /// Writes the head of the request for its upstream.
    fn write_request(
        &self,
        connection: &Connection,
        head: &RequestHead,
        ctx: &Context,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let fields = connection.fields();
        let text = |range: &Range<usize>| fields.head.get(range.clone()).unwrap_or_default();
        let site = ctx.site.as_ref().ok_or(Failure::Internal)?;
        let host = ctx.member().filter(|_| site.tenant.proxy.shows_own_host);
        out.extend_from_slice(text(&head.method));
        out.push(b' ');
        out.extend_from_slice(text(&head.target));
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let options = Options::of(&fields).map_err(|_| Failure::Malformed)?;
        let believed = self.gateway.rules.believed.of(connection.peer.ip());
        let kept = Kept::of(&fields, &self.gateway.pipeline.rules().key_format, believed);
        for span in &**fields.spans {
            let name = text(&span.name);
            let is_own_host = span.id == Name::Host && host.is_some();
            // HTTP/1.0 has no interim answers (RFC 9110, section 10.1.1).
            let is_unknown = head.is_http_1_0 && span.id == Name::Expect;
            if is_own_host
                || is_unknown
                || is_of_one_hop(&options, span.id, name)
                || !kept.has(span.id, name)
                || ctx.replaces(span.id, name)
            {
                continue;
            }
            copy_line(&fields, span, out);
        }
        if let Some(member) = host {
            out.set("Host", member.host.as_bytes());
        }
        if head.body == Body::Chunked {
            out.set("Transfer-Encoding", b"chunked");
        }
        let arrival = Arrival {
            peer: &connection.peer_text,
            believed,
            is_tls: connection.stream.is_tls(),
            version: if head.is_http_1_0 { "1.0" } else { "1.1" },
        };
        let authority = fields.values(Name::Host).next().unwrap_or_default();
        self.gateway.write_ours(&fields, authority, ctx, &arrival, out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Reads a body that is held, before an upstream is asked: none waits in silence for it.
async fn hold(
    connection: &mut Connection,
    exchange: &mut Exchange,
    buffers: &mut Buffers,
    read: Duration,
    end: Option<Instant>,
) -> Result<(), Failure> {
    while !exchange.upload.is_over() {
        if exchange.take_upload(&mut connection.ahead, buffers)? {
            continue;
        }
        let pause_end = Timer::now() + BODY_READ_TIME_MAX.min(read);
        let deadline = end.map_or(pause_end, |end| end.min(pause_end));
        let is_read = read_on(connection, &mut exchange.awaits_continue, deadline).await;
        let is_overdue = is_read == Err(Failure::ClientSlow) && deadline < pause_end;
        if is_overdue { Err(Failure::Overdue) } else { is_read }?;
    }
    Ok(())
}

/// Reads more of a request's body by this moment. A client that waits for leave to send it gets that.
async fn read_on(
    connection: &mut Connection,
    awaits_continue: &mut bool,
    deadline: Instant,
) -> Result<(), Failure> {
    if std::mem::take(awaits_continue) {
        connection.write(CONTINUE).await.map_err(|_| Failure::ClientGone)?;
    }
    match connection.read_body(deadline).await {
        Some(Ok(1..)) => Ok(()),
        Some(_) => Err(Failure::ClientGone),
        None => Err(Failure::ClientSlow),
    }
}

/// True if a client may wait for an interim answer before it sends its body.
fn expects_continue(fields: &impl Fields, head: &RequestHead) -> bool {
    fields.expects_continue()
        && !head.is_http_1_0
        && !Options::of(fields).is_ok_and(|options| options.name(b"expect"))
}

fn method_of<'a>(connection: &'a Connection, head: &RequestHead) -> &'a [u8] {
    connection.head.get(head.method.clone()).unwrap_or_default()
}

/// True if a request may leave by the relay: it can't become another protocol, and all upstreams of its route speak HTTP/1 in
/// the clear.
pub(super) fn takes(ctx: &Context, head: &RequestHead) -> bool {
    let is_plain = |member: &Member| member.state.upstream.scheme == UpstreamScheme::Http;
    ctx.forwarded().is_some_and(|(site, decision)| {
        let upstreams = site.upstreams(decision.route);
        !(head.upgrades && decision.upgrades) && upstreams.members.iter().all(is_plain)
    })
}

/// A request as `Gateway::admit` reads it.
pub(in crate::gateway) fn incoming<'a>(
    connection: &'a Connection,
    head: &RequestHead,
    fields: &'a SpanFields<'a>,
    message: Message<'a>,
) -> Option<Incoming<'a, SpanFields<'a>>> {
    let authority = fields.values(Name::Host).next();
    Some(Incoming {
        method: std::str::from_utf8(fields.head.get(head.method.clone())?).ok()?,
        target: fields.head.get(head.target.clone())?,
        authority: authority.map(|host| std::str::from_utf8(host).unwrap_or_default()),
        fields,
        peer: connection.peer.ip(),
        is_tls: connection.stream.is_tls(),
        content: if head.body == Body::Length(0) { Content::Empty } else { Content::Follows },
        dialect: None,
        message,
        tenant: None,
    })
}

#[cfg(test)]
mod tests;
