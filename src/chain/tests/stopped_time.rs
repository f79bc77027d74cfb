//! Time limits without time: a call that hangs is held until it is known to hang, and its limit passes then.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::Collector;

use crate::os::Os;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How long a test waits for anything, on the machine's own clock.
const TEST_MICROS_MAX: u64 = 60_000_000;

/// The time of a test. It stands still, so that no machine is too slow for an answer. When every call under way hangs,
/// the time limit of one call passes at once.
#[derive(Default)]
pub(in crate::chain) struct StoppedTime {
    benches: Mutex<Vec<(Metrics, Duration)>>,
    hung: AtomicU64,
    limits_passed: AtomicU64,
}

thread_local! {
    /// That of the test that runs on this thread.
    static TIME: RefCell<Weak<StoppedTime>> = const { RefCell::new(Weak::new()) };
}

impl StoppedTime {
    pub(in crate::chain) fn of_this_test() -> Arc<Self> {
        if let Some(time) = TIME.with_borrow(Weak::upgrade) {
            return time;
        }
        let time = Arc::new(Self::default());
        TIME.set(Arc::downgrade(&time));
        tokio::time::pause();
        tokio::spawn(Arc::clone(&time).keep());
        time
    }

    /// Lets time pass for calls that hang and are counted here, when they have such a limit.
    pub(in crate::chain) fn watch(&self, metrics: &Metrics, limit: Duration) {
        self.benches.lock().push((metrics.clone(), limit));
    }

    /// A node was asked and will not answer.
    pub(in crate::chain) fn hangs(&self) {
        self.hung.fetch_add(1, Ordering::SeqCst);
    }

    /// How often a time limit has passed.
    pub(in crate::chain) fn limits_passed(&self) -> u64 {
        self.limits_passed.load(Ordering::SeqCst)
    }

    /// Never lets the runtime be idle: idle, it would let time pass by itself. A test that has waited for too long gets
    /// all the time there is, and fails.
    async fn keep(self: Arc<Self>) {
        let (os, mut seen) = (Os::new(), 0);
        loop {
            tokio::task::yield_now().await;
            let hung = self.hung.load(Ordering::SeqCst);
            let is_over = os.monotonic_micros() > TEST_MICROS_MAX;
            if is_over || hung > seen && self.unanswered() == hung {
                seen = hung;
                self.limits_passed.fetch_add(1, Ordering::SeqCst);
                let limit =
                    self.benches.lock().last().map_or(Duration::from_secs(3_600), |(_, limit)| *limit);
                // Timers count whole milliseconds, and begin with the next one.
                tokio::time::advance(limit + Duration::from_millis(1)).await;
            }
        }
    }

    /// How many calls were never answered, those that were given up among them.
    fn unanswered(&self) -> u64 {
        let counted = |metrics: &Metrics| {
            let calls = metrics.rpc_calls.collect();
            let answers = metrics.rpc_duration.collect();
            let calls = calls.iter().flat_map(|family| family.get_metric());
            let answers = answers.iter().flat_map(|family| family.get_metric());
            calls.map(|call| call.get_counter().get_value() as u64).sum::<u64>()
                - answers.map(|answer| answer.get_histogram().get_sample_count()).sum::<u64>()
        };
        self.benches.lock().iter().map(|(metrics, _)| counted(metrics)).sum()
    }
}

/// Waits until it is so.
pub(in crate::chain) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let os = Os::new();
    while !is_so() {
        assert!(os.monotonic_micros() < TEST_MICROS_MAX, "waited for too long until {what}");
        tokio::task::yield_now().await;
    }
}
