//! Simulated time for tests whose nodes answer over loopback: it stands still while a node works on a request, and passes
//! when all that is left is to wait. No machine is too slow for an answer, and no test waits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::{cell::RefCell, future::pending, time::Duration};

use tokio::time::{Instant, timeout};

use crate::ports::Clock;

/// So many turns of the runtime without a connection at a node, and time passes: far more than a connection, or what is made of an
/// answer, needs to get there.
const QUIET_TURNS: u32 = 24;

/// How much passes then.
const STEP: Duration = Duration::from_millis(10);

/// So many turns in one test, and all its time has passed. It fails then, and does not hang.
const TURNS_MAX: u32 = 20_000_000;

/// The runtime's time, which is simulated.
pub(in crate::chain) fn now() -> Instant {
    Instant::now()
}

/// Lets so much of it pass.
pub(in crate::chain) async fn pass(time: Duration) {
    let _ = timeout(time, pending::<()>()).await;
}

/// Connections whose requests nodes work on. Those that they never answer are none.
#[derive(Default)]
pub(in crate::chain) struct Work(AtomicUsize);

thread_local! {
    /// That of the test that runs on this thread.
    static WORK: RefCell<Weak<Work>> = const { RefCell::new(Weak::new()) };
}

/// A request that a node works on, until this is dropped.
pub(in crate::chain) struct Working(Arc<Work>);

impl Work {
    /// That of this test. Time is simulated from the first call on.
    pub(in crate::chain) fn of_this_test() -> Arc<Self> {
        if let Some(work) = WORK.with_borrow(Weak::upgrade) {
            return work;
        }
        let work = Arc::new(Self::default());
        WORK.set(Arc::downgrade(&work));
        tokio::time::pause();
        tokio::spawn(Arc::clone(&work).pass_time());
        work
    }

    pub(in crate::chain) fn begin(self: &Arc<Self>) -> Working {
        self.0.fetch_add(1, Ordering::SeqCst);
        Working(Arc::clone(self))
    }

    /// Never lets the runtime be idle: idle, it would let all time pass until the next timer.
    async fn pass_time(self: Arc<Self>) {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            tokio::task::yield_now().await;
            quiet_turns = if self.0.load(Ordering::SeqCst) == 0 { quiet_turns + 1 } else { 0 };
            if quiet_turns >= QUIET_TURNS {
                quiet_turns = 0;
                tokio::time::advance(STEP).await;
            }
        }
        tokio::time::resume();
        panic!("the test takes too many turns");
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Simulated time, and faster when a test says so.
pub(in crate::chain) struct TestClock {
    began: Instant,
    ahead_micros: AtomicU64,
}

impl TestClock {
    pub(in crate::chain) fn new() -> Self {
        Work::of_this_test();
        Self { began: Instant::now(), ahead_micros: AtomicU64::new(0) }
    }

    pub(in crate::chain) fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.ahead_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn unix_millis(&self) -> u64 {
        1_700_000_000_000 + self.monotonic_micros() / 1_000
    }

    fn monotonic_micros(&self) -> u64 {
        let passed = u64::try_from(self.began.elapsed().as_micros()).unwrap();
        1 + passed + self.ahead_micros.load(Ordering::SeqCst)
    }
}

/// Waits until it is so, for a bounded number of turns.
pub(in crate::chain) async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if is_so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it does not happen");
}
