//! Everything in force that requests, handshakes and assertions ask for: one value, replaced as a whole when the configuration is
//! read again.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;

use crate::assertion::Issuer;
use crate::domain::{Agents, DuplicateHost, HostMap, HostPattern, Tenant};
use crate::gateway::site::{Site, SiteBuilder};
use crate::telemetry::metrics::Families;
use crate::tls::{Certificates, UpstreamIdentity};

#[derive(Default)]
pub(crate) struct Table {
    /// Sites by host; `None` for hosts of tenants that can't be served.
    hosts: HostMap<Option<Arc<Site>>>,
    pub(crate) sites: Vec<Arc<Site>>,
    ids: HashMap<Arc<str>, Arc<Site>>,
    /// The issuer of assertions, if there is one. Sites have it too.
    pub(crate) issuer: Option<Arc<Issuer>>,
    /// The agents that the operator lists. Sites have them too.
    pub(crate) agents: Arc<Agents>,
    /// The certificates that clients are shown; `None` when no listener speaks TLS.
    pub(crate) certificates: Option<Certificates>,
    /// The certificate of the listener for other gateways; `None` in the clear.
    pub(crate) authz_certificates: Option<Certificates>,
}

/// The table in force. A request that has been routed keeps its tenant to its end.
pub(crate) type LiveTable = ArcSwap<Table>;

impl Table {
    /// Builds the sites of these tenants. What `former` knows of upstreams lives on. No tenant's wildcard takes `unserved`
    /// hosts.
    /// Error: when two tenants claim a host.
    pub(crate) fn new(
        tenants: impl IntoIterator<Item = (Arc<Tenant>, UpstreamIdentity)>,
        unserved: &[HostPattern],
        builder: &SiteBuilder<'_>,
        former: &Self,
    ) -> Result<Self, DuplicateHost> {
        let build = |(tenant, identity): (Arc<Tenant>, UpstreamIdentity)| {
            let former = former.named(&tenant.id).map(|site| &**site);
            Arc::new(Site::new(tenant, &identity, builder, former))
        };
        let sites: Vec<Arc<Site>> = tenants.into_iter().map(build).collect();
        let served = sites
            .iter()
            .flat_map(|site| site.tenant.hosts.iter().map(|host| (host.clone(), Some(Arc::clone(site)))));
        let entries = served.chain(unserved.iter().map(|host| (host.clone(), None)));
        let hosts = HostMap::new(entries)?;
        let ids = sites.iter().map(|site| (Arc::clone(&site.tenant.id), Arc::clone(site))).collect();
        Ok(Self { hosts, sites, ids, issuer: builder.issuer.clone(), ..Self::default() })
    }

    /// The tenant whose host an authority names.
    pub(crate) fn find(&self, authority: &str) -> Option<&Arc<Site>> {
        self.hosts.find(authority)?.as_ref()
    }

    /// The tenant of this id.
    pub(crate) fn named(&self, id: &str) -> Option<&Arc<Site>> {
        self.ids.get(id)
    }

    /// Ends the series of tenants and routes that `former` had and this has not.
    pub(crate) fn end_series_of(&self, former: &Self) {
        for site in &former.sites {
            let newer = self.named(&site.tenant.id);
            site.routes.end(newer.map(|newer| &newer.routes));
            if newer.is_none() {
                site.counters.end();
            }
        }
    }

    /// Shows the slots and upstreams of each tenant that has or had a request, or whose upstreams are watched.
    pub(crate) fn show(&self, families: &Families, now: u64) {
        let gauges = [&families.gateway_in_flight, &families.upstreams, &families.upstreams_healthy];
        gauges.iter().for_each(|gauge| gauge.reset());
        let is_shown =
            |site: &&Arc<Site>| site.is_watched() || site.requests() > 0 || site.in_flight.taken() > 0;
        for site in self.sites.iter().filter(is_shown) {
            let states = site.own_upstreams();
            let healthy = states.iter().filter(|own| own.state.is_usable(now) && own.state.has_address());
            let counts = [i64::from(site.in_flight.taken()), states.len() as i64, healthy.count() as i64];
            for (gauge, count) in gauges.iter().zip(counts) {
                gauge.with_label_values(&[&*site.tenant.id]).set(count);
            }
        }
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.sites.iter().map(|site| &*site.tenant)
    }
}
