//! A connection: as bytes, which of HTTP/1 and HTTP/2 it speaks, and for HTTP/1 its requests: waits for them and reads their heads.
//! It keeps what it has read beyond.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::{future::poll_fn, io, net::SocketAddr, os::fd::AsRawFd, time::Duration};

use bytes::{Buf, BytesMut};
use pingora::protocols::http::ServerSession;
use pingora::protocols::{ALPN, GetSocketDigest, SocketDigest, Stream, l4};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::http1::{
    Body, Decoder, Fields, Problem, RequestHead, SpanFields, Spans, fields, head, name::Name,
};
use crate::serve::bounded::{Bounded, Extent};
use crate::serve::{LINGER, SILENT_TIME_MAX, WRITE_TIME_MAX, as_text, timer::Timer};
use crate::wire::Answer;

/// How long a client may take for a whole answer of ours.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a request head may take to arrive, from its first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest unwanted body that is read so that the connection can be kept, in bytes.
const SKIPPED_BYTES_MAX: u64 = 64 * 1024;

/// How long an unwanted body, or the end of a closed connection, is waited for.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// How much is read of a connection that is closed, in bytes.
pub(crate) const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// The longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// The size of most requests: a head, and a small body that came with it.
pub(super) const USUAL_HEAD_BYTES: usize = 2 * 1024;

/// The longest head whose memory an idle connection keeps, in bytes.
const KEPT_BYTES_MAX: usize = 2 * 1024;

/// How much of a body is read at once, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// How much room there is at least for a read of a head, in bytes.
const ROOM_BYTES_MIN: usize = 256;

/// Wakes a connection's task when the service is to end.
pub(crate) struct Stop {
    /// Asked once, so that it knows the task. Asking takes a lock that all connections share.
    wakes: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    is_asked: bool,
    /// Says when that is.
    pub(crate) shutdown: ShutdownWatch,
}

impl Stop {
    fn new(shutdown: &ShutdownWatch) -> Self {
        let mut watch = shutdown.clone();
        let wakes = Box::pin(async move {
            // An error means that nobody is left to say so: the end as well.
            let _ = watch.wait_for(|stopping| *stopping).await;
        });
        Self { wakes: Some(wakes), is_asked: false, shutdown: shutdown.clone() }
    }

    /// True if the service is to end: then each answer says that it is the connection's last.
    pub(crate) fn is_near(&self) -> bool {
        // The first look costs no lock, and nothing changes before the end.
        self.shutdown.has_changed().unwrap_or(true) && *self.shutdown.borrow()
    }

    /// Ready once, when the service is to end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_asked && !self.shutdown.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        let Some(wakes) = &mut self.wakes else { return Poll::Pending };
        self.is_asked = true;
        ready!(wakes.as_mut().poll(context));
        self.wakes = None;
        Poll::Ready(())
    }
}

/// A connection, between two requests or during one.
pub(crate) struct Connection {
    pub(crate) stream: ClientStream,
    /// Bytes behind the request's head: of its body, or of the next request.
    pub(crate) ahead: BytesMut,
    pub(crate) timer: Timer,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The same as text; an IPv4 address is written as such, however it came.
    pub(crate) peer_text: Box<str>,
    /// The bytes of the request's head.
    pub(crate) head: Vec<u8>,
    /// The fields of the request's head.
    pub(super) spans: Spans,
    /// True if the request's body is read into `ahead`, which that may have made large.
    is_grown: bool,
    pub(crate) stop: Stop,
}

/// The reason why there is no head.
#[derive(Debug)]
pub(super) enum NoHead {
    /// The client is gone, or the service ends.
    Gone,
    /// The head takes too long to arrive.
    TooSlow,
    /// The head is longer than [`HEAD_BYTES_MAX`], or holds too many fields.
    TooLong,
    /// The head may be read in more than one way, or is not HTTP.
    Malformed(Problem),
}

impl Connection {
    /// A connection of which `ahead` was read. In a box, because it goes from hand to hand with each request.
    pub(crate) fn new(
        stream: ClientStream,
        ahead: BytesMut,
        peer: SocketAddr,
        shutdown: &ShutdownWatch,
    ) -> Box<Self> {
        Box::new(Self {
            stream,
            ahead,
            timer: Timer::new(),
            peer,
            peer_text: peer.ip().to_canonical().to_string().into(),
            head: Vec::new(),
            spans: Spans::default(),
            is_grown: false,
            stop: Stop::new(shutdown),
        })
    }

    /// The fields of the request's head.
    pub(crate) fn fields(&self) -> SpanFields<'_> {
        SpanFields { head: &self.head, spans: &self.spans }
    }

    /// Waits for the next request, which begins within `idle`, and reads its head.
    pub(super) async fn next_request(&mut self, idle: Duration) -> Result<RequestHead, NoHead> {
        self.give_memory_back();
        let mut searched = 0;
        let mut deadline = None;
        let mut begun = false;
        loop {
            // An empty line before a request is skipped (RFC 9112, section 2.2), however it was cut.
            if searched < 2 && self.ahead.starts_with(b"\r\n") {
                self.ahead.advance(2);
                searched = 0;
            }
            if let Some(end) = head::end_of_head(&self.ahead, searched) {
                return self.take_head(end);
            }
            if self.ahead.len() > HEAD_BYTES_MAX {
                return Err(NoHead::TooLong);
            }
            if !begun && !self.ahead.is_empty() {
                begun = true;
                deadline = None;
            }
            searched = self.ahead.len();
            if self.ahead.capacity() - self.ahead.len() < ROOM_BYTES_MIN {
                self.ahead.reserve(USUAL_HEAD_BYTES);
            }
            let longest = if begun { HEAD_TIME_MAX } else { idle };
            let read = poll_fn(|context| self.poll_head(context, (begun, longest), &mut deadline));
            if read.await? == 0 {
                return Err(NoHead::Gone);
            }
        }
    }

    /// Gives back the memory that few requests need.
    fn give_memory_back(&mut self) {
        let is_large = self.head.capacity() > KEPT_BYTES_MAX || self.is_grown;
        if is_large && self.ahead.is_empty() {
            self.ahead = BytesMut::new();
            self.head = Vec::new();
            self.spans = Spans::default();
            self.is_grown = false;
        }
    }

    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        (begun, longest): (bool, Duration),
        deadline: &mut Option<Instant>,
    ) -> Poll<Result<usize, NoHead>> {
        if let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.ahead)).poll(context) {
            return Poll::Ready(read.map_err(|_| NoHead::Gone));
        }
        // Most requests are there at once, and never look at the clock.
        let until = deadline.get_or_insert_with(|| Timer::now() + longest);
        // A connection that is idle lingers for a while when the service is to end.
        if !begun && self.stop.poll(context).is_ready() {
            *until = (*until).min(Timer::now() + LINGER);
        }
        let over = self.timer.poll_until(*until, context);
        over.map(|()| Err(if begun { NoHead::TooSlow } else { NoHead::Gone }))
    }

    fn take_head(&mut self, end: usize) -> Result<RequestHead, NoHead> {
        if end > HEAD_BYTES_MAX {
            return Err(NoHead::TooLong);
        }
        self.head.clear();
        self.head.extend_from_slice(self.ahead.get(..end).unwrap_or_default());
        self.ahead.advance(end);
        let request = head::read_request(&self.head, &mut self.spans).map_err(|problem| match problem {
            fields::TOO_MANY_FIELDS => NoHead::TooLong,
            other => NoHead::Malformed(other),
        })?;
        self.is_grown |= request.body == Body::Chunked;
        Ok(request)
    }

    /// True if another request may follow this one although its body is not wanted: what is left of it is small, and the
    /// client sends it in any case.
    pub(crate) fn may_go_on(&self, request: &RequestHead) -> bool {
        let is_small = match request.body {
            Body::Length(bytes) => bytes <= SKIPPED_BYTES_MAX,
            Body::Chunked | Body::ToClose => false,
        };
        let may_not_come = request.body != Body::Length(0) && self.fields().has(Name::Expect);
        is_small && !may_not_come && !request.closes && !request.upgrades && !self.stop.is_near()
    }

    /// Reads past the body of a refused request. False when it does not come.
    pub(crate) async fn skip_body(&mut self, request: &RequestHead) -> bool {
        let Body::Length(bytes) = request.body else { return false };
        let left = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Self { stream, ahead, timer, is_grown, .. } = self;
        *is_grown |= left > ahead.len();
        let skip = skip(stream, ahead, left);
        timer.until(Timer::now() + DRAIN_TIME_MAX, skip).await.unwrap_or(false)
    }

    /// Reads more of a request's body into `ahead`. `None`: it does not come in time.
    pub(crate) async fn read_body(&mut self, deadline: Instant) -> Option<io::Result<usize>> {
        let Self { stream, ahead, timer, is_grown, .. } = self;
        *is_grown = true;
        timer.until(deadline, read_more(stream, ahead)).await
    }

    /// Writes a whole answer. `is_last`: the connection is closed behind it.
    pub(crate) async fn answer(
        &mut self,
        answer: &Answer,
        is_to_head: bool,
        is_last: bool,
    ) -> io::Result<()> {
        self.write(&as_text(answer, is_to_head, is_last)).await
    }

    /// Writes an answer that is text already.
    pub(crate) async fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let Self { stream, timer, .. } = self;
        let write = async {
            stream.write_all(text).await?;
            stream.flush().await
        };
        let written = timer.until(Timer::now() + ANSWER_TIME_MAX, write).await;
        written.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Closes the connection behind its last answer. Bytes that still come are read for a while: otherwise the client may
    /// lose the answer to a reset (RFC 9112, section 9.6).
    pub(crate) async fn close(mut self: Box<Self>) {
        let linger = async {
            if AsyncWriteExt::shutdown(&mut self.stream).await.is_ok() {
                self.ahead.clear();
                skip(&mut self.stream, &mut self.ahead, LINGER_BYTES_MAX).await;
            }
        };
        // A client that does not close is closed.
        let _ = timeout(DRAIN_TIME_MAX, linger).await;
    }

    /// Gives the connection to the HTTP library for one request, whose bytes alone it sees.
    pub(crate) fn lend(self, request: &RequestHead) -> (ServerSession, Lent) {
        let Self { stream, ahead, timer, peer, peer_text, head, spans, stop, .. } = self;
        let bounded = Bounded::new(stream.into_library(peer), ahead, extent_of(request));
        let mut session = ServerSession::new_http1(Box::new(bounded));
        session.set_write_timeout(Some(WRITE_TIME_MAX));
        session.set_pipelined_prefix(BytesMut::from(&head[..]));
        (session, Lent { timer, peer, peer_text, head, spans, stop })
    }
}

/// Reads more of a body into `ahead`. What was taken off its beginning may have left it with room for a byte.
pub(super) async fn read_more(
    stream: &mut (impl AsyncRead + Unpin),
    ahead: &mut BytesMut,
) -> io::Result<usize> {
    ahead.reserve(READ_BYTES);
    stream.read_buf(ahead).await
}

/// Reads past so many bytes. False when they don't come.
async fn skip(stream: &mut (impl AsyncRead + Unpin), ahead: &mut BytesMut, mut left: usize) -> bool {
    loop {
        let here = left.min(ahead.len());
        ahead.advance(here);
        left -= here;
        if left == 0 {
            return true;
        }
        if !matches!(read_more(stream, ahead).await, Ok(1..)) {
            return false;
        }
    }
}

/// The rest of a connection whose stream the HTTP library has.
pub(crate) struct Lent {
    timer: Timer,
    peer: SocketAddr,
    peer_text: Box<str>,
    head: Vec<u8>,
    spans: Spans,
    pub(crate) stop: Stop,
}

impl Lent {
    /// The connection again, when its request has been read to the end.
    pub(crate) fn take_back(self, stream: Stream) -> Option<Box<Connection>> {
        let (stream, ahead) = Bounded::unwrap(stream)?;
        let Self { timer, peer, peer_text, head, spans, stop } = self;
        let (stream, is_grown) = (ClientStream::Library(stream), false);
        let connection = Connection { stream, ahead, timer, peer, peer_text, head, spans, is_grown, stop };
        Some(Box::new(connection))
    }
}

/// When the client asks for another protocol, no request follows on the connection: where that begins is not ours to
/// know.
fn extent_of(request: &RequestHead) -> Extent {
    match request.body {
        Body::Length(0) if request.upgrades => Extent::Rest,
        Body::Length(bytes) => Extent::Bytes(bytes),
        Body::Chunked => Extent::Chunks(Decoder::default()),
        Body::ToClose => Extent::Rest,
    }
}

/// How long the preface may take to arrive.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(10);

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// True if the client begins to speak HTTP/2. The bytes that were read are in `ahead`. Nothing when it is gone before it
/// speaks, or says something else than it has agreed on.
pub(super) async fn is_http2(
    stream: &mut ClientStream,
    ahead: &mut BytesMut,
    shutdown: &ShutdownWatch,
) -> Option<bool> {
    let is_agreed = match stream {
        ClientStream::Plain(stream) => {
            // A connection that is silent has no buffer yet. The runtime takes each new one for readable.
            let (mut first, stream) = ([0], &*stream);
            before_end(timeout(SILENT_TIME_MAX, stream.peek(&mut first)), shutdown).await?.ok()?.ok()?;
            false
        }
        ClientStream::Library(stream) if stream.selected_alpn_proto() == Some(ALPN::H2) => true,
        ClientStream::Library(_) => return Some(false),
    };
    ahead.reserve(USUAL_HEAD_BYTES);
    let read = async {
        while ahead.len() < PREFACE.len() && PREFACE.starts_with(ahead) {
            if stream.read_buf(ahead).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        io::Result::Ok(ahead.starts_with(PREFACE))
    };
    let is_preface = before_end(timeout(PREFACE_TIME_MAX, read), shutdown).await?.ok()?.ok()?;
    (is_preface || !is_agreed).then_some(is_preface)
}

/// The output of a future; nothing if it is not ready shortly after the service is to end.
async fn before_end<T>(first: impl Future<Output = T>, shutdown: &ShutdownWatch) -> Option<T> {
    let mut stopping = shutdown.clone();
    let end = async {
        // An error means that nobody is left to say so: the end as well.
        let _ = stopping.wait_for(|stopping| *stopping).await;
        sleep(LINGER).await;
    };
    tokio::select! {
        output = first => Some(output),
        () = end => None,
    }
}

/// A client's connection. The library's streams measure and buffer, which most requests have no use for.
pub(crate) enum ClientStream {
    /// In the clear.
    Plain(TcpStream),
    /// TLS, or a stream that the library has had.
    Library(Stream),
}

impl ClientStream {
    /// True if the client speaks TLS.
    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Library(stream) => stream.get_ssl_digest().is_some(),
        }
    }

    /// The stream as the library knows it.
    pub(super) fn into_library(self, peer: SocketAddr) -> Stream {
        match self {
            Self::Plain(stream) => Box::new(described(stream, peer)),
            Self::Library(stream) => stream,
        }
    }
}

/// A connection as the library knows it, which asks it for the client's address.
pub(super) fn described(stream: TcpStream, peer: SocketAddr) -> l4::stream::Stream {
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    let _ = digest.peer_addr.set(Some(peer.into()));
    let mut stream = l4::stream::Stream::from(stream);
    stream.set_socket_digest(digest);
    stream
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Library(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Library(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Library(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Library(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
