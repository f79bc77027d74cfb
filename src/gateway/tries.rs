//! The tries of one request: where it goes next, its slot there, whether it may go elsewhere, and what is counted and logged of
//! those that failed.

use std::net::SocketAddr;

use crate::domain::Upstream;
use crate::gateway::mcp::{CODED_LIST, UNREADABLE_LIST};
use crate::gateway::{Gateway, context::Context, failure::Failure};
use crate::http1::REPEATED;

impl Gateway {
    /// Chooses the next address of a request, and takes a slot at its upstream for the one that it had.
    pub(super) async fn next_address(&self, ctx: &mut Context) -> Result<SocketAddr, Failure> {
        let upstreams = ctx.upstreams().ok_or(Failure::Internal)?;
        let (mut attempt, former) = (ctx.attempt, ctx.attempt);
        let chosen = upstreams.choose(&mut attempt, self.clock.monotonic_micros());
        ctx.attempt = attempt;
        let Some(address) = chosen else {
            if let Some(site) = &ctx.site {
                let tenant = &site.tenant.id;
                site.counters.faults(&self.clock).note(format_args!(
                    "no upstream of tenant {tenant} has an address: its names can't be looked up, or lead where they may not"
                ));
            }
            return Err(Failure::NoUpstream);
        };
        // Another address of its upstream takes no other slot.
        if attempt.current != former.current {
            ctx.slot = None;
        }
        if let Some(trace) = &mut ctx.record.trace {
            trace.leave_upstream(self.clock.monotonic_micros());
        }
        let (member, site) = ctx.member().zip(ctx.site.as_ref()).ok_or(Failure::Internal)?;
        if ctx.slot.is_none() {
            ctx.slot = member.state.acquire(site.tenant.proxy.timeouts.connect).await;
        }
        if ctx.slot.is_none() {
            site.counters.overloaded("upstream");
            return Err(Failure::Overloaded);
        }
        self.begin_try(ctx);
        Ok(address)
    }

    /// A request is about to go to the upstream that it is at.
    pub(super) fn begin_try(&self, ctx: &mut Context) {
        let Some(mut trace) = ctx.record.trace.take() else { return };
        if let Some(Upstream { host, port, .. }) = ctx.member().map(|member| &member.state.upstream) {
            trace.enter_upstream(host, *port, self.clock.monotonic_micros());
        }
        ctx.record.trace = Some(trace);
    }

    /// True if a request that its upstream has not processed goes to another upstream; without another one, to a new
    /// connection, as long as it may try.
    pub(super) fn may_repeat(&self, ctx: &mut Context) -> bool {
        ctx.attempt.addresses_left = 0;
        if ctx.upstreams().is_some_and(|upstreams| !upstreams.has_another(ctx.attempt)) {
            ctx.attempt.tried = 0;
        }
        self.may_go_to_another(ctx, "unprocessed")
    }

    /// True if a request that could not connect goes to another address, which is no retry, or to another upstream.
    pub(super) fn may_try_another(&self, ctx: &mut Context) -> bool {
        if ctx.attempt.addresses_left > 0 {
            return !ctx.is_overdue();
        }
        self.may_go_to_another(ctx, "unreachable")
    }

    /// The address of a request could be connected to or not.
    pub(super) fn note_reached(&self, ctx: &Context, address: Option<&SocketAddr>, is_reached: bool) {
        if let (Some(member), Some(address)) = (ctx.member(), address) {
            member.state.reached(*address, is_reached, self.clock.monotonic_micros());
        }
    }

    /// A request failed on the upstream that it was at.
    pub(super) fn note_upstream_failure(&self, ctx: &Context, kind: &str) {
        let Some((member, site)) = ctx.member().zip(ctx.site.as_ref()) else { return };
        let (upstream, tenant) = (&member.state.upstream, &site.tenant.id);
        let request_id = ctx.record.id().unwrap_or_default();
        site.counters
            .faults(&self.clock)
            .note(format_args!("a request of tenant {tenant} failed at {upstream}: {kind} ({request_id})"));
        let is_well = REPEATED.contains(&kind) || [CODED_LIST, UNREADABLE_LIST].contains(&kind);
        if !is_well && member.state.failed(self.clock.monotonic_micros()) {
            site.counters.ejected();
            tracing::warn!(tenant = &**tenant, %upstream, "takes no requests for a while: too many failed in a row");
        }
    }

    fn may_go_to_another(&self, ctx: &mut Context, reason: &str) -> bool {
        let Some((site, upstreams)) = ctx.site.as_ref().zip(ctx.upstreams()) else { return false };
        let tries_max = u32::from(site.tenant.proxy.connect_retries);
        let has_another = ctx.attempt.tries <= tries_max && upstreams.has_another(ctx.attempt);
        if !has_another || ctx.is_overdue() {
            return false;
        }
        // It has leave to look for another connection until it has one.
        if ctx.retrying.is_none() {
            ctx.retrying = upstreams.retry();
        }
        if let (Some(_), Some(site)) = (&ctx.retrying, &ctx.site) {
            site.counters.retried(reason);
        }
        ctx.retrying.is_some()
    }
}
