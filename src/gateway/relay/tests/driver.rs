//! The driver's time limits, in simulated time.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::gateway::failure::Failure;
use crate::gateway::relay::driver::{Driver, Limits, first_size};
use crate::gateway::relay::exchange::{Buffers, Exchange};
use crate::gateway::relay::tests::exchange::Rules;
use crate::http1::head::read_request;
use crate::serve::connection::Connection;
use crate::serve::timer::Timer;

/// A client whose bytes are all taken into a buffer and never get out of it.
#[derive(Debug)]
struct Stuck(RawFd);

impl AsyncRead for Stuck {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[async_trait]
impl Shutdown for Stuck {
    async fn shutdown(&mut self) {}
}

impl UniqueID for Stuck {
    fn id(&self) -> i32 {
        0
    }
}

impl Ssl for Stuck {}

impl Peek for Stuck {}

impl GetTimingDigest for Stuck {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Stuck {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Stuck {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::new(SocketDigest::from_raw_fd(self.0)))
    }
}

#[tokio::test]
async fn a_client_that_does_not_take_the_end_of_its_answer_is_left_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (ours, theirs) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut upstream, mut theirs) = (ours.unwrap(), theirs.unwrap().0);
    theirs.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    upstream.readable().await.unwrap();
    tokio::time::pause();
    let (_stop, shutdown) = watch::channel(false);
    let mut client = Connection::new(Box::new(Stuck(upstream.as_raw_fd())), &shutdown).unwrap();
    let request = read_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut Vec::new()).unwrap();
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let begun = Timer::now();
    let mut driver = Driver {
        client: &mut client,
        upstream: &mut upstream,
        exchange: &mut Exchange::new(&request, false, false, true, None),
        buffers: &mut Buffers::default(),
        rules: &Rules,
        limits: Limits {
            client_read: second,
            client_write: minute,
            upstream_read: second,
            upstream_write: second,
            end: None,
        },
        uploaded: begun,
        downloaded: begun,
        read_bytes: first_size(),
        is_deaf: false,
        needs_flush: false,
    };
    let outcome = tokio::time::timeout(2 * minute, driver.run()).await;
    assert_eq!(outcome, Ok(Err(Failure::ClientGone)));
    assert!(Timer::now() - begun < minute + second);
}
