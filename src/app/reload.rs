//! Live configuration: tenants and certificates are read again when a file changes or SIGHUP comes, and replaced as a
//! whole or not at all.
//!
//! Changes are found by looking at the files every second: that works on every kind of volume, also where one file is
//! exchanged for another behind a link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::app::log::rules;
use crate::app::overview::Overview;
use crate::app::source::Fingerprint;
use crate::app::tenants::Tenants;
use crate::telemetry::audit::Audit;
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Applies changes of the configuration while the service runs.
pub(super) struct Reloader {
    tenants: Arc<Tenants>,
    overview: Arc<Overview>,
    early_hangup: EarlyHangup,
    metrics: Metrics,
    audit: Option<Arc<Audit>>,
}

/// Remembers a SIGHUP that comes before anybody listens, and keeps it from ending the process.
#[derive(Clone)]
pub(crate) struct EarlyHangup(Arc<AtomicBool>);

impl EarlyHangup {
    /// To be made before anything else.
    ///
    /// # Errors
    ///
    /// When the operating system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&came))?;
        Ok(Self(came))
    }
}

impl Reloader {
    /// The settings of the start count as applied.
    pub(super) fn new(
        tenants: Arc<Tenants>,
        overview: Arc<Overview>,
        early_hangup: EarlyHangup,
        metrics: Metrics,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        let reloader = Self { tenants, overview, early_hangup, metrics, audit };
        reloader.note_applied(&[]);
        reloader
    }

    fn note_applied(&self, sections_that_wait: &[&str]) {
        self.metrics.config_last_successful.set(1);
        self.metrics.config_last_time.set(self.tenants.now().0.cast_signed());
        self.metrics.config_restart_required.set((!sections_that_wait.is_empty()).into());
        if !sections_that_wait.is_empty() {
            let sections = sections_that_wait.join(" ");
            tracing::warn!(sections, "a restart is needed: these sections have changed since the start");
        }
    }

    /// Reads everything again; what is in force stays so when anything is wrong. Says how the files were before.
    async fn reload(&self, why: &str) -> Option<[Fingerprint; 2]> {
        let tenants = Arc::clone(&self.tenants);
        let reloaded = tokio::task::spawn_blocking(move || tenants.load_and_replace()).await;
        let (outcome, read) = match reloaded {
            Ok((outcome, read)) => (outcome, Some(read)),
            Err(_) => (Err(vec!["reading the configuration failed unexpectedly".to_owned()]), None),
        };
        match outcome {
            Ok(applied) => {
                log::change(rules(&applied.loaded.settings.log));
                let tenants = applied.loaded.settings.tenants.len();
                tracing::info!(why, tenants, "the tenants were read again and are in force");
                self.note_applied(&applied.sections_that_wait);
                self.overview.applied(why, applied);
                self.metrics.config_reloads.with_label_values(&["applied"]).inc();
            }
            Err(problems) => {
                self.metrics.config_last_successful.set(0);
                self.metrics.config_reloads.with_label_values(&["refused"]).inc();
                for problem in &problems {
                    tracing::error!(why, "the configuration is not applied: {problem}");
                }
                self.overview.refused(why, &problems);
            }
        }
        read
    }

    /// SIGHUP came: files that are written are opened again, and those that are read are read again.
    async fn hang_up(&self) -> Option<[Fingerprint; 2]> {
        if let Some(audit) = self.audit.clone() {
            // A disk that hangs holds up neither this nor the end of the process.
            let opened = std::thread::Builder::new().name("audit".to_owned()).spawn(move || audit.reopen());
            if let Err(why) = opened {
                tracing::error!("the audit log goes on in its old file: {why}");
            }
        }
        self.reload("SIGHUP").await
    }

    async fn look(&self) -> Option<[Fingerprint; 2]> {
        let tenants = Arc::clone(&self.tenants);
        tokio::task::spawn_blocking(move || tenants.fingerprint()).await.ok()
    }

    /// Applies changes for as long as it is polled.
    pub(super) async fn run(self: Arc<Self>) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            tracing::error!("SIGHUP can't be listened to");
            return;
        };
        let mut loaded = Some(self.tenants.first_fingerprint());
        if self.early_hangup.0.swap(false, Ordering::Relaxed) {
            loaded = self.hang_up().await;
        }
        let mut last = loaded;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = hangup.recv() => {
                    loaded = self.hang_up().await;
                    last = loaded;
                }
                _ = looks.tick() => {
                    let now = self.look().await;
                    // Whoever writes several files is given the time to finish.
                    if now != loaded && now == last {
                        loaded = self.reload("a file has changed").await;
                        last = loaded;
                    } else {
                        last = now;
                    }
                }
            }
        }
    }
}
