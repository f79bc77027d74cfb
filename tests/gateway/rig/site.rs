//! One gateway as a case needs it: its settings, its tenants, the upstreams behind it, and an agent with a key.

use std::net::SocketAddr;

use crate::rig::listeners::{ListenerTls, SecureListeners};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{
    credentials::signed, gateway::Gateway, h2c::H2Upstream, refusals::never_arrived, tenants::Tenant,
    upstream::Upstream,
};
use crate::support::{agents::Agent, service::Service, settings::Settings, wire::Request};

/// A host with the first upstream whose tenant waits for no slow upstream. Only requests that meet a hang go there.
pub(crate) const IMPATIENT: &str = "impatient.test";

/// A running gateway and what stands around it.
pub(crate) struct Site {
    // Dropped in this order: the gateway before what it leads to.
    pub(crate) gateway: Gateway,
    /// The upstream of the tenant at [`ACME`], the first of several.
    pub(crate) upstream: Upstream,
    others: Vec<Upstream>,
    tls: Option<SecureListeners>,
    holder: Option<(Agent, String)>,
    /// A gateway with the same host that is left alone, beside which this one is measured.
    pub(super) calm: Option<SocketAddr>,
}

/// A site to be.
pub(crate) struct SiteBuilder<'a> {
    stage: &'a Stage,
    settings: Settings,
    upstreams: Vec<Upstream>,
    tenants: Vec<Tenant>,
    files: Vec<(String, String)>,
    tls: Option<ListenerTls>,
    tier: Option<usize>,
    limits: &'a str,
}

impl Site {
    /// With one upstream and one tenant at [`ACME`], open to everybody under `/public/`.
    pub(crate) fn of(stage: &Stage) -> SiteBuilder<'_> {
        let upstream = Upstream::start();
        let tenants = vec![Tenant::new("t", ACME, upstream.address).public()];
        let (settings, upstreams) = (stage.settings(), vec![upstream]);
        SiteBuilder {
            stage,
            settings,
            upstreams,
            tenants,
            files: Vec::new(),
            tls: None,
            tier: None,
            limits: "",
        }
    }

    pub(crate) fn start(stage: &Stage) -> Self {
        Self::of(stage).start()
    }

    /// All upstreams of the tenant.
    pub(crate) fn upstreams<const COUNT: usize>(&self) -> [&Upstream; COUNT] {
        let all: Vec<_> = std::iter::once(&self.upstream).chain(&self.others).collect();
        all.try_into().ok().unwrap()
    }

    /// The listeners of a site with TLS.
    pub(crate) fn tls(&self) -> &SecureListeners {
        self.tls.as_ref().unwrap()
    }

    /// The agent that the site was built with.
    pub(crate) fn agent(&self) -> &Agent {
        &self.holder.as_ref().unwrap().0
    }

    /// Its key.
    pub(crate) fn key(&self) -> &str {
        &self.holder.as_ref().unwrap().1
    }

    /// A request with its key.
    pub(crate) fn by_key(&self) -> Request {
        Request::get(ACME, &agents_path()).key(self.key())
    }

    /// A request with a fresh signature of its owner.
    pub(crate) fn by_signature(&self) -> Request {
        Request::get(ACME, &agents_path()).with_all(&signed(&self.agent().draft()))
    }

    /// How many requests of agents have come through.
    pub(crate) fn passed(&self) -> usize {
        self.upstream.count(|seen| seen.target.contains("/agents/"))
    }

    /// Checks that no request whose target holds this word came to the upstream.
    #[track_caller]
    pub(crate) fn is_unseen(&self, word: &str) {
        self.are_unseen(&[word.to_owned()]);
    }

    #[track_caller]
    pub(crate) fn are_unseen(&self, words: &[String]) {
        never_arrived(&self.gateway, ACME, &self.upstream, words);
    }

    /// The status of a public request on a connection of its own.
    pub(crate) fn status(&self) -> u16 {
        self.gateway.ask(&Request::get(ACME, &public_path())).status
    }
}

impl SiteBuilder<'_> {
    /// Sets a key of the configuration.
    pub(crate) fn set(mut self, path: &str, value: impl Into<toml::Value>) -> Self {
        self.settings = self.settings.set(path, value);
        self
    }

    /// Sets a key that is not set yet.
    pub(crate) fn set_default(mut self, path: &str, value: impl Into<toml::Value>) -> Self {
        self.settings = self.settings.set_default(path, value);
        self
    }

    /// Leaves out a key of the configuration.
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.settings = self.settings.without(path);
        self
    }

    /// Leaves out the registries that may be: a profile is read in fewer steps.
    pub(crate) fn few_registries(mut self) -> Self {
        for name in ["reputation", "validation", "organization"] {
            self.settings = self.settings.without(&format!("chain.contracts.{name}"));
        }
        self
    }

    /// No agent reaches its limit.
    pub(crate) fn unlimited(self) -> Self {
        self.set("tiers.requests_per_minute", vec![1_000_000; 4]).set("keys.requests_per_hour", 1_000_000)
    }

    /// So many upstreams for the tenant.
    pub(crate) fn upstreams(mut self, count: usize) -> Self {
        self.upstreams.resize_with(count, Upstream::start);
        let addresses: Vec<String> = self.upstreams.iter().map(|one| one.address.to_string()).collect();
        self.tenant(|tenant| tenant.set("upstreams", addresses))
    }

    /// An upstream that speaks HTTP/2 alone for the tenant.
    pub(crate) fn h2c(self, upstream: &H2Upstream) -> Self {
        self.tenant(|tenant| tenant.set("upstreams", vec![format!("h2c://{}", upstream.address)]))
    }

    /// Has the tenant's requests of HTTP/1 leave this way: by the "relay" or the "library".
    pub(crate) fn way(self, way: &str) -> Self {
        if way == "library" { self.tenant(Tenant::by_library) } else { self }
    }

    /// Changes the tenant.
    pub(crate) fn tenant(mut self, change: impl FnOnce(Tenant) -> Tenant) -> Self {
        let tenant = self.tenants.remove(0);
        self.tenants.insert(0, change(tenant));
        self
    }

    /// Changes every tenant.
    pub(crate) fn each(mut self, change: impl FnMut(Tenant) -> Tenant) -> Self {
        self.tenants = self.tenants.into_iter().map(change).collect();
        self
    }

    /// One more tenant, which may have the first upstream.
    pub(crate) fn also(mut self, tenant: impl FnOnce(SocketAddr) -> Tenant) -> Self {
        self.tenants.push(tenant(self.upstream().address));
        self
    }

    /// The tenant at [`IMPATIENT`] too.
    pub(crate) fn impatient(self) -> Self {
        self.also(|upstream| Tenant::new("impatient", IMPATIENT, upstream).public().impatient())
    }

    /// These tenants and no others.
    pub(crate) fn only(mut self, tenants: Vec<Tenant>) -> Self {
        self.tenants = tenants;
        self
    }

    /// Each tenant in a file of its own, in `tenants.d` and named after it.
    pub(crate) fn in_files(mut self) -> Self {
        self.files = self.tenants.drain(..).map(|tenant| (tenant.file(), tenant.text())).collect();
        self
    }

    /// The tenant as it is now.
    pub(crate) fn rules(&self) -> Tenant {
        self.tenants[0].clone()
    }

    /// Listeners that speak TLS.
    pub(crate) fn tls(self, tls: ListenerTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// An agent of this tier with a key.
    pub(crate) fn agent(self, tier: usize) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// What the upstream will be, for whatever stands in front of it.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstreams[0]
    }

    pub(crate) fn start(self) -> Site {
        self.start_with(|_| ())
    }

    /// Starts it after something was done with its files.
    pub(crate) fn start_with(mut self, before: impl FnOnce(&Service)) -> Site {
        if let Some(tls) = &self.tls {
            self.settings = tls.settings(self.settings);
        }
        let mut gateway = Gateway::prepare(self.settings, &self.tenants, &self.files);
        let tls = self.tls.map(|tls| tls.before(&mut gateway));
        before(&gateway.service);
        gateway.launch(self.limits);
        if let Some(tls) = &tls {
            gateway.address = tls.http_1.address;
        }
        let holder = self.tier.map(|tier| {
            let agent = self.stage.world().agent(tier);
            let key = agent.generate(&gateway.service);
            (agent, key)
        });
        let upstream = self.upstreams.remove(0);
        Site { gateway, upstream, others: self.upstreams, tls, holder, calm: None }
    }
}

impl<'a> SiteBuilder<'a> {
    /// Shell commands in front of the process.
    pub(crate) fn under(self, limits: &'a str) -> Self {
        Self { limits, ..self }
    }
}
