//! Histories of revocation: three replicas replace and revoke keys and verify them while Redis is killed, frozen, or fails
//! over, and in the two races that caches lose.
//!
//! A verification is a look-up and, where that finds somebody, an admission, as in the pipeline. Only keys that were shown
//! are asked about: those whose change was answered with "done". A change that failed may take effect later, and then
//! kills a key; the key that it makes nobody knows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::domain::api_key::KeyDigest;
use crate::domain::quota::Quota;
use crate::os::Os;
use crate::ports::clock::Clock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, NewKey, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key, until};
use crate::store::redis::RedisStore;
use crate::store::redis::names::Name;
use crate::store::redis::options::Options;
use crate::store::redis::tests::fitting;
use crate::store::redis::tests::history::{
    REPLICAS, Rig, Span, agents, home, repeats, show, signed_at_secs, three,
};
use crate::store::redis::tests::history_keys::{Changed, Figures, History, Verified};

/// At each master of a cluster so many agents have keys that change all the time.
const AGENTS_EACH: usize = 2;

/// As many admissions as nobody reaches: a window that is full says nothing of a key.
const PLENTY: Quota = Quota { limit: 1_000_000, window_micros: 1_000_000 };

/// Makes a change out of a new key.
type Make = fn(NewKey) -> KeyChange;

/// Three replicas on which keys change and are verified.
struct Load {
    stores: Vec<Arc<RedisStore>>,
    os: Os,
    signed_at_secs: u64,
    agents: Vec<u64>,
    /// How many nonces and keys there were.
    used: AtomicU64,
    /// Every key that was shown, the newest last.
    shown: Mutex<Vec<u64>>,
    history: Mutex<History>,
    /// While it is so nobody begins to change a key.
    held: AtomicBool,
    over: AtomicBool,
}

impl Load {
    async fn new(options: &Options) -> Arc<Self> {
        let (os, agents) = (Os::new(), agents(AGENTS_EACH));
        let (used, shown, history, held, over) = Default::default();
        let (stores, signed_at_secs) = (three(options).await, signed_at_secs(&os));
        Arc::new(Self { stores, os, signed_at_secs, agents, used, shown, history, held, over })
    }

    fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for number in self.agents.clone() {
            tasks.spawn(Arc::clone(self).change_on(number));
        }
        for task in 0..2 * REPLICAS {
            tasks.spawn(Arc::clone(self).verify_on(task % REPLICAS));
        }
        tasks
    }

    /// Changes an agent's key, at one replica after the other, until it is over.
    async fn change_on(self: Arc<Self>, number: u64) {
        let mut rounds = paced(20);
        let mut has_none = true;
        for turn in 0.. {
            rounds.tick().await;
            if self.over.load(Ordering::SeqCst) {
                break;
            }
            if self.held.load(Ordering::SeqCst) {
                continue;
            }
            let make: Option<Make> = match (has_none, turn % 5) {
                (true, _) => Some(KeyChange::Issue),
                (false, 4) => None,
                (false, _) => Some(KeyChange::Rotate),
            };
            has_none = self.change(turn % REPLICAS, number, make).await && make.is_none();
        }
    }

    /// Verifies keys at a replica until it is over: the newest, and one of all.
    async fn verify_on(self: Arc<Self>, store: usize) {
        let mut rounds = paced(5);
        for turn in 0.. {
            rounds.tick().await;
            if self.over.load(Ordering::SeqCst) {
                break;
            }
            let mut keys = self.shown.lock().unwrap().clone();
            let any = keys.get(turn % keys.len().max(1)).copied();
            let newest = keys.split_off(keys.len().saturating_sub(3 * self.agents.len()));
            for key in newest.into_iter().chain(any) {
                self.verify(store, key).await;
            }
        }
    }

    fn new_number(&self) -> u64 {
        self.used.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Changes an agent's key at a replica. True when that was answered with "done".
    async fn change(&self, store: usize, number: u64, make: Option<Make>) -> bool {
        let new = make.map(|make| (make, fitting(number, self.new_number())));
        let change = new.map_or(KeyChange::Revoke, |(make, number)| make(key(number)));
        let claim = claim(self.new_number(), self.signed_at_secs);
        let start = self.os.monotonic_micros();
        let answer = self.stores[store].change_key(agent(number), claim, change).await;
        let span = Span { start, end: self.os.monotonic_micros() };
        let (key, done) = (new.map(|(_, number)| number), matches!(answer, Ok(KeyChanged::Done)));
        self.history.lock().unwrap().changed.push(Changed { span, agent: number, key, done });
        self.shown.lock().unwrap().extend(key.filter(|_| done));
        done
    }

    /// Verifies a key at a replica: whether it passed.
    async fn verify(&self, store: usize, key: u64) -> Option<bool> {
        let start = self.os.monotonic_micros();
        let passed = self.passes(store, &digest(key)).await;
        let span = Span { start, end: self.os.monotonic_micros() };
        self.history.lock().unwrap().verified.push(Verified { span, key, passed });
        passed
    }

    async fn passes(&self, store: usize, digest: &KeyDigest) -> Option<bool> {
        let store = &self.stores[store];
        let Some(owner) = store.find(digest).await.ok()? else { return Some(false) };
        match store.admit(owner.agent, &Scope::Api, PLENTY, &Proof::Key(*digest)).await.ok()? {
            Admission::Admitted { .. } | Admission::Limited { .. } => Some(true),
            Admission::KeyRevoked => Some(false),
            Admission::NonceRefused(_) => panic!("no nonce was shown"),
        }
    }

    /// Waits until each of these agents has so many changes of a kind that began after a moment.
    async fn changes(&self, agents: &[u64], times: usize, after: u64, of_kind: fn(&Changed) -> bool) {
        until("keys are changed", async || {
            let history = self.history.lock().unwrap();
            let has = |number: &u64| {
                let of_agent = |change: &&Changed| change.agent == *number && change.span.start > after;
                history.changed.iter().filter(of_agent).filter(|change| of_kind(change)).count() >= times
            };
            agents.iter().all(has).then_some(())
        })
        .await;
    }

    /// Waits until each agent's key was changed five times more.
    async fn goes_on(&self) {
        self.changes(&self.agents, 5, self.os.monotonic_micros(), |change| change.done).await;
    }

    /// Verifies every key that was ever shown at each replica.
    async fn verify_all(&self) {
        let shown = self.shown.lock().unwrap().clone();
        for store in 0..REPLICAS {
            for key in &shown {
                until("a verification is answered", async || self.verify(store, *key).await).await;
            }
        }
    }

    /// Verifies every key once more, and ends the history.
    async fn end(&self, mut tasks: JoinSet<()>, killed: Option<Span>) -> History {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        self.verify_all().await;
        History { killed, ..std::mem::take(&mut self.history.lock().unwrap()) }
    }
}

fn paced(millis: u64) -> Interval {
    let mut rounds = interval(Duration::from_millis(millis));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rounds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_and_comes_back_with_its_disk_brings_no_key_back() {
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(mut rig) = Rig::durable().await else { return };
        let load = Load::new(&rig.options()).await;
        let tasks = load.begin();
        for _ in 0..2 {
            load.goes_on().await;
            rig.restart().await;
        }
        load.goes_on().await;
        figures.add(2, &load.end(tasks, None).await);
    }
    show(&format!("kill: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_frozen_brings_no_key_back() {
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(rig) = Rig::durable().await else { return };
        let options = Options { timeout: Duration::from_millis(250), ..rig.options() };
        let load = Load::new(&options).await;
        let tasks = load.begin();
        for _ in 0..2 {
            load.goes_on().await;
            let (frozen, since) = (rig.server().freeze(), load.os.monotonic_micros());
            load.changes(&load.agents, 5, since, |change| !change.done).await;
            drop(frozen);
        }
        load.goes_on().await;
        figures.add(2, &load.end(tasks, None).await);
    }
    show(&format!("freeze: {figures:?}"));
}

/// A master dies after the replica that should have acknowledged changes has been taken off it for a while.
async fn a_failover(mut rig: Rig, figures: &mut Figures) {
    let wait_timeout = Duration::from_millis(200);
    let load = Load::new(&Options { wait_replicas: 1, wait_timeout, ..rig.options() }).await;
    let tasks = load.begin();
    load.goes_on().await;
    let killed = rig
        .lose_master(&load.os, async || {
            let since = load.os.monotonic_micros();
            load.changes(&load.agents, 1, since, |change| change.key.is_none()).await;
            load.held.store(true, Ordering::SeqCst);
        })
        .await;
    rig.promote().await;
    // Before anything else kills a key that the promoted replica brings back.
    load.verify_all().await;
    load.held.store(false, Ordering::SeqCst);
    // In a cluster keys change on at the other masters.
    let (_replica, go_on) = match &rig {
        Rig::Cluster(_) => (None, load.agents.iter().copied().filter(|number| home(*number) != 0).collect()),
        Rig::Sentinel { replica, .. } => (Some(replica.replica().await), load.agents.clone()),
        Rig::Durable(_) => panic!("one server"),
    };
    load.changes(&go_on, 3, killed.end, |change| change.done).await;
    figures.add(1, &load.end(tasks, Some(killed)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinel_brings_no_key_back_whose_change_was_acknowledged() {
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(rig) = Rig::sentinel().await else { return };
        a_failover(rig, &mut figures).await;
    }
    show(&format!("Sentinel: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_a_cluster_brings_no_key_back_whose_change_was_acknowledged() {
    let mut figures = Figures::default();
    for _ in 0..repeats() {
        let Some(rig) = Rig::cluster().await else { return };
        a_failover(rig, &mut figures).await;
    }
    show(&format!("cluster: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_that_lost_changes_every_replica_says_the_same_of_each_key() {
    let Some(mut rig) = Rig::cluster().await else { return };
    let load = Load::new(&rig.options()).await;
    let agents: Vec<u64> = (1..).filter(|number| home(*number) == 0).take(8).collect();
    for number in &agents {
        assert!(load.change(0, *number, Some(KeyChange::Issue)).await);
    }
    let kept = load.shown.lock().unwrap().clone();
    for key in &kept {
        // The last replica has never heard of it.
        assert_eq!((load.verify(0, *key).await, load.verify(1, *key).await), (Some(true), Some(true)));
    }
    rig.lose_master(&load.os, async || {
        for number in &agents {
            assert!(load.change(0, *number, Some(KeyChange::Rotate)).await);
        }
        let lost = load.shown.lock().unwrap().split_off(kept.len());
        for key in &lost {
            assert_eq!(load.verify(1, *key).await, Some(true));
        }
        load.shown.lock().unwrap().extend(lost);
    })
    .await;
    rig.promote().await;
    let shown = load.shown.lock().unwrap().clone();
    for key in shown {
        for store in 0..REPLICAS {
            let passed = until("it is answered", async || load.verify(store, key).await).await;
            assert_eq!(passed, kept.contains(&key), "{key:x} at {store}");
        }
    }
}

/// An agent's key is issued at the first replica, and revoked there while the second one looks it up and the third one
/// verifies it, both for the first time. The revocation comes so many requests later. Answers how many replicas still know
/// the key after that.
async fn a_revoke_that_is_raced(load: &Load, number: u64, later: usize) -> usize {
    assert!(load.change(0, number, Some(KeyChange::Issue)).await);
    let key = *load.shown.lock().unwrap().last().unwrap();
    let revoke = async {
        for _ in 0..later {
            assert!(load.stores[0].has_key(agent(number)).await.unwrap());
        }
        assert!(load.change(0, number, None).await);
    };
    let look_up = async {
        for _ in 0..8 {
            load.stores[1].find(&digest(key)).await.unwrap();
        }
    };
    let verify = async {
        for _ in 0..8 {
            load.verify(2, key).await;
        }
    };
    tokio::join!(look_up, revoke, verify);
    let mut known = 0;
    for store in 0..REPLICAS {
        known += usize::from(load.stores[store].find(&digest(key)).await.unwrap().is_some());
        load.verify(store, key).await;
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_filled_while_a_key_is_revoked_lets_nobody_in() {
    let (mut figures, mut known) = (Figures::default(), 0);
    for _ in 0..repeats() {
        let Some(rig) = Rig::durable().await else { return };
        let load = Load::new(&rig.options()).await;
        for round in 0..100 {
            known += a_revoke_that_is_raced(&load, 1, round % 5).await;
        }
        figures.add(0, &load.end(JoinSet::new(), None).await);
    }
    assert!(known > 0, "no cache was ever filled too late");
    show(&format!("cache filled too late {known} times: {figures:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_outlives_its_key_is_read_again_and_lets_nobody_in() {
    let (mut figures, mut known) = (Figures::default(), 0);
    for _ in 0..repeats() {
        let Some(rig) = Rig::durable().await else { return };
        let load = Load::new(&rig.options()).await;
        let mut connection = rig.server().connected().await;
        for _ in 0..100 {
            assert!(load.change(0, 1, Some(KeyChange::Issue)).await);
            let key = *load.shown.lock().unwrap().last().unwrap();
            let name = Name::Entry(&digest(key));
            let entry: Vec<u8> = redis::cmd("GET").arg(name).query_async(&mut connection).await.unwrap();
            assert_eq!(load.verify(1, key).await, Some(true));
            assert!(load.change(0, 1, None).await);
            // As another store of keys at the same Redis might leave it.
            redis::cmd("SET").arg(name).arg(entry).exec_async(&mut connection).await.unwrap();
            // A refusal drops the key from a cache. The next look-up takes it in again.
            for store in (0..REPLICAS).cycle().take(3 * REPLICAS) {
                known += usize::from(load.stores[store].find(&digest(key)).await.unwrap().is_some());
                load.verify(store, key).await;
            }
        }
        figures.add(0, &load.end(JoinSet::new(), None).await);
    }
    assert_eq!(known, 100 * 3 * REPLICAS * repeats() as usize, "it is known again each time");
    show(&format!("key known again {known} times: {figures:?}"));
}
