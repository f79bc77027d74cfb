//! How much a connection reads at once, and how much memory it keeps, also before it says what it speaks.

use bytes::Buf;
use futures_util::FutureExt;
use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{
    AsyncRead, BytesMut, ClientStream, Connection, Context, HEAD_BYTES_MAX, LINGER, LINGER_BYTES_MAX, Pin,
    Poll, READ_BYTES, Timer, io, is_http2, skip,
};
use crate::serve::SILENT_TIME_MAX;

/// Gives as many bytes as there is room for, and counts how often it is asked.
struct Endless(usize);

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0 += 1;
        let room = into.remaining();
        into.put_slice(&vec![b'x'; room]);
        Poll::Ready(Ok(()))
    }
}

// threat: Huge or costly heads and bodies
#[tokio::test]
async fn an_unwanted_body_is_read_by_whole_buffers_wherever_its_head_ended() {
    for (room, head) in (0..70).flat_map(|room| [(room, 100), (room, 2_048 - room)]) {
        let mut ahead = BytesMut::with_capacity(head + room);
        ahead.resize(head, b'h');
        ahead.advance(head);
        let mut stream = Endless(0);
        assert!(skip(&mut stream, &mut ahead, LINGER_BYTES_MAX).await);
        let reads = stream.0;
        assert!(reads <= LINGER_BYTES_MAX / READ_BYTES + 1, "{reads} reads behind a head of {head}");
    }
}

#[tokio::test]
async fn an_idle_connection_gives_back_what_a_long_head_or_a_body_in_chunks_has_grown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, ours) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (mut client, (ours, peer)) = (client.unwrap(), ours.unwrap());
    let (_stop, shutdown) = watch::channel(false);
    let stream = ClientStream::Plain(ours);
    let mut connection = Connection::new(stream, BytesMut::new(), peer, &shutdown);
    let long = format!("X: {}\r\n", "x".repeat(HEAD_BYTES_MAX / 2));
    for line in ["", &long, "", "Transfer-Encoding: chunked\r\n", ""] {
        client.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n").as_bytes()).await.unwrap();
        let _ = connection.next_request(SILENT_TIME_MAX).await.unwrap();
        if line.starts_with('T') {
            // The relay reads chunks into it.
            connection.ahead.resize(HEAD_BYTES_MAX, b'x');
            connection.ahead.clear();
        }
        assert!(connection.next_request(SILENT_TIME_MAX).now_or_never().is_none(), "it is idle");
        let kept = connection.head.capacity() + connection.ahead.capacity();
        assert!(kept <= HEAD_BYTES_MAX / 4, "{kept} bytes are kept behind {:?}", line.get(..10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_has_no_buffer_and_is_closed_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (is_stopping, waits) in [(false, SILENT_TIME_MAX), (true, LINGER)] {
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut stream = ClientStream::Plain(listener.accept().await.unwrap().0);
        let (_stop, shutdown) = watch::channel(is_stopping);
        let (mut ahead, begun) = (BytesMut::new(), Timer::now());
        assert_eq!(is_http2(&mut stream, &mut ahead, &shutdown).await, None);
        let waited = (Timer::now() - begun).as_secs();
        assert_eq!((waited, ahead.capacity()), (waits.as_secs(), 0));
    }
}
