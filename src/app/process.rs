//! The process: the server framework with our listeners and background tasks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use socket2::Socket;
use tokio::sync::watch;

use crate::app::error::StartError;
use crate::app::handover::Handover;
use crate::app::lifecycle::Lifecycle;
use crate::config::shutdown::ShutdownSettings;
use crate::pipeline::readiness::Readiness;
use crate::ports::clock::Clock;
use crate::serve::clients::ClientRules;
use crate::serve::whole::{WholeAnswers, WholeService};
use crate::serve::worker::{Gates, Worker, adopt, bound};
use crate::serve::{Door, HttpShell, Limits};
use crate::supervision::keep_going;
use crate::telemetry::metrics::Metrics;
use crate::tls::certificates::CertificateStore;
use crate::tls::listener::{Protocols, server_config};

/// How often another upstream may be tried. Tenants set a lower limit of their own.
const TRIES_MAX: usize = 64;

/// A process that does not serve yet.
pub(super) struct Process {
    server: Server,
    /// True once workers are to take connections, and once listeners are to close.
    serving: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
    handover: Handover,
    sockets: Vec<Socket>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    /// For listeners that speak TLS; nothing: none does.
    certificates: Option<Arc<CertificateStore>>,
}

/// A listener: its addresses, and how it serves.
pub(super) struct Listening<'a> {
    /// Its name in logs and metrics.
    pub(super) name: &'a str,
    pub(super) addresses: &'a [SocketAddr],
    pub(super) connections_max: usize,
    pub(super) rules: Option<ClientRules>,
    /// How many workers take connections, each with a thread and an accept queue of its own.
    pub(super) workers: usize,
    /// The protocols over TLS; `None` in the clear.
    pub(super) tls: Option<Protocols>,
}

impl<'a> Listening<'a> {
    /// With one worker, in the clear, for whoever connects.
    pub(super) const fn plain(name: &'a str, address: &'a SocketAddr, connections_max: usize) -> Self {
        let addresses = std::slice::from_ref(address);
        Self { name, addresses, connections_max, rules: None, workers: 1, tls: None }
    }
}

/// A background task, which is given up when the process ends.
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
    async fn start(&self, _shutdown: ShutdownWatch) {
        keep_going(self.name, &self.metrics, &self.begin).await;
    }
}

impl Process {
    /// With room for so many unused connections to upstreams. Listeners use sockets of the handover where they can.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        certificates: Option<Arc<CertificateStore>>,
        upstreams_idle_max: usize,
        handover: Handover,
    ) -> Self {
        let mut server = Server::new_with_opt_and_conf(None, server_conf(upstreams_idle_max));
        server.bootstrap();
        let (serving, stopping) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { server, serving, stopping, handover, sockets: Vec::new(), clock, metrics, certificates }
    }

    pub(super) fn configuration(&self) -> &Arc<ServerConf> {
        &self.server.configuration
    }

    /// Adds a background task: one that ends before the process does is begun anew.
    pub(super) fn supervise<F>(&mut self, name: &'static str, begin: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = Task { name, metrics: self.metrics.clone(), begin };
        self.server.add_service(background_service(name, task));
    }

    /// Opens a listener for a service whose answers are whole.
    pub(super) fn open_whole(
        &mut self,
        service: impl WholeService,
        listening: Listening<'_>,
    ) -> Result<(), StartError> {
        let service = Arc::new(WholeAnswers::new(service, Arc::clone(&self.clock)));
        self.open(|| Arc::clone(&service), listening)
    }

    /// Opens a listener: each worker gets a door of its own. The server framework ends the process with a backtrace when it
    /// can't listen; found out before, it is a sentence.
    pub(super) fn open<D: Door>(
        &mut self,
        mut door: impl FnMut() -> D,
        listening: Listening<'_>,
    ) -> Result<(), StartError> {
        let tls = listening.tls.zip(self.certificates.as_ref());
        let tls = tls.map(|(protocols, store)| server_config(store, protocols));
        let limits = Limits::new(listening.name, listening.connections_max, listening.rules, &self.metrics);
        let mut workers: Vec<Vec<Socket>> = (0..listening.workers).map(|_| Vec::new()).collect();
        for &address in listening.addresses {
            let key = || format!("listen.{}", listening.name);
            let taken = self.take(address, &mut workers);
            taken.map_err(|cause| StartError::Listen { key: key(), address, cause })?;
        }
        for sockets in workers {
            let shell = HttpShell::new(door(), tls.clone(), Arc::clone(&self.clock), limits.clone());
            let gates = Gates { serving: self.serving.subscribe(), stopping: self.stopping.subscribe() };
            self.server.add_service(Worker::new(listening.name, sockets, shell, gates));
        }
        Ok(())
    }

    /// Gives each worker a socket for an address, and each socket a worker. Sockets that were handed over may be fewer than
    /// workers, which then share accept queues, or more.
    fn take(&mut self, address: SocketAddr, workers: &mut [Vec<Socket>]) -> io::Result<()> {
        let mut sockets = self.handover.take(address);
        if sockets.is_empty() {
            sockets = bound(address, workers.len())?;
        }
        sockets.iter().try_for_each(adopt)?;
        let (count, pairs) = (workers.len(), workers.len().max(sockets.len()));
        for (number, socket) in (0..pairs).zip(sockets.iter().cycle()) {
            if let Some(of_worker) = workers.get_mut(number % count) {
                of_worker.push(socket.try_clone()?);
            }
        }
        self.sockets.append(&mut sockets);
        Ok(())
    }

    /// Serves until a signal says to stop: SIGTERM and SIGQUIT let requests finish, SIGINT does not. SIGUSR2 starts the program
    /// again to replace this process. `readiness` says when a process that was handed sockets takes connections.
    pub(super) fn run(mut self, settings: ShutdownSettings, readiness: Option<Arc<Readiness>>) {
        self.handover.close_others();
        let Self { server, serving, stopping, handover, sockets, .. } = self;
        let sockets = Mutex::new(sockets);
        let lifecycle = Lifecycle { settings, readiness, handover, serving, stopping, sockets };
        server.run(RunArgs { shutdown_signal: Box::new(lifecycle) });
    }
}

/// Made in code: Pingora's own file and its silent defaults are not for our users.
fn server_conf(upstreams_idle_max: usize) -> ServerConf {
    ServerConf {
        // Each service has one thread; listeners have as many services as there are processors.
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: upstreams_idle_max,
        max_retries: TRIES_MAX,
        upgrade_sock: String::new(),
        pid_file: String::new(),
        ..ServerConf::default()
    }
}
