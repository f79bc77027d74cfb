//! A connection that shows the HTTP library one request and not a byte more, or frames of HTTP/2 that it can read.
//!
//! The library may stop reading a request elsewhere than we do, or drop what it has read beyond; then the next request
//! would begin with bytes of this one. Here what belongs to the next request stays on our side
//! (`a_request_ends_where_it_ends_whatever_was_read_ahead`).

use std::task::{Context, Poll, ready};
use std::{io, pin::Pin, sync::Arc};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};

use crate::http1::{BrokenChunks, Decoder, Piece};
use crate::http2::Frames;

/// How much is read ahead to learn that a waiting client has gone, in bytes.
const AHEAD_BYTES_MAX: usize = 1_024;

/// How much of the connection belongs to the request.
#[derive(Debug)]
pub(super) enum Extent {
    /// So many bytes from here on.
    Bytes(u64),
    /// A body in chunks, to its end.
    Chunks(Decoder),
    /// The rest: no request follows on this connection.
    Rest,
    /// The frames of HTTP/2, to the end of the connection.
    Frames(Frames),
}

/// The connection during one request.
#[derive(Debug)]
pub(super) struct Bounded {
    /// The library writes head and body of an answer apart; connections themselves have no buffer.
    inner: BufWriter<Stream>,
    /// Read from the connection and not shown yet.
    ahead: BytesMut,
    extent: Extent,
}

impl Bounded {
    /// Shows `extent` of what is in `ahead` and of what comes after it.
    pub(super) fn new(inner: Stream, ahead: BytesMut, extent: Extent) -> Self {
        Self { inner: BufWriter::new(inner), ahead, extent }
    }

    /// The connection and what has come of the next request, when this one has been read to its end.
    pub(super) fn unwrap(stream: Stream) -> Option<(Stream, BytesMut)> {
        let bounded = stream.into_any().downcast::<Self>().ok()?;
        (bounded.is_over() && bounded.inner.buffer().is_empty())
            .then(|| (bounded.inner.into_inner(), bounded.ahead))
    }

    fn is_over(&self) -> bool {
        match &self.extent {
            Extent::Bytes(left) => *left == 0,
            Extent::Chunks(chunks) => chunks.is_over(),
            Extent::Rest | Extent::Frames(_) => false,
        }
    }

    /// How many of the bytes that have come belong to the request.
    fn claim(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.extent {
            Extent::Bytes(left) => {
                *left = left.saturating_sub(bytes.len() as u64);
                Ok(bytes.len())
            }
            Extent::Chunks(chunks) => {
                follow(chunks, bytes).map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken))
            }
            Extent::Rest | Extent::Frames(_) => Ok(bytes.len()),
        }
    }

    /// The request is over: nothing more is shown, but a client that goes away is noticed.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            return Poll::Pending;
        }
        let mut space = [0; AHEAD_BYTES_MAX];
        let mut piece = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut piece))?;
        if piece.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.ahead.extend_from_slice(piece.filled());
        Poll::Pending
    }
}

/// Shows frames; a header block when it is whole.
fn poll_frames(
    frames: &mut Frames,
    ahead: &mut BytesMut,
    inner: &mut BufWriter<Stream>,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let ready = frames.next(ahead).min(buffer.remaining());
        if ready > 0 {
            buffer.put_slice(ahead.get(..ready).unwrap_or_default());
            ahead.advance(ready);
            frames.shown(ready);
            if ahead.is_empty() {
                // An idle connection holds no memory for it.
                *ahead = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut *inner).poll_read(context, buffer))?;
        let came = buffer.filled().get(before..).unwrap_or_default();
        let is_end = came.is_empty();
        // Most bytes of bodies need no copy.
        let ready = if ahead.is_empty() { frames.until_headers(came) } else { 0 };
        ahead.extend_from_slice(came.get(ready..).unwrap_or_default());
        buffer.set_filled(before + ready);
        frames.shown(ready);
        if is_end || ready > 0 {
            return Poll::Ready(Ok(()));
        }
    }
}

/// How many of these bytes belong to a body in chunks.
fn follow(chunks: &mut Decoder, bytes: &[u8]) -> Result<usize, BrokenChunks> {
    let mut rest = bytes;
    while let Piece::Data(_) = chunks.next(&mut rest)? {}
    Ok(bytes.len() - rest.len())
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_over() {
            return this.poll_gone(context);
        }
        if let Extent::Frames(frames) = &mut this.extent {
            return poll_frames(frames, &mut this.ahead, &mut this.inner, context, buffer);
        }
        let most = match &this.extent {
            Extent::Bytes(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.remaining()),
            Extent::Chunks(_) | Extent::Rest | Extent::Frames(_) => buffer.remaining(),
        };
        if !this.ahead.is_empty() {
            let mut shown = this.ahead.split_to(most.min(this.ahead.len()));
            let ours = this.claim(&shown)?;
            let others = shown.split_off(ours);
            buffer.put_slice(&shown);
            if !others.is_empty() {
                let later = std::mem::replace(&mut this.ahead, others);
                this.ahead.extend_from_slice(&later);
            }
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if most == buffer.remaining() {
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        } else {
            let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut piece))?;
            let shown = piece.filled().len();
            buffer.advance(shown);
        }
        let ours = this.claim(buffer.filled().get(before..).unwrap_or_default())?;
        this.ahead.extend_from_slice(buffer.filled().get(before + ours..).unwrap_or_default());
        buffer.set_filled(before + ours);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for Bounded {
    async fn shutdown(&mut self) {
        // A client that takes no more bytes loses what is left.
        let _ = self.inner.flush().await;
        Shutdown::shutdown(&mut **self.inner.get_mut()).await;
    }
}

impl UniqueID for Bounded {
    fn id(&self) -> UniqueIDType {
        self.inner.get_ref().id()
    }
}

impl Ssl for Bounded {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ref().get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.get_ref().selected_alpn_proto()
    }
}

/// The times of a client's handshakes, which the library only keeps for its own log.
impl GetTimingDigest for Bounded {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

/// No client is reached through a proxy of HTTP.
impl GetProxyDigest for Bounded {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Bounded {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_ref().get_socket_digest()
    }
}

/// During a request nobody peeks.
impl Peek for Bounded {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::BytesMut;
    use pingora::protocols::Stream;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::{Bounded, Decoder, Extent};

    fn bounded(ahead: &str, extent: Extent) -> (DuplexStream, Bounded) {
        let (client, server) = duplex(1_024);
        (client, Bounded::new(Box::new(server), BytesMut::from(ahead), extent))
    }

    /// Reads until there are so many bytes. Where none come, the time that stands still passes at once.
    async fn read_to(stream: &mut (impl AsyncRead + Unpin), bytes: &mut BytesMut, count: usize) {
        while bytes.len() < count {
            let read = timeout(Duration::from_secs(1), stream.read_buf(bytes)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "it ends with {bytes:?}");
        }
    }

    // threat: Request smuggling
    #[tokio::test(start_paused = true)]
    async fn a_request_ends_where_it_ends_whatever_was_read_ahead() {
        for ahead in ["", "bo", "body", "bodyGET /next"] {
            let (mut client, mut request) = bounded(ahead, Extent::Bytes(4));
            let sent = "bodyGET /next".strip_prefix(ahead).unwrap();
            client.write_all(sent.as_bytes()).await.unwrap();
            let mut body = [0; 4];
            request.read_exact(&mut body).await.unwrap();
            assert_eq!(&body, b"body");
            let (mut stream, mut rest) = Bounded::unwrap(Box::new(request) as Stream).unwrap();
            read_to(&mut stream, &mut rest, 9).await;
            assert_eq!(&rest[..], b"GET /next", "{ahead:?}");
        }
    }

    // threat: Request smuggling
    #[tokio::test(start_paused = true)]
    async fn a_body_in_chunks_ends_where_it_ends_whatever_was_read_ahead() {
        let (body, next) = ("4\r\nbody\r\n0\r\n\r\n", "GET /next");
        let whole = format!("{body}{next}");
        for ahead in 0..=whole.len() {
            let (mut client, mut request) = bounded(&whole[..ahead], Extent::Chunks(Decoder::default()));
            client.write_all(&whole.as_bytes()[ahead..]).await.unwrap();
            let mut shown = BytesMut::with_capacity(256);
            read_to(&mut request, &mut shown, body.len()).await;
            assert_eq!(&shown[..], body.as_bytes(), "{ahead}");
            let (mut stream, mut rest) = Bounded::unwrap(Box::new(request) as Stream).unwrap();
            read_to(&mut stream, &mut rest, next.len()).await;
            assert_eq!(&rest[..], next.as_bytes(), "{ahead}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn broken_chunks_are_not_shown() {
        let (mut client, mut request) = bounded("", Extent::Chunks(Decoder::default()));
        client.write_all(b"4\nbody").await.unwrap();
        assert!(request.read(&mut [0; 64]).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_buffer_gets_no_byte_of_the_next_request() {
        let (mut client, mut request) = bounded("", Extent::Bytes(4));
        client.write_all(b"bodyGET /next").await.unwrap();
        let mut body = BytesMut::with_capacity(4_096);
        assert_eq!(request.read_buf(&mut body).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_while_it_waits_is_noticed() {
        let (client, mut request) = bounded("", Extent::Bytes(0));
        drop(client);
        assert_eq!(request.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_request_gives_no_connection_back() {
        let (_client, request) = bounded("bo", Extent::Bytes(4));
        assert!(Bounded::unwrap(Box::new(request) as Stream).is_none());
        let (_client, request) = bounded("", Extent::Rest);
        assert!(Bounded::unwrap(Box::new(request) as Stream).is_none());
    }
}
