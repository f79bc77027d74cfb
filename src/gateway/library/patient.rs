//! Connections to upstreams for requests that may become another protocol: an answer is not looked at in the same breath
//! in which the request was written.
//!
//! Pingora's proxy (0.9) learns from one queue that the request's own body has ended, and from the connection that the
//! upstream has switched protocols. When both are there at once it may take the switch first and then the end of the
//! body for the end of the new protocol, and closes a WebSocket that has just opened. Read one turn of the scheduler
//! later, the answer is always second.
//!
//! 0.9.1, the newest release, has both arms in one `select!` (`proxy_handle_upstream`). Without this file
//! `upgrades::an_upgrade_that_is_answered_at_once_is_not_cut_off` fails.

use std::task::{Context, Poll};
use std::{io, pin::Pin, time::Duration};

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora::{Error, ErrorType, OrErr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Opens such connections.
#[derive(Debug)]
pub(super) struct PatientConnector {
    /// How long connecting may take.
    pub(super) longest: Duration,
}

#[async_trait]
impl L4Connect for PatientConnector {
    async fn connect(&self, address: &SocketAddr) -> pingora::Result<Stream> {
        let address = address
            .as_inet()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "upstreams are reached over TCP"))?;
        let connected = timeout(self.longest, TcpStream::connect(address)).await;
        let stream = connected
            .map_err(|_| Error::explain(ErrorType::ConnectTimedout, "while connecting to an upstream"))?
            .or_err(ErrorType::ConnectError, "while connecting to an upstream")?;
        let patient = Patient { stream, has_written: false };
        Ok(Stream::from(VirtualSocketStream::new(Box::new(patient))))
    }
}

/// A connection on which the first look for an answer after a write finds nothing yet.
#[derive(Debug)]
struct Patient {
    stream: TcpStream,
    has_written: bool,
}

impl VirtualSocket for Patient {
    fn set_socket_option(&self, option: VirtualSockOpt) -> io::Result<()> {
        match option {
            VirtualSockOpt::NoDelay => self.stream.set_nodelay(true),
            // No other option is set on these connections.
            VirtualSockOpt::KeepAlive(_) | _ => Ok(()),
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_written) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
