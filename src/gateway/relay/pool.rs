//! Connections to upstreams that wait for the next request, and the buffers of exchanges. A worker has its own.

use std::collections::{HashMap, VecDeque};
use std::{io::ErrorKind, mem::MaybeUninit, net::SocketAddr, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::gateway::failure::{Failure, is_out_of_descriptors};
use crate::gateway::relay::exchange::{Buffers, Exchange};
use crate::gateway::{context::Context, relay::Relay};
use crate::serve::Timer;

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
    tenants: HashMap<Arc<str>, OfTenant, RandomState>,
    count: usize,
}

/// The connections of one tenant. Each list is in the order in which they came.
#[derive(Default)]
struct OfTenant {
    connections: HashMap<SocketAddr, VecDeque<Unused>, RandomState>,
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

    /// A connection of this tenant to this address that its upstream has not closed. The one that was used last comes first.
    pub(super) fn take(&self, tenant: &str, address: SocketAddr, now: Instant) -> Option<TcpStream> {
        let mut idle = self.idle.lock();
        let Idle { tenants, count } = &mut *idle;
        let of_tenant = tenants.get_mut(tenant)?;
        let list = of_tenant.connections.get_mut(&address)?;
        while let Some(Unused { stream, until }) = list.pop_back() {
            *count -= 1;
            of_tenant.count -= 1;
            if now < until && is_silent(&stream) {
                return Some(stream);
            }
        }
        of_tenant.connections.remove(&address);
        None
    }

    /// Keeps a connection for as long as `idle_time`. Without room the oldest goes: the tenant's own if it has its share, else
    /// that of the tenant that has the most.
    pub(super) fn put(
        &self,
        tenant: &Arc<str>,
        address: SocketAddr,
        stream: TcpStream,
        now: Instant,
        idle_time: Duration,
    ) {
        let unused = Unused { stream, until: now + idle_time };
        // Closed when the lock is free again.
        let _closed = self.idle.lock().keep(tenant, address, unused, self.connections_max);
    }

    /// Closes the connections whose time is over, or that their upstreams have closed.
    pub(super) fn sweep(&self, now: Instant) {
        let mut idle = self.idle.lock();
        let Idle { tenants, count } = &mut *idle;
        tenants.retain(|_, of_tenant| {
            of_tenant.connections.retain(|_, list| {
                let before = list.len();
                list.retain(|unused| now < unused.until && is_silent(&unused.stream));
                *count -= before - list.len();
                of_tenant.count -= before - list.len();
                !list.is_empty()
            });
            !of_tenant.connections.is_empty()
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

impl Idle {
    /// Keeps a connection, and gives the one that has to go for it, which may be itself.
    fn keep(
        &mut self,
        tenant: &Arc<str>,
        address: SocketAddr,
        unused: Unused,
        most: usize,
    ) -> Option<Unused> {
        let mut closed = None;
        if self.count >= most {
            closed = self.oldest_but_for(tenant, most);
            if closed.is_none() {
                return Some(unused);
            }
            self.count -= 1;
        }
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(Arc::clone(tenant), OfTenant::default());
        }
        if let Some(of_tenant) = self.tenants.get_mut(tenant) {
            of_tenant.connections.entry(address).or_default().push_back(unused);
            of_tenant.count += 1;
            self.count += 1;
        }
        closed
    }

    /// Takes out the connection that goes for another one of this tenant.
    fn oldest_but_for(&mut self, tenant: &str, most: usize) -> Option<Unused> {
        let share = most / self.tenants.len().max(1);
        if let Some(own) = self.tenants.get_mut(tenant).filter(|own| own.count > 0 && own.count >= share) {
            return own.oldest();
        }
        self.tenants.values_mut().max_by_key(|of_tenant| of_tenant.count)?.oldest()
    }
}

impl OfTenant {
    /// Takes out the connection that came first.
    fn oldest(&mut self) -> Option<Unused> {
        let first_of = |list: &VecDeque<Unused>| list.front().map(|unused| unused.until);
        let fronts = self.connections.iter().filter_map(|(address, list)| Some((first_of(list)?, *address)));
        let (_, address) = fronts.min()?;
        let oldest = self.connections.get_mut(&address)?.pop_front()?;
        self.count -= 1;
        Some(oldest)
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

/// A connection to an upstream.
pub(super) struct Upstream {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    /// True if it has carried a request before.
    pub(super) is_used: bool,
    /// When this request got it.
    pub(super) since: Instant,
}

impl Relay {
    /// Connects to an upstream of the admitted, or to another if that fails. `again`: a new connection to this address first.
    pub(super) async fn connect(
        &self,
        ctx: &mut Context,
        now: Instant,
        mut again: Option<SocketAddr>,
    ) -> Result<Upstream, Failure> {
        loop {
            let (address, may_be_used) = match again.take() {
                Some(address) => {
                    self.gateway.begin_try(ctx);
                    (address, false)
                }
                None => (self.gateway.next_address(ctx).await?, true),
            };
            let tenant = || ctx.site.as_ref().map(|site| &*site.tenant.id);
            if may_be_used
                && let Some(stream) = tenant().and_then(|tenant| self.pool.take(tenant, address, now))
            {
                ctx.retrying = None;
                return Ok(Upstream { stream, address, is_used: true, since: now });
            }
            ctx.record.times.left.get_or_insert_with(Timer::now);
            let opened = self.open(ctx, address).await;
            if !matches!(opened, Err(Failure::Overloaded)) {
                self.gateway.note_reached(ctx, Some(&address), opened.is_ok());
            }
            match opened {
                Ok(upstream) => {
                    ctx.retrying = None;
                    return Ok(upstream);
                }
                Err(failure) => {
                    if let Some(kind) = failure.upstream_kind().filter(|_| ctx.attempt.addresses_left == 0) {
                        self.gateway.note_upstream_failure(ctx, kind);
                    }
                    if failure == Failure::Overloaded || !self.gateway.may_try_another(ctx) {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// A new connection to this address.
    pub(super) async fn open(&self, ctx: &Context, address: SocketAddr) -> Result<Upstream, Failure> {
        let (member, site) = ctx.member().zip(ctx.site.as_ref()).ok_or(Failure::Internal)?;
        let longest = member.state.connect_time(ctx.attempt, site.tenant.proxy.timeouts.connect);
        let connected = timeout(longest, TcpStream::connect(address)).await;
        let stream = connected.map_err(|_| Failure::UpstreamSlow("ConnectTimedout"))?.map_err(|error| {
            if is_out_of_descriptors(&error) {
                site.counters.overloaded("descriptors");
                return Failure::Overloaded;
            }
            let is_refused = error.kind() == ErrorKind::ConnectionRefused;
            Failure::Upstream(if is_refused { "ConnectRefused" } else { "ConnectError" })
        })?;
        // Without it small requests may wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        Ok(Upstream { stream, address, is_used: false, since: Timer::now() })
    }

    /// Keeps the connection for the next request, if the answer leaves it in order.
    pub(super) fn keep(&self, upstream: Upstream, exchange: &Exchange, buffers: &Buffers, ctx: &Context) {
        let Some(site) = ctx.site.as_ref().filter(|_| exchange.upstream_goes_on(buffers)) else { return };
        let Upstream { stream, address, .. } = upstream;
        let idle = site.tenant.proxy.timeouts.idle;
        let idle = exchange.upstream_idle.map_or(idle, |theirs| theirs.min(idle));
        self.pool.put(&site.tenant.id, address, stream, Timer::now(), idle);
    }
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
        pool.put(&"acme".into(), address, ours.unwrap(), Timer::now(), MINUTE);
        (pool, address, theirs.unwrap().0)
    }

    /// Puts connections of a tenant into a pool, one after the other, and gives their numbers as the upstream sees them.
    async fn put(pool: &Pool, listener: &TcpListener, tenant: &str, count: u64) -> Vec<u16> {
        let (mut ports, address) = (Vec::new(), listener.local_addr().unwrap());
        for number in 0..count {
            let stream = TcpStream::connect(address).await.unwrap();
            ports.push(stream.local_addr().unwrap().port());
            pool.put(&tenant.into(), address, stream, Timer::now() + Duration::from_secs(number), MINUTE);
        }
        ports
    }

    /// The connections of a tenant that are left, the oldest first.
    fn left(pool: &Pool, listener: &TcpListener, tenant: &str) -> Vec<u16> {
        let take = || pool.take(tenant, listener.local_addr().unwrap(), Timer::now());
        let mut left: Vec<_> =
            std::iter::from_fn(take).map(|stream| stream.local_addr().unwrap().port()).collect();
        left.reverse();
        left
    }

    // threat: A tenant takes what is another's or shared
    #[tokio::test]
    async fn in_a_full_pool_each_tenant_has_its_share_and_the_oldest_connection_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Pool::new(6);
        let greedy = put(&pool, &listener, "greedy", 8).await;
        let other = put(&pool, &listener, "other", 2).await;
        let again = put(&pool, &listener, "greedy", 5).await;
        let third = put(&pool, &listener, "third", 1).await;
        assert_eq!(pool.idle.lock().count, 6);
        assert_eq!(left(&pool, &listener, "other"), other, "nobody else's went for the greedy one's");
        assert_eq!(left(&pool, &listener, "third"), third);
        assert_eq!(left(&pool, &listener, "greedy"), again[2..], "{greedy:?}");
        assert_eq!(pool.idle.lock().count, 0);
        pool.sweep(Timer::now());
        assert!(pool.idle.lock().tenants.is_empty());
    }

    #[tokio::test]
    async fn no_tenant_uses_anothers_connection_and_a_pool_without_room_keeps_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (pool, none) = (Pool::new(6), Pool::new(0));
        let one = put(&pool, &listener, "one", 1).await;
        assert_eq!(left(&pool, &listener, "two"), [0; 0]);
        assert_eq!(left(&pool, &listener, "one"), one);
        put(&none, &listener, "one", 2).await;
        assert_eq!(left(&none, &listener, "one"), [0; 0]);
        assert_eq!(none.idle.lock().count, 0);
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
        let stream = pool.take("acme", address, Timer::now()).unwrap();
        assert!(pool.take("acme", address, Timer::now()).is_none());
        pool.put(&"acme".into(), address, stream, Timer::now(), MINUTE);
        assert!(pool.take("acme", address, Timer::now() + MINUTE).is_none());
        assert_eq!(pool.idle.lock().count, 0);
    }

    // threat: Answers of others, requests that run twice
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
                assert!(pool.take("acme", address, Timer::now()).is_none());
            }
        }
    }
}
