//! Every tenant by host, as one value that is replaced as a whole when the configuration is read again.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::domain::host_map::{DuplicateHost, HostMap};
use crate::domain::tenant::Tenant;
use crate::gateway::site::{Site, Workshop};
use crate::tls::upstream::UpstreamIdentity;

/// All tenants.
#[derive(Default)]
pub(crate) struct Table {
    hosts: HostMap<Arc<Site>>,
    sites: Vec<Arc<Site>>,
}

/// The table that requests are routed by. A request that has been routed keeps its tenant to its end.
pub(crate) type LiveTable = ArcSwap<Table>;

impl Table {
    /// Builds the sites of these tenants. What `former` knows of upstreams lives on.
    ///
    /// # Errors
    ///
    /// When two tenants claim a host.
    pub(crate) fn new(
        tenants: impl IntoIterator<Item = (Arc<Tenant>, UpstreamIdentity)>,
        workshop: &Workshop<'_>,
        former: &Self,
    ) -> Result<Self, DuplicateHost> {
        let before: std::collections::HashMap<&str, &Arc<Site>> =
            former.sites.iter().map(|site| (&*site.tenant.id, site)).collect();
        let build = |(tenant, identity): (Arc<Tenant>, UpstreamIdentity)| {
            let former = before.get(&*tenant.id).map(|site| &***site);
            Arc::new(Site::new(tenant, &identity, workshop, former))
        };
        let sites: Vec<Arc<Site>> = tenants.into_iter().map(build).collect();
        let entries = sites.iter().flat_map(|site| site.hosts().map(|host| (host.clone(), Arc::clone(site))));
        Ok(Self { hosts: HostMap::new(entries)?, sites })
    }

    /// The tenant whose host an authority names.
    pub(super) fn find(&self, authority: &str) -> Option<&Arc<Site>> {
        self.hosts.find(authority)
    }

    pub(super) fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// All tenants.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.sites.iter().map(|site| &*site.tenant)
    }
}
