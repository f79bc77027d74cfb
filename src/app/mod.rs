//! The composition root: configuration → ports → pipeline → doors → Pingora server.

pub(crate) mod chain;
pub(crate) mod error;
pub(crate) mod named_files;
pub(crate) mod nodes;
pub(crate) mod presence;
pub(crate) mod reload;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod tenants;

#[cfg(feature = "dev-chain")]
pub(crate) mod alone;
pub(crate) mod descriptors;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use tokio::net::TcpSocket;

use crate::admin::Admin;
use crate::api::Api;
use crate::app::descriptors::{ADMIN_CONNECTIONS, Descriptors, processors};
use crate::app::error::StartError;
use crate::app::reload::{EarlyHangup, Reloader};
use crate::app::source::Source;
use crate::app::tenants::Tenants;
use crate::chain::follower::Follower;
use crate::chain::reader::ChainReader;
use crate::config::Settings;
use crate::config::gateway::Http1;
use crate::config::listen::{Listen, Listener};
use crate::domain::eip712::{Eip712Domain, SigningDomain};
use crate::domain::tier::Tier;
use crate::gateway::library::door::LibraryDoor;
use crate::gateway::relay::pool::{self, Pool};
use crate::gateway::watch::Watch;
use crate::gateway::{Gateway, GatewayDoor, GatewayRules};
use crate::os::Os;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::{Access, Pipeline, Ports, Rules};
use crate::ports::chain::Chain;
use crate::ports::clock::Clock;
use crate::ports::store::{Scope, Store};
use crate::serve::clients::ClientRules;
use crate::serve::whole::WholeAnswers;
#[cfg(feature = "dev-chain")]
use crate::serve::whole::WholeService;
use crate::serve::worker::{Worker, bound};
use crate::serve::{Door, HttpShell, Limits};
use crate::supervision::keep_going;
use crate::telemetry::metered_store::MeteredStore;
use crate::telemetry::metrics::Metrics;
use crate::tls::listener::{Protocols, server_config};

/// How long requests in flight may take after SIGTERM, in seconds.
const GRACE_SECS: u64 = 5;

/// How often another upstream may be tried. Tenants set a lower limit of their own.
const TRIES_MAX: usize = 64;

/// How often memory that no longer matters is given back.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked whether a node in this process listens, and whether the service is ready.
#[cfg(feature = "dev-chain")]
const TRY_EVERY: Duration = Duration::from_millis(10);

/// Everything but the doors, put together.
pub(crate) struct App {
    server: Server,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    readiness: Arc<Readiness>,
    tenants: Arc<Tenants>,
    descriptors: Descriptors,
    follower: Arc<Follower>,
}

/// A background task, which is given up when the process is to end.
struct Task<B> {
    name: &'static str,
    metrics: Metrics,
    begin: B,
}

#[async_trait]
impl<B, F> BackgroundService for Task<B>
where
    B: Fn() -> F + Send + Sync,
    F: Future<Output = ()> + Send,
{
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            () = keep_going(self.name, &self.metrics, &self.begin) => {}
            _ = shutdown.changed() => {}
        }
    }
}

/// Where a door listens, and how.
struct Listening<'a> {
    name: &'a str,
    addresses: &'a [SocketAddr],
    connections_max: usize,
    rules: Option<ClientRules>,
    /// How many workers take connections, each with a thread and an accept queue of its own.
    workers: usize,
    /// What is offered over TLS; nothing: the door listens in the clear.
    tls: Option<Protocols>,
}

impl App {
    /// The whole service of these settings, which were read from `source`, with its listeners checked and its store
    /// open.
    pub(crate) fn new(
        settings: &Settings,
        source: Source,
        early_hangup: EarlyHangup,
    ) -> Result<Self, StartError> {
        let descriptors = Descriptors::planned(settings)?;
        let os = Os::new();
        let clock: Arc<dyn Clock> = Arc::new(os);
        let metrics = Metrics::new()?;
        let tenants = Tenants::new(source, settings, &clock, &metrics).map_err(StartError::Certificates)?;
        let reader = chain::reader(settings, &clock, &metrics)?;
        let follower = Arc::new(reader.follower());
        let reader = Arc::new(reader);
        metrics.count_entries("profiles", &reader, ChainReader::cached_agents)?;
        let chain: Arc<dyn Chain> = reader;
        let store = store::open(settings, &clock, &metrics)?;
        let store: Arc<dyn Store> = Arc::new(MeteredStore::new(store, Arc::clone(&clock), &metrics));
        let readiness = Readiness::new(Arc::clone(&chain), Arc::clone(&store), Arc::clone(&clock));
        let readiness = Arc::new(readiness);
        let ports = Ports { chain, store, clock: Arc::clone(&clock), entropy: Arc::new(os) };
        let pipeline = Arc::new(Pipeline::new(ports, rules(settings)));
        metrics.count_entries("failing_clients", &pipeline, Pipeline::failing_clients)?;

        let mut app = Self {
            server: Server::new_with_opt_and_conf(None, server_conf(descriptors.idle)),
            clock,
            metrics,
            readiness,
            tenants: Arc::new(tenants),
            descriptors,
            follower,
        };
        app.server.bootstrap();
        let reloader = Reloader::new(Arc::clone(&app.tenants), early_hangup, app.metrics.clone());
        let reloader = Arc::new(reloader);
        app.supervise("reloader", move || Arc::clone(&reloader).run());
        app.serve_api(settings, Arc::clone(&pipeline))?;
        app.serve_gateway(settings, &pipeline, &os)?;
        app.serve_admin(settings)?;
        app.supervise("sweeper", move || sweep(Arc::clone(&pipeline)));
        tracing::info!("{}", app.descriptors);
        Ok(app)
    }

    /// Runs with a node in this process, which listens at this address a moment after everything else has begun. Calls
    /// `welcome` once verifications can be answered.
    #[cfg(feature = "dev-chain")]
    pub(crate) fn run_with_node(mut self, node: SocketAddr, welcome: impl Fn() + Send + Sync + 'static) {
        let (readiness, welcome) = (Arc::clone(&self.readiness), Arc::new(welcome));
        self.supervise("welcome", move || {
            let (readiness, welcome) = (Arc::clone(&readiness), Arc::clone(&welcome));
            async move {
                listening(node).await;
                while !readiness.report().await.is_ready() {
                    tokio::time::sleep(TRY_EVERY).await;
                }
                welcome();
                std::future::pending().await
            }
        });
        self.run_after(move || listening(node));
    }

    /// Adds a listener in the clear; `door` is its name in logs and metrics.
    #[cfg(feature = "dev-chain")]
    pub(crate) fn add_door(
        &mut self,
        door: &str,
        address: SocketAddr,
        workers: usize,
        service: impl WholeService,
    ) -> Result<(), StartError> {
        let service = Arc::new(WholeAnswers::new(service, Arc::clone(&self.clock)));
        let connections_max = self.descriptors.api;
        self.open(
            || Arc::clone(&service),
            Listening { name: door, addresses: &[address], connections_max, rules: None, workers, tls: None },
        )
    }

    /// Opens a listener: each worker gets a door of its own.
    fn open<D: Door>(
        &mut self,
        mut door: impl FnMut() -> D,
        listening: Listening<'_>,
    ) -> Result<(), StartError> {
        let certificates = self.tenants.certificates();
        let tls = listening.tls.zip(certificates).map(|(protocols, store)| server_config(store, protocols));
        let limits = Limits::new(listening.name, listening.connections_max, listening.rules, &self.metrics);
        let mut sockets: Vec<Vec<TcpSocket>> = (0..listening.workers).map(|_| Vec::new()).collect();
        for address in listening.addresses {
            let of_workers = bind(listening.name, *address, listening.workers)?;
            sockets.iter_mut().zip(of_workers).for_each(|(sockets, socket)| sockets.push(socket));
        }
        for sockets in sockets {
            let shell = HttpShell::new(door(), tls.clone(), Arc::clone(&self.clock), limits.clone());
            self.server.add_service(Worker::new(listening.name, sockets, shell));
        }
        Ok(())
    }

    /// Serves until a signal says to stop: SIGTERM and SIGQUIT let requests finish, SIGINT does not.
    pub(crate) fn run(self) {
        self.run_after(|| std::future::ready(()));
    }

    /// The same; the chain is followed when its node is there.
    fn run_after<F>(mut self, node: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let follower = Arc::clone(&self.follower);
        self.supervise("follower", move || {
            let (node, follower) = (node(), Arc::clone(&follower));
            async move {
                node.await;
                follower.follow().await;
            }
        });
        self.server.run(RunArgs::default());
    }

    /// Adds a background task: one that ends before the process does is begun anew.
    fn supervise<F>(&mut self, name: &'static str, begin: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = Task { name, metrics: self.metrics.clone(), begin };
        self.server.add_service(background_service(name, task));
    }

    fn serve_api(&mut self, settings: &Settings, pipeline: Arc<Pipeline>) -> Result<(), StartError> {
        let access = Access {
            scope: Scope::Api,
            min_tier: Tier::Bronze,
            quotas: settings.tiers.requests_per_minute,
            denies_endpoint_mismatch: false,
        };
        let api = Api::new(
            pipeline,
            Arc::clone(&self.readiness),
            access,
            settings.listen.trusted_proxies.clone(),
            Arc::clone(&self.clock),
            &self.metrics,
        );
        let api = Arc::new(WholeAnswers::new(api, Arc::clone(&self.clock)));
        let listening = Listening {
            name: "api",
            addresses: &[settings.listen.api],
            connections_max: self.descriptors.api,
            rules: Some(client_rules(&settings.listen, Listener::Api)),
            workers: processors(),
            tls: Some(Protocols::Http1),
        };
        self.open(|| Arc::clone(&api), listening)
    }

    /// The gateway, and a look after its upstreams.
    fn serve_gateway(
        &mut self,
        settings: &Settings,
        pipeline: &Arc<Pipeline>,
        os: &Os,
    ) -> Result<(), StartError> {
        if settings.listen.gateway.is_empty() {
            return Ok(());
        }
        let table = Arc::clone(self.tenants.table());
        let watch = Arc::new(Watch::new(Arc::clone(&table), Arc::clone(&self.clock)));
        self.supervise("upstreams", move || Arc::clone(&watch).run());
        let rules = GatewayRules {
            trusted_proxies: settings.listen.trusted_proxies.clone(),
            in_flight_max: self.descriptors.requests,
            via: settings.gateway.via.clone(),
        };
        let gateway =
            Gateway::new(table, Arc::clone(pipeline), rules, Arc::clone(&self.clock), os, &self.metrics)?;
        let gateway = Arc::new(gateway);
        let library = Arc::new(LibraryDoor::new(Arc::clone(&gateway), &self.server.configuration));
        let is_off = settings.gateway.http1 == Http1::Library;
        let (mut pools, workers) = (Vec::new(), processors());
        let idle_max = self.descriptors.idle / workers;
        let door = || {
            let pool = Arc::new(Pool::new(idle_max));
            pools.push(Arc::clone(&pool));
            GatewayDoor::new(Arc::clone(&gateway), Arc::clone(&library), is_off, pool)
        };
        let listening = Listening {
            name: "gateway",
            addresses: &settings.listen.gateway,
            connections_max: self.descriptors.gateway,
            rules: Some(client_rules(&settings.listen, Listener::Gateway)),
            workers,
            tls: Some(Protocols::Http1AndHttp2),
        };
        self.open(door, listening)?;
        self.supervise("upstream-connections", move || pool::keep(pools.clone()));
        Ok(())
    }

    fn serve_admin(&mut self, settings: &Settings) -> Result<(), StartError> {
        let admin = Admin::new(self.metrics.clone(), Arc::clone(&self.readiness));
        let admin = Arc::new(WholeAnswers::new(admin, Arc::clone(&self.clock)));
        let (addresses, connections_max) = (&[settings.listen.admin], ADMIN_CONNECTIONS);
        let listening =
            Listening { name: "admin", addresses, connections_max, rules: None, workers: 1, tls: None };
        self.open(|| Arc::clone(&admin), listening)
    }
}

/// Gives memory back now and then.
async fn sweep(pipeline: Arc<Pipeline>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        pipeline.sweep();
    }
}

/// Returns when somebody listens at the address.
#[cfg(feature = "dev-chain")]
async fn listening(address: SocketAddr) {
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// The domain of signatures, under these settings.
pub(crate) fn signing_domain(settings: &Settings) -> Eip712Domain {
    Eip712Domain {
        name: settings.signature.domain_name.clone(),
        version: settings.signature.domain_version.clone(),
        chain_id: settings.signature.chain_id,
        verifying_contract: settings.chain.contracts.identity,
    }
}

fn rules(settings: &Settings) -> Rules {
    Rules {
        signing_domain: SigningDomain::new(signing_domain(settings)),
        freshness: settings.signature.freshness,
        stakes: settings.tiers.stake,
        key_format: settings.keys.format.clone(),
        key_management: settings.keys.requests_per_hour,
        failures: settings.abuse.failures_per_minute,
    }
}

fn client_rules(listen: &Listen, listener: Listener) -> ClientRules {
    ClientRules {
        trusted_proxies: listen.trusted_proxies.clone(),
        uses_proxy_protocol: listen.proxy_protocol.contains(&listener),
        per_network_max: listen.max_connections_per_network,
    }
}

/// The sockets of a listener's workers. The server framework ends the process with a backtrace when it can't listen; found
/// out before, it is a sentence.
fn bind(name: &str, address: SocketAddr, workers: usize) -> Result<Vec<TcpSocket>, StartError> {
    let key = format!("listen.{name}");
    bound(address, workers).map_err(|cause| StartError::Listen { key, address, cause })
}

/// Made in code: Pingora's own file and its silent defaults are not for our users.
fn server_conf(upstreams_idle_max: usize) -> ServerConf {
    ServerConf {
        // Each service has one thread; listeners have as many services as there are processors.
        threads: 1,
        work_stealing: false,
        grace_period_seconds: Some(GRACE_SECS),
        graceful_shutdown_timeout_seconds: Some(GRACE_SECS),
        upstream_keepalive_pool_size: upstreams_idle_max,
        max_retries: TRIES_MAX,
        upgrade_sock: String::new(),
        pid_file: String::new(),
        ..ServerConf::default()
    }
}
