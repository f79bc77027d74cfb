//! The composition root: configuration → ports → pipeline → listeners → process.

pub(crate) mod chain;
pub(crate) mod descriptors;
#[cfg(feature = "dev-chain")]
pub(crate) mod dev;
pub(crate) mod handover;
pub(crate) mod lifecycle;
pub(crate) mod named_files;
pub(crate) mod online;
mod overview;
pub(crate) mod store;
pub(crate) mod tenants;

mod listeners;
mod process;
mod reload;
mod threads;

pub(crate) use listeners::discovery;
pub(crate) use online::Finding;

use std::{error::Error, future::ready, io, sync::Arc, time::Duration};

use tokio::runtime::Handle;

use crate::app::descriptors::{Descriptors, workers};
use crate::app::lifecycle::{EarlySignals, Lifecycle};
use crate::app::tenants::{Tenants, emptiness};
use crate::app::{
    handover::Handover, overview::Overview, process::Process, reload::Reloader, threads::end_of,
};
use crate::bots::Bots;
use crate::chain::{ChainReader, Follower};
use crate::config::{AuditPlace, ConfigSource, Loaded, Settings, log::LogSettings, log::TraceSettings};
use crate::domain::{Eip712Domain, SigningDomain};
use crate::gateway::watch::resolve_new_names;
use crate::os::Os;
use crate::pipeline::{Pipeline, Ports, Readiness, Rules};
use crate::ports::{Chain, Clock, Store};
use crate::supervision::keep_going;
use crate::telemetry::{Audit, LogGuard, MeteredStore, Metrics, Tracer, log::dropped_lines};
use crate::wire::Discovery;

/// Why the service can't start, as a sentence.
pub(crate) type StartError = Box<dyn Error + Send + Sync>;

/// Why the process ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A sentence for people.
    #[error("{0}")]
    Failed(String),
    /// A thread that the process can't do without.
    #[error("the thread {0} has ended, and the process with it; please report the line above")]
    DeadThread(&'static str),
}

impl RunError {
    /// No thread, or no runtime for one.
    fn thread(cause: io::Error) -> Self {
        Self::Failed(format!("cannot start a thread: {cause}"))
    }
}

/// How often memory that no longer matters is given back.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The whole service, put together.
pub(crate) struct App {
    process: Process,
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    tenants: Arc<Tenants>,
    descriptors: Descriptors,
    follower: Arc<Follower>,
    chain_threads: Handle,
    /// The bots that prove their domain; `None`: no domain is listed.
    bots: Option<Arc<Bots>>,
    tracer: Option<Arc<Tracer>>,
    audit: Option<Arc<Audit>>,
    /// The documents that tell strangers how agents get in, the same at every listener.
    discovery: Arc<Discovery>,
    /// Dropped when the service has ended.
    _audit_guard: Option<LogGuard>,
}

impl App {
    /// The service of a configuration that was read from `source`, with its listeners checked and its store open. It listens
    /// on sockets of the handover where it can.
    pub(crate) fn new(
        loaded: &Loaded,
        source: ConfigSource,
        early: EarlySignals,
        handover: Handover,
    ) -> Result<Self, StartError> {
        let settings = &loaded.settings;
        if let Some(why) = emptiness(loaded, &source.path) {
            return Err(why.to_string().into());
        }
        let descriptors = Descriptors::planned(settings, handover.sockets.len())?;
        let os = Os::new();
        let clock: Arc<dyn Clock> = Arc::new(os);
        let (audit, audit_guard) = audit(&settings.fixed.log, Arc::clone(&clock))?.unzip();
        let metrics = Metrics::new()?;
        metrics.at_scrape(|families| {
            let counted = families.log_lines_dropped.get();
            families.log_lines_dropped.inc_by(dropped_lines().saturating_sub(counted));
        });
        let tenants = Arc::new(Tenants::new(source, settings, &clock, &metrics)?);
        let now = Arc::clone(&clock);
        metrics.at_scrape_from(&tenants.table, move |families, table| {
            table.load().show(families, now.monotonic_micros());
        });
        let chain_threads = chain::start_threads(workers(settings))?;
        chain_threads.block_on(resolve_new_names(&tenants.table.load()));
        let bots = chain::bots(settings, &clock, &metrics, &chain_threads)?;
        let reader = Arc::new(chain::reader(settings, &clock, &metrics, &chain_threads)?);
        let follower = Arc::new(reader.follower());
        metrics.count_entries("profiles", &reader, ChainReader::cached_agents);
        let chain: Arc<dyn Chain> = reader;
        let (store, writer_ended) = store::open(settings, &clock, &metrics)?;
        let store: Arc<dyn Store> = Arc::new(MeteredStore::new(store, Arc::clone(&clock), &metrics));
        let readiness = Readiness::new(Arc::clone(&chain), Arc::clone(&store), Arc::clone(&clock));
        let readiness = Arc::new(readiness);
        let ports = Ports { chain, store, clock: Arc::clone(&clock), entropy: Arc::new(os) };
        let pipeline = Arc::new(Pipeline::new(ports, rules(settings)));
        metrics.count_entries("failing_clients", &pipeline, Pipeline::failing_clients);
        let overview = Arc::new(Overview::new(Arc::clone(&tenants), loaded));
        let reloader = Reloader::new(
            Arc::clone(&tenants),
            Arc::clone(&overview),
            early.clone(),
            audit.clone(),
            &loaded.refused,
        );
        let reloader = Arc::new(reloader);

        let tracer = settings.fixed.traces.endpoint.as_ref().map(|endpoint| {
            let TraceSettings { one_in, continued_per_second, .. } = settings.fixed.traces;
            Tracer::new(endpoint, one_in, continued_per_second, &clock, &metrics)
        });
        let untraced = |why| format!("cannot trace requests: {why}");
        let tracer = tracer.transpose().map_err(untraced)?.map(Arc::new);
        let lifecycle =
            Lifecycle::new(settings.fixed.shutdown, Some(Arc::clone(&readiness)), handover, early);
        let idle = settings.fixed.listen.idle;
        let process = Process::new(clock, metrics, idle, lifecycle);
        let mut app = Self {
            process,
            pipeline: Arc::clone(&pipeline),
            readiness,
            tenants,
            descriptors,
            follower,
            chain_threads,
            bots,
            tracer,
            audit,
            discovery: Arc::new(discovery(settings)),
            _audit_guard: audit_guard,
        };
        let asking = Arc::clone(&app.readiness);
        app.process.supervise("readiness", move || {
            let readiness = Arc::clone(&asking);
            async move { readiness.refresh().await }
        });
        if let Some(ended) = writer_ended {
            app.process.ends.push(Box::pin(end_of("store-writer", ended)));
        }
        app.process.supervise("reloader", move || Arc::clone(&reloader).run());
        app.serve_api(settings)?;
        app.serve_gateway(settings)?;
        app.serve_authz(settings)?;
        app.serve_admin(settings, overview)?;
        app.process.supervise("sweeper", move || sweep(Arc::clone(&pipeline)));
        tracing::info!("{}", app.descriptors);
        Ok(app)
    }

    /// Serves until a signal says to stop: SIGTERM and SIGQUIT let requests finish, SIGINT does not.
    pub(crate) fn run(self) -> Result<(), RunError> {
        self.run_after(|| ready(()))
    }

    /// The same; the chain is followed when its node is there.
    fn run_after<F>(self, node: impl Fn() -> F + Send + Sync + 'static) -> Result<(), RunError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (follower, metrics) = (Arc::clone(&self.follower), self.process.metrics.clone());
        let follow = move || {
            let (node, follower) = (node(), Arc::clone(&follower));
            async move {
                node.await;
                follower.follow().await;
            }
        };
        self.chain_threads.spawn(async move { keep_going("follower", &metrics, follow).await });
        let outcome = self.process.run();
        if let Some(tracer) = self.tracer {
            tracer.finish();
        }
        outcome
    }
}

/// The audit log, if there is one, and its guard: lines are written until that is dropped.
fn audit(
    settings: &LogSettings,
    clock: Arc<dyn Clock>,
) -> Result<Option<(Arc<Audit>, LogGuard)>, StartError> {
    let (audit, guard) = match &settings.audit {
        None => return Ok(None),
        Some(AuditPlace::Stdout) => Audit::to_stdout(clock),
        Some(AuditPlace::File(path)) => Audit::to_file(path, clock)
            .map_err(|cause| format!("cannot open {} (log.audit): {cause}", path.display()))?,
    };
    let audit = if settings.audit_required { audit.required() } else { audit };
    Ok(Some((Arc::new(audit), guard)))
}

async fn sweep(pipeline: Arc<Pipeline>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        pipeline.sweep();
    }
}

pub(crate) fn signing_domain(settings: &Settings) -> Eip712Domain {
    Eip712Domain {
        name: settings.fixed.signature.domain_name.clone(),
        version: settings.fixed.signature.domain_version.clone(),
        chain_id: settings.fixed.signature.chain_id,
        verifying_contract: settings.fixed.chain.reading.registries.identity,
    }
}

fn rules(settings: &Settings) -> Rules {
    let signing_domain = SigningDomain::new(signing_domain(settings));
    Rules {
        signing_domain: match settings.key_service() {
            Some(service) => signing_domain.with_own_types(service),
            None => signing_domain,
        },
        signature_format: settings.fixed.signature.format,
        agent_wallet: settings.fixed.signature.agent_wallet,
        freshness: settings.fixed.signature.freshness,
        contract_max_age_secs: settings.fixed.signature.contract_max_age.as_secs(),
        key_format: settings.fixed.keys.format.clone(),
        keys_end_with_signer: settings.keys_end_with_signer(),
        keys_per_agent_max: settings.fixed.keys.per_agent_max,
        key_expires_secs_max: settings.fixed.keys.expires_max.as_secs(),
        key_management: settings.fixed.keys.requests_per_hour,
        failures: settings.fixed.abuse,
    }
}
