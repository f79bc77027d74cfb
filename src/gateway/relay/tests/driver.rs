//! The driver's time limits, in simulated time.

use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::{future::poll_fn, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::BytesMut;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID,
};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::domain::Timeouts;
use crate::gateway::relay::driver::{Driver, READ_BYTES};
use crate::gateway::relay::exchange::{Buffers, Exchange};
use crate::gateway::{failure::Failure, relay::tests::exchange::context};
use crate::http1::{Spans, head::read_request};
use crate::serve::Timer;
use crate::serve::connection::{ClientStream, Connection};

/// A client that sends nothing, and whose bytes are all taken into a buffer.
#[derive(Debug)]
struct Stuck {
    socket: RawFd,
    flushes: Flushes,
}

/// When the bytes get out of that buffer.
#[derive(Debug)]
enum Flushes {
    AtOnce,
    Never,
    /// Counts the tries.
    AtTheThirdTry(Arc<AtomicUsize>),
}

impl AsyncRead for Stuck {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.flushes {
            Flushes::AtOnce => Poll::Ready(Ok(())),
            Flushes::Never => Poll::Pending,
            Flushes::AtTheThirdTry(tries) if tries.fetch_add(1, Ordering::Relaxed) < 2 => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Flushes::AtTheThirdTry(_) => Poll::Ready(Ok(())),
        }
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
        Some(Arc::new(SocketDigest::from_raw_fd(self.socket)))
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Bytes that the connection to the upstream buffers before anything is read.
const BUFFER_BYTES: usize = 200 * 1024;

/// Runs an exchange with a client that reads so and an upstream that sends this, and falls silent; gives the outcome, the
/// time that it took, and how often it was polled. The upstream may take two seconds to answer, and the client a minute to take that.
async fn run(
    flushes: Flushes,
    head: &str,
    expects: bool,
    answer: &[u8],
    total: Option<Duration>,
) -> (Result<(), Failure>, Duration, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (ours, theirs) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut upstream, mut theirs) = (ours.unwrap(), theirs.unwrap().0);
    SockRef::from(&upstream).set_recv_buffer_size(BUFFER_BYTES).unwrap();
    if !answer.is_empty() {
        theirs.write_all(answer).await.unwrap();
        upstream.readable().await.unwrap();
    }
    tokio::time::pause();
    let (_stop, shutdown) = watch::channel(false);
    let (client, peer) = (Stuck { socket: upstream.as_raw_fd(), flushes }, upstream.peer_addr().unwrap());
    let client = ClientStream::Library(Box::new(client));
    let mut client = Connection::new(client, BytesMut::new(), peer, &shutdown);
    let request = read_request(head.as_bytes(), &mut Spans::default()).unwrap();
    let begun = Timer::now();
    let mut driver = Driver {
        client: &mut client,
        upstream: &mut upstream,
        exchange: &mut Exchange::new(&request, false, expects, true, None),
        buffers: &mut Buffers::default(),
        ctx: &mut context(),
        timeouts: Timeouts { connect: SECOND, read: 2 * SECOND, write: SECOND, idle: SECOND, total },
        uploaded: begun,
        downloaded: begun,
        read_bytes: READ_BYTES,
        is_deaf: false,
        is_reset: false,
        needs_flush: false,
    };
    let (mut running, mut polls) = (pin!(driver.run()), 0);
    let counted = poll_fn(|context| {
        polls += 1;
        running.as_mut().poll(context)
    });
    let outcome = tokio::time::timeout(2 * MINUTE, counted).await.unwrap();
    (outcome, Timer::now() - begun, polls)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_client_that_does_not_take_the_end_of_its_answer_is_left_in_time() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (outcome, waited, _) = run(Flushes::Never, GET, false, answer, None).await;
    assert_eq!(outcome, Err(Failure::ClientGone));
    assert!(waited < MINUTE + SECOND, "{waited:?}");
}

#[tokio::test]
async fn bytes_that_the_client_s_stream_holds_back_are_flushed_again_before_more_is_read() {
    let tries = Arc::new(AtomicUsize::new(0));
    let beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no";
    let (outcome, ..) = run(Flushes::AtTheThirdTry(Arc::clone(&tries)), GET, false, beginning, None).await;
    // The rest never comes, and that is the upstream's fault: the client has taken what there is.
    assert_eq!(outcome, Err(Failure::UpstreamSlow("ReadTimedout")));
    assert_eq!(tries.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_client_that_expects_to_be_told_to_continue_can_blame_no_upstream() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let (outcome, waited, _) = run(Flushes::Never, head, true, b"", None).await;
    assert_eq!(outcome, Err(Failure::ClientSlow));
    assert!(waited >= 2 * SECOND, "the upstream has its time: {waited:?}");
}

#[tokio::test]
async fn a_silent_upstream_is_to_blame_also_where_the_total_ends_first() {
    let (outcome, waited, _) = run(Flushes::Never, GET, false, b"", Some(SECOND)).await;
    assert_eq!(outcome, Err(Failure::UpstreamSlow("ReadTimedout")));
    assert!(waited < 2 * SECOND, "{waited:?}");
}

#[tokio::test]
async fn an_upstream_that_is_answering_is_not_to_blame_for_the_total() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx";
    let (outcome, waited, _) = run(Flushes::AtOnce, GET, false, answer, Some(SECOND)).await;
    assert_eq!(outcome, Err(Failure::Overdue));
    assert!(waited < 2 * SECOND, "{waited:?}");
}

#[tokio::test]
async fn a_body_that_never_has_to_wait_gives_others_their_turn() {
    let body = vec![b'x'; BUFFER_BYTES];
    let answer =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {BUFFER_BYTES}\r\n\r\n").as_bytes(), &body].concat();
    let (outcome, waited, polls) = run(Flushes::AtOnce, GET, false, &answer, None).await;
    assert_eq!((outcome, waited), (Ok(()), Duration::ZERO));
    assert!(polls > 1);
}
