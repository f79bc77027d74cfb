//! The listeners for the API, the gateway and operators.

use std::{path::Path, slice::from_ref, sync::Arc, time::Duration};

use pingora::server::configuration::ServerConf;

use crate::admin::Admin;
use crate::api::{Api, ApiRules, routes::Audience};
use crate::app::descriptors::{ADMIN_CONNECTIONS, workers};
use crate::app::process::Listening;
use crate::app::{App, StartError, named_files::tenant_secrets, overview::Overview, rules};
use crate::config::{Listener, Settings};
use crate::domain::{Registries, RpcUrl, Tier};
use crate::gateway::relay::pool::{self, Pool};
use crate::gateway::{
    Authz, AuthzHandler, Gateway, GatewayHandler, GatewayRules, Table, Watch, library::LibraryHandler,
    policy::forwarded::Believed,
};
use crate::message_signature::Terms;
use crate::os::Os;
use crate::pipeline::Access;
use crate::ports::{Parts, Scope};
use crate::serve::clients::ClientRules;
use crate::tls::{Certificates, Protocols, ServerTls, listener::server_config};
use crate::wire::{Discovery, RequestIds, ServiceRules};

/// How many signatures of other gateways' requests may be looked at, at once: as many as a listener has connections by default.
const ASKED_MAX: u32 = 4_096;

/// How many addresses of upstreams one request may try. Tenants set a lower limit of upstreams of their own.
const TRIES_MAX: usize = 256;

/// The names of what is offered over TLS (ALPN).
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// The name of the threads that serve API, owners and gateway.
const WORKER: &str = "worker";

impl App {
    /// The API, and the part of it for agents' owners on a listener of its own.
    pub(super) fn serve_api(&mut self, settings: &Settings) -> Result<(), StartError> {
        let (listen, caps) = (&settings.fixed.listen, self.descriptors);
        for (audience, listener, addresses, connections_max) in [
            (Audience::Everybody, Listener::Api, from_ref(&listen.api), caps.api),
            (Audience::Owners, Listener::Owners, &*listen.owners, caps.owners),
        ] {
            if !addresses.is_empty() {
                let api = self.api(settings, audience)?;
                let plain = Listening::plain(audience.listener(), addresses, connections_max);
                let listening = self.for_clients(settings, listener, &[HTTP1], plain)?;
                self.process.open_whole(api, listening)?;
            }
        }
        Ok(())
    }

    fn api(&self, settings: &Settings, audience: Audience) -> Result<Api, StartError> {
        let access = Access {
            scope: Scope::Api,
            min_tier: Tier::Bronze,
            quotas: settings.fixed.tiers.requests_per_minute,
            tiers: self.tenants.tiers(),
            denies_endpoint_mismatch: false,
            parts: Parts::Whole,
        };
        let rules = ApiRules {
            audience,
            access,
            discovery: Arc::clone(&self.discovery),
            console: settings.fixed.console.clone(),
            signing_chain_id: settings.fixed.signature.chain_id,
            issuer: self.tenants.issuer(),
            trusted_proxies: settings.fixed.listen.client_proxies(),
            audit: self.audit.clone(),
            tracer: self.tracer.clone(),
        };
        let (readiness, clock) = (Arc::clone(&self.readiness), Arc::clone(&self.process.clock));
        let ids = RequestIds::new(&Os::new())?;
        Ok(Api::new(Arc::clone(&self.pipeline), readiness, rules, clock, &self.process.metrics, ids))
    }

    /// The gateway, and the watch of its upstreams.
    pub(super) fn serve_gateway(&mut self, settings: &Settings) -> Result<(), StartError> {
        if settings.fixed.listen.gateway.is_empty() {
            return Ok(());
        }
        let gateway = self.gateway("gateway", self.descriptors.requests, None, settings)?;
        let plain = Listening::plain("gateway", &settings.fixed.listen.gateway, self.descriptors.gateway);
        let listening = self.for_clients(settings, Listener::Gateway, &[HTTP2, HTTP1], plain)?;
        let process = &mut self.process;
        let (table, clock) = (Arc::clone(&self.tenants.table), Arc::clone(&process.clock));
        let watch = Arc::new(Watch::new(table, clock));
        process.supervise("upstreams", move || Arc::clone(&watch).run());
        // Made in code: Pingora's own file and its silent defaults are not for our users.
        let configuration = ServerConf {
            upstream_keepalive_pool_size: self.descriptors.idle,
            max_retries: TRIES_MAX,
            upgrade_sock: String::new(),
            pid_file: String::new(),
            ..ServerConf::default()
        };
        let library = LibraryHandler::new(Arc::clone(&gateway), &Arc::new(configuration));
        let (mut pools, workers) = (Vec::new(), workers(settings));
        let idle_max = self.descriptors.idle / workers;
        let handler = || {
            let pool = Arc::new(Pool::new(idle_max));
            pools.push(Arc::clone(&pool));
            Arc::new(GatewayHandler::new(Arc::clone(&gateway), library.clone(), pool))
        };
        process.open(handler, listening)?;
        process.supervise("upstream-connections", move || pool::keep(pools.clone()));
        Ok(())
    }

    /// The listener for other gateways.
    pub(super) fn serve_authz(&mut self, settings: &Settings) -> Result<(), StartError> {
        const NAME: &str = "authz";
        let (addresses, authz) = (&*settings.fixed.listen.authz, &settings.fixed.authz);
        if addresses.is_empty() {
            return Ok(());
        }
        let secrets = authz.secret_file.as_deref().map(|path| tenant_secrets(path, |_| true));
        let secrets = secrets.transpose().map_err(StartError::from)?;
        let ca = authz.client_ca.as_deref();
        let tls = self.tls(|table| table.authz_certificates.as_ref(), &[HTTP1, HTTP2], ca)?;
        let gateway = self.gateway(NAME, ASKED_MAX, Some(authz.timeout), settings)?;
        let authz = Arc::new(Authz::new(gateway, secrets));
        let plain = Listening::plain(NAME, addresses, self.descriptors.authz);
        let (workers, handler) = (workers(settings), Arc::new(AuthzHandler(authz)));
        self.process.open(|| Arc::clone(&handler), Listening { threads: WORKER, workers, tls, ..plain })
    }

    /// A gateway that counts and logs by the name of a listener.
    fn gateway(
        &self,
        listener: &'static str,
        in_flight_max: u32,
        verify_time_max: Option<Duration>,
        settings: &Settings,
    ) -> Result<Arc<Gateway>, StartError> {
        let signature = &settings.fixed.signature;
        let window = (signature.freshness.max_age_secs, signature.freshness.max_ahead_secs);
        let rules = GatewayRules {
            believed: Believed {
                proxies: settings.fixed.listen.trusted_proxies.clone(),
                headers: settings.fixed.listen.trusted_headers.clone(),
                has_proxy_protocol: settings.fixed.listen.proxy_protocol.contains(&Listener::Gateway),
            },
            client_proxies: settings.fixed.listen.client_proxies(),
            idle: settings.fixed.listen.idle,
            in_flight_max,
            mcp: settings.fixed.mcp,
            terms: Terms::new(
                settings.fixed.chain.pool.chain_id,
                window,
                signature.nonce_retention.as_secs(),
            ),
            bots: self.bots.clone(),
            discovery: Arc::clone(&self.discovery),
            via: settings.fixed.gateway.via.clone(),
            tracer: self.tracer.clone(),
            listener,
            verify_time_max,
        };
        let (table, clock) = (Arc::clone(&self.tenants.table), Arc::clone(&self.process.clock));
        let pipeline = Arc::clone(&self.pipeline);
        Ok(Arc::new(Gateway::new(table, pipeline, rules, clock, &Os::new(), &self.process.metrics)?))
    }

    /// A listener for clients: every worker serves it, with the certificates of `[listen.tls]` and of tenants if there are any,
    /// and their networks have limits.
    fn for_clients<'a>(
        &self,
        settings: &Settings,
        listener: Listener,
        protocols: Protocols,
        plain: Listening<'a>,
    ) -> Result<Listening<'a>, StartError> {
        let listen = &settings.fixed.listen;
        let rules = ClientRules {
            trusted_proxies: listen.trusted_proxies.clone(),
            uses_proxy_protocol: listen.proxy_protocol.contains(&listener),
            per_network_max: listen.max_connections_per_network,
        };
        let tls = self.tls(|table| table.certificates.as_ref(), protocols, None)?;
        Ok(Listening { rules: Some(rules), threads: WORKER, workers: workers(settings), tls, ..plain })
    }

    /// The TLS of a listener that speaks it, with these certificates of the table in force.
    fn tls(
        &self,
        of: fn(&Table) -> Option<&Certificates>,
        protocols: Protocols,
        client_ca: Option<&Path>,
    ) -> Result<Option<ServerTls>, StartError> {
        let config = self.tenants.certificates(of).map(|shown| server_config(shown, protocols, client_ca));
        Ok(config.transpose()?)
    }

    pub(super) fn serve_admin(
        &mut self,
        settings: &Settings,
        overview: Arc<Overview>,
    ) -> Result<(), StartError> {
        let admin = Admin::new(self.process.metrics.clone(), Arc::clone(&self.readiness), overview);
        let listening = Listening::plain("admin", from_ref(&settings.fixed.listen.admin), ADMIN_CONNECTIONS);
        self.process.open_whole(admin, listening)
    }
}

/// The documents that strangers may read.
pub(crate) fn discovery(settings: &Settings) -> Discovery {
    let registries = settings.fixed.chain.reading.registries;
    let Registries { identity, stake_vault, reputation, validation, .. } = registries;
    let contracts = [
        ("identity", Some(identity)),
        ("stakeVault", stake_vault),
        ("reputation", reputation),
        ("validation", validation),
        ("organization", registries.organization()),
    ];
    let contracts = contracts.into_iter().filter_map(|(name, address)| Some((name, address?)));
    Discovery::new(&ServiceRules {
        rules: &rules(settings),
        tiers: &settings.fixed.tiers.sources,
        token: settings.fixed.tiers.token,
        token_decimals: settings.fixed.tiers.token_decimals,
        chain_id: settings.fixed.chain.pool.chain_id,
        contracts: &contracts.collect::<Vec<_>>(),
        keys_url: settings.fixed.keys.public_url.as_ref().map(RpcUrl::base),
        has_console: settings.fixed.console.enabled,
    })
}
