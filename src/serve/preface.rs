//! Tells HTTP/1 from HTTP/2 by the first bytes of a connection: HTTP/2 begins with its preface (RFC 9113, section 3.4).

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use pingora::protocols::ALPN;
use pingora::server::ShutdownWatch;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::serve::connection::USUAL_HEAD_BYTES;
use crate::serve::stream::ClientStream;
use crate::serve::{LINGER, SILENT_TIME_MAX};

/// How long the preface may take to arrive.
const TIME_MAX: Duration = Duration::from_secs(10);

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
    let is_preface = before_end(timeout(TIME_MAX, read), shutdown).await?.ok()?.ok()?;
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

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::{BytesMut, ClientStream, LINGER, SILENT_TIME_MAX, is_http2};
    use crate::serve::timer::Timer;

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
}
