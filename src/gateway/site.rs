//! A tenant as requests need it: everything looked up and built once, when the configuration is read.
//!
//! Everything in force that requests, handshakes and assertions ask for: one value, replaced as a whole when the configuration is
//! read again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora::protocols::ALPN;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};

use crate::domain::{
    Agents, Call, Decision, DuplicateHost, HealthRules, HostMap, HostPattern, PASSING_TIERS, PerTier, Quota,
    Route, Tenant, Tier, Tiers, Upstream, UpstreamScheme, routing,
};
use crate::gateway::counters::{Routes, SiteCounters};
use crate::gateway::upstreams::{Member, UpstreamState, Upstreams, Watched};
use crate::gateway::{discovery::is_shown, in_flight::TenantInFlight};
use crate::pipeline::{Access, permit::Permit};
use crate::ports::{NoEntropy, Parts, RouteScope, Scope};
use crate::telemetry::{Metrics, metrics::Families};
use crate::tls::{Certificates, UpstreamIdentity};
use crate::wire::{METADATA_PATH, OF_AGENT, OF_CLIENT, QuotaHeaders, RULES_PATH};
use crate::{addresses::AddressRules, assertion::Issuer};

/// How many streams share one connection to an upstream that speaks HTTP/2.
const H2_STREAMS_MAX: usize = 100;

/// How often a connection to an upstream of HTTP/2 is pinged. Servers of gRPC allow one ping in 5 minutes.
const H2_PING_EVERY: Duration = Duration::from_secs(310);

/// How much of one answer over HTTP/2 may be under way to us, in bytes.
const H2_STREAM_WINDOW_BYTES: u32 = 512 * 1024;

/// How much of all answers of such a connection may be under way to us, in bytes.
const H2_CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// One tenant.
pub(crate) struct Site {
    pub(crate) tenant: Arc<Tenant>,
    pub(super) counters: Arc<SiteCounters>,
    pub(super) routes: Routes,
    pub(super) in_flight: Arc<TenantInFlight>,
    pub(super) watched: Arc<Watched>,
    /// True if the gateway has the document with its rules.
    pub(super) shows_rules: bool,
    /// True if the gateway has the metadata of its resources.
    pub(super) shows_metadata: bool,
    /// The issuer of its assertions; `None`: it asks for none.
    pub(crate) issuer: Option<Arc<Issuer>>,
    /// True if it has endpoints of MCP.
    pub(super) has_mcp: bool,
    /// True if calls of MCP fall under different rules.
    pub(super) has_calls: bool,
    /// One for each lowest tier.
    accesses: [Access; PASSING_TIERS.len()],
    /// One for each tier.
    quota_headers: [QuotaHeaders; PASSING_TIERS.len()],
    upstreams: Arc<Upstreams>,
    /// The upstreams of routes that have their own.
    route_upstreams: Vec<Option<Arc<Upstreams>>>,
    /// The limits of public routes: for each client, and for each bot by its domain.
    visitor_limits: Vec<[Option<Arc<VisitorLimit>>; 2]>,
}

/// The limit of a public route for each client, or for each bot.
pub(crate) struct VisitorLimit {
    pub(super) scope: RouteScope,
    pub(crate) quota: Quota,
    pub(super) headers: QuotaHeaders,
}

/// Builds sites.
pub(crate) struct SiteBuilder<'a> {
    /// The limits of tenants that have none of their own.
    pub(crate) quotas: PerTier<Quota>,
    /// The sources of tiers, with the list of this configuration.
    pub(crate) tiers: &'a Tiers,
    /// Where sites count.
    pub(crate) metrics: &'a Metrics,
    /// The addresses that upstreams may have.
    pub(crate) addresses: &'a AddressRules,
    /// The issuer of assertions, if there is one.
    pub(crate) issuer: Option<Arc<Issuer>>,
}

impl Site {
    /// Builds a tenant's site. The site that it replaces passes on its slots, its counters and what is known of its
    /// upstreams.
    pub(super) fn new(
        tenant: Arc<Tenant>,
        identity: &UpstreamIdentity,
        builder: &SiteBuilder<'_>,
        former: Option<&Self>,
    ) -> Self {
        let networks = tenant.networks.clone();
        let addresses = AddressRules { networks, ..builder.addresses.clone() };
        let (health, limits) = (health_rules(&tenant), tenant.proxy.upstream_limits);
        let former_states = former.into_iter().flat_map(Self::members).map(|member| &member.state);
        let former_states: HashMap<_, _> = former_states.map(|state| (&state.upstream, state)).collect();
        // One for each upstream, whichever routes go there.
        let mut states: HashMap<Upstream, Arc<UpstreamState>> = HashMap::new();
        let mut member = |upstream: &Upstream| {
            let alone = upstream.alone();
            let former = former_states.get(&alone).copied();
            let is_same = |state: &&Arc<UpstreamState>| {
                state.health == health && state.limits == limits && state.rules == addresses
            };
            let state = states.entry(alone.clone()).or_insert_with(|| match former.filter(is_same) {
                Some(state) => Arc::clone(state),
                None => {
                    let former = former.map(|former| &**former);
                    Arc::new(UpstreamState::new(alone, health.clone(), limits, addresses.clone(), former))
                }
            });
            Member {
                state: Arc::clone(state),
                weight: upstream.weight,
                template: template(upstream, &tenant, identity),
                host: HeaderValue::from_str(&authority(upstream)).unwrap_or(HeaderValue::from_static("")),
            }
        };
        let mut group = |list: &[Upstream]| {
            Arc::new(Upstreams::new(list.iter().map(&mut member).collect(), tenant.proxy.by_load))
        };
        let upstreams = group(&tenant.upstreams);
        let mut own = |list: &[Upstream]| (!list.is_empty()).then(|| group(list));
        let route_upstreams = tenant.routes.iter().map(|route| own(&route.upstreams)).collect();
        let quotas = tenant.requests_per_minute.unwrap_or(builder.quotas);
        let accesses = PASSING_TIERS.map(|min_tier| Access {
            tiers: builder.tiers.clone(),
            scope: Scope::Tenant(Arc::clone(&tenant.id)),
            min_tier,
            quotas,
            denies_endpoint_mismatch: tenant.denies_endpoint_mismatch,
            parts: Parts::Gate,
        });
        let counters = former.map(|former| Arc::clone(&former.counters));
        let counters = counters.unwrap_or_else(|| Arc::new(SiteCounters::new(builder.metrics, &tenant.id)));
        let routes = Routes::new(builder.metrics, &tenant, former.map(|former| &former.routes));
        let quota_headers = quotas.0.map(|quota| QuotaHeaders::new(OF_AGENT, quota.limit));
        let visitor_limits = tenant.routes.iter().map(|route| visitor_limits(&tenant, route)).collect();
        let in_flight = former.map(|former| Arc::clone(&former.in_flight)).unwrap_or_default();
        let watched = former.map(|former| Arc::clone(&former.watched)).unwrap_or_default();
        let has_calls = tenant.routes.iter().any(|route| !route.calls.is_empty());
        Self {
            has_mcp: tenant.mcp || tenant.routes.iter().any(|route| route.mcp),
            has_calls,
            shows_rules: is_shown(&tenant, RULES_PATH),
            shows_metadata: is_shown(&tenant, METADATA_PATH),
            issuer: builder.issuer.clone().filter(|_| tenant.assertion),
            tenant,
            counters,
            routes,
            in_flight,
            watched,
            accesses,
            quota_headers,
            upstreams,
            route_upstreams,
            visitor_limits,
        }
    }

    /// True if one who has no key may be told how to get one: a key would do, and everybody may know.
    pub(crate) fn may_advise_keys(&self) -> bool {
        self.shows_rules && self.tenant.credentials.api_key
    }

    /// The decision of the tenant's rules about a request of MCP with these calls.
    pub(super) fn decide_calls(&self, path: &[u8], calls: &[Call<'_>]) -> Decision {
        routing::decide_calls(&self.tenant, path, calls)
    }

    /// The tenant's rule for a request.
    pub(super) fn decide(&self, method: &str, path: &[u8]) -> Decision {
        routing::decide(&self.tenant, method, path)
    }

    /// The rules for agents where this is the lowest tier.
    pub(crate) fn access(&self, min_tier: Tier) -> &Access {
        for_tier(&self.accesses, min_tier)
    }

    /// The headers of answers to agents of a tier that say their quota.
    pub(super) fn quota_headers(&self, tier: Tier) -> &QuotaHeaders {
        for_tier(&self.quota_headers, tier)
    }

    /// The assertion about an admitted agent, where the tenant asks for one. Without it no request goes upstream.
    pub(crate) fn assertion(&self, permit: &Permit) -> Result<Option<Arc<str>>, NoEntropy> {
        self.issuer.as_ref().map(|issuer| issuer.assertion(permit, &self.tenant.id)).transpose()
    }

    /// Where requests of a route go.
    pub(super) fn upstreams(&self, route: Option<usize>) -> &Arc<Upstreams> {
        let own = route.and_then(|at| self.route_upstreams.get(at)).and_then(Option::as_ref);
        own.unwrap_or(&self.upstreams)
    }

    /// The limits of a route: for each client, and for each bot.
    pub(crate) fn visitor_limits(&self, route: Option<usize>) -> [Option<&Arc<VisitorLimit>>; 2] {
        let limits = route.and_then(|route| self.visitor_limits.get(route));
        limits.map_or([None; 2], |limits| limits.each_ref().map(Option::as_ref))
    }

    /// The upstreams of the tenant, each with how it is connected to.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        let groups = std::iter::once(&self.upstreams).chain(self.route_upstreams.iter().flatten());
        groups.flat_map(|group| &group.members)
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.counters.requests()
    }

    /// The upstreams of the tenant, each once, whichever routes go there.
    pub(crate) fn own_upstreams(&self) -> Vec<&Member> {
        let mut seen = HashSet::new();
        self.members().filter(|member| seen.insert(Arc::as_ptr(&member.state))).collect()
    }
}

/// A route is known by what it takes, however that is written: whatever else a reload changes, its clients' budgets stay.
fn visitor_limits(tenant: &Tenant, route: &Route) -> [Option<Arc<VisitorLimit>>; 2] {
    let calls: Vec<String> = route.calls.written().collect();
    let methods: BTreeSet<&str> =
        route.methods.iter().map(|method| &**method).chain(calls.iter().map(|call| &**call)).collect();
    let methods = Vec::from_iter(methods).join(",");
    let name = || format!("{}{} {methods}", tenant.id, route.path.normal()).into();
    [route.requests_per_minute, route.bot_requests_per_minute].map(|quota| {
        let (quota, scope) = (quota?, RouteScope(name()));
        let headers = QuotaHeaders::new(OF_CLIENT, quota.limit);
        Some(Arc::new(VisitorLimit { scope, quota, headers }))
    })
}

/// The one of a tier; tier 0 never passes, and has what tier 1 has.
const fn for_tier<T>([bronze, silver, gold, diamond]: &[T; PASSING_TIERS.len()], tier: Tier) -> &T {
    match tier {
        Tier::Unverified | Tier::Bronze => bronze,
        Tier::Silver => silver,
        Tier::Gold => gold,
        Tier::Diamond => diamond,
    }
}

/// True if a tenant's upstreams are checked: when it asks for that, or when there is a choice.
fn is_watched(tenant: &Tenant) -> bool {
    fn place(upstream: &Upstream) -> (UpstreamScheme, &str, u16) {
        (upstream.scheme, &upstream.host, upstream.port)
    }
    let of_routes = tenant.routes.iter().flat_map(|route| &route.upstreams);
    let mut all = tenant.upstreams.iter().chain(of_routes).map(place);
    let first = all.next();
    tenant.proxy.health.path.is_some() || all.any(|other| Some(other) != first)
}

/// How a tenant's upstreams are watched.
pub(super) fn health_rules(tenant: &Tenant) -> HealthRules {
    let health = tenant.proxy.health.clone();
    HealthRules { interval: health.interval.filter(|_| is_watched(tenant)), ..health }
}

/// How an upstream is connected to, but for its address.
fn template(upstream: &Upstream, tenant: &Tenant, identity: &UpstreamIdentity) -> HttpPeer {
    let is_tls = upstream.scheme == UpstreamScheme::Https;
    let rules = &tenant.proxy;
    let server_name = rules.upstream_tls.server_name.as_deref().unwrap_or(&upstream.host);
    let name = if is_tls { server_name.to_owned() } else { String::new() };
    // Replaced by the upstream's own when it is known.
    let mut peer = HttpPeer::new((std::net::Ipv4Addr::LOCALHOST, upstream.port), is_tls, name);
    let options = &mut peer.options;
    options.alpn = match upstream.scheme {
        UpstreamScheme::Http => ALPN::H1,
        UpstreamScheme::Https => ALPN::H2H1,
        UpstreamScheme::H2c => ALPN::H2,
    };
    options.connection_timeout = Some(rules.timeouts.connect);
    options.total_connection_timeout = Some(rules.timeouts.connect);
    let at_most = |time: Duration| rules.timeouts.total.map_or(time, |total| time.min(total));
    options.read_timeout = Some(at_most(rules.timeouts.read));
    options.write_timeout = Some(at_most(rules.timeouts.write));
    options.idle_timeout = Some(rules.timeouts.idle);
    options.max_h2_streams = H2_STREAMS_MAX;
    options.h2_ping_interval = Some(H2_PING_EVERY);
    options.h2_stream_window_size = Some(H2_STREAM_WINDOW_BYTES);
    options.h2_connection_window_size = Some(H2_CONNECTION_WINDOW_BYTES);
    options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
    if is_tls {
        peer.options.ca.clone_from(&identity.ca);
        peer.client_cert_key.clone_from(&identity.client);
        peer.group_key = identity.pool;
    }
    peer
}

/// The value of `Host` for an upstream; the port is left out where it is the scheme's own.
fn authority(upstream: &Upstream) -> String {
    let host =
        if upstream.host.contains(':') { format!("[{}]", upstream.host) } else { upstream.host.to_string() };
    match (upstream.scheme, upstream.port) {
        (UpstreamScheme::Http | UpstreamScheme::H2c, 80) | (UpstreamScheme::Https, 443) => host,
        (UpstreamScheme::Http | UpstreamScheme::H2c | UpstreamScheme::Https, port) => {
            format!("{host}:{port}")
        }
    }
}

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
            |site: &&Arc<Site>| is_watched(&site.tenant) || site.requests() > 0 || site.in_flight.taken() > 0;
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
