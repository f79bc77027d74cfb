//! One worker of a listener: a thread with a runtime, an accept queue, and the connections that it took.
//!
//! The server framework's own accept loop holds the memory of a TLS handshake for as long as a connection lives, and shares
//! one queue among all threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::serve::{Door, HttpShell};
use crate::supervision::keep_going;

/// How many connections wait to be accepted.
const BACKLOG: u32 = 65_535;

/// How much of an answer the kernel holds before it is sent, in bytes: a client that reads nothing costs no more. What is on its
/// way to the client is not counted, so that a fast one is as fast.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// How many connections are accepted before others have their turn.
const ACCEPTS_MAX: u64 = 8;

/// How long accepting pauses when it fails: most often there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A worker.
pub(crate) struct Worker<D> {
    name: String,
    sockets: Vec<TcpSocket>,
    shell: Arc<HttpShell<D>>,
    stopping: ShutdownWatch,
}

impl<D: Door> Worker<D> {
    /// A worker of the listener of this name, with a socket of its own for each address: see [`bound`]. It closes them when
    /// `stopping` is true. It and its connections have receivers of that for as long as they live.
    pub(crate) fn new(
        name: &str,
        sockets: Vec<TcpSocket>,
        shell: HttpShell<D>,
        stopping: ShutdownWatch,
    ) -> Self {
        Self { name: name.to_owned(), sockets, shell: Arc::new(shell), stopping }
    }
}

/// A socket for each of so many workers, bound and not listening: clients are refused until the worker starts, and none is
/// reset. The kernel spreads connections over them.
///
/// # Errors
///
/// The address can't be used. Workers of another process don't share it: it must be free.
pub(crate) fn bound(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpSocket>> {
    drop(socket(address, false)?);
    (0..workers).map(|_| socket(address, true)).collect()
}

fn socket(address: SocketAddr, is_shared: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(is_shared)?;
    // Connections inherit both. Without the first, small answers may wait for the acknowledgement of the one before.
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(address)?;
    Ok(socket)
}

#[async_trait]
impl<D: Door> Service for Worker<D> {
    async fn start_service(
        &mut self,
        _fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
    ) {
        let shell = Arc::clone(&self.shell);
        tokio::spawn(async move {
            keep_going("turns", &shell.limits.metrics, || shell.turns.begin_rounds()).await;
        });
        let accepting = self.sockets.drain(..).map(|socket| {
            let (shell, shutdown) = (Arc::clone(&self.shell), self.stopping.clone());
            async {
                match socket.listen(BACKLOG) {
                    Ok(listener) => accept(listener, shell, shutdown).await,
                    Err(error) => tracing::error!("cannot listen: {error}"),
                }
            }
        });
        join_all(accepting).await;
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}

/// Takes connections until the service is to end.
async fn accept<D: Door>(listener: TcpListener, shell: Arc<HttpShell<D>>, mut shutdown: ShutdownWatch) {
    let mut is_failing = false;
    for accepted in 0_u64.. {
        if accepted.is_multiple_of(ACCEPTS_MAX) {
            yield_now().await;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            end = shutdown.wait_for(|stopping| *stopping) => {
                drop(end);
                return;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                is_failing = false;
                let (shell, shutdown) = (Arc::clone(&shell), shutdown.clone());
                tokio::spawn(async move { shell.serve(stream, peer, &shutdown).await });
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::error!("cannot accept connections: {error}");
                }
                sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::{SockRef, UNSENT_BYTES_MAX, bound};

    #[tokio::test]
    async fn an_address_is_taken_for_every_worker_without_taking_connections_and_by_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(bound(address, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        let mut sockets = bound(address, 2).unwrap();
        assert_eq!(sockets.len(), 2);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _listening = sockets.remove(0).listen(1).unwrap();
        assert_eq!(bound(address, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn an_accepted_connection_sends_small_answers_at_once_and_holds_few_unsent_bytes() {
        let listener = bound("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0).listen(1).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(accepted.nodelay().unwrap());
        assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), UNSENT_BYTES_MAX);
    }
}
