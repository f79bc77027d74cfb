//! Begin and end of the process: when its listeners open, and how it drains.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use sd_notify::{NotifyState, notify};
use socket2::Socket;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::app::handover::Handover;
use crate::app::successor::{Failed, Successor};
use crate::config::shutdown::ShutdownSettings;
use crate::pipeline::readiness::Readiness;
use crate::serve::worker::BACKLOG;

/// How long a process with handed-over sockets waits for store and chain.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked meanwhile whether they are ready.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The life of a process. The server framework would sleep for the whole grace, whatever is left.
pub(super) struct Lifecycle {
    pub(super) settings: ShutdownSettings,
    pub(super) readiness: Option<Arc<Readiness>>,
    pub(super) handover: Handover,
    /// True once workers are to take connections.
    pub(super) serving: watch::Sender<bool>,
    /// True once listeners are to close. Listeners and connections hold its receivers for as long as they live.
    pub(super) stopping: watch::Sender<bool>,
    /// All listening sockets, until they are to close.
    pub(super) sockets: Mutex<Vec<Socket>>,
}

/// The meaning of a signal.
enum Order {
    EndAtOnce,
    End,
    Upgrade,
}

struct Signals {
    interrupted: Signal,
    terminated: Signal,
    quit: Signal,
    upgrade: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.interrupted.recv() => Order::EndAtOnce,
            _ = self.terminated.recv() => Order::End,
            _ = self.quit.recv() => Order::End,
            _ = self.upgrade.recv() => Order::Upgrade,
        }
    }

    async fn end(&mut self) -> Order {
        loop {
            match self.next().await {
                Order::Upgrade => {}
                order @ (Order::End | Order::EndAtOnce) => return order,
            }
        }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Lifecycle {
    async fn recv(&self) -> ShutdownSignal {
        let outcome = match Signals::listen() {
            Ok(mut signals) => tokio::select! {
                () = self.open() => Ok(()),
                () = self.end(&mut signals) => Ok(()),
            },
            Err(why) => Err(why),
        };
        if let Err(why) = outcome {
            tracing::error!("cannot wait for signals: {why}");
        }
        // Everything that may end in order has.
        ShutdownSignal::FastShutdown
    }
}

impl Lifecycle {
    /// Opens the listeners. Returns only if this process is a successor that is not ready in time.
    async fn open(&self) {
        let is_late = self.handover.had_sockets() && timeout(READY_WITHIN, self.ready()).await.is_err();
        if is_late && self.handover.replaces() {
            tracing::error!(
                "store or chain was not ready within {READY_WITHIN:?}: this process does not take over"
            );
            return;
        }
        for socket in &*self.sockets.lock() {
            if let Err(error) = socket.listen(BACKLOG) {
                tracing::error!("cannot listen: {error}");
            }
        }
        self.serving.send_replace(true);
        if self.handover.replaces() {
            self.handover.confirm();
        } else {
            tell_systemd(&[NotifyState::Ready]);
        }
        std::future::pending().await
    }

    /// Returns when store and chain answer.
    async fn ready(&self) {
        let Some(readiness) = &self.readiness else { return };
        while !readiness.report().is_ready() {
            sleep(TRY_EVERY).await;
        }
    }

    /// Returns when the process is to end: at once after SIGINT and after a second signal.
    async fn end(&self, signals: &mut Signals) {
        let delay = loop {
            match signals.next().await {
                Order::EndAtOnce => return,
                Order::End => break self.begin_end(),
                Order::Upgrade => {}
            }
            tokio::select! {
                upgraded = self.upgrade() => match upgraded {
                    Ok(process) => {
                        tracing::info!(process, "the new process serves");
                        tell_systemd(&[NotifyState::MainPid(process)]);
                        // The listeners stay open: no balancer has to notice anything.
                        break Duration::ZERO;
                    }
                    Err(why) => tracing::error!("the upgrade failed, and this process goes on: {why}"),
                },
                order = signals.end() => match order {
                    Order::End => break self.begin_end(),
                    Order::EndAtOnce | Order::Upgrade => return,
                },
            }
        };
        tokio::select! {
            _ = signals.end() => {}
            () = self.drain(delay) => {}
        }
    }

    fn begin_end(&self) -> Duration {
        tell_systemd(&[NotifyState::Stopping]);
        if let Some(readiness) = &self.readiness {
            readiness.stop();
        }
        self.settings.delay
    }

    async fn upgrade(&self) -> Result<u32, Failed> {
        let successor = Successor::start(&self.sockets.lock())?;
        successor.serves().await
    }

    /// Returns when nothing is left, or the grace is over.
    async fn drain(&self, delay: Duration) {
        let grace = self.settings.grace;
        tracing::info!(?delay, ?grace, "stopping");
        sleep(delay).await;
        self.sockets.lock().clear();
        self.stopping.send_replace(true);
        if timeout(grace, self.stopping.closed()).await.is_err() {
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
