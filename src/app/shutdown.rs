//! The end of the process: readiness says no, listeners close after a delay, and what is under way has a grace.

use std::io;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::shutdown::ShutdownSettings;

/// Waits for the signals that end the process. The server framework would sleep for the whole grace, whatever is left.
pub(super) struct Shutdown<B> {
    pub(super) settings: ShutdownSettings,
    /// Called when the end begins.
    pub(super) begin: B,
    /// True once listeners are to close. Listeners and connections hold its receivers for as long as they live.
    pub(super) stopping: watch::Sender<bool>,
}

#[async_trait]
impl<B: Fn() + Send + Sync> ShutdownSignalWatch for Shutdown<B> {
    async fn recv(&self) -> ShutdownSignal {
        if let Err(why) = self.end().await {
            tracing::error!("cannot wait for signals: {why}");
        }
        // Everything that may end in order has.
        ShutdownSignal::FastShutdown
    }
}

impl<B: Fn()> Shutdown<B> {
    /// Returns when the process is to end: at once after SIGINT and after a second signal.
    async fn end(&self) -> io::Result<()> {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut quit = signal(SignalKind::quit())?;
        tokio::select! {
            _ = interrupted.recv() => return Ok(()),
            _ = terminated.recv() => {}
            _ = quit.recv() => {}
        }
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            _ = quit.recv() => {}
            () = self.drain() => {}
        }
        Ok(())
    }

    /// Returns when nothing is left, or the grace is over.
    async fn drain(&self) {
        let ShutdownSettings { delay, grace } = self.settings;
        (self.begin)();
        tracing::info!(?delay, ?grace, "stopping");
        sleep(delay).await;
        self.stopping.send_replace(true);
        if timeout(grace, self.stopping.closed()).await.is_err() {
            tracing::warn!("requests and streams are cut off: shutdown.grace is over");
        }
    }
}
