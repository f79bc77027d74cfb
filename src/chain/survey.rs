//! Whether the configured contracts are where they should be. An address without code answers every call with success and
//! nothing, so that is found out before anybody asks, and a contract that was found is not looked for again.
//!
//! Looks and remembers; knows no agent and nothing of what contracts say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, Bytes};
use parking_lot::Mutex;
use tokio::join;

use crate::chain::fault::ReadError;
use crate::chain::rpc::{At, Deadline, Lane, Pool, Terms};
use crate::chain::snapshot::Registries;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// The configuration's name of Multicall3's address.
const MULTICALL: &str = "chain.multicall";

/// How long one look may take.
const LOOK_TIME_MAX: Duration = Duration::from_secs(6);

/// How long after a look that left something open comes the next.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How often Multicall3 is looked for where it was not.
const MULTICALL_PAUSE: Duration = Duration::from_secs(60);

/// How long the word of a look serves whoever asks, in microseconds.
const WORD_SERVES_MICROS: u64 = 3_000_000;

/// What was found of the contracts.
pub(super) struct Survey {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    sites: [Option<Site>; 5],
    multicall: Site,
    /// There is no Multicall3 where it was configured. Before that is known, it is taken to be there.
    no_multicall: AtomicBool,
    /// What the last look found wrong, and when it ended.
    last: Mutex<Option<(u64, ChainFault)>>,
}

/// Where a contract should be.
struct Site {
    /// Its key in the configuration.
    name: &'static str,
    address: Address,
    is_found: AtomicBool,
    /// The log has said that there is none.
    is_missed: AtomicBool,
}

impl Survey {
    pub(super) fn new(pool: Arc<Pool>, clock: Arc<dyn Clock>, registries: &Registries) -> Self {
        let mut sites = [const { None }; 5];
        for (site, (name, address)) in sites.iter_mut().zip(registries.contracts()) {
            *site = Some(Site::new(name, address));
        }
        Self {
            pool,
            clock,
            sites,
            multicall: Site::new(MULTICALL, registries.multicall),
            no_multicall: AtomicBool::new(false),
            last: Mutex::new(None),
        }
    }

    /// True when profiles have to be read without Multicall3.
    pub(super) fn lacks_multicall(&self) -> bool {
        self.no_multicall.load(Ordering::Relaxed)
    }

    /// What is known of the contracts; nobody is asked while a look is not long ago.
    pub(super) async fn word(&self) -> Result<(), ChainFault> {
        if self.are_all_found() {
            return Ok(());
        }
        let now = self.clock.monotonic_micros();
        let last = self.last.lock().clone();
        match last {
            Some((at, fault)) if now.saturating_sub(at) < WORD_SERVES_MICROS => Err(fault),
            Some(_) | None => self.look().await,
        }
    }

    /// Looks until there is nothing left to find; each minute for as long as there is no Multicall3.
    pub(super) async fn watch(&self) {
        while let Some(pause) = self.tick().await {
            tokio::time::sleep(pause).await;
        }
    }

    /// One look of the watch, and how long after it the next is due.
    pub(super) async fn tick(&self) -> Option<Duration> {
        // A fault is remembered, and in the log where it is one of the configuration.
        let open = self.look().await.is_err() || !self.are_all_found();
        match (open, self.lacks_multicall()) {
            (true, _) => Some(LOOK_PAUSE),
            (false, true) => Some(MULTICALL_PAUSE),
            (false, false) => None,
        }
    }

    /// Finds out whether Multicall3 is there. It is not needed: without it the same calls are made in another way. That it
    /// is absent is believed only of a node that has a registry: one that is still catching up has neither.
    pub(super) async fn look_for_multicall(&self) -> Result<(), ChainFault> {
        let Some(Some(registry)) = self.sites.first() else { return Ok(()) };
        let (multicall, registry) = join!(self.code(&self.multicall), self.code(registry));
        match multicall {
            Ok(()) => {
                self.multicall.is_found.store(true, Ordering::Relaxed);
                if self.no_multicall.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        "there is a contract at chain.multicall now: profiles are read through it"
                    );
                }
                Ok(())
            }
            Err(fault) if says_no_multicall(&fault) => {
                registry?;
                if !self.no_multicall.swap(true, Ordering::Relaxed) {
                    tracing::info!("there is no contract at chain.multicall: profiles are read without it");
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// How many registries were found.
    #[cfg(test)]
    pub(super) fn found(&self) -> usize {
        self.sites.iter().flatten().filter(|site| site.is_found.load(Ordering::Relaxed)).count()
    }

    fn are_all_found(&self) -> bool {
        let is_known = self.multicall.is_found.load(Ordering::Relaxed) || self.lacks_multicall();
        is_known && self.sites.iter().flatten().all(|site| site.is_found.load(Ordering::Relaxed))
    }

    /// Asks for all that was not found yet at once. What is found is remembered even if nobody waits for the rest.
    async fn look(&self) -> Result<(), ChainFault> {
        let [first, second, third, fourth, fifth] = &self.sites;
        let found = join!(
            self.find(first.as_ref()),
            self.find(second.as_ref()),
            self.find(third.as_ref()),
            self.find(fourth.as_ref()),
            self.find(fifth.as_ref()),
            self.find_multicall(),
        );
        let faults = [found.0, found.1, found.2, found.3, found.4, found.5];
        let mut faults: Vec<ChainFault> = faults.into_iter().filter_map(Result::err).collect();
        // What the operator can mend says more than a node that fails.
        faults.sort_by_key(|fault| !says_no_code(fault));
        let fault = faults.into_iter().next();
        *self.last.lock() = fault.clone().map(|fault| (self.clock.monotonic_micros(), fault));
        fault.map_or(Ok(()), Err)
    }

    async fn find(&self, site: Option<&Site>) -> Result<(), ChainFault> {
        let Some(site) = site.filter(|site| !site.is_found.load(Ordering::Relaxed)) else { return Ok(()) };
        let found = self.code(site).await;
        match &found {
            Ok(()) => {
                site.is_found.store(true, Ordering::Relaxed);
                if site.is_missed.load(Ordering::Relaxed) {
                    tracing::info!("there is a contract at the address configured as {} now", site.name);
                }
            }
            Err(fault) if says_no_code(fault) && !site.is_missed.swap(true, Ordering::Relaxed) => {
                tracing::warn!("{fault}");
            }
            Err(_) => {}
        }
        found
    }

    async fn find_multicall(&self) -> Result<(), ChainFault> {
        if self.multicall.is_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.look_for_multicall().await
    }

    async fn code(&self, site: &Site) -> Result<(), ChainFault> {
        let deadline = Deadline::after(self.clock.monotonic_micros(), LOOK_TIME_MAX);
        let terms = Terms { at: At::Latest, lane: Lane::Known, deadline };
        let has_code = |code: Bytes| if code.is_empty() { Err(ReadError::NoCode(site.name)) } else { Ok(()) };
        self.pool.code(&terms, site.address, has_code).await
    }
}

impl Site {
    const fn new(name: &'static str, address: Address) -> Self {
        Self { name, address, is_found: AtomicBool::new(false), is_missed: AtomicBool::new(false) }
    }
}

/// True when a contract call found that there is no Multicall3.
pub(super) fn says_no_multicall(fault: &ChainFault) -> bool {
    fault.cause.downcast_ref() == Some(&ReadError::NoCode(MULTICALL))
}

fn says_no_code(fault: &ChainFault) -> bool {
    matches!(fault.cause.downcast_ref(), Some(ReadError::NoCode(_)))
}
