//! Door 2: a proxy in front of tenants' APIs that lets verified agents through.
//!
//! A request takes one corridor and one of two ways out:
//!
//! ```text
//! client -> corridor (route, extract, admit) -> Passage -> relay    (HTTP/1 to plain HTTP/1)
//!                                                       -> library  (HTTP/2, upgrades, TLS upstreams)
//! ```
//!
//! `policy` has the rules about headers for both. Must not know chain or store.

pub(crate) mod library;
pub(crate) mod relay;
pub(crate) mod site;
pub(crate) mod table;
pub(crate) mod watch;

mod context;
mod corridor;
mod counters;
mod failure;
mod observe;
mod policy;
mod refusals;
mod upstreams;

use std::sync::Arc;

use ipnet::IpNet;

use crate::gateway::context::Context;
use crate::gateway::corridor::Incoming;
use crate::gateway::observe::Observer;
use crate::gateway::policy::forwarded::{self, Arrival};
use crate::gateway::policy::identity::IdentityHeaders;
use crate::gateway::policy::request_id::RequestIds;
use crate::gateway::table::LiveTable;
use crate::gateway::upstreams::state::micros;
use crate::http1::fields::Fields;
use crate::http1::writing::Lines;
use crate::pipeline::Pipeline;
use crate::ports::clock::{Clock, Entropy, NoEntropy};
use crate::telemetry::metrics::Metrics;

/// The gateway.
pub(crate) struct Gateway {
    table: Arc<LiveTable>,
    pipeline: Arc<Pipeline>,
    trusted_proxies: Vec<IpNet>,
    clock: Arc<dyn Clock>,
    request_ids: RequestIds,
    identity: IdentityHeaders,
    observer: Observer,
}

impl Gateway {
    /// The gateway to the tenants of this table.
    pub(crate) fn new(
        table: Arc<LiveTable>,
        pipeline: Arc<Pipeline>,
        trusted_proxies: Vec<IpNet>,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        metrics: &Metrics,
    ) -> Result<Self, NoEntropy> {
        let request_ids = RequestIds::new(entropy)?;
        let observer = Observer::new(metrics, &clock);
        let identity = IdentityHeaders::new();
        Ok(Self { table, pipeline, trusted_proxies, clock, request_ids, identity, observer })
    }

    /// Writes the headers of a forwarded request that are ours: who calls, how the request came, and its id.
    fn write_ours<F: Fields>(
        &self,
        request: &Incoming<'_, F>,
        ctx: &Context,
        arrival: &Arrival<'_>,
        lines: &mut impl Lines,
    ) {
        if let Some(permit) = ctx.permit() {
            self.identity.write(permit, lines);
        }
        forwarded::write(request.fields, arrival, request.authority.unwrap_or_default().as_bytes(), lines);
        if let Some(id) = &ctx.request_id {
            lines.set("X-Request-Id", id.as_str().as_bytes());
        }
    }

    /// True if a request has taken longer than its tenant allows.
    fn is_overdue(&self, ctx: &Context) -> bool {
        let total = ctx.site.as_ref().and_then(|site| site.tenant.proxy.timeouts.total);
        total.is_some_and(|total| self.clock.monotonic_micros().saturating_sub(ctx.begun) > micros(total))
    }
}
