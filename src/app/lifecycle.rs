//! Begin and end of the process: when its listeners open, and how it drains.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{future::pending, io, sync::Arc, time::Duration};

use futures_util::FutureExt;
use futures_util::future::select_all;
use parking_lot::Mutex;
use sd_notify::{NotifyState, notify};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR2};
use signal_hook::flag::{register, register_conditional_shutdown};
use socket2::Socket;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::app::RunError;
use crate::app::handover::{Handover, Successor, local_address};
use crate::app::threads::{ThreadEnd, first_end};
use crate::config::listen::ShutdownSettings;
use crate::pipeline::Readiness;
use crate::serve::BACKLOG;

/// How long a process with handed-over sockets waits for store and chain.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked meanwhile whether they are ready.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Why there is no upgrade yet.
const NOT_SERVING: &str = "this process does not serve yet";

/// Signals that come before anybody waits for them. Those that say to end are followed at once, also by the first process of a
/// container, to which Linux gives no signal without a handler. The others are remembered, and end nothing.
#[derive(Clone, Default)]
pub(crate) struct EarlySignals {
    /// True if SIGHUP came.
    pub(super) hangup: Arc<AtomicBool>,
    upgrade: Arc<AtomicBool>,
    /// True until somebody waits for signals.
    is_early: Arc<AtomicBool>,
}

impl EarlySignals {
    /// To be made before anything else.
    pub(crate) fn listen() -> io::Result<Self> {
        let early = Self { is_early: Arc::new(AtomicBool::new(true)), ..Self::default() };
        for signal in [SIGINT, SIGQUIT, SIGTERM] {
            register_conditional_shutdown(signal, 0, Arc::clone(&early.is_early))?;
        }
        register(SIGHUP, Arc::clone(&early.hangup))?;
        register(SIGUSR2, Arc::clone(&early.upgrade))?;
        Ok(early)
    }
}

pub(super) struct Lifecycle {
    settings: ShutdownSettings,
    /// Says when a process that was handed sockets takes connections.
    readiness: Option<Arc<Readiness>>,
    pub(super) handover: Handover,
    early: EarlySignals,
    /// True once workers are to take connections.
    pub(super) serving: watch::Sender<bool>,
    /// True once listeners are to close. Listeners and connections hold its receivers for as long as they live.
    pub(super) stopping: watch::Sender<bool>,
    /// All listening sockets, until they are to close.
    pub(super) sockets: Mutex<Vec<Socket>>,
}

/// The meaning of a signal.
#[derive(Clone, Copy)]
enum Order {
    EndAtOnce,
    End,
    Upgrade,
}

struct Signals([(Signal, Order); 4]);

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self([
            (signal(SignalKind::interrupt())?, Order::EndAtOnce),
            (signal(SignalKind::terminate())?, Order::End),
            (signal(SignalKind::quit())?, Order::End),
            (signal(SignalKind::user_defined2())?, Order::Upgrade),
        ]))
    }

    async fn next(&mut self) -> Order {
        let all = self.0.iter_mut().map(|(signal, order)| Box::pin(signal.recv().map(|_| *order)));
        select_all(all).await.0
    }

    /// The order to end. An order to upgrade is not followed before, and a line says why.
    async fn end(&mut self, why_no_upgrade: &str) -> Order {
        loop {
            match self.next().await {
                Order::Upgrade => ignore_upgrade(why_no_upgrade),
                order @ (Order::End | Order::EndAtOnce) => return order,
            }
        }
    }
}

/// An upgrade that is done later would be a surprise: whoever wants it orders it again.
fn ignore_upgrade(why: &str) {
    tracing::warn!("SIGUSR2 is ignored: {why}");
}

impl Lifecycle {
    /// Listeners use sockets of the handover where they can.
    pub(super) fn new(
        settings: ShutdownSettings,
        readiness: Option<Arc<Readiness>>,
        handover: Handover,
        early: EarlySignals,
    ) -> Self {
        let (serving, stopping) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { settings, readiness, handover, early, serving, stopping, sockets: Mutex::default() }
    }

    /// Lives until a signal says to end, or until one of these threads has ended.
    pub(super) async fn run(self, ends: Vec<ThreadEnd>) -> Result<(), RunError> {
        let signals = Signals::listen();
        let mut signals =
            signals.map_err(|cause| RunError::Failed(format!("cannot wait for signals: {cause}")))?;
        self.early.is_early.store(false, Ordering::Relaxed);
        if self.early.upgrade.load(Ordering::Relaxed) {
            ignore_upgrade(NOT_SERVING);
        }
        tokio::select! {
            name = first_end(ends) => Err(RunError::DeadThread(name)),
            outcome = self.live(&mut signals) => outcome,
        }
    }

    async fn live(&self, signals: &mut Signals) -> Result<(), RunError> {
        tokio::select! {
            opened = self.open() => opened?,
            // No request is under way that either order could wait for.
            _ = signals.end(NOT_SERVING) => {
                self.begin_end();
                return Ok(());
            }
        }
        self.end(signals).await
    }

    async fn open(&self) -> Result<(), RunError> {
        let is_late = self.handover.had_sockets && timeout(READY_WITHIN, self.ready()).await.is_err();
        if is_late && self.handover.replaces() {
            return Err(RunError::Failed(format!(
                "store or chain was not ready within {READY_WITHIN:?}: this process does not take over"
            )));
        }
        for socket in &*self.sockets.lock() {
            let address = || local_address(socket).map(|address| address.to_string()).unwrap_or_default();
            let failed = |cause| RunError::Failed(format!("cannot listen on {}: {cause}", address()));
            socket.listen(BACKLOG).map_err(failed)?;
        }
        self.serving.send_replace(true);
        if self.handover.replaces() {
            self.handover.confirm();
        } else {
            tell_systemd(&[NotifyState::Ready]);
        }
        Ok(())
    }

    /// Returns when store and chain answer.
    async fn ready(&self) {
        let Some(readiness) = &self.readiness else { return };
        while !readiness.report().is_ready() {
            sleep(TRY_EVERY).await;
        }
    }

    /// Returns when the process is to end: at once after SIGINT and after a second signal.
    async fn end(&self, signals: &mut Signals) -> Result<(), RunError> {
        let (delay, successor) = loop {
            match signals.next().await {
                Order::EndAtOnce => return Ok(()),
                Order::End => break (self.begin_end(), None),
                Order::Upgrade => {}
            }
            tokio::select! {
                upgraded = self.upgrade() => match upgraded {
                    Ok(successor) => {
                        tracing::info!(process = successor.id(), "the new process serves");
                        tell_systemd(&[NotifyState::MainPid(successor.id())]);
                        // The listeners stay open: no balancer has to notice anything.
                        break (Duration::ZERO, Some(successor));
                    }
                    Err(why) => tracing::error!("the upgrade failed, and this process goes on: {why}"),
                },
                order = signals.end("an upgrade is under way") => match order {
                    Order::End => break (self.begin_end(), None),
                    Order::EndAtOnce | Order::Upgrade => return Ok(()),
                },
            }
        };
        let failure = async {
            match successor {
                Some(successor) => successor.failure().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = signals.end("this process is about to end") => Ok(()),
            () = self.drain(delay) => Ok(()),
            why = failure => Err(RunError::Failed(format!(
                "the process that replaced this one has failed ({why}), and this one has closed its listeners"
            ))),
        }
    }

    fn begin_end(&self) -> Duration {
        tell_systemd(&[NotifyState::Stopping]);
        if let Some(readiness) = &self.readiness {
            readiness.stop();
        }
        self.settings.delay
    }

    async fn upgrade(&self) -> Result<Successor, String> {
        let mut successor = Successor::start(&self.sockets.lock())
            .map_err(|why| format!("the program can't be started: {why}"))?;
        successor.serves().await?;
        Ok(successor)
    }

    /// Returns when nothing is left, or the grace is over.
    async fn drain(&self, delay: Duration) {
        let grace = self.settings.grace;
        tracing::info!(?delay, ?grace, "stopping");
        sleep(delay).await;
        self.sockets.lock().clear();
        self.stopping.send_replace(true);
        let ended = async { tokio::join!(self.stopping.closed(), self.handover.predecessor_ended()) };
        if timeout(grace, ended).await.is_err() {
            tracing::warn!("requests and streams are cut off: shutdown.grace is over");
        }
    }
}

/// Tells systemd, if the process runs under it.
fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
