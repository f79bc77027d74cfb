//! The process: its listeners, the threads that serve them, and background tasks.

use std::{collections::BTreeMap, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use socket2::Socket;
use tokio::{runtime::Builder, sync::watch};

use crate::app::threads::{Part, ThreadEnd, begin};
use crate::app::{RunError, StartError, lifecycle::Lifecycle};
use crate::ports::Clock;
use crate::serve::worker::{adopt, bound, take_connections};
use crate::serve::{
    Buffered, BufferedService, Gates, Handler, Limits, Listener, clients::ClientRules,
    fair_scheduler::FairScheduler,
};
use crate::supervision::keep_going;
use crate::telemetry::Metrics;
use crate::tls::ServerTls;

/// The advice where a socket for the same port was handed over for another listener or for none.
const ONE_ADDRESS: &str = "write one address in the configuration and in tiergate.socket";

/// How many threads run background tasks.
const BACKGROUND_THREADS: usize = 2;

/// A process that does not serve yet.
pub(super) struct Process {
    tasks: Vec<Task>,
    /// By the names of the threads.
    threads: BTreeMap<&'static str, Vec<Thread>>,
    /// The ends of further threads that the process can't do without.
    pub(super) ends: Vec<ThreadEnd>,
    lifecycle: Lifecycle,
    /// How long clients' connections may be idle between two requests.
    idle: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
}

/// A thread of listeners, which does not run yet.
struct Thread {
    parts: Vec<Part>,
    /// For the clients of all its listeners.
    scheduler: Arc<FairScheduler>,
}

impl Thread {
    fn new(metrics: Metrics) -> Self {
        let scheduler = FairScheduler::new();
        let rounds = Arc::clone(&scheduler);
        let rounds = async move {
            keep_going("fair-scheduler", &metrics, || rounds.begin_rounds()).await;
            Ok(())
        };
        Self { parts: vec![Box::pin(rounds)], scheduler }
    }
}

/// A listener: its addresses, and how it serves.
pub(super) struct Listening<'a> {
    /// Its name in logs and metrics.
    pub(super) name: &'static str,
    pub(super) addresses: &'a [SocketAddr],
    pub(super) connections_max: usize,
    pub(super) rules: Option<ClientRules>,
    /// The name of its threads. Listeners with the same one share threads.
    pub(super) threads: &'static str,
    /// How many workers take connections, each in a thread and with an accept queue of its own.
    pub(super) workers: usize,
    /// `None`: in the clear.
    pub(super) tls: Option<ServerTls>,
}

impl<'a> Listening<'a> {
    /// With one worker in a thread of its own, in the clear, for whoever connects.
    pub(super) const fn plain(
        name: &'static str,
        addresses: &'a [SocketAddr],
        connections_max: usize,
    ) -> Self {
        Self { name, addresses, connections_max, rules: None, threads: name, workers: 1, tls: None }
    }
}

/// A background task, which is given up when the process ends.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Process {
    pub(super) fn new(clock: Arc<dyn Clock>, metrics: Metrics, idle: Duration, lifecycle: Lifecycle) -> Self {
        let (tasks, threads, ends) = Default::default();
        Self { tasks, threads, ends, lifecycle, idle, clock, metrics }
    }

    /// Adds a background task: one that ends before the process does is begun anew.
    pub(super) fn supervise<F>(&mut self, name: &'static str, begin: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let metrics = self.metrics.clone();
        self.tasks.push(Box::pin(async move { keep_going(name, &metrics, begin).await }));
    }

    /// Opens a listener for a service whose answers are whole.
    pub(super) fn open_whole(
        &mut self,
        service: impl BufferedService,
        listening: Listening<'_>,
    ) -> Result<(), StartError> {
        let service = Arc::new(Buffered { service, clock: Arc::clone(&self.clock) });
        self.open(|| Arc::clone(&service), listening)
    }

    /// Opens a listener: each worker gets the handler that it is given.
    pub(super) fn open<D: Handler>(
        &mut self,
        mut handler: impl FnMut() -> Arc<D>,
        listening: Listening<'_>,
    ) -> Result<(), StartError> {
        let (name, most) = (listening.name, listening.connections_max);
        let limits = Limits::new(name, most, self.idle, listening.rules, &self.metrics);
        let mut workers: Vec<Vec<Socket>> = (0..listening.workers).map(|_| Vec::new()).collect();
        for &address in listening.addresses {
            self.take(address, &mut workers).map_err(|cause| {
                let held = self.lifecycle.handover.at_port(address.port());
                let advice = held.map(|held| format!("; a socket at {held} was handed over: {ONE_ADDRESS}"));
                let advice = advice.unwrap_or_default();
                format!("cannot listen on {address} (listen.{}): {cause}{advice}", listening.name)
            })?;
        }
        let threads = self.threads.entry(listening.threads).or_default();
        threads.resize_with(threads.len().max(listening.workers), || Thread::new(self.metrics.clone()));
        for (sockets, thread) in workers.into_iter().zip(threads) {
            let (clock, scheduler) = (Arc::clone(&self.clock), Arc::clone(&thread.scheduler));
            let listener = Listener::new(handler(), listening.tls.clone(), clock, limits.clone(), scheduler);
            let Lifecycle { serving, stopping, .. } = &self.lifecycle;
            let gates = Gates { serving: serving.subscribe(), stopping: stopping.subscribe() };
            thread.parts.push(Box::pin(take_connections(sockets, listener, gates)));
        }
        Ok(())
    }

    /// Gives each worker a socket for an address, and each socket a worker. Sockets that were handed over may be fewer than
    /// workers, which then share accept queues, or more.
    fn take(&mut self, address: SocketAddr, workers: &mut [Vec<Socket>]) -> io::Result<()> {
        let mut sockets = self.lifecycle.handover.take(address);
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
        self.lifecycle.sockets.get_mut().append(&mut sockets);
        Ok(())
    }

    /// Serves until a signal says to stop: SIGTERM and SIGQUIT let requests finish, SIGINT does not. SIGUSR2 starts the program
    /// again to replace this process.
    pub(super) fn run(self) -> Result<(), RunError> {
        let Self { tasks, threads, mut ends, mut lifecycle, .. } = self;
        lifecycle.handover.close_others();
        let background = Builder::new_multi_thread()
            .worker_threads(BACKGROUND_THREADS)
            .thread_name("background")
            .enable_all()
            .build()
            .map_err(RunError::thread)?;
        // Dropped when the threads are to end, with whatever they are doing.
        let (over, mut running) = (watch::Sender::new(()), Vec::new());
        for (name, workers) in threads {
            for worker in workers {
                let (thread, end) = begin(name, worker.parts, over.subscribe())?;
                running.push(thread);
                ends.push(end);
            }
        }
        for task in tasks {
            background.spawn(task);
        }
        let outcome = background.block_on(lifecycle.run(ends));
        drop(over);
        for thread in running {
            // A panic has been reported.
            let _ = thread.join();
        }
        // A disk or resolver that hangs is not waited for.
        background.shutdown_background();
        outcome
    }
}
