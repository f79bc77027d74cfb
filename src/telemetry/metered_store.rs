//! A store that counts what is asked of it and times what has to wait, whichever store it is.

use std::future::{poll_fn, ready};
use std::{pin::pin, sync::Arc, task::Poll};

use async_trait::async_trait;
use futures_util::future::Either;
use prometheus::{Histogram, IntCounter};

use crate::domain::{AgentId, ClientNet, HeldKey, KeyDigest, NonceClaim, Quota, UnixSeconds, Verdict};
use crate::ports::{
    Admission, Budget, Clock, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, Proof, Reply,
    Scope, Store, StoreFault,
};
use crate::telemetry::metrics::Metrics;

/// A store with metrics around it.
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    verbs: Verbs,
}

/// The series of one verb, looked up once.
struct Meter {
    ok: IntCounter,
    fault: IntCounter,
    abandoned: IntCounter,
    duration: Histogram,
}

/// The verbs that are counted: a field, and a value of the label `verb`.
macro_rules! verbs {
    ($($verb:ident),+) => {
        struct Verbs { $($verb: Meter),+ }

        impl Verbs {
            fn new(metrics: &Metrics) -> Self {
                Self { $($verb: Meter::new(metrics, stringify!($verb))),+ }
            }
        }
    };
}

verbs!(find, admit, pass, change_key, charge, status, probe);

/// Counts an operation whose caller gave up before it was answered: a hung disk shows nowhere else.
struct Unanswered<'a>(Option<&'a IntCounter>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.0 {
            abandoned.inc();
        }
    }
}

impl MeteredStore {
    /// Puts metrics around a store.
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        Self { verbs: Verbs::new(metrics), inner, clock }
    }

    /// Counts an operation, and times it if it has to wait: what is answered out of memory takes less than looking at
    /// the clock twice.
    async fn timed<T>(
        &self,
        meter: &Meter,
        operation: impl Future<Output = Result<T, StoreFault>>,
    ) -> Result<T, StoreFault> {
        let mut unanswered = Unanswered(Some(&meter.abandoned));
        let mut operation = pin!(operation);
        let at_once = poll_fn(|context| match operation.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => Poll::Ready(None),
        });
        let outcome = match at_once.await {
            Some(outcome) => outcome,
            None => {
                let begun = self.clock.monotonic_micros();
                let outcome = operation.await;
                let micros = self.clock.monotonic_micros().saturating_sub(begun);
                meter.duration.observe(micros as f64 / 1e6);
                outcome
            }
        };
        unanswered.0 = None;
        meter.count(&outcome);
        outcome
    }

    /// The same for a reply, which may be there already.
    fn replied<'a, T: Send + 'a>(&'a self, meter: &'a Meter, reply: Reply<'a, T>) -> Reply<'a, T> {
        match reply {
            Either::Left(outcome) => {
                let outcome = outcome.into_inner();
                meter.count(&outcome);
                Either::Left(ready(outcome))
            }
            Either::Right(later) => Either::Right(Box::pin(self.timed(meter, later))),
        }
    }
}

impl Meter {
    fn new(metrics: &Metrics, verb: &str) -> Self {
        let count = |outcome| metrics.store_operations.with_label_values(&[verb, outcome]);
        Self {
            ok: count("ok"),
            fault: count("fault"),
            abandoned: count("abandoned"),
            duration: metrics.store_duration.with_label_values(&[verb]),
        }
    }

    fn count<T>(&self, outcome: &Result<T, StoreFault>) {
        if outcome.is_ok() {
            self.ok.inc();
        } else {
            self.fault.inc();
        }
    }
}

#[async_trait]
impl Store for MeteredStore {
    fn find<'a>(&'a self, digest: &'a KeyDigest) -> Reply<'a, Option<KeyOwner>> {
        self.replied(&self.verbs.find, self.inner.find(digest))
    }

    async fn is_current(&self, agent: AgentId, digest: &KeyDigest) -> Result<bool, StoreFault> {
        self.timed(&self.verbs.find, self.inner.is_current(agent, digest)).await
    }

    fn admit<'a>(
        &'a self,
        agent: AgentId,
        scope: &'a Scope,
        quota: Quota,
        proof: &'a Proof,
    ) -> Reply<'a, Admission> {
        self.replied(&self.verbs.admit, self.inner.admit(agent, scope, quota, proof))
    }

    fn count<'a>(&'a self, budget: &'a Budget, quota: Quota) -> Reply<'a, Verdict> {
        let meter = match budget {
            Budget::Route(..) => &self.verbs.pass,
            Budget::Key(..) => &self.verbs.charge,
        };
        self.replied(meter, self.inner.count(budget, quota))
    }

    async fn give_back(&self, client: ClientNet, agent: AgentId, of: KeyBudget) {
        self.inner.give_back(client, agent, of).await;
    }

    fn fits(&self, agent: AgentId, digest: &KeyDigest) -> bool {
        self.inner.fits(agent, digest)
    }

    async fn change_key(
        &self,
        agent: AgentId,
        claim: NonceClaim,
        change: KeyChange,
    ) -> Result<(KeyChanged, Option<MadeKey>), StoreFault> {
        self.timed(&self.verbs.change_key, self.inner.change_key(agent, claim, change)).await
    }

    async fn status(&self, client: ClientNet, agent: AgentId, quota: Quota) -> Result<KeySeen, StoreFault> {
        self.timed(&self.verbs.status, self.inner.status(client, agent, quota)).await
    }

    async fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, StoreFault> {
        self.timed(&self.verbs.status, self.inner.keys(agent)).await
    }

    fn signatures_accepted_from(&self) -> Option<UnixSeconds> {
        self.inner.signatures_accepted_from()
    }

    fn replicas_missing(&self) -> Option<u32> {
        self.inner.replicas_missing()
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.timed(&self.verbs.probe, self.inner.probe()).await
    }
}
