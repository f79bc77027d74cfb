//! A client's connection as bytes: TCP as it is, or what the HTTP library makes of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use pingora::protocols::{GetSocketDigest, SocketDigest, Stream, l4};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

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
