//! What cases share: a chain, and one gateway in front of one upstream. Each is started when the first case asks for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::behind_files::Ground;
use crate::rig::behind::{Behind, PATIENT};
use crate::rig::{authz::Asked, listeners::ListenerTls, site::Site, tenants::Tenant, upstream::Upstream};
use crate::support::world::{Kind, World};
use crate::support::{agents::Agent, settings::Settings};

/// The host of the tenant that most cases use.
pub(crate) const ACME: &str = "acme.test";

/// Addresses of proxies that the shared gateway trusts.
pub(crate) const TRUSTED: &str = "127.0.0.2/31";

/// The forwarding headers that they set.
pub(crate) const TRUSTED_HEADERS: [&str; 4] =
    ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"];

/// A chain and a gateway.
pub(crate) struct Stage {
    // Dropped in this order: the gateways before their chain.
    behind: OnceLock<Behind>,
    files: OnceLock<Ground>,
    site: OnceLock<Site>,
    secure: OnceLock<Site>,
    asked: OnceLock<Asked>,
    world: World,
}

impl Stage {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            behind: OnceLock::new(),
            files: OnceLock::new(),
            site: OnceLock::new(),
            secure: OnceLock::new(),
            asked: OnceLock::new(),
            world: World::new(kind),
        }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// What gateways are configured with, but for listeners and tenants.
    pub(crate) fn settings(&self) -> Settings {
        self.world.settings()
    }

    /// The shared gateway and its upstream.
    pub(crate) fn site(&self) -> &Site {
        self.site.get_or_init(|| {
            let site = Site::of(self).set("listen.trusted_proxies", vec![TRUSTED]);
            let site = site.set("listen.trusted_headers", TRUSTED_HEADERS.to_vec());
            let tenants = shared_tenants(site.upstream());
            site.only(tenants).start()
        })
    }

    /// A shared gateway whose listeners speak TLS, with an agent of tier 4.
    pub(crate) fn secure(&self) -> &Site {
        self.secure.get_or_init(|| {
            let sockets = |tenant: Tenant| tenant.route("/socket/*", "access = \"public\"\nupgrades = true");
            Site::of(self).tenant(sockets).tls(ListenerTls::new()).agent(4).start()
        })
    }

    /// The shared gateway that other gateways ask too, with tenants for their cases.
    pub(crate) fn asked(&self) -> &Asked {
        self.asked.get_or_init(|| {
            let site = Site::of(self);
            let mut tenants = shared_tenants(site.upstream());
            tenants.extend(tenants_of_others(site.upstream()));
            Asked::start(site.only(tenants))
        })
    }

    /// An agent of this tier, and a key of its own at the shared gateway that others ask.
    pub(crate) fn asked_agent(&self, tier: usize) -> (Agent, String) {
        let agent = self.world.agent(tier);
        let key = agent.generate(&self.asked().site.gateway.service);
        (agent, key)
    }

    /// Other gateways, and the one that they ask.
    pub(crate) fn behind(&self) -> &Behind {
        self.behind.get_or_init(|| Behind::start(self, PATIENT, |site| site))
    }

    /// The same for what their files have to keep right.
    pub(crate) fn files(&self) -> &Ground {
        self.files.get_or_init(|| Ground::start(self))
    }

    /// An agent of this tier, and a key of its own at the shared gateway.
    pub(crate) fn agent(&self, tier: usize) -> (Agent, String) {
        let agent = self.world.agent(tier);
        let key = agent.generate(&self.site().gateway.service);
        (agent, key)
    }
}

/// The tenants of the shared gateway, all with the same upstream.
fn shared_tenants(upstream: &Upstream) -> Vec<Tenant> {
    let tenant = |id: &str, host: &str| Tenant::new(id, host, upstream.address).public();
    let acme = tenant("acme", ACME)
        .route("/denied/*", r#"access = "deny""#)
        .route("/gold/*", "min_tier = 3")
        .route("/read/*", "access = \"public\"\nmethods = [\"GET\", \"HEAD\"]")
        .route("/posted/*", "methods = [\"POST\"]")
        .route("/posted/*", r#"access = "deny""#)
        .route("/socket/*", "upgrades = true")
        .route("/open-socket/*", "access = \"public\"\nupgrades = true");
    vec![
        acme,
        tenant("beta", "beta.test"),
        tenant("own", "own.test").set("requests_per_minute", vec![1, 2, 3, 4]),
        tenant("keys", "keys.test").set("credentials", vec!["api_key"]),
        tenant("signatures", "signatures.test").set("credentials", vec!["signature"]),
        tenant("golden", "golden.test").set("min_tier", 3).route("/silver/*", "min_tier = 2"),
        tenant("declared", "declared.test").set("on_endpoint_mismatch", "deny"),
    ]
}

/// Tenants of whose rules other gateways ask, all with the same upstream.
fn tenants_of_others(upstream: &Upstream) -> Vec<Tenant> {
    let tenant = |id: &str| Tenant::new(id, &format!("{id}.test"), upstream.address).public();
    let limited = "access = \"public\"\nrequests_per_minute = 8";
    vec![
        tenant("limited").route("/limited/*", limited),
        tenant("pages").set("cors.origins", vec![PAGE]).set("cors.exposed_headers", vec!["X-Total"]),
        tenant("short").set("max_body_bytes", 1_000),
        tenant("silent").set("discovery", false),
    ]
}

/// The origin of pages that may use the tenant `pages`.
pub(crate) const PAGE: &str = "https://page.test";

/// A word that no other case uses, for paths and bodies.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("u{:05}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A path under `/public/` that no other case uses.
pub(crate) fn public_path() -> String {
    format!("/public/{}", unique())
}

/// A path for agents that no other case uses.
pub(crate) fn agents_path() -> String {
    format!("/agents/{}", unique())
}
