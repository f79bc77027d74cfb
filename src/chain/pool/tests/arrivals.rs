//! Readers and a follower who share the rate of nodes that fail for a while, over thousands of histories: real health, rate and
//! places, simulated nodes and time.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::chain::fixture::{CHAIN_ID, provide_crypto};
use crate::chain::pool::{Call, Input, Pool};
use crate::chain::tests::clock::{now, pass};
use crate::chain::{fault::ReadError, pool::node::Node};
use crate::domain::{PoolSettings, RpcUrl};
use crate::ports::Clock;
use crate::telemetry::Metrics;

/// When nodes begin to fail.
const FAILS: Duration = Duration::from_secs(2);

/// How long a history goes on after its outage.
const AFTER: Duration = Duration::from_secs(14);

const POLL: Duration = Duration::from_secs(1);

/// What a node does with a request during an outage.
#[derive(Debug, Clone, Copy)]
enum Outage {
    Silent,
    Broken,
    Limits(Option<u64>),
    Lags,
}

#[derive(Debug, Clone, Copy)]
struct History {
    rate: u32,
    nodes: usize,
    /// So many nodes fail.
    failing: usize,
    outage: Outage,
    length: Duration,
    latency: Duration,
    reads_per_second: u32,
    calls_of_read: usize,
}

struct PausedClock(Instant);

impl Clock for PausedClock {
    fn unix_millis(&self) -> u64 {
        self.monotonic_micros() / 1_000
    }

    fn monotonic_micros(&self) -> u64 {
        1 + self.0.elapsed().as_micros() as u64
    }
}

/// A request: when it was asked, when it ended and whether it was answered.
#[derive(Debug, Clone, Copy)]
struct Asked {
    at: Duration,
    ended: Duration,
    is_answered: bool,
}

/// What became of a history.
struct Outcome {
    /// Polls: both requests of each.
    polls: Vec<[Asked; 2]>,
    reads: Vec<Asked>,
    /// When calls came to each node.
    calls: Vec<Vec<Duration>>,
}

struct World {
    pool: Pool,
    history: History,
    begun: Instant,
    calls: Vec<Mutex<Vec<Duration>>>,
}

impl World {
    fn new(history: History) -> Self {
        provide_crypto();
        let begun = now();
        let urls = (0..history.nodes).map(|node| RpcUrl::parse(&format!("http://127.0.0.1:{}", node + 1)));
        let settings = PoolSettings {
            urls: urls.map(Option::unwrap).collect(),
            request_timeout: Duration::from_secs(2),
            calls_per_second: NonZeroU32::new(history.rate),
            proxy: None,
            chain_id: CHAIN_ID,
        };
        let clock = Arc::new(PausedClock(begun));
        let pool = Pool::new(&settings, &[], clock, Metrics::new().unwrap()).unwrap();
        Self { pool, history, begun, calls: (0..history.nodes).map(|_| Mutex::default()).collect() }
    }

    /// What a node makes of so many calls.
    async fn answer(&self, node: &Node, calls: usize, limit: Duration) -> Result<(), ReadError> {
        let place = self.pool.nodes.iter().position(|other| other.name == node.name).unwrap();
        let (at, History { outage, failing, length, latency, .. }) = (self.begun.elapsed(), self.history);
        self.calls[place].lock().extend(vec![at; calls]);
        let fails = place < failing && (FAILS..FAILS + length).contains(&at);
        let reply = async {
            if fails && matches!(outage, Outage::Silent) {
                return std::future::pending().await;
            }
            pass(latency).await;
            match outage {
                Outage::Broken if fails => Err(ReadError::HttpStatus(502)),
                Outage::Limits(secs) if fails => Err(ReadError::RateLimited(secs.map(Duration::from_secs))),
                Outage::Lags if fails => Err(ReadError::Behind { number: 1, newest: 2 }),
                Outage::Silent | Outage::Broken | Outage::Limits(_) | Outage::Lags => Ok(()),
            }
        };
        timeout(limit, reply).await.unwrap_or(Err(ReadError::Timeout(limit.as_millis())))
    }

    async fn ask(&self, method: &'static str, count: usize, input: Input) -> Asked {
        let at = self.begun.elapsed();
        let calls = vec![Call { method, params: json!([]) }; count];
        let (deadline, mut last) = (self.pool.deadline(), None);
        let request = |node, limit, _| self.answer(node, count, limit);
        let tries = self.pool.try_nodes(deadline, (&calls, input), request, &mut last);
        let is_answered = matches!(timeout(self.pool.left(deadline), tries).await, Ok(Ok(())));
        Asked { at, ended: self.begun.elapsed(), is_answered }
    }

    /// The head, then logs: as many calls as a poll has.
    async fn poll(&self) -> Vec<[Asked; 2]> {
        let (end, mut polls) = (FAILS + self.history.length + AFTER, Vec::new());
        while self.begun.elapsed() < end {
            let head = self.ask("eth_getBlockByNumber", 2, Input::Follower).await;
            polls.push([head, self.ask("eth_getLogs", 3, Input::Follower).await]);
            pass(POLL).await;
        }
        polls
    }
}

fn play(history: History) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = Arc::new(World::new(history));
        let followed = tokio::spawn({
            let world = Arc::clone(&world);
            async move { world.poll().await }
        });
        let mut reads = JoinSet::new();
        let count = history.reads_per_second * (FAILS + history.length + AFTER).as_secs() as u32;
        let mut ticks = interval(Duration::from_secs(1) / history.reads_per_second);
        for read in 0..count {
            ticks.tick().await;
            let world = Arc::clone(&world);
            let input = if read % 3 == 0 { Input::Strangers } else { Input::Ours };
            reads.spawn(async move { world.ask("eth_call", history.calls_of_read, input).await });
        }
        let (polls, reads) = (followed.await.unwrap(), reads.join_all().await);
        let calls = world.calls.iter().map(|calls| std::mem::take(&mut *calls.lock())).collect();
        Outcome { polls, reads, calls }
    })
}

fn check(history: History) -> Result<(), TestCaseError> {
    let (outcome, well) = (play(history), FAILS + history.length);
    // A request with more calls than fit into a second is sent with the last of them.
    for calls in outcome.calls.iter().filter(|_| history.rate >= 3) {
        let too_many = calls
            .windows(history.rate as usize + 1)
            .find(|calls| calls.last().unwrap().saturating_sub(calls[0]) < Duration::from_secs(1));
        prop_assert_eq!(too_many, None, "calls in one second");
    }
    let after: Vec<_> = outcome.polls.iter().filter(|poll| poll[0].at >= well).collect();
    prop_assert!(after.len() >= if history.rate < 3 { 1 } else { 3 }, "{} polls", after.len());
    for (number, poll) in after.iter().enumerate().skip(2) {
        prop_assert!(poll.iter().all(|asked| asked.is_answered), "poll {number} after: {poll:?}");
    }
    // Whoever asks no more than is left is answered.
    let room = history.rate.saturating_sub(history.rate / 8 + 5);
    let asked = history.reads_per_second * history.calls_of_read as u32;
    if asked <= room {
        let refused = outcome.reads.iter().find(|read| read.at >= well + 8 * POLL && !read.is_answered);
        prop_assert!(refused.is_none(), "{refused:?}");
    }
    // More get no less than is left: they are not asked for too late.
    let end = well + AFTER;
    let answered =
        outcome.reads.iter().filter(|read| read.is_answered && (well + 6 * POLL..end).contains(&read.ended));
    let (answered, least) = (answered.count() as u32 * history.calls_of_read as u32, asked.min(room) * 8 / 2);
    prop_assert!(answered >= least, "{answered} of {least}");
    Ok(())
}

fn histories() -> impl Strategy<Value = History> {
    let outage = prop_oneof![
        Just(Outage::Silent),
        Just(Outage::Broken),
        proptest::option::of(0_u64..90).prop_map(Outage::Limits),
        Just(Outage::Lags),
    ];
    let node = (1_u32..=50, 1_usize..=2, 1_usize..=2, outage);
    let load = (1_u64..9_000, 1_u64..600, 1_u32..=80, 1_usize..=3);
    (node, load).prop_map(
        |((rate, nodes, failing, outage), (length, latency, reads_per_second, calls_of_read))| {
            let [length, latency] = [length, latency].map(Duration::from_millis);
            History {
                rate,
                nodes,
                failing: failing.min(nodes),
                outage,
                length,
                latency,
                reads_per_second,
                calls_of_read,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 90, failure_persistence: None, ..ProptestConfig::default() })]

    // threat: A busy agent stays refused after an outage
    #[test]
    fn three_polls_after_a_node_is_well_the_follower_follows_whoever_asks_and_whatever_is_left_is_the_readers(
        history in histories()
    ) {
        check(history)?;
    }
}

// threat: A busy agent stays refused after an outage
#[test]
fn after_eight_silent_seconds_with_400_readers_a_second_the_followers_calls_go_out_at_once() {
    for rate in [25, 50] {
        let latency = Duration::from_millis(100);
        let (length, reads_per_second) = (Duration::from_secs(8), 400);
        let outage = Outage::Silent;
        let history = History {
            rate,
            nodes: 1,
            failing: 1,
            outage,
            length,
            latency,
            reads_per_second,
            calls_of_read: 1,
        };
        let outcome = play(history);
        let polls = outcome.polls.iter().flatten().filter(|asked| asked.at >= FAILS + length);
        let longest = polls.map(|asked| asked.ended - asked.at).max().unwrap();
        assert!(longest <= latency + Duration::from_secs(1), "at {rate}: {longest:?}");
    }
}
