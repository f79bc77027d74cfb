//! The networks of clients take turns on a worker: deficit round robin (Shreedhar and Varghese, 1995) over the time that
//! their tasks run, with queues by hash (stochastic fairness queueing; McKenney, 1990).
//!
//! A runtime runs whatever is ready, in the order in which it became so. Behind a client with thousands of connections or
//! streams everybody would wait for all of them. Here each network runs for so long in a round. Its further tasks wait, in
//! their order, for a later round, which begins when everything else that was ready has run.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use crate::domain::client::ClientNet;
use crate::serve::timer::Timer;

/// How many queues there are. Networks whose hashes agree share one.
const QUEUES: usize = 1024;

/// How long the tasks of a queue run in a round: a few requests, or a piece of a body. Time beyond it is taken from later
/// rounds.
const QUANTUM: Duration = Duration::from_micros(50);

/// How long they run while no other network has asked for a second: rounds cost time too.
const QUANTUM_ALONE: Duration = Duration::from_micros(400);

/// A network that has less than this part of the worker's time never waits for a round.
const SHARE_UNCOUNTED: u32 = 8;

/// The turns on one worker.
pub(crate) struct Turns {
    state: Mutex<State>,
    /// Seeded at random: nobody can choose whose queue they share.
    hasher: RandomState,
}

/// The turn of a network's tasks.
#[derive(Clone)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    queue: usize,
}

struct State {
    queues: Vec<Queue>,
    /// The queues that wait for another round.
    spent: Vec<usize>,
    /// Begins that round.
    round: Option<Waker>,
    /// The queue that ran last, and when it was another one for the last time.
    current: usize,
    changed: Instant,
}

/// The tasks of the networks that share a queue.
struct Queue {
    /// How long they have run beyond the part that is not counted, less a quantum for each round.
    used: Duration,
    /// The moment that this was true at.
    counted: Instant,
    /// True if it is among those that wait for another round.
    is_spent: bool,
    /// Tasks that wait.
    waiting: VecDeque<Waker>,
    /// How many tasks have ever waited.
    tickets: u64,
    /// How many of them were called.
    called: u64,
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        let now = Timer::now();
        let queues = std::iter::repeat_with(|| Queue::new(now)).take(QUEUES).collect();
        let state = State { queues, spent: Vec::new(), round: None, current: 0, changed: now };
        Arc::new(Self { state: Mutex::new(state), hasher: RandomState::new() })
    }

    /// The turn of this network's tasks.
    pub(super) fn of(self: &Arc<Self>, network: ClientNet) -> Turn {
        let hash = self.hasher.hash_one(network);
        let queue = usize::try_from(hash % QUEUES as u64).unwrap_or_default();
        Turn { turns: Arc::clone(self), queue }
    }

    /// Begins each round. To be run by a task of its own, on the worker.
    pub(super) async fn begin_rounds(&self) {
        loop {
            poll_fn(|context| self.is_awaited(context)).await;
            // Ready when nothing else is, and the runtime has looked for what has come meanwhile.
            yield_now().await;
            let mut state = self.lock();
            let quantum = state.quantum(Timer::now());
            let State { queues, spent, .. } = &mut *state;
            spent.retain(|&at| queues.get_mut(at).is_some_and(|queue| queue.begin_round(quantum)));
        }
    }

    /// Ready when a queue waits for another round.
    fn is_awaited(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.spent.is_empty() {
            return Poll::Ready(());
        }
        state.round = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Runs a task so that each of its polls takes the turn of its network.
    pub(crate) async fn keep<T>(&self, task: impl Future<Output = T>) -> T {
        let (mut task, mut ticket) = (pin!(task), None);
        poll_fn(|context| {
            if !self.has_come(&mut ticket, context) {
                return Poll::Pending;
            }
            let begun = Timer::now();
            let output = task.as_mut().poll(context);
            self.charge(begun);
            output
        })
        .await
    }

    /// True if a task may run now. Else it is called when it may.
    fn has_come(&self, ticket: &mut Option<u64>, context: &Context<'_>) -> bool {
        let State { queues, .. } = &mut *self.turns.lock();
        let Some(queue) = queues.get_mut(self.queue) else { return true };
        if let Some(number) = *ticket {
            let is_called = number < queue.called;
            if is_called {
                *ticket = None;
            }
            return is_called;
        }
        if !queue.is_spent {
            return true;
        }
        *ticket = Some(queue.tickets);
        queue.tickets += 1;
        queue.waiting.push_back(context.waker().clone());
        false
    }

    /// Counts the time since a poll began as the network's.
    fn charge(&self, begun: Instant) {
        let (now, mut state) = (Timer::now(), self.turns.lock());
        if state.current != self.queue {
            (state.current, state.changed) = (self.queue, now);
        }
        let quantum = state.quantum(now);
        let State { queues, spent, round, .. } = &mut *state;
        let Some(queue) = queues.get_mut(self.queue) else { return };
        let uncounted = now.duration_since(std::mem::replace(&mut queue.counted, now)) / SHARE_UNCOUNTED;
        queue.used = (queue.used + now.duration_since(begun)).saturating_sub(uncounted);
        if queue.used < quantum {
            queue.call();
        } else if !std::mem::replace(&mut queue.is_spent, true) {
            spent.push(self.queue);
            if let Some(round) = round.take() {
                round.wake();
            }
        }
    }
}

impl State {
    /// How long a queue may run in a round.
    fn quantum(&self, now: Instant) -> Duration {
        let is_alone = now.duration_since(self.changed) > Duration::from_secs(1);
        if is_alone { QUANTUM_ALONE } else { QUANTUM }
    }
}

impl Queue {
    const fn new(now: Instant) -> Self {
        let waiting = VecDeque::new();
        Self { used: Duration::ZERO, counted: now, is_spent: false, waiting, tickets: 0, called: 0 }
    }

    /// Begins a round. True if another is needed.
    fn begin_round(&mut self, quantum: Duration) -> bool {
        self.used = self.used.saturating_sub(quantum);
        if self.used < quantum {
            self.call();
        }
        self.is_spent = self.used >= quantum || !self.waiting.is_empty();
        self.is_spent
    }

    /// Lets the task run that has waited longest.
    fn call(&mut self) {
        if let Some(task) = self.waiting.pop_front() {
            self.called += 1;
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::sync::oneshot;
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::advance;

    use super::{ClientNet, QUANTUM, Turn, Turns};

    /// The letters of the tasks, in the order in which they ran.
    type Seen = Arc<Mutex<String>>;

    fn turns() -> (Arc<Turns>, Seen) {
        let turns = Turns::new();
        let rounds = Arc::clone(&turns);
        tokio::spawn(async move { rounds.begin_rounds().await });
        (turns, Seen::default())
    }

    fn net(turns: &Arc<Turns>, last: u8) -> Turn {
        turns.of(ClientNet::of([192, 0, 2, last].into()))
    }

    /// Tasks of a network that are ready at once, each of which runs so often, and for so long each time.
    fn crowd(
        turn: &Turn,
        seen: &Seen,
        letter: char,
        tasks: usize,
        (polls, time): (usize, Duration),
    ) -> Vec<JoinHandle<()>> {
        let task = |_| {
            let (turn, seen) = (turn.clone(), Arc::clone(seen));
            let run = async move {
                for _ in 0..polls {
                    seen.lock().unwrap().push(letter);
                    advance(time).await;
                }
            };
            tokio::spawn(async move { turn.keep(run).await })
        };
        (0..tasks).map(task).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_with_a_thousand_tasks_runs_no_longer_than_one_with_a_single_task() {
        let (turns, seen) = turns();
        let many = crowd(&net(&turns, 1), &seen, 'm', 1_000, (3, QUANTUM));
        let one = crowd(&net(&turns, 2), &seen, 'o', 1, (100, QUANTUM));
        let _ = (join_all(one).await, join_all(many).await);
        let seen = seen.lock().unwrap();
        assert_eq!((seen.matches('m').count(), seen.matches('o').count()), (3_000, 100));
        let until_the_one_is_done = &seen[..seen.rfind('o').unwrap()];
        assert!(until_the_one_is_done.matches('m').count() <= 130, "{until_the_one_is_done}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_runs_too_long_is_made_up_for() {
        let (turns, seen) = turns();
        let heavy = crowd(&net(&turns, 1), &seen, 'h', 2, (1, 20 * QUANTUM));
        let light = crowd(&net(&turns, 2), &seen, 'l', 1, (40, QUANTUM / 2));
        let _ = (join_all(heavy).await, join_all(light).await);
        let seen = seen.lock().unwrap();
        let between: Vec<_> = seen.split('h').map(str::len).collect();
        assert!(between[1] >= 15, "{seen}");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_network_run_in_their_order_and_every_one_of_them_runs() {
        let (turns, seen) = turns();
        let turn = net(&turns, 1);
        let tasks: Vec<_> =
            ('a'..='z').flat_map(|letter| crowd(&turn, &seen, letter, 1, (1, QUANTUM / 3))).collect();
        join_all(tasks).await;
        let alphabet: String = ('a'..='z').collect();
        assert_eq!(*seen.lock().unwrap(), alphabet);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_dropped_while_it_waits_keeps_nobody_waiting() {
        let (turns, seen) = turns();
        let turn = net(&turns, 1);
        let first = crowd(&turn, &seen, 'f', 1, (1, 3 * QUANTUM));
        let dropped = crowd(&turn, &seen, 'd', 5, (1, QUANTUM));
        let last = crowd(&turn, &seen, 'l', 5, (1, QUANTUM));
        yield_now().await;
        dropped.iter().for_each(JoinHandle::abort);
        let _ = (join_all(first).await, join_all(last).await);
        assert_eq!(*seen.lock().unwrap(), "flllll");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_wait_for_few_rounds_while_their_network_is_alone_and_for_none_while_it_runs_little() {
        let (turns, seen) = turns();
        let turn = net(&turns, 1);
        let busy = QUANTUM / 2;
        let rounds_of = async |pause: Duration| {
            seen.lock().unwrap().clear();
            let (turn, seen) = (turn.clone(), Arc::clone(&seen));
            for _ in 0..64 {
                let crowd = crowd(&turn, &seen, 't', 4, (1, busy));
                join_all(crowd).await;
                advance(pause).await;
            }
            // A task that had to wait has its ticket.
            turns.lock().queues[turn.queue].tickets
        };
        let beside_others = {
            let _ = join_all(crowd(&net(&turns, 2), &seen, 'o', 1, (1, busy))).await;
            rounds_of(Duration::ZERO).await
        };
        advance(Duration::from_secs(2)).await;
        let alone = rounds_of(Duration::ZERO).await - beside_others;
        assert!(alone * 4 < beside_others, "{alone} {beside_others}");
        let _ = join_all(crowd(&net(&turns, 2), &seen, 'o', 1, (1, busy))).await;
        let while_it_runs_little = rounds_of(4 * 8 * busy).await - beside_others - alone;
        assert!(while_it_runs_little * 8 < beside_others, "{while_it_runs_little} {beside_others}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_for_something_else_is_woken_by_it() {
        let (turns, _) = turns();
        let (sender, receiver) = oneshot::channel();
        let turn = net(&turns, 1);
        let waits = tokio::spawn(async move { turn.keep(receiver).await });
        yield_now().await;
        sender.send(7).unwrap();
        assert_eq!(waits.await.unwrap(), Ok(7));
    }
}
