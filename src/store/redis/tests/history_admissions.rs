//! Histories of admissions: three replicas fill windows while Redis is killed, frozen, or fails over. `history_limits.rs`
//! judges them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::from_redis_value_ref;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::domain::nonce::NonceClaim;
use crate::domain::quota::Quota;
use crate::os::Os;
use crate::ports::clock::Clock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key, until};
use crate::store::redis::RedisStore;
use crate::store::redis::names::Name;
use crate::store::redis::options::Options;
use crate::store::redis::tests::fitting;
use crate::store::redis::tests::history::{
    REPLICAS, Rig, Span, agents, repeats, show, signed_at_secs, three,
};
use crate::store::redis::tests::history_limits::{Asked, Failover, Figures, Window};
use crate::store::redis::tests::server::{RedisServer, say};

/// At each master of a cluster are so many agents, each of which has a window at the API and one at a tenant.
const AGENTS_EACH: usize = 3;
const LIMIT: u32 = 40;

/// Three replicas that are asked for each window again and again.
struct Load {
    stores: Vec<Arc<RedisStore>>,
    os: Os,
    signed_at_secs: u64,
    quota: Quota,
    windows: Vec<Window>,
    /// How often each was admitted; nobody asks for one that has so many as `up_to`.
    admitted: Vec<AtomicUsize>,
    up_to: AtomicUsize,
    nonces: AtomicU64,
    history: Mutex<Vec<Asked>>,
    over: AtomicBool,
}

impl Load {
    async fn new(options: &Options, width: Duration) -> Arc<Self> {
        let (os, agents) = (Os::new(), agents(AGENTS_EACH));
        let both = |number: &u64| [(*number, Scope::Api), (*number, Scope::Tenant("t".into()))];
        let windows = agents.iter().flat_map(both);
        let load = Self {
            stores: three(options).await,
            os,
            signed_at_secs: signed_at_secs(&os),
            quota: Quota { limit: LIMIT, window_micros: width.as_micros().try_into().unwrap() },
            windows: windows.collect(),
            admitted: (0..2 * agents.len()).map(|_| AtomicUsize::new(0)).collect(),
            up_to: AtomicUsize::new(0),
            nonces: AtomicU64::new(0),
            history: Mutex::default(),
            over: AtomicBool::new(false),
        };
        for number in agents {
            // A store that is impatient may have to try again.
            until("the agent has a key", async || {
                let (claim, change) = (load.claim(), KeyChange::Rotate(key(fitting(number, 0))));
                let changed = load.stores[0].change_key(agent(number), claim, change).await;
                matches!(changed, Ok(KeyChanged::Done)).then_some(())
            })
            .await;
        }
        Arc::new(load)
    }

    /// A nonce that was never used.
    fn claim(&self) -> NonceClaim {
        claim(self.nonces.fetch_add(1, Ordering::SeqCst), self.signed_at_secs)
    }

    /// Asks, two at once at each replica, until it is over.
    fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for task in 0..2 * REPLICAS {
            let load = Arc::clone(self);
            tasks.spawn(async move {
                let mut rounds = interval(Duration::from_millis(5));
                rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !load.over.load(Ordering::SeqCst) {
                    rounds.tick().await;
                    for place in 0..load.windows.len() {
                        load.ask(task % REPLICAS, place).await;
                    }
                }
            });
        }
        tasks
    }

    /// Half of the agents show keys, the others sign.
    async fn ask(&self, store: usize, place: usize) {
        let count = &self.admitted[place];
        if count.load(Ordering::SeqCst) >= self.up_to.load(Ordering::SeqCst) {
            return;
        }
        let window @ (number, scope) = &self.windows[place];
        let proof = match number % 2 {
            0 => Proof::Key(digest(fitting(*number, 0))),
            _ => Proof::Nonce(self.claim()),
        };
        let start = self.os.monotonic_micros();
        let answer = self.stores[store].admit(agent(*number), scope, self.quota, &proof).await.ok();
        let span = Span { start, end: self.os.monotonic_micros() };
        if matches!(answer, Some(Admission::Admitted { .. })) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let asked = Asked { span, window: window.clone(), quota: self.quota, answer };
        self.history.lock().unwrap().push(asked);
    }

    /// Lets each window be admitted to so often and hardly more, and waits for that.
    async fn fill(&self, times: u32) {
        self.up_to.store(times as usize, Ordering::SeqCst);
        self.admits(times).await;
    }

    /// Asks for each window however often it was admitted to.
    fn fill_on(&self) {
        self.up_to.store(usize::MAX, Ordering::SeqCst);
    }

    /// Waits until each window was admitted to so often.
    async fn admits(&self, times: u32) {
        until("all windows are admitted to", async || {
            let admitted = |count: &AtomicUsize| count.load(Ordering::SeqCst) >= times as usize;
            self.admitted.iter().all(admitted).then_some(())
        })
        .await;
    }

    /// Waits until so many calls that began after a moment were answered like this.
    async fn answers(&self, times: usize, after: u64, like: impl Fn(&Asked) -> bool) {
        until("calls are answered so", async || {
            let history = self.history.lock().unwrap();
            let is_one = |asked: &&Asked| asked.span.start > after && like(asked);
            (history.iter().filter(is_one).count() >= times).then_some(())
        })
        .await;
    }

    async fn end(&self, mut tasks: JoinSet<()>) -> Vec<Asked> {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut self.history.lock().unwrap())
    }

    /// How many accepted times a replica has of each window of its master.
    async fn received_by(&self, replica: &RedisServer) -> HashMap<Window, usize> {
        let mut connection = replica.connected().await;
        // A replica in a cluster answers only after this; another one knows no such command.
        let _ = say(&mut connection, &["READONLY"]).await;
        let mut received = HashMap::new();
        for window in &self.windows {
            let name = Name::Window(agent(window.0), &window.1).to_string();
            // Refused where another master has the window.
            let Ok(length) = say(&mut connection, &["LLEN", &name]).await else { continue };
            received.insert(window.clone(), from_redis_value_ref(&length).unwrap());
        }
        received
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_and_comes_back_with_its_disk_admits_no_more_than_the_limit() {
    let mut figures = Figures::default();
    for run in 0..repeats() {
        let Some(mut rig) = Rig::durable().await else { return };
        let load = Load::new(&rig.options(), Duration::from_secs(2)).await;
        let tasks = load.begin();
        load.fill(1 + 7 * run % LIMIT).await;
        load.fill_on();
        rig.restart().await;
        load.admits(LIMIT).await;
        rig.restart().await;
        load.admits(2 * LIMIT).await;
        figures.add(2, &load.end(tasks).await, &Failover::default());
    }
    show(&format!("kill: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_frozen_admits_no_more_than_the_limit() {
    let mut figures = Figures::default();
    for run in 0..repeats() {
        let Some(rig) = Rig::durable().await else { return };
        let options = Options { timeout: Duration::from_millis(250), ..rig.options() };
        let load = Load::new(&options, Duration::from_secs(2)).await;
        let tasks = load.begin();
        for times in [1 + 7 * run % LIMIT, LIMIT] {
            load.fill(times).await;
            load.fill_on();
            let (frozen, since) = (rig.server().freeze(), load.os.monotonic_micros());
            load.answers(200, since, |asked| asked.answer.is_none()).await;
            drop(frozen);
        }
        load.admits(2 * LIMIT).await;
        figures.add(2, &load.end(tasks).await, &Failover::default());
    }
    show(&format!("freeze: {figures:?}"));
}

/// A master dies after the replica has been taken off it for a while.
async fn a_failover(mut rig: Rig, figures: &mut Figures) {
    // Nobody waits for it to be over: it is the product's.
    let load = Load::new(&rig.options(), Duration::from_secs(60)).await;
    let tasks = load.begin();
    load.fill(LIMIT / 2).await;
    let killed = rig.lose_master(&load.os, async || load.fill(LIMIT * 3 / 4).await).await;
    let failover = Failover { killed, received: load.received_by(rig.replica()).await };
    assert!(!failover.received.is_empty());
    load.fill_on();
    rig.promote().await;
    for window in &load.windows {
        let is_full = |asked: &Asked| {
            asked.window == *window && matches!(asked.answer, Some(Admission::Limited { .. }))
        };
        load.answers(1, killed.end, is_full).await;
    }
    let history = load.end(tasks).await;
    for window in failover.received.keys() {
        assert!(failover.lost(&history, window) > 0, "{window:?}: the replica had everything");
    }
    figures.add(1, &history, &failover);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinel_admits_no_more_than_the_limit_and_what_the_promoted_replica_had_not_received()
{
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(rig) = Rig::sentinel().await else { return };
        a_failover(rig, &mut figures).await;
    }
    show(&format!("Sentinel: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_a_cluster_admits_no_more_than_the_limit_and_what_the_promoted_replica_had_not_received()
 {
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(rig) = Rig::cluster().await else { return };
        a_failover(rig, &mut figures).await;
    }
    show(&format!("cluster: {figures:?}"));
}
