//! The networks of clients share a worker in turns: deficit round robin (Shreedhar and Varghese, 1995) over the time that
//! their tasks run, with queues by hash (stochastic fairness queueing; McKenney, 1990).
//!
//! A runtime runs whatever is ready, in the order in which it became so. Behind a client with thousands of connections or
//! streams everybody would wait for all of them. Here each network runs for so long in a round. Its further tasks wait, in
//! their order, for a later round, which begins when everything else that was ready has run.
//!
//! `scripts/measure-pressure`, medians of four interleaved rounds on a busy machine: beside a stranger's 6,000 hanging streams
//! the others' p99 is 1.9 times what it is alone, without the scheduler 23 times; beside an agent's 2.6 and 16; beside large
//! answers that nobody reads 1.7 and 13.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::{collections::VecDeque, future::poll_fn, pin::pin, sync::Arc};

use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::domain::ClientNet;
use crate::serve::timer::Timer;

/// How much time beyond its own a queue makes up for at most: a pause of the machine is no fault of the network that it hits.
const DEBT_NANOS_MAX: u64 = 5_000_000;

/// How many queues there are. Networks whose hashes agree share one.
const QUEUES: usize = 1024;

/// How long the tasks of a queue run in a round: one request, or a piece of a body. Time beyond it is taken from later
/// rounds.
const QUANTUM_NANOS: u64 = 20_000;

/// After so many polls in a row a queue counts as alone.
const POLLS_TO_BE_ALONE: u32 = 4_096;

/// How often a queue that is alone runs in a round. Its time is not measured: clocks and rounds cost time too.
const POLLS_ALONE: u32 = 256;

/// A network that has less than this part of the worker's time never waits for a round.
const PART_UNCOUNTED: u64 = 4;

/// Shares one worker among the networks of clients.
pub(crate) struct FairScheduler {
    queues: Vec<Queue>,
    next: Mutex<NextRound>,
    /// The queue that ran last, and how often it has in a row.
    current: AtomicUsize,
    row: AtomicU32,
    /// Times are nanoseconds since then.
    begun: Instant,
    /// Seeded at random: nobody can choose whose queue they share.
    hasher: RandomState,
}

/// The share of a network's tasks.
#[derive(Clone)]
pub(crate) struct FairShare {
    scheduler: Arc<FairScheduler>,
    queue: usize,
}

/// The tasks of the networks that share a queue. One thread runs them all: atomics stand in for cells.
#[derive(Default)]
struct Queue {
    /// How long they have run beyond the part that is not counted, less a quantum for each round.
    used: AtomicU64,
    /// When this was true.
    counted: AtomicU64,
    /// True if it waits for the next round.
    is_spent: AtomicBool,
    waiters: Mutex<Waiters>,
}

/// Tasks that wait.
#[derive(Default)]
struct Waiters {
    waiting: VecDeque<Waker>,
    /// How many have ever waited.
    tickets: u64,
    /// How many of them were called.
    called: u64,
}

#[derive(Default)]
struct NextRound {
    /// The queues that wait for it.
    spent: Vec<usize>,
    begin: Option<Waker>,
}

impl FairScheduler {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            queues: std::iter::repeat_with(Queue::default).take(QUEUES).collect(),
            next: Mutex::default(),
            current: AtomicUsize::new(0),
            row: AtomicU32::new(0),
            begun: Timer::now(),
            hasher: RandomState::new(),
        })
    }

    /// The share of this network's tasks.
    pub(super) fn share(self: &Arc<Self>, network: ClientNet) -> FairShare {
        let hash = self.hasher.hash_one(network);
        let queue = usize::try_from(hash % QUEUES as u64).unwrap_or_default();
        FairShare { scheduler: Arc::clone(self), queue }
    }

    /// Begins each round. To be run by a task of its own, on the worker.
    pub(crate) async fn begin_rounds(&self) {
        loop {
            poll_fn(|context| self.is_awaited(context)).await;
            // Ready when nothing else is, and the runtime has looked for what has come meanwhile.
            yield_now().await;
            let now = self.now();
            self.next
                .lock()
                .spent
                .retain(|&at| self.queues.get(at).is_some_and(|queue| queue.begin_round(now)));
        }
    }

    /// Ready when a queue waits for the next round.
    fn is_awaited(&self, context: &Context<'_>) -> Poll<()> {
        let mut next = self.next.lock();
        if !next.spent.is_empty() {
            return Poll::Ready(());
        }
        next.begin = Some(context.waker().clone());
        Poll::Pending
    }

    fn now(&self) -> u64 {
        let nanos = Timer::now().duration_since(self.begun).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Counts a poll, and says how many came from this queue in a row, if it is alone.
    fn count(&self, queue: usize) -> Option<u32> {
        let row = if self.current.swap(queue, Relaxed) == queue { self.row.load(Relaxed) } else { 0 };
        self.row.store(row.wrapping_add(1), Relaxed);
        (row >= POLLS_TO_BE_ALONE).then_some(row)
    }
}

impl FairShare {
    /// Runs a task so that each of its polls takes the turn of its network.
    pub(crate) async fn run<T>(&self, task: impl Future<Output = T>) -> T {
        let Some(queue) = self.scheduler.queues.get(self.queue) else { return task.await };
        let (mut task, mut ticket) = (pin!(task), None);
        poll_fn(|context| {
            if !queue.has_turn(&mut ticket, context) {
                return Poll::Pending;
            }
            let Some(row) = self.scheduler.count(self.queue) else {
                let begun = self.scheduler.now();
                let output = task.as_mut().poll(context);
                self.go_on(queue, queue.charge(begun, self.scheduler.now()));
                return output;
            };
            let output = task.as_mut().poll(context);
            self.go_on(queue, !row.is_multiple_of(POLLS_ALONE));
            output
        })
        .await
    }

    /// Lets the next task run that waits, or has the queue wait for the next round.
    fn go_on(&self, queue: &Queue, has_time: bool) {
        if has_time {
            queue.call();
        } else if !queue.is_spent.load(Relaxed) {
            queue.is_spent.store(true, Relaxed);
            let mut next = self.scheduler.next.lock();
            next.spent.push(self.queue);
            if let Some(begin) = next.begin.take() {
                begin.wake();
            }
        }
    }
}

impl Queue {
    /// Counts the time of a poll. True if there is some left in this round.
    fn charge(&self, begun: u64, now: u64) -> bool {
        self.count(now, |used| used.saturating_add(now.saturating_sub(begun)).min(DEBT_NANOS_MAX))
            < QUANTUM_NANOS
    }

    /// Changes the time that was used until now.
    fn count(&self, now: u64, change: impl Fn(u64) -> u64) -> u64 {
        let uncounted = now.saturating_sub(self.counted.swap(now, Relaxed)) / PART_UNCOUNTED;
        let used = change(self.used.load(Relaxed)).saturating_sub(uncounted);
        self.used.store(used, Relaxed);
        used
    }

    /// True if a task may run now. Else it is called when it may.
    fn has_turn(&self, ticket: &mut Option<u64>, context: &Context<'_>) -> bool {
        let is_spent = self.is_spent.load(Relaxed);
        match *ticket {
            None if !is_spent => true,
            None => {
                *ticket = Some(self.waiters.lock().join(context));
                false
            }
            Some(number) => {
                let is_called = number < self.waiters.lock().called;
                if is_called {
                    *ticket = None;
                }
                is_called
            }
        }
    }

    /// Begins a round. True if another is needed.
    fn begin_round(&self, now: u64) -> bool {
        let used = self.count(now, |used| used.saturating_sub(QUANTUM_NANOS));
        if used < QUANTUM_NANOS {
            self.call();
        }
        let is_spent = used >= QUANTUM_NANOS || !self.waiters.lock().waiting.is_empty();
        self.is_spent.store(is_spent, Relaxed);
        is_spent
    }

    /// Lets the task run that has waited longest.
    fn call(&self) {
        // Tasks wait only where the queue waits.
        if self.is_spent.load(Relaxed) {
            self.waiters.lock().call();
        }
    }
}

impl Waiters {
    /// The number of a task that joins.
    fn join(&mut self, context: &Context<'_>) -> u64 {
        self.waiting.push_back(context.waker().clone());
        self.tickets += 1;
        self.tickets - 1
    }

    fn call(&mut self) {
        if let Some(task) = self.waiting.pop_front() {
            self.called += 1;
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests;
