//! Connections to upstreams that wait for the next request, and the buffers of exchanges. A worker has its own.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::gateway::relay::exchange::Buffers;
use crate::serve::timer::Timer;

/// The most buffers that are kept for later exchanges.
const BUFFERS_MAX: usize = 64;

/// How often unused connections are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The connections and buffers that a worker keeps between requests.
pub(crate) struct Pool {
    connections_max: usize,
    idle: Mutex<Idle>,
    buffers: Mutex<Vec<Buffers>>,
}

#[derive(Default)]
struct Idle {
    connections: HashMap<SocketAddr, Vec<Unused>, RandomState>,
    count: usize,
}

/// A connection that waits for a request.
struct Unused {
    stream: TcpStream,
    /// When it is closed.
    until: Instant,
}

impl Pool {
    /// The pool of a worker, which keeps so many unused connections to all upstreams together.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, idle: Mutex::default(), buffers: Mutex::default() }
    }

    /// A connection to this address that its upstream has not closed. The one that was used last comes first.
    pub(super) fn take(&self, address: SocketAddr, now: Instant) -> Option<TcpStream> {
        let mut idle = self.idle.lock();
        let Idle { connections, count } = &mut *idle;
        let list = connections.get_mut(&address)?;
        while let Some(Unused { stream, until }) = list.pop() {
            *count -= 1;
            if now < until && is_silent(&stream) {
                return Some(stream);
            }
        }
        connections.remove(&address);
        None
    }

    /// Keeps a connection for as long as `idle_time`, if there is room.
    pub(super) fn put(&self, address: SocketAddr, stream: TcpStream, now: Instant, idle_time: Duration) {
        let mut idle = self.idle.lock();
        if idle.count < self.connections_max {
            idle.count += 1;
            idle.connections.entry(address).or_default().push(Unused { stream, until: now + idle_time });
        }
    }

    /// Closes the connections whose time is over, or that their upstreams have closed.
    pub(super) fn sweep(&self, now: Instant) {
        let mut idle = self.idle.lock();
        let Idle { connections, count } = &mut *idle;
        connections.retain(|_, list| {
            let before = list.len();
            list.retain(|unused| now < unused.until && is_silent(&unused.stream));
            *count -= before - list.len();
            !list.is_empty()
        });
    }

    pub(super) fn buffers(&self) -> Buffers {
        self.buffers.lock().pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut buffers: Buffers) {
        buffers.clear();
        let mut kept = self.buffers.lock();
        if kept.len() < BUFFERS_MAX {
            kept.push(buffers);
        }
    }
}

/// Closes unused connections in time, for as long as it is polled.
pub(crate) async fn keep(pools: Vec<Arc<Pool>>) {
    loop {
        sleep(SWEEP_EVERY).await;
        pools.iter().for_each(|pool| pool.sweep(Timer::now()));
    }
}

/// True if a connection is open, and nothing was sent on it that nobody asked for. The kernel is asked, because the runtime
/// learns of an end or of bytes only when it has nothing else to do.
fn is_silent(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::{Pool, Timer};

    const MINUTE: Duration = Duration::from_secs(60);

    /// A pool with one connection, and its other side.
    async fn filled() -> (Pool, std::net::SocketAddr, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let pool = Pool::new(1);
        pool.put(address, ours.unwrap(), Timer::now(), MINUTE);
        (pool, address, theirs.unwrap().0)
    }

    #[test]
    fn buffers_that_a_large_exchange_has_grown_are_given_back() {
        const MIB: usize = 1 << 20;
        let pool = Pool::new(1);
        let mut buffers = pool.buffers();
        for outgoing in [&mut buffers.to_upstream, &mut buffers.to_client] {
            outgoing.bytes.resize(MIB, 0);
        }
        buffers.incoming.resize(MIB, 0);
        pool.give_back(buffers);
        let kept = pool.buffers();
        let capacities = [&kept.to_upstream, &kept.to_client].map(|outgoing| outgoing.bytes.capacity());
        assert!(capacities.iter().all(|bytes| (1..=MIB / 8).contains(bytes)), "{capacities:?}");
        assert!(kept.incoming.capacity() <= MIB / 8, "{}", kept.incoming.capacity());
        assert!(kept.to_upstream.is_empty() && kept.to_client.is_empty());
    }

    #[tokio::test]
    async fn a_connection_is_used_again_once_and_not_after_its_time() {
        let (pool, address, _theirs) = filled().await;
        let stream = pool.take(address, Timer::now()).unwrap();
        assert!(pool.take(address, Timer::now()).is_none());
        pool.put(address, stream, Timer::now(), MINUTE);
        assert!(pool.take(address, Timer::now() + MINUTE).is_none());
        assert_eq!(pool.idle.lock().count, 0);
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_or_spoke_unasked_is_neither_used_nor_kept() {
        for speaks in [true, false] {
            for sweeps in [true, false] {
                let (pool, address, mut theirs) = filled().await;
                if speaks {
                    theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
                } else {
                    drop(theirs);
                }
                if sweeps {
                    pool.sweep(Timer::now());
                    assert_eq!(pool.idle.lock().count, 0);
                }
                assert!(pool.take(address, Timer::now()).is_none());
            }
        }
    }
}
