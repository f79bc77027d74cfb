//! One exchange of HTTP/1 as a state machine over bytes, without IO: bytes of the client's body and of the upstream's answer
//! go in, bytes for the upstream and for the client come out. The driver moves them.
//!
//! A body on its way: taken as its framing frames it (RFC 9112, section 6.3), written as its destination needs it.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use pingora::protocols::http::date::get_cached_date;

use crate::gateway::held::{CheckedBody, HeldBytes};
use crate::gateway::policy::answers::{self, is_about_limits};
use crate::gateway::{
    context::Context, failure::Failure, mcp::UNREADABLE_LIST, policy::requests::is_trailer_kept,
};
use crate::http1::head::{end_of_head, read_answer};
use crate::http1::{
    AnswerHead, Body, Decoder, Fields, Lines, Options, Piece, RequestHead, SpanFields, Spans,
    chunked::write_size, fields::Span, name::Name, writing::write_decimal,
};
use crate::mcp::{Filter, Unreadable};
use crate::message_signature::BodyDigest;

/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most interim answers (1xx) of one request.
const INTERIMS_MAX: u32 = 32;

/// How many bytes wait to be written before no more are taken.
const ROOM_BYTES: usize = 64 * 1024;

/// An upstream ended its connection before its answer.
const CLOSED: Failure = Failure::Upstream("ConnectionClosed");

/// The buffers of an exchange. They are used again by the next.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) to_upstream: Outgoing,
    pub(super) to_client: Outgoing,
    /// Bytes of the upstream that were not taken yet.
    pub(super) incoming: BytesMut,
    spans: Spans,
}

/// Bytes that wait to be written.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    /// How many of them were written while the rest waits.
    pub(super) written: usize,
    /// Memory for a whole body, with its frames, if that is held before an upstream is asked.
    pub(super) held: Option<HeldBytes>,
}

#[derive(Debug)]
pub(super) struct Exchange {
    /// The request's body.
    pub(super) upload: Transfer,
    /// The answer's body; `None` until its head has come.
    pub(super) download: Option<Transfer>,
    /// The status of the answer; 0 until its head has come.
    pub(super) status: u16,
    /// True if the client waits for an interim answer before it sends its body (RFC 9110, section 10.1.1).
    pub(super) awaits_continue: bool,
    /// True if the client may send another request after the answer.
    client_goes_on: bool,
    /// True if the upstream may get another request after the answer.
    pub(super) upstream_goes_on: bool,
    /// How long the upstream keeps the connection, if it says so.
    pub(super) upstream_idle: Option<Duration>,
    is_to_head: bool,
    is_http_1_0: bool,
    body_bytes_max: Option<u64>,
    /// How much of `incoming` was searched for the end of the head.
    searched: usize,
    interims: u32,
    /// True if any byte of an answer has come.
    pub(super) has_answer: bool,
    /// True if any byte of the final answer was written.
    pub(super) has_begun: bool,
}

impl Outgoing {
    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written >= self.bytes.len()
    }

    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.is_empty() {
            self.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
        if self.held.is_some() {
            (self.bytes, self.held) = (Vec::new(), None);
        }
    }
}

impl Buffers {
    /// Empties the buffers, and gives memory back that few exchanges need.
    pub(super) fn clear(&mut self) {
        self.to_upstream.clear();
        self.to_client.clear();
        self.incoming.clear();
        self.to_upstream.bytes.shrink_to(ROOM_BYTES);
        self.to_client.bytes.shrink_to(ROOM_BYTES);
        if self.incoming.capacity() > ROOM_BYTES {
            self.incoming = BytesMut::new();
        }
    }
}

impl Exchange {
    /// The exchange that this request begins. `client_goes_on`: the client may send another request after it.
    pub(super) fn new(
        request: &RequestHead,
        is_to_head: bool,
        expects_continue: bool,
        client_goes_on: bool,
        body_bytes_max: Option<u64>,
    ) -> Self {
        let upload = Transfer::new(request.body, request.body == Body::Chunked, is_trailer_kept);
        Self {
            awaits_continue: expects_continue && !upload.is_over(),
            upload,
            download: None,
            status: 0,
            client_goes_on: client_goes_on && !request.closes,
            upstream_goes_on: true,
            upstream_idle: None,
            is_to_head,
            is_http_1_0: request.is_http_1_0,
            body_bytes_max,
            searched: 0,
            interims: 0,
            has_answer: false,
            has_begun: false,
        }
    }

    /// How much of the answer's body was taken, in bytes.
    pub(super) fn sent(&self) -> u64 {
        self.download.as_ref().map_or(0, |download| download.bytes)
    }

    /// Has the request's body compared with its digest.
    pub(super) fn check_body(&mut self, checked: CheckedBody, buffers: &mut Buffers) {
        self.upload.digest = Some(Box::new(checked.digest));
        buffers.to_upstream.held = checked.held;
    }

    /// True if the whole answer was taken.
    pub(super) fn is_answered(&self) -> bool {
        self.download.as_ref().is_some_and(Transfer::is_over)
    }

    /// True if the client may send another request, once the answer is written.
    pub(super) const fn client_goes_on(&self) -> bool {
        self.client_goes_on && self.upload.is_over()
    }

    /// True if the upstream's connection may be used again, once the answer is over.
    pub(super) fn upstream_goes_on(&self, buffers: &Buffers) -> bool {
        self.upstream_goes_on
            && self.upload.is_over()
            && buffers.to_upstream.is_empty()
            && buffers.incoming.is_empty()
    }

    /// Takes the client's bytes as far as they belong to the request and there is held. False if nothing was taken.
    pub(super) fn take_upload(
        &mut self,
        ahead: &mut BytesMut,
        buffers: &mut Buffers,
    ) -> Result<bool, Failure> {
        let Outgoing { bytes, held, .. } = &mut buffers.to_upstream;
        let has_room = bytes.len() < ROOM_BYTES || held.is_some();
        if self.upload.is_over() || ahead.is_empty() || !has_room {
            return Ok(false);
        }
        let piece = ahead.get(..ROOM_BYTES).unwrap_or(ahead);
        let taken = self.upload.take(piece, bytes).map_err(|_| Failure::Malformed)?;
        ahead.advance(taken);
        self.check_upload()?;
        if let Some(held) = held {
            held.grow_to(bytes.len() as u64)?;
        }
        Ok(taken > 0)
    }

    /// Refuses an upload that grows beyond the tenant's limit, and the end of one that is not the body that was signed.
    pub(super) fn check_upload(&mut self) -> Result<(), Failure> {
        self.awaits_continue = false;
        let too_long = self.body_bytes_max.is_some_and(|most| self.upload.bytes > most);
        if too_long {
            Err(Failure::TooLarge)
        } else if self.upload.is_another() {
            Err(Failure::OtherBody)
        } else {
            Ok(())
        }
    }

    /// Takes the upstream's bytes as far as there is held.
    pub(super) fn take_answer(&mut self, buffers: &mut Buffers, ctx: &Context) -> Result<(), Failure> {
        self.has_answer |= !buffers.incoming.is_empty();
        while self.download.is_none() {
            let Some(end) = end_of_head(&buffers.incoming, self.searched) else {
                self.searched = buffers.incoming.len();
                let is_too_long = buffers.incoming.len() > HEAD_BYTES_MAX;
                return if is_too_long { Err(Failure::Upstream("InvalidHTTPHeader")) } else { Ok(()) };
            };
            self.take_head(end, buffers, ctx)?;
        }
        let (Some(download), true) = (&mut self.download, buffers.to_client.bytes.len() < ROOM_BYTES) else {
            return Ok(());
        };
        if !download.is_over() && !buffers.incoming.is_empty() {
            let taken = download.take(&buffers.incoming, &mut buffers.to_client.bytes)?;
            buffers.incoming.advance(taken);
        }
        Ok(())
    }

    /// The upstream's connection has ended.
    pub(super) fn upstream_closed(&mut self, buffers: &mut Buffers) -> Result<(), Failure> {
        self.upstream_goes_on = false;
        let Some(download) = &mut self.download else { return Err(CLOSED) };
        download.source_closed(&mut buffers.to_client.bytes)
    }

    fn take_head(&mut self, end: usize, buffers: &mut Buffers, ctx: &Context) -> Result<(), Failure> {
        const INVALID: Failure = Failure::Upstream("InvalidHTTPHeader");
        let Buffers { to_client, incoming, spans, .. } = buffers;
        let bytes = incoming.get(..end).filter(|head| head.len() <= HEAD_BYTES_MAX).ok_or(INVALID)?;
        let head = read_answer(bytes, self.is_to_head, spans).map_err(Failure::Upstream)?;
        let fields = SpanFields { head: bytes, spans };
        let options = Options::of(&fields).map_err(Failure::Upstream)?;
        // A switch to another protocol that nobody asked for is no answer.
        if head.status == 101 {
            return Err(INVALID);
        }
        if head.status < 200 {
            self.interims += 1;
            self.awaits_continue = false;
            if self.interims > INTERIMS_MAX {
                return Err(INVALID);
            }
            // HTTP/1.0 has no interim answers (RFC 9110, section 15.2).
            if !self.is_http_1_0 {
                write_status(&head, bytes, &mut to_client.bytes);
                write_kept(ctx, head.status, true, &fields, &options, &mut to_client.bytes);
                to_client.bytes.extend_from_slice(b"\r\n");
            }
        } else {
            self.begin_answer(&head, &fields, &options, ctx, &mut to_client.bytes)?;
        }
        incoming.advance(end);
        self.searched = 0;
        Ok(())
    }

    /// Writes the head of the final answer.
    fn begin_answer(
        &mut self,
        head: &AnswerHead,
        fields: &SpanFields<'_>,
        options: &Options<'_>,
        ctx: &Context,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let filter = ctx.list_filter(head.status, fields)?.filter(|_| head.body != Body::Length(0));
        self.status = head.status;
        // An upstream that announces a body where none may come may send it all the same, later: it is nobody's answer.
        let has_body_anyway = head.body == Body::Length(0) && announces_body(fields);
        self.upstream_goes_on &= !head.closes && !has_body_anyway;
        self.upstream_idle = fields.values(Name::KeepAlive).find_map(timeout_in);
        // An answer before the end of its request is the last: nobody may want the rest.
        self.client_goes_on &= self.upload.is_over();
        let has_length = matches!(head.body, Body::Length(_)) && filter.is_none();
        let in_chunks = !has_length && !self.is_http_1_0;
        write_status(head, fields.head, out);
        write_kept(ctx, head.status, filter.is_none(), fields, options, out);
        if in_chunks {
            out.set("Transfer-Encoding", b"chunked");
        }
        if !fields.has(Name::Date) {
            out.set("Date", get_cached_date().as_bytes());
        }
        ctx.write_forwarded_answer_headers(fields, out);
        if !self.client_goes_on {
            out.set("Connection", b"close");
        }
        out.extend_from_slice(b"\r\n");
        let keeps_trailer = |id: Name, name: &[u8]| id == Name::Other && !is_about_limits(name);
        let mut download = Transfer::new(head.body, in_chunks, keeps_trailer);
        download.filter = filter;
        self.download = Some(download);
        Ok(())
    }
}

/// Writes the lines of the upstream's answer that the client sees; never `Transfer-Encoding` or `Connection`. `keeps_length`: the
/// body is written as long as it comes.
fn write_kept(
    ctx: &Context,
    status: u16,
    keeps_length: bool,
    fields: &SpanFields<'_>,
    options: &Options<'_>,
    out: &mut Vec<u8>,
) {
    for span in &**fields.spans {
        let name = fields.head.get(span.name.clone()).unwrap_or_default();
        let is_framing = matches!(span.id, Name::Connection | Name::TransferEncoding);
        // Neither has a body, whatever it says of its length (RFC 9110, section 8.6).
        let is_no_length = span.id == Name::ContentLength && (!keeps_length || status < 200 || status == 204);
        let is_replaced = span.id == Name::RequestId && status >= 200;
        let is_about_pages = ctx.cors().is_some() && answers::is_about_pages(name);
        let ends_here = is_framing || is_no_length || is_replaced || is_about_pages || is_about_limits(name);
        if !ends_here && !answers::is_of_one_hop(options, span.id, name) {
            copy_line(fields, span, out);
        }
    }
}

/// Copies a header line as it was written, without the blanks behind its value.
pub(super) fn copy_line(fields: &SpanFields<'_>, line: &Span, out: &mut Vec<u8>) {
    out.extend_from_slice(fields.head.get(line.name.start..line.value.end).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// The seconds of `timeout=5, max=100` (RFC 2068, section 19.7.1.1), less one: a request takes a while to arrive.
fn timeout_in(keep_alive: &[u8]) -> Option<Duration> {
    let parameters = std::str::from_utf8(keep_alive).ok()?.split(',');
    let mut named = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    Some(Duration::from_secs(seconds.trim().parse::<u32>().ok()?.saturating_sub(1).into()))
}

fn announces_body(fields: &SpanFields<'_>) -> bool {
    let is_zero = |length: &[u8]| length.iter().all(|digit| *digit == b'0');
    fields.has(Name::TransferEncoding) || !fields.values(Name::ContentLength).all(is_zero)
}

fn write_status(head: &AnswerHead, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_decimal(head.status.into(), out);
    out.push(b' ');
    out.extend_from_slice(bytes.get(head.reason.clone()).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// The last chunk, without the trailers behind it.
const LAST_CHUNK: &[u8] = b"0\r\n";

/// A body on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    framing: Framing,
    writes_chunks: bool,
    /// True if a trailer is passed on.
    keeps_trailer: fn(Name, &[u8]) -> bool,
    /// How much of the body was taken, in bytes, without its framing.
    pub(super) bytes: u64,
    /// The digest that it must have, where that is known.
    pub(super) digest: Option<Box<BodyDigest>>,
    /// Takes out of its list what its client may not call.
    pub(super) filter: Option<Box<Filter>>,
}

/// The rest of a body, as its framing frames it.
#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(Decoder),
    ToClose,
    Over,
}

impl Transfer {
    pub(super) fn new(body: Body, writes_chunks: bool, keeps_trailer: fn(Name, &[u8]) -> bool) -> Self {
        let framing = match body {
            Body::Length(0) => Framing::Over,
            Body::Length(bytes) => Framing::Length(bytes),
            Body::Chunked => Framing::Chunked(Decoder::default()),
            Body::ToClose => Framing::ToClose,
        };
        Self { framing, writes_chunks, keeps_trailer, bytes: 0, digest: None, filter: None }
    }

    /// True if the whole body was taken, and is another than its digest says.
    pub(super) fn is_another(&self) -> bool {
        self.is_over() && self.digest.as_ref().is_some_and(|digest| !digest.matches())
    }

    /// True if the whole body was taken.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.framing, Framing::Over)
    }

    /// How many bytes may be read straight into the destination's buffer; `None` if they need another framing.
    pub(super) fn straight(&self) -> Option<usize> {
        match self.framing {
            _ if self.filter.is_some() => None,
            Framing::Length(left) => Some(usize::try_from(left).unwrap_or(usize::MAX)),
            Framing::ToClose if !self.writes_chunks => Some(usize::MAX),
            Framing::ToClose | Framing::Chunked(_) | Framing::Over => None,
        }
    }

    /// Counts bytes, at most [`Self::straight`], that were read straight into the destination's buffer.
    pub(super) fn took(&mut self, bytes: &[u8]) {
        let count = bytes.len();
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.bytes = self.bytes.saturating_add(count as u64);
        if let Framing::Length(left) = self.framing {
            let left = left.saturating_sub(count as u64);
            self.framing = if left == 0 { Framing::Over } else { Framing::Length(left) };
        }
    }

    /// Takes what belongs to the body off the beginning of `bytes`, and says how much that is. Error: an upstream's, if it is its
    /// body.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        let Some(mut filter) = self.filter.take() else { return self.take_plain(bytes, out) };
        let (mut data, in_chunks) = (Vec::new(), std::mem::take(&mut self.writes_chunks));
        let taken = self.take_plain(bytes, &mut data)?;
        let shown = filter.push(&data, self.is_over());
        write_data(&shown.map_err(|_: Unreadable| Failure::Upstream(UNREADABLE_LIST))?, in_chunks, out);
        if in_chunks && self.is_over() {
            write_end(std::iter::empty(), self.keeps_trailer, out);
        }
        (self.filter, self.writes_chunks) = (Some(filter), in_chunks);
        Ok(taken)
    }

    fn take_plain(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        if let Some(most) = self.straight() {
            let taken = bytes.get(..most).unwrap_or(bytes);
            out.extend_from_slice(taken);
            self.took(taken);
            return Ok(taken.len());
        }
        let mut rest = bytes;
        match &mut self.framing {
            Framing::Chunked(decoder) => loop {
                match decoder.next(&mut rest).map_err(|_| Failure::Upstream("InvalidChunk"))? {
                    Piece::Data(data) => {
                        self.bytes = self.bytes.saturating_add(data.len() as u64);
                        if let Some(digest) = &mut self.digest {
                            digest.update(data);
                        }
                        write_data(data, self.writes_chunks, out);
                    }
                    Piece::More => break,
                    Piece::End => {
                        if self.writes_chunks {
                            write_end(decoder.trailers(), self.keeps_trailer, out);
                        }
                        self.framing = Framing::Over;
                        break;
                    }
                }
            },
            Framing::ToClose => {
                rest = &[];
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                write_data(bytes, self.writes_chunks, out);
            }
            Framing::Length(_) | Framing::Over => {}
        }
        Ok(bytes.len() - rest.len())
    }

    /// The framing's connection has ended.
    fn source_closed(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.framing {
            Framing::ToClose => {
                self.framing = Framing::Over;
                if self.filter.is_some() {
                    return self.take(b"", out).map(drop);
                }
                if self.writes_chunks {
                    write_end(std::iter::empty(), self.keeps_trailer, out);
                }
                Ok(())
            }
            Framing::Over => Ok(()),
            Framing::Length(_) | Framing::Chunked(_) => Err(CLOSED),
        }
    }
}

fn write_data(data: &[u8], in_chunks: bool, out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    if in_chunks {
        write_size(data.len(), out);
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(data);
    }
}

fn write_end<'a>(
    trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    keeps: fn(Name, &[u8]) -> bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(LAST_CHUNK);
    for (name, value) in trailers.filter(|(name, _)| keeps(Name::of(name), name)) {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
}
