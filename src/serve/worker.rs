//! One worker of a listener: an accept queue, and the connections that it took. It lives in the runtime of one thread.
//!
//! The server framework's own accept loop holds the memory of a TLS handshake for as long as a connection lives, and shares
//! one queue among all threads.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use pingora::server::ShutdownWatch;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::serve::{Handler, Listener};

/// How many connections wait to be accepted.
pub(crate) const BACKLOG: i32 = 65_535;

/// How much of an answer the kernel holds before it is sent, in bytes: a client that reads nothing costs no more. What is on its
/// way to the client is not counted, so that a fast one is as fast.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// How many connections are accepted before others have their turn.
const ACCEPTS_MAX: u64 = 8;

/// How long accepting pauses when it fails: most often there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// When a worker takes connections.
pub(crate) struct Gates {
    /// True once it is to begin; its sockets listen then.
    pub(crate) serving: watch::Receiver<bool>,
    /// True once it is to close its sockets. It and its connections have receivers of that for as long as they live.
    pub(crate) stopping: ShutdownWatch,
}

/// Takes connections on a worker's sockets for each address (see [`bound`] and [`adopt`]) until they are to close.
/// Connections go on for as long as the runtime does.
/// Error: a socket can't be used, or taking connections panicked: its clients would wait for ever.
pub(crate) async fn take_connections<H: Handler>(
    sockets: Vec<Socket>,
    listener: Listener<H>,
    mut gates: Gates,
) -> io::Result<()> {
    if gates.serving.wait_for(|serving| *serving).await.is_err() {
        // The process ends before it serves.
        return Ok(());
    }
    let (listener, mut accepting) = (Arc::new(listener), JoinSet::new());
    for socket in sockets {
        let queue = TcpListener::from_std(socket.into())?;
        accepting.spawn(accept(queue, Arc::clone(&listener), gates.stopping.clone()));
    }
    while let Some(ended) = accepting.join_next().await {
        ended?;
    }
    Ok(())
}

/// A socket for each of so many workers, bound and not listening: clients are refused until it listens, and none is reset.
/// The kernel spreads connections over them.
/// Error: the address can't be used. Workers of another process don't share it: it must be free.
pub(crate) fn bound(address: SocketAddr, workers: usize) -> io::Result<Vec<Socket>> {
    drop(socket(address, false)?);
    (0..workers).map(|_| socket(address, true)).collect()
}

fn socket(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sets what workers need of a socket, wherever it comes from.
/// Error: the operating system refuses.
pub(crate) fn adopt(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Connections inherit both. Without the first, small answers may wait for the acknowledgement of the one before.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Takes connections until the service is to end, and then those that wait.
async fn accept<H: Handler>(queue: TcpListener, listener: Arc<Listener<H>>, shutdown: ShutdownWatch) {
    let serve = |stream, peer| {
        // This receiver has never seen the end: that is how an answer knows that it is the last.
        let (listener, shutdown) = (Arc::clone(&listener), shutdown.clone());
        tokio::spawn(async move { listener.serve(stream, peer, &shutdown).await });
    };
    let mut stopping = shutdown.clone();
    let mut is_failing = false;
    for accepted in 0_u64.. {
        if accepted.is_multiple_of(ACCEPTS_MAX) {
            yield_now().await;
        }
        let accepted = tokio::select! {
            accepted = queue.accept() => accepted,
            end = stopping.wait_for(|stopping| *stopping) => {
                drop(end);
                break;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                is_failing = false;
                serve(stream, peer);
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::error!("cannot accept connections: {error}");
                }
                sleep(PAUSE).await;
            }
        }
    }
    // Closing the socket resets what waits. More than can wait came later, and must not delay the end.
    let Ok(queue) = queue.into_std() else { return };
    for accepted in 1..=u64::from(BACKLOG.unsigned_abs()) {
        let (stream, peer) = match queue.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // Without descriptors clients wait: the end of shutdown.grace bounds it.
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            serve(stream, peer);
        }
        if accepted.is_multiple_of(ACCEPTS_MAX) {
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::{io::ErrorKind, sync::Arc};

    use pingora::protocols::Stream;
    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::{net, sync::watch};

    use super::{Gates, Handler, Listener, ShutdownWatch, UNSENT_BYTES_MAX, adopt, bound, take_connections};
    use crate::http1::RequestHead;
    use crate::ports::simulated::SimulatedClock;
    use crate::serve::fair_scheduler::{FairScheduler, FairShare};
    use crate::serve::{Limits, SILENT_TIME_MAX, Slot, connection::Connection};
    use crate::telemetry::Metrics;

    /// Says to each client if its answer is the last.
    struct Candid;

    impl Handler for Candid {
        const SPEAKS_HTTP2: bool = false;

        async fn serve_http1(
            &self,
            mut connection: Box<Connection>,
            _: RequestHead,
        ) -> Option<Box<Connection>> {
            let text: &[u8] = if connection.stop.is_near() { b"last" } else { b"not the last" };
            connection.write(text).await.ok()?;
            connection.close().await;
            None
        }

        async fn serve_http2(&self, _: Stream, _: FairShare, _: Slot, _: &ShutdownWatch) {}
    }

    #[tokio::test]
    async fn connections_that_wait_when_a_listener_closes_get_their_last_answer_and_none_is_reset() {
        let socket = bound("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        adopt(&socket).unwrap();
        socket.listen(1024).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut clients = Vec::new();
        for _ in 0..300 {
            let mut client = net::TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            clients.push(client);
        }
        let (_serving, serving) = watch::channel(true);
        let (stop, stopping) = watch::channel(false);
        stop.send_replace(true);
        let limits = Limits::new("api", clients.len(), SILENT_TIME_MAX, None, &Metrics::new().unwrap());
        let clock = Arc::new(SimulatedClock::new(1_700_000_000));
        let scheduler = FairScheduler::new();
        let rounds = Arc::clone(&scheduler);
        tokio::spawn(async move { rounds.begin_rounds().await });
        let listener = Listener::new(Arc::new(Candid), None, clock, limits, scheduler);
        take_connections(vec![socket], listener, Gates { serving, stopping }).await.unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "last");
        }
        stop.closed().await;
    }

    #[test]
    fn every_address_is_that_of_both_families() {
        let socket = bound("[::]:0".parse().unwrap(), 1).unwrap().remove(0);
        socket.listen(1).unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn an_address_is_taken_for_every_worker_without_taking_connections_and_by_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(bound(address, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
        // Not only dropped: a child that another thread starts has a copy between fork and exec.
        SockRef::from(&listener).shutdown(Shutdown::Both).unwrap();
        let mut sockets = bound(address, 2).unwrap();
        assert_eq!(sockets.len(), 2);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let listening = sockets.remove(0);
        listening.listen(1).unwrap();
        assert_eq!(bound(address, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    // threat: One client keeps the processor
    #[test]
    fn an_accepted_connection_sends_small_answers_at_once_and_holds_few_unsent_bytes() {
        let socket = bound("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        adopt(&socket).unwrap();
        socket.listen(1).unwrap();
        let listener = TcpListener::from(socket);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = std::iter::repeat_with(|| listener.accept()).find_map(Result::ok).unwrap().0;
        assert!(accepted.nodelay().unwrap());
        assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), UNSENT_BYTES_MAX);
    }
}
