//! Whether verifications can be answered now (contract, "GET /readyz").
//!
//! Store and chain are asked in the background, each on its own, so that one that hangs hides nothing of the other. Whoever
//! wants to know reads what was last found, and waits for nobody. An answer that is too old counts as a no.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::domain::UnixSeconds;
use crate::ports::{Chain, Clock, Store};

/// How often each is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The first pause. Each is twice the one before, up to [`ASK_EVERY`]: a start is not held up by the first refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How long a dependency may take to answer; silence is a no.
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);

/// How old an answer may be, in microseconds: longer than a probe and a pause take.
const AGE_MICROS_MAX: u64 = 5_000_000;

/// The health of a dependency.
pub(crate) type Health = Result<(), Unhealthy>;

/// Why a dependency is unhealthy.
#[derive(Debug, Clone)]
pub(crate) struct Unhealthy {
    /// The reason as a sentence, for the log.
    pub(crate) reason: Arc<str>,
    /// True if the chain's nodes are behind.
    pub(crate) is_behind: bool,
}

/// The last answers of the dependencies.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// True once the process is to end: requests should go elsewhere.
    pub(crate) is_stopping: bool,
    /// True once both were healthy at a time.
    pub(crate) has_been_ready: bool,
    pub(crate) store: Health,
    pub(crate) chain: Health,
    /// How old the older of the two answers is, in microseconds.
    pub(crate) age_micros: u64,
    /// True when no node gives logs, so that profiles are read again and again. Verifications are right all the same.
    pub(crate) lacks_logs: bool,
    /// True when details can't be read, or not all. Verifications are right all the same.
    pub(crate) lacks_details: bool,
    /// How many replicas the store lacks without which it changes no key. Verifications are right all the same.
    pub(crate) replicas_missing: u32,
    /// Set while signatures are refused because nonces may have been lost. Key checks go on.
    pub(crate) signatures_accepted_from: Option<UnixSeconds>,
}

impl Report {
    /// True when verifications can be answered, and will be.
    pub(crate) const fn is_ready(&self) -> bool {
        !self.is_stopping && self.store.is_ok() && self.chain.is_ok()
    }
}

/// A dependency's health, and when it answered, in monotonic microseconds.
#[derive(Debug, Clone)]
struct Found {
    health: Health,
    at_micros: u64,
}

/// The last answers; `None` before the first.
#[derive(Debug, Default)]
struct LastProbes {
    store: Option<Found>,
    chain: Option<Found>,
}

/// Asks the dependencies again and again, and knows what was last found.
pub(crate) struct Readiness {
    chain: Arc<dyn Chain>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    is_stopping: AtomicBool,
    has_been_ready: AtomicBool,
    probes: watch::Sender<LastProbes>,
}

impl Readiness {
    /// Over these dependencies; nothing has been asked yet.
    pub(crate) fn new(chain: Arc<dyn Chain>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let (is_stopping, has_been_ready, probes) = Default::default();
        Self { chain, store, clock, is_stopping, has_been_ready, probes }
    }

    /// Says from now on that the process is to end.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Asks both for as long as it is polled.
    pub(crate) async fn refresh(&self) {
        let store = async || self.store.probe().await.map_err(|fault| unhealthy(fault.to_string()));
        let chain = async || {
            let probed = self.chain.probe().await;
            probed.map_err(|fault| Unhealthy { is_behind: fault.is_behind, ..unhealthy(fault.to_string()) })
        };
        let store = self.ask_again("store", |probes| &mut probes.store, store);
        let chain = self.ask_again("chain", |probes| &mut probes.chain, chain);
        tokio::join!(store, chain);
    }

    /// The last answers, and how old they are.
    pub(crate) fn report(&self) -> Report {
        let probes = self.probes.borrow();
        let now = self.clock.monotonic_micros();
        let age =
            |found: &Option<Found>| found.as_ref().map_or(0, |found| now.saturating_sub(found.at_micros));
        let health = |name, found: &Option<Found>| -> Health {
            let age_micros = age(found);
            match found {
                None => Err(unhealthy(format!("the {name} has not been asked yet"))),
                Some(_) if age_micros > AGE_MICROS_MAX => {
                    let secs = age_micros / 1_000_000;
                    Err(unhealthy(format!("the {name} was last asked {secs} s ago")))
                }
                Some(found) => found.health.clone(),
            }
        };
        let mut report = Report {
            is_stopping: self.is_stopping.load(Ordering::Relaxed),
            has_been_ready: false,
            store: health("store", &probes.store),
            chain: health("chain", &probes.chain),
            age_micros: age(&probes.store).max(age(&probes.chain)),
            lacks_logs: self.chain.lacks_logs(),
            lacks_details: self.chain.lacks_details(),
            replicas_missing: self.store.replicas_missing().unwrap_or_default(),
            signatures_accepted_from: self.store.signatures_accepted_from(),
        };
        let is_ready = report.is_ready();
        report.has_been_ready = self.has_been_ready.fetch_or(is_ready, Ordering::Relaxed) || is_ready;
        report
    }

    /// The same. Just after the start it waits until both have been asked once, for no longer than that takes.
    pub(crate) async fn first_report(&self) -> Report {
        let mut probes = self.probes.subscribe();
        let asked = probes.wait_for(|probes| probes.store.is_some() && probes.chain.is_some());
        // Without answers it is not ready.
        let _ = timeout(PROBE_TIME_MAX, asked).await.is_ok();
        self.report()
    }

    async fn ask_again<P: Future<Output = Health>>(
        &self,
        name: &'static str,
        place: fn(&mut LastProbes) -> &mut Option<Found>,
        probe: impl Fn() -> P,
    ) {
        let mut pause = FIRST_PAUSE;
        loop {
            let health = timeout(PROBE_TIME_MAX, probe()).await.unwrap_or_else(|_| {
                let secs = PROBE_TIME_MAX.as_secs();
                Err(unhealthy(format!("the {name} did not answer a probe within {secs} s")))
            });
            let found = Found { health, at_micros: self.clock.monotonic_micros() };
            self.probes.send_modify(|probes| {
                let place = place(probes);
                note_change(name, place.as_ref(), &found.health);
                *place = Some(found);
            });
            sleep(pause).await;
            pause = (pause * 2).min(ASK_EVERY);
        }
    }
}

fn unhealthy(reason: String) -> Unhealthy {
    Unhealthy { reason: reason.into(), is_behind: false }
}

/// Logs a fault when it begins, changes or ends, and not at each look.
fn note_change(kind: &str, last: Option<&Found>, health: &Health) {
    let text = |health: &Health| health.as_ref().err().map(|unhealthy| Arc::clone(&unhealthy.reason));
    let (last, now) = (last.and_then(|found| text(&found.health)), text(health));
    if now == last {
        return;
    }
    match now {
        Some(fault) => tracing::error!(kind, "not ready: {fault}"),
        None => tracing::info!(kind, "is well again"),
    }
}
