//! A connection to an upstream: out of the pool, or a new one to the next address that can be reached.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::gateway::failure::{Failure, is_out_of_descriptors};
use crate::gateway::relay::exchange::{Buffers, Exchange};
use crate::gateway::{context::Context, relay::Relay};
use crate::serve::Timer;

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
                    if let Some(kind) = failure.upstream_kind().filter(|_| !ctx.attempt.has_address_left()) {
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
                self.gateway.note_overload(ctx, "descriptors");
                return Failure::Overloaded;
            }
            Failure::Upstream(kind_of(&error))
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

/// The log's word for a connection that could not be made.
fn kind_of(error: &std::io::Error) -> &'static str {
    if error.kind() == std::io::ErrorKind::ConnectionRefused { "ConnectRefused" } else { "ConnectError" }
}
