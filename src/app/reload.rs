//! Live configuration: tenants and certificates are read again when a file changes or SIGHUP comes, and replaced in one
//! step. A file that can't be used is refused by itself: its former version stays in force.
//!
//! Changes are found by looking at the files every second: that works on every kind of volume, also where one file is
//! exchanged for another behind a link.

use std::{collections::HashSet, sync::Arc, sync::atomic::Ordering, time::Duration};

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::app::{lifecycle::EarlySignals, overview::Overview, tenants::Tenants};
use crate::config::{RefusedFile, problem::LINES_MAX};
use crate::telemetry::{Audit, log};

/// How often the files are looked at.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// After how long it is said that files can't be read in time.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The reason of a reload after a change.
const CHANGED: &str = "a file has changed";

/// The reason of a reload that nobody asked for: an error of reading may have passed without a trace at the file.
const RETRY: &str = "a refused file is tried again";

/// The fingerprint of the files that were read, and if one of them could not be used.
type Read = (Option<u64>, bool);

/// Applies changes of the configuration while the service runs.
pub(super) struct Reloader {
    tenants: Arc<Tenants>,
    overview: Arc<Overview>,
    early: EarlySignals,
    audit: Option<Arc<Audit>>,
    /// Files that are refused now, which the log has told.
    refused: Mutex<Vec<RefusedFile>>,
}

impl Reloader {
    /// The settings of the start count as applied, but for `refused` files.
    pub(super) fn new(
        tenants: Arc<Tenants>,
        overview: Arc<Overview>,
        early: EarlySignals,
        audit: Option<Arc<Audit>>,
        refused: &[RefusedFile],
    ) -> Self {
        let refusals = Mutex::default();
        let reloader = Self { tenants, overview, early, audit, refused: refusals };
        reloader.tenants.metrics.config_last_time.set(reloader.tenants.now().0.cast_signed());
        reloader.note("start", refused, &[]);
        reloader
    }

    /// Notes the outcome, and tells what is wrong and was not before.
    fn note(&self, why: &str, refused: &[RefusedFile], sections_that_wait: &[&str]) {
        self.tenants.metrics.config_last_successful.set(refused.is_empty().into());
        self.tenants.metrics.config_refused_files.set(i64::try_from(refused.len()).unwrap_or(i64::MAX));
        self.tenants.metrics.config_restart_required.set((!sections_that_wait.is_empty()).into());
        if refused.is_empty() {
            self.tenants.metrics.config_last_time.set(self.tenants.now().0.cast_signed());
        }
        if !sections_that_wait.is_empty() {
            let sections = sections_that_wait.join(" ");
            tracing::warn!(sections, "a restart is needed: these sections have changed since the start");
        }
        let told = std::mem::replace(&mut *self.refused.lock(), refused.to_vec());
        let told: HashSet<RefusedFile> = told.into_iter().collect();
        let new = refused.iter().filter(|refused| !told.contains(*refused));
        let lines = new.flat_map(|refused| refused.problems.iter().map(move |problem| (refused, problem)));
        for (RefusedFile { place: file, is_kept, .. }, problem) in lines.clone().take(LINES_MAX) {
            if *is_kept {
                tracing::error!(why, file, "the configuration is not applied: {problem}");
            } else {
                tracing::error!(why, file, "left out, its tenant is not served: {problem}");
            }
        }
        let rest = lines.count().saturating_sub(LINES_MAX);
        if rest > 0 {
            tracing::error!(why, rest, "more problems of the configuration: `tiergate check` lists all");
        }
    }

    /// Reads everything again; the former version of a file stays in force where the new one can't be used.
    async fn reload(&self, why: &str) -> Read {
        let tenants = Arc::clone(&self.tenants);
        let task = tokio::task::spawn_blocking(move || tenants.load_and_replace());
        let reloaded = self.in_time(task).await;
        let (outcome, read) = match reloaded {
            Ok((outcome, read)) => (outcome, Some(read)),
            Err(_) => (Err("reading the configuration failed unexpectedly".to_owned()), None),
        };
        match outcome {
            Ok(applied) => {
                let refused = applied.loaded.refused.clone();
                let is_as_before =
                    why == RETRY && applied.tenants.is_empty() && refused == *self.refused.lock();
                if !is_as_before {
                    log::change(applied.loaded.settings.live.log.clone());
                    let tenants = applied.loaded.settings.live.tenants.len();
                    let count = refused.len();
                    tracing::info!(
                        why,
                        tenants,
                        refused = count,
                        "the tenants were read again and are in force"
                    );
                    self.note(why, &refused, &applied.sections_that_wait);
                    self.overview.applied(why, applied);
                    let result = if refused.is_empty() { "applied" } else { "refused" };
                    self.tenants.metrics.config_reloads.with_label_values(&[result]).inc();
                }
                (read, !refused.is_empty())
            }
            Err(problem) => {
                self.tenants.metrics.config_last_successful.set(0);
                self.tenants.metrics.config_reloads.with_label_values(&["refused"]).inc();
                tracing::error!(why, "the configuration is not applied: {problem}");
                self.overview.refused(why, &[problem]);
                (read, true)
            }
        }
    }

    /// Waits for files to be read, and says so if a disk hangs.
    async fn in_time<T>(&self, mut task: JoinHandle<T>) -> Result<T, JoinError> {
        if let Ok(done) = timeout(READ_TIME_MAX, &mut task).await {
            return done;
        }
        let before = self.tenants.metrics.config_last_successful.get();
        self.tenants.metrics.config_last_successful.set(0);
        tracing::error!(
            "the files can't be read within {READ_TIME_MAX:?}: a disk hangs, and nothing is applied"
        );
        let done = task.await;
        // The files may be as they were: then nothing is read again.
        self.tenants.metrics.config_last_successful.set(before);
        done
    }

    /// SIGHUP came: files that are written are opened again, and those that are read are read again.
    async fn hang_up(&self) -> Read {
        if let Some(audit) = self.audit.clone() {
            // A disk that hangs holds up neither this nor the end of the process.
            let opened = std::thread::Builder::new().name("audit".to_owned()).spawn(move || audit.reopen());
            if let Err(why) = opened {
                tracing::error!("the audit log goes on in its old file: {why}");
            }
        }
        self.reload("SIGHUP").await
    }

    /// Applies changes for as long as it is polled.
    pub(super) async fn run(self: Arc<Self>) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            tracing::error!("SIGHUP can't be listened to");
            return;
        };
        let mut timer = RereadTimer::after_read(Some(self.tenants.first_fingerprint), false);
        let is_refused = !self.refused.lock().is_empty();
        let mut read = if self.early.hangup.swap(false, Ordering::Relaxed) {
            Some(self.hang_up().await)
        } else if is_refused {
            // The files of tenants that the start left out are watched once they have been read here.
            Some(self.reload(RETRY).await)
        } else {
            None
        };
        let mut polls = interval(POLL_EVERY);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some((loaded, is_refused)) = read {
                timer = RereadTimer::after_read(loaded, is_refused);
            }
            tokio::select! {
                _ = hangup.recv() => read = Some(self.hang_up().await),
                _ = polls.tick() => {
                    let tenants = Arc::clone(&self.tenants);
                    let fingerprint = tokio::task::spawn_blocking(move || tenants.fingerprint());
                    read = match timer.poll(self.in_time(fingerprint).await.ok()) {
                        Some(why) => Some(self.reload(why).await),
                        None => None,
                    };
                }
            }
        }
    }
}

/// For how many polls in a row files that keep changing are waited for.
const UNSETTLED_POLLS_MAX: u32 = 5;

/// After how many polls a refused file is tried again: a minute.
const RETRY_POLLS: u32 = 60;

/// The memory of earlier polls.
#[derive(Debug)]
pub(super) struct RereadTimer<T> {
    /// How the files were before they were last read.
    loaded: T,
    /// How they were at the last poll.
    last: T,
    /// At how many polls they have differed from those that were read.
    unsettled: u32,
    /// After how many polls a refused file is tried again; 0: none is refused.
    retry_in: u32,
}

impl<T: Copy + PartialEq> RereadTimer<T> {
    /// The files were read when they looked like this; `is_refused`: one of them could not be used.
    pub(super) fn after_read(loaded: T, is_refused: bool) -> Self {
        Self { loaded, last: loaded, unsettled: 0, retry_in: if is_refused { RETRY_POLLS } else { 0 } }
    }

    /// A poll, and why the files are to be read again. Whoever writes several files is given the time to finish, but not for ever.
    pub(super) fn poll(&mut self, now: T) -> Option<&'static str> {
        let is_still = std::mem::replace(&mut self.last, now) == now;
        if now != self.loaded {
            self.unsettled += 1;
            return (is_still || self.unsettled >= UNSETTLED_POLLS_MAX).then_some(CHANGED);
        }
        self.unsettled = 0;
        let is_refused = self.retry_in > 0;
        self.retry_in = self.retry_in.saturating_sub(1);
        (is_refused && self.retry_in == 0).then_some(RETRY)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGED, RETRY, RETRY_POLLS, RereadTimer, UNSETTLED_POLLS_MAX};

    #[test]
    fn files_that_are_still_for_a_look_are_read_and_those_that_are_as_they_were_are_not() {
        let mut timer = RereadTimer::after_read(0, false);
        assert_eq!([0, 1, 1].map(|now| timer.poll(now)), [None, None, Some(CHANGED)]);
        timer = RereadTimer::after_read(1, false);
        assert_eq!([1, 2, 1, 1].map(|now| timer.poll(now)), [None; 4], "they are as they were read");
    }

    #[test]
    fn files_that_never_stand_still_are_read_after_a_few_looks_again_and_again() {
        let mut timer = RereadTimer::after_read(0, false);
        let mut now = 0;
        for _ in 0..10 {
            for poll in 1..=UNSETTLED_POLLS_MAX {
                now += 1;
                let due = timer.poll(now);
                assert_eq!(due, (poll == UNSETTLED_POLLS_MAX).then_some(CHANGED), "{poll}");
            }
            timer = RereadTimer::after_read(now, false);
        }
    }

    #[test]
    fn a_refused_file_is_tried_again_every_minute_until_it_is_applied() {
        for _ in 0..3 {
            let mut timer = RereadTimer::after_read(0, true);
            for poll in 1..=RETRY_POLLS {
                assert_eq!(timer.poll(0), (poll == RETRY_POLLS).then_some(RETRY), "{poll}");
            }
        }
        let mut timer = RereadTimer::after_read(0, true);
        assert_eq!([1, 1].map(|now| timer.poll(now)), [None, Some(CHANGED)], "a change is not waited for");
        let mut timer = RereadTimer::after_read(1, false);
        assert!((0..=RETRY_POLLS).all(|_| timer.poll(1).is_none()));
    }
}
