//! Moves an exchange's bytes between two sockets, with back pressure and time limits. No rule of HTTP stands here.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::{future::poll_fn, io};

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::domain::Timeouts;
use crate::gateway::relay::exchange::{Buffers, Exchange, Outgoing};
use crate::gateway::{BODY_READ_TIME_MAX, context, failure::Failure};
use crate::serve::{Timer, WRITE_TIME_MAX, connection::Connection};

/// How much is read at once, in bytes.
pub(super) const READ_BYTES: usize = 16 * 1024;

/// How much is read at once of a body that fills each read, in bytes.
const READ_BYTES_MAX: usize = 64 * 1024;

/// How much of the client's next requests is read while an answer is awaited, in bytes.
const AHEAD_BYTES_MAX: usize = 1_024;

/// How much room there is for them at least.
const AHEAD_BYTES_MIN: usize = 64;

/// The two sides of an exchange, while it lasts.
pub(super) struct Driver<'a> {
    pub(super) client: &'a mut Connection,
    pub(super) upstream: &'a mut TcpStream,
    pub(super) exchange: &'a mut Exchange,
    pub(super) buffers: &'a mut Buffers,
    pub(super) ctx: &'a mut context::Context,
    pub(super) timeouts: Timeouts,
    /// The last moment at which the request moved on.
    pub(super) uploaded: Instant,
    /// The last moment at which the answer moved on.
    pub(super) downloaded: Instant,
    /// How much is read at once.
    pub(super) read_bytes: usize,
    /// True if the upstream takes no more of the request. Its answer may stand for all that.
    pub(super) is_deaf: bool,
    /// True if a write was told that the upstream reset the connection. A later read sees an end then.
    pub(super) is_reset: bool,
    /// True if bytes for the client were written and may not have left.
    pub(super) needs_flush: bool,
}

impl Driver<'_> {
    /// Runs the exchange until the whole answer was written to the client.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let awaited_continue = self.exchange.awaits_continue;
        // First: once the answer is whole, the client's bytes need no look.
        let has_downloaded = self.move_answer(context)?;
        if self.exchange.is_answered() && self.buffers.to_client.is_empty() && !self.needs_flush {
            return Poll::Ready(Ok(()));
        }
        let has_uploaded = self.move_request(context)?;
        // One piece each way at a time: a body that never has to wait would keep everybody else waiting. The request's last
        // bytes leave no room that anything waits for.
        let is_sent = || self.exchange.upload.is_over() && self.buffers.to_upstream.is_empty();
        if has_downloaded || (has_uploaded && !is_sent()) {
            context.waker().wake_by_ref();
        }
        if has_uploaded || has_downloaded {
            let now = Timer::now();
            if has_uploaded {
                self.ctx.record.times.sent(now);
            }
            // The upstream's time begins when it has the whole request.
            self.downloaded = now;
            // The client's time begins when it may send its body.
            if has_uploaded || awaited_continue != self.exchange.awaits_continue {
                self.uploaded = now;
            }
        }
        let (deadline, failure) = self.deadline();
        self.client.timer.poll_until(deadline, context).map(|()| Err(failure))
    }

    /// Client to upstream. True if anything was moved.
    fn move_request(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut has_moved = self.exchange.take_upload(&mut self.client.ahead, self.buffers)?;
        if !self.is_deaf && !self.buffers.to_upstream.is_empty() {
            match write(self.upstream, &mut self.buffers.to_upstream, context) {
                Ok(moved) => has_moved |= moved,
                Err(error) => {
                    self.is_deaf = true;
                    self.is_reset = error.kind() == io::ErrorKind::ConnectionReset;
                    // Its connection is not used again.
                    self.exchange.upstream_goes_on = false;
                }
            }
        }
        if self.is_deaf {
            self.buffers.to_upstream.clear();
        }
        Ok(has_moved | self.read_client(context)?)
    }

    /// Reads the request's body, or a little of what follows it: so a client that leaves is noticed.
    fn read_client(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let Connection { stream, ahead, .. } = &mut *self.client;
        if self.exchange.upload.is_over() {
            if ahead.is_empty() {
                // The room that its head left is enough.
                ahead.reserve(AHEAD_BYTES_MIN);
                read(stream, ahead, AHEAD_BYTES_MAX, context).map_err(|_| Failure::ClientGone)?;
            }
            return Ok(false);
        }
        if !ahead.is_empty() || !self.buffers.to_upstream.is_empty() {
            return Ok(false);
        }
        let count = match self.exchange.upload.straight() {
            Some(most) if !self.is_deaf => {
                let out = &mut self.buffers.to_upstream.bytes;
                let most = most.min(self.read_bytes);
                out.reserve(most);
                let count = read(stream, out, most, context).map_err(|_| Failure::ClientGone)?;
                self.exchange.upload.took(last(out, count));
                if count > 0 {
                    self.exchange.check_upload()?;
                }
                count
            }
            _ => {
                ahead.reserve(self.read_bytes);
                read(stream, ahead, self.read_bytes, context).map_err(|_| Failure::ClientGone)?
            }
        };
        self.read_bytes = next_size(self.read_bytes, count);
        Ok(count > 0)
    }

    /// Upstream to client. True if anything was moved.
    fn move_answer(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut has_moved = false;
        if self.buffers.to_client.is_empty() && !self.needs_flush && !self.exchange.is_answered() {
            has_moved = self.read_upstream(context)?;
            self.exchange.take_answer(self.buffers, self.ctx)?;
            if self.exchange.status == 0 && self.buffers.incoming.is_empty() {
                // All that came is interim.
                self.ctx.record.times.answered = None;
            }
        }
        if !self.buffers.to_client.is_empty() {
            let written = write(&mut self.client.stream, &mut self.buffers.to_client, context);
            let has_written = written.map_err(|_| Failure::ClientGone)?;
            self.needs_flush |= has_written;
            self.exchange.has_begun |= has_written && self.exchange.download.is_some();
            has_moved |= has_written;
        }
        // TLS may hold back bytes that it took.
        if self.needs_flush
            && let Poll::Ready(flushed) = Pin::new(&mut self.client.stream).poll_flush(context)
        {
            flushed.map_err(|_| Failure::ClientGone)?;
            self.needs_flush = false;
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn read_upstream(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let most = self.read_bytes;
        let straight = self.exchange.download.as_ref().and_then(|download| download.straight());
        let read = match straight {
            Some(left) if self.buffers.incoming.is_empty() => {
                let (out, most) = (&mut self.buffers.to_client.bytes, most.min(left));
                out.reserve(most);
                let read = read(self.upstream, out, most, context);
                if let (Ok(count), Some(download)) = (&read, &mut self.exchange.download) {
                    download.took(last(out, *count));
                }
                read
            }
            _ => {
                self.buffers.incoming.reserve(most);
                read(self.upstream, &mut self.buffers.incoming, most, context)
            }
        };
        match read {
            Ok(count) => {
                self.read_bytes = next_size(self.read_bytes, count);
                if count > 0 && self.ctx.record.times.answered.is_none() {
                    self.ctx.record.times.answered = Some(Timer::now());
                }
                Ok(count > 0)
            }
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof && !self.is_reset => {
                self.exchange.take_answer(self.buffers, self.ctx)?;
                self.exchange.upstream_closed(self.buffers).map(|()| true)
            }
            Err(_) => Err(Failure::Upstream("ReadError")),
        }
    }

    /// The next moment at which somebody has taken too long, and who that is.
    fn deadline(&self) -> (Instant, Failure) {
        let Timeouts { read, write, total, .. } = self.timeouts;
        let (next, failure) = if !self.buffers.to_client.is_empty() || self.needs_flush {
            (self.downloaded + WRITE_TIME_MAX, Failure::ClientGone)
        } else if !self.buffers.to_upstream.is_empty() {
            (self.uploaded + write, Failure::UpstreamSlow("WriteTimedout"))
        } else if self.exchange.upload.is_over() {
            (self.downloaded + read, Failure::UpstreamSlow("ReadTimedout"))
        } else if self.exchange.awaits_continue {
            // The client may wait for the upstream's word, and is not to blame an upstream by it.
            (self.downloaded + read, Failure::ClientSlow)
        } else {
            (self.uploaded + BODY_READ_TIME_MAX.min(read), Failure::ClientSlow)
        };
        match total.map(|total| self.ctx.record.times.begun + total) {
            // One that has begun to answer is not to blame for its tenant's bound on the whole.
            Some(end)
                if end < next && (failure.upstream_kind().is_none() || self.exchange.download.is_some()) =>
            {
                (end, Failure::Overdue)
            }
            Some(end) => (next.min(end), failure),
            None => (next, failure),
        }
    }
}

/// The last bytes of a buffer.
fn last(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(count)..).unwrap_or_default()
}

/// Large bodies are read in larger pieces.
const fn next_size(size: usize, count: usize) -> usize {
    if count == size && size < READ_BYTES_MAX { size * 2 } else { size }
}

/// Reads at most so many bytes; 0: there are none yet. The end of the stream is an error.
fn read(
    source: &mut (impl AsyncReadExt + Unpin),
    into: &mut impl BufMut,
    most: usize,
    context: &mut Context<'_>,
) -> io::Result<usize> {
    let mut into = into.limit(most);
    match pin!(source.read_buf(&mut into)).poll(context) {
        Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Poll::Ready(read) => read,
        Poll::Pending => Ok(0),
    }
}

/// Writes as much as the stream takes. True if it took anything.
fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    outgoing: &mut Outgoing,
    context: &mut Context<'_>,
) -> io::Result<bool> {
    let mut has_written = false;
    while !outgoing.is_empty() {
        match Pin::new(&mut *stream).poll_write(context, outgoing.pending()) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(count) => {
                outgoing.wrote(count?);
                has_written = true;
            }
            Poll::Pending => break,
        }
    }
    Ok(has_written)
}
