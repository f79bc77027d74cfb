//! The fair scheduler in simulated time: a task that runs for long has the clock moved.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::advance;

use super::{ClientNet, FairScheduler, FairShare, POLLS_TO_BE_ALONE, QUANTUM_NANOS};

const QUANTUM: Duration = Duration::from_nanos(QUANTUM_NANOS);

/// The letters of the tasks, in the order in which they ran.
type Order = Arc<Mutex<String>>;

fn scheduler() -> (Arc<FairScheduler>, Order) {
    let scheduler = FairScheduler::new();
    let rounds = Arc::clone(&scheduler);
    tokio::spawn(async move { rounds.begin_rounds().await });
    (scheduler, Order::default())
}

fn net(scheduler: &Arc<FairScheduler>, last: u8) -> FairShare {
    scheduler.share(ClientNet::of([192, 0, 2, last].into()))
}

/// Tasks of a network that are ready at once, each of which runs so often, and for so long each time.
fn crowd(
    share: &FairShare,
    seen: &Order,
    letter: char,
    tasks: usize,
    (polls, time): (usize, Duration),
) -> Vec<JoinHandle<()>> {
    let task = |_| {
        let (share, seen) = (share.clone(), Arc::clone(seen));
        let run = async move {
            for _ in 0..polls {
                seen.lock().unwrap().push(letter);
                advance(time).await;
            }
        };
        tokio::spawn(async move { share.run(run).await })
    };
    (0..tasks).map(task).collect()
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn a_network_with_a_thousand_tasks_runs_no_longer_than_one_with_a_single_task() {
    let (scheduler, seen) = scheduler();
    let many = crowd(&net(&scheduler, 1), &seen, 'm', 1_000, (3, QUANTUM));
    let one = crowd(&net(&scheduler, 2), &seen, 'o', 1, (100, QUANTUM));
    let _ = (join_all(one).await, join_all(many).await);
    let seen = seen.lock().unwrap();
    assert_eq!((seen.matches('m').count(), seen.matches('o').count()), (3_000, 100));
    let until_the_one_is_done = &seen[..seen.rfind('o').unwrap()];
    assert!(until_the_one_is_done.matches('m').count() <= 170, "{until_the_one_is_done}");
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn a_task_that_runs_too_long_is_made_up_for() {
    let (scheduler, seen) = scheduler();
    let heavy = crowd(&net(&scheduler, 1), &seen, 'h', 2, (1, 20 * QUANTUM));
    let light = crowd(&net(&scheduler, 2), &seen, 'l', 1, (40, QUANTUM / 2));
    let _ = (join_all(heavy).await, join_all(light).await);
    let seen = seen.lock().unwrap();
    let between: Vec<_> = seen.split('h').map(str::len).collect();
    assert!(between[1] >= 10, "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_network_that_a_pause_of_the_machine_has_hit_does_not_make_up_for_all_of_it() {
    let (scheduler, seen) = scheduler();
    let hit = net(&scheduler, 1);
    join_all(crowd(&hit, &seen, 'p', 1, (1, Duration::from_millis(500)))).await;
    let next = crowd(&hit, &seen, 'n', 1, (1, QUANTUM));
    let others = crowd(&net(&scheduler, 2), &seen, 'o', 1, (2_000, QUANTUM));
    let _ = (join_all(next).await, join_all(others).await);
    let before = seen.lock().unwrap().find('n').unwrap();
    assert!(before < 300, "{before}");
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn tasks_of_a_network_run_in_their_order_and_every_one_of_them_runs() {
    let (scheduler, seen) = scheduler();
    let share = net(&scheduler, 1);
    let tasks: Vec<_> =
        ('a'..='z').flat_map(|letter| crowd(&share, &seen, letter, 1, (1, QUANTUM / 3))).collect();
    join_all(tasks).await;
    let alphabet: String = ('a'..='z').collect();
    assert_eq!(*seen.lock().unwrap(), alphabet);
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn a_task_that_is_dropped_while_it_waits_keeps_nobody_waiting() {
    let (scheduler, seen) = scheduler();
    let share = net(&scheduler, 1);
    let first = crowd(&share, &seen, 'f', 1, (1, 3 * QUANTUM));
    let dropped = crowd(&share, &seen, 'd', 5, (1, QUANTUM));
    let last = crowd(&share, &seen, 'l', 5, (1, QUANTUM));
    yield_now().await;
    dropped.iter().for_each(JoinHandle::abort);
    let _ = (join_all(first).await, join_all(last).await);
    assert_eq!(*seen.lock().unwrap(), "flllll");
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn a_network_that_is_alone_runs_more_in_a_round_until_another_asks() {
    let (scheduler, seen) = scheduler();
    let (one, other) = (net(&scheduler, 1), net(&scheduler, 2));
    let rounds = async || {
        let rounds = seen.lock().unwrap().matches('r').count();
        join_all(crowd(&one, &seen, 't', 64, (1, QUANTUM / 2))).await;
        seen.lock().unwrap().matches('r').count() - rounds
    };
    let _watch = {
        let seen = Arc::clone(&seen);
        // Runs once in each round.
        tokio::spawn(async move {
            loop {
                seen.lock().unwrap().push('r');
                yield_now().await;
            }
        })
    };
    let beside_others = rounds().await;
    join_all(crowd(&one, &seen, 't', 1, (POLLS_TO_BE_ALONE as usize, Duration::ZERO))).await;
    let alone = rounds().await;
    assert!(alone * 2 < beside_others, "{alone} {beside_others}");
    join_all(crowd(&other, &seen, 'o', 1, (1, Duration::ZERO))).await;
    assert!(rounds().await * 2 > beside_others);
}

// threat: One client keeps the processor
#[tokio::test(start_paused = true)]
async fn a_network_that_runs_for_less_than_its_part_of_the_time_never_waits() {
    let (scheduler, seen) = scheduler();
    let share = net(&scheduler, 1);
    for _ in 0..100 {
        advance(9 * QUANTUM).await;
        join_all(crowd(&share, &seen, 't', 2, (1, QUANTUM / 4))).await;
    }
    assert_eq!(scheduler.queues[share.queue].waiters.lock().tickets, 0, "a task had to wait");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_something_else_is_woken_by_it() {
    let (scheduler, _) = scheduler();
    let (sender, receiver) = oneshot::channel();
    let share = net(&scheduler, 1);
    let waits = tokio::spawn(async move { share.run(receiver).await });
    yield_now().await;
    sender.send(7).unwrap();
    assert_eq!(waits.await.unwrap(), Ok(7));
}
