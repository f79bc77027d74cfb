//! Which read answers which asker, in simulated time.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout};

use super::{Bounds, Key, SingleFlight, Value, Wanted};
use crate::chain::reader::PROFILES;
use crate::chain::tests::clock::{now, pass, until};

impl<K: Key, V: Value> SingleFlight<K, V> {
    /// How many keys are waited for or read.
    fn len(&self) -> usize {
        self.state.lock().keys.len()
    }

    /// How many wait for the read of this key that has not begun.
    fn waiting(&self, key: K) -> usize {
        let state = self.state.lock();
        let pending = state.keys.get(&key).and_then(|of_key| of_key.pending.as_ref());
        pending.map_or(0, |result| result.receiver_count())
    }

    /// Reads of one key each, at most so many at once.
    fn unbatched<F: Future<Output = V> + Send + 'static>(
        runtime: &Handle,
        calls: usize,
        read: impl Fn(K) -> F + Send + Sync + 'static,
    ) -> Arc<Self> {
        let bounds = Bounds { calls, calls_unfilled: calls, keys: 1 };
        Self::new(runtime.clone(), bounds, move |wanted| {
            let reads: Vec<_> = wanted.into_iter().map(|one| (read(one.key.clone()), one)).collect();
            Box::pin(async move {
                for (read, one) in reads {
                    one.answer(read.await);
                }
            })
        })
    }
}

const TIME: Duration = Duration::from_secs(6);

const MANY: usize = 1_000;

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Reads that give their number, each once there is a permit for it.
fn gated(calls: usize) -> (Arc<SingleFlight<u32, usize>>, Arc<AtomicUsize>, Arc<Semaphore>) {
    let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, held) = (Arc::clone(&count), Arc::clone(&gate));
    let read = move |_| {
        let (number, gate) = (counted.fetch_add(1, Ordering::SeqCst), Arc::clone(&held));
        async move {
            gate.acquire().await.unwrap().forget();
            number
        }
    };
    (SingleFlight::unbatched(&Handle::current(), calls, read), count, gate)
}

// threat: Bad signatures cause work
#[tokio::test]
async fn a_crowd_is_served_by_two_reads_and_nobody_by_one_that_began_before_it_asked() {
    let (reads, count, gate) = gated(MANY);
    let ask = || {
        let reads = Arc::clone(&reads);
        tokio::spawn(async move { reads.get(1).await.unwrap() })
    };
    let first = ask();
    until(|| count.load(Ordering::SeqCst) == 1).await;
    let crowd: Vec<_> = (0..1_000).map(|_| ask()).collect();
    until(|| reads.waiting(1) == 1_000).await;
    gate.add_permits(10);

    assert_eq!(first.await.unwrap(), 0);
    for member in crowd {
        assert_eq!(member.await.unwrap(), 1, "served by the second read, which began after it asked");
    }
    until(|| reads.len() == 0).await;
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

// threat: Bad signatures cause work
#[tokio::test]
async fn a_read_that_has_begun_goes_on_without_who_asked_and_one_that_has_not_does_not_begin() {
    let (reads, count, gate) = gated(1);
    let ask = |key| {
        let reads = Arc::clone(&reads);
        tokio::spawn(async move { reads.get(key).await })
    };
    let begun = ask(1);
    until(|| count.load(Ordering::SeqCst) == 1).await;
    let waiting = [ask(1), ask(2), ask(3)];
    until(|| reads.len() == 3 && reads.waiting(1) == 1).await;
    begun.abort();
    waiting[0].abort();
    waiting[1].abort();
    until(|| reads.waiting(1) + reads.waiting(2) == 0).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    gate.add_permits(10);
    let [_, _, third] = waiting;
    assert_eq!(third.await.unwrap(), Some(1), "the next one, as nobody waits for the others");
    until(|| reads.len() == 0).await;
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// A worker is a thread with a runtime of its own, and may stand still while others wait.
// threat: A busy agent stays refused after an outage
#[test]
fn a_worker_that_stands_still_stops_no_read_and_nobody_else_who_waits() {
    let worker = || Builder::new_current_thread().enable_time().build().unwrap();
    let mut threads = Builder::new_multi_thread();
    let threads = threads.worker_threads(1).thread_name("reads").enable_time().build().unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let read = move |_| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.unwrap().forget();
            std::thread::current().name().map(str::to_owned)
        }
    };
    let reads = SingleFlight::<u32, Option<String>>::unbatched(threads.handle(), 1, read);
    let (still, busy) = (worker(), worker());
    // Asks, and is never polled again.
    let mut asked = Box::pin(reads.get(1));
    assert!(still.block_on(poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_pending()))));
    gate.add_permits(10);
    for _ in 0..3 {
        assert_eq!(busy.block_on(reads.get(1)).unwrap().as_deref(), Some("reads"));
    }
    drop(asked);
}

// threat: Bad signatures cause work
#[tokio::test]
async fn those_who_leave_at_once_leave_next_to_nothing_behind() {
    let reads = SingleFlight::<u32, ()>::unbatched(&Handle::current(), 0, |_| pending::<()>());
    for key in 0..10_000 {
        let mut asked = Box::pin(reads.get(key));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let state = reads.state.lock();
    assert!(state.keys.len() <= 16 && state.keys.len() == state.ready.len(), "{}", state.keys.len());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_panics_or_has_no_end_is_over_and_the_next_one_begins() {
    let count = AtomicUsize::new(0);
    let read = move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        assert_ne!(number, 0, "the first panics before it is a future");
        async move {
            assert_ne!(number, 1, "the second panics when it is polled");
            if number == 2 { pending().await } else { number }
        }
    };
    let reads = SingleFlight::<u32, usize>::unbatched(&Handle::current(), 1, read);
    for value in [None, None, None, Some(3)] {
        assert_eq!(reads.get(1).await, value);
    }
}

/// How many calls are under way, the most that were at once, and all.
type Counts = Arc<Mutex<[usize; 3]>>;

/// Reads of several keys in calls of this latency.
fn batches(bounds: Bounds, latency: Duration) -> (Arc<SingleFlight<u32, u32>>, Counts) {
    let counts = Arc::new(Mutex::new([0; 3]));
    let counted = Arc::clone(&counts);
    let read = move |wanted: Vec<Wanted<u32, u32>>| {
        let counts = Arc::clone(&counted);
        Box::pin(async move {
            let [under_way, most, all] = *counts.lock();
            *counts.lock() = [under_way + 1, most.max(under_way + 1), all + 1];
            pass(latency).await;
            counts.lock()[0] -= 1;
            wanted.into_iter().for_each(|one| {
                let key = one.key;
                one.answer(key);
            });
        }) as _
    };
    (SingleFlight::new(Handle::current(), bounds, read), counts)
}

/// After a reorganization: a node of 100 ms, and more agents that ask at once than it can be asked about one by one.
// threat: A busy agent stays refused after an outage
#[tokio::test(start_paused = true)]
async fn thousands_of_keys_are_read_in_time_in_few_calls_and_the_first_first() {
    let (reads, counts) = batches(PROFILES, millis(100));
    let begun = now();
    let ask = |key| {
        let reads = Arc::clone(&reads);
        tokio::spawn(async move {
            assert_eq!(timeout(TIME, reads.get(key)).await, Ok(Some(key)), "503");
            now()
        })
    };
    let asked: Vec<_> = (0..20_000).map(ask).collect();
    let answered: Vec<_> = join_all(asked).await.into_iter().map(Result::unwrap).collect();
    assert!(answered.is_sorted(), "what is asked for first is read first");
    assert!(begun.elapsed() < millis(2_500), "{:?}", begun.elapsed());
    let [_, most, all] = *counts.lock();
    assert_eq!((most, all), (PROFILES.calls, 20_000 / PROFILES.keys));
}

#[tokio::test(start_paused = true)]
async fn few_keys_are_read_at_once_and_more_calls_begin_only_when_they_are_full() {
    let bounds = Bounds { calls: 5, calls_unfilled: 2, keys: 10 };
    let (reads, counts) = batches(bounds, TIME / 2);
    for (askers, most) in [(1, 1), (2, 2), (11, 2), (12, 3), (21, 3), (22, 4), (1_000, 5)] {
        *counts.lock() = [0; 3];
        // One after the other: each finds what those before it have begun.
        let asked = (0..askers).map(|key| {
            let reads = Arc::clone(&reads);
            async move {
                pass(millis(u64::from(key))).await;
                reads.get(key).await
            }
        });
        join_all(asked).await;
        assert_eq!(counts.lock()[1], most, "{askers}");
    }
}

/// One who asks: when, for which key, and for how long it waits, in milliseconds.
type Asker = (u64, u32, u64);

/// The schedule of a node: its latency, and the spans in which calls get lost, in milliseconds.
#[derive(Debug, Clone)]
struct Node {
    latency: u64,
    hangs: Vec<(u64, u64)>,
}

impl Node {
    fn loses(&self, begun: u64) -> bool {
        self.hangs.iter().any(|(from, until)| begun < *until && begun + self.latency > *from)
    }
}

/// A read, when it began, and whether it got lost.
type Log = Vec<(u32, u64, bool)>;

/// The outcome: when each asker was answered, when the read that answered it began, and all reads.
async fn play(node: &Node, askers: &[Asker], bounds: Bounds) -> (Vec<Option<(u64, u64)>>, Log) {
    let (start, node, log) = (now(), node.clone(), Arc::new(Mutex::new(Log::new())));
    let now = move || u64::try_from(start.elapsed().as_millis()).unwrap();
    let (noted, under_way) = (Arc::clone(&log), Arc::new(Mutex::new(Vec::<u32>::new())));
    let read = move |wanted: Vec<Wanted<u32, u64>>| {
        let keys: Vec<u32> = wanted.iter().map(|one| one.key).collect();
        let (begun, latency, is_lost) = (now(), millis(node.latency), node.loses(now()));
        let under_way = Arc::clone(&under_way);
        let mut reads = under_way.lock();
        assert!(
            keys.len() <= bounds.keys && keys.iter().all(|key| !reads.contains(key)),
            "one of a key at a time"
        );
        reads.extend(&keys);
        noted.lock().extend(keys.iter().map(|key| (*key, begun, is_lost)));
        drop(reads);
        Box::pin(async move {
            let ended = Ended(keys, under_way);
            if is_lost {
                pending::<()>().await;
            }
            pass(latency).await;
            drop(ended);
            wanted.into_iter().for_each(|one| one.answer(begun));
        }) as _
    };
    let reads = SingleFlight::<u32, u64>::new(Handle::current(), bounds, read);
    let asked = askers.iter().map(async |(at, key, patience)| {
        sleep_until(start + millis(*at)).await;
        let begun = timeout(millis(*patience), reads.get(*key)).await.ok().flatten();
        begun.map(|begun| (now(), begun))
    });
    let answered = join_all(asked).await;
    pass(TIME * 2).await;
    assert_eq!((reads.len(), reads.state.lock().calls), (0, 0), "nothing is left");
    let log = log.lock().clone();
    (answered, log)
}

/// Keys whose call is over when this is dropped.
struct Ended(Vec<u32>, Arc<Mutex<Vec<u32>>>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.1.lock().retain(|key| !self.0.contains(key));
    }
}

fn schedule() -> impl Strategy<Value = (Node, Vec<Asker>)> {
    let asker = (0..20_000_u64, 0..3_u32, prop_oneof![3 => Just(6_000), 1 => 1..6_000_u64]);
    let askers = prop_oneof![
        prop::collection::vec(asker, 1..100),
        // One agent at a steady rate.
        (5..100_u64).prop_map(|pause| (0..20_000 / pause).map(|n| (n * pause, 0, 6_000)).collect()),
    ];
    let hangs = prop::collection::vec((0..12_000_u64, 1..9_000_u64), 0..3);
    let hangs = hangs.prop_map(|hangs| hangs.into_iter().map(|(from, time)| (from, from + time)).collect());
    let node = (1..500_u64, hangs).prop_map(|(latency, hangs)| Node { latency, hangs });
    (node, askers)
}

fn simulated<F: Future>(play: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(play)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// All who wait are answered within one read after the node is well, and no call is made that nobody waits for.
    // threat: A busy agent stays refused after an outage
    #[test]
    fn the_first_answer_comes_within_one_read_after_the_node_is_well((node, askers) in schedule()) {
        let bounds = Bounds { calls: MANY, calls_unfilled: MANY, keys: 1 };
        let (answered, log) = simulated(play(&node, &askers, bounds));
        let (limit, grain) = (u64::try_from(TIME.as_millis()).unwrap(), 3);
        for ((at, key, patience), answer) in askers.iter().zip(&answered) {
            if let Some((_, begun)) = answer {
                prop_assert!(begun >= at, "answered by a read that began before");
            }
            // It waits for the read that is under way when it asks, lost or not, and for the next one.
            let before = log.iter().filter(|(of, begun, _)| of == key && begun < at).max_by_key(|(_, begun, _)| *begun);
            let waits = before.map_or(0, |(_, begun, is_lost)| {
                let end = begun + if *is_lost { limit } else { node.latency };
                end.saturating_sub(*at)
            });
            let due = at + waits + node.latency + grain;
            if !node.loses(at + waits) && !node.loses(at + waits + grain) && due <= at + patience {
                prop_assert!(answer.is_some_and(|(when, _)| when <= due), "{at} {key}: {answer:?}, due at {due}");
            }
        }
        for key in 0..3 {
            let reads: Vec<_> = log.iter().filter(|(of, ..)| *of == key).collect();
            prop_assert!(reads.len() <= askers.iter().filter(|(_, of, _)| *of == key).count());
            let lost = reads.iter().filter(|(_, _, is_lost)| *is_lost).count() as u64;
            let hung: u64 = node.hangs.iter().map(|(from, until)| (until - from + node.latency) / limit + 1).sum();
            prop_assert!(lost <= hung, "{lost} calls lost, and {hung} fit one after the other");
        }
    }

    /// The same of calls that are few and hold several keys, but for the time.
    #[test]
    fn nothing_is_left_behind_and_nobody_is_forgotten_however_few_calls_there_are(
        (node, askers) in schedule(),
        (calls, calls_unfilled, keys) in (1..4_usize, 1..3_usize, 1..4_usize),
    ) {
        let bounds = Bounds { calls, calls_unfilled: calls_unfilled.min(calls), keys };
        let patient: Vec<_> = askers.iter().map(|(at, key, _)| (*at, *key, 100_000)).collect();
        for askers in [askers, patient] {
            let (answered, log) = simulated(play(&node, &askers, bounds));
            for ((at, key, patience), answer) in askers.iter().zip(&answered) {
                // A lost read is an answer too: nothing.
                let is_lost = log.iter().any(|(of, begun, is_lost)| of == key && begun >= at && *is_lost);
                prop_assert!(answer.is_some() || is_lost || *patience < 100_000, "{at} {key}");
                prop_assert!(answer.is_none_or(|(_, begun)| begun >= *at));
            }
        }
    }
}
