//! The load of a history: three replicas fill windows, replace and revoke keys and verify them, and show signatures again.
//!
//! A verification is a look-up and, where that finds somebody, an admission, as in the pipeline. Only keys that were shown
//! are asked about: those whose change was answered with "done". A change that failed may take effect later, and then
//! kills a key; the key that it makes nobody knows.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{collections::HashMap, time::Duration};

use redis::from_redis_value_ref;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::domain::{KeyDigest, Quota};
use crate::os::Os;
use crate::ports::{Admission, Clock, KeyChange, KeyChanged, NewKey, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key, until};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::tests::history_judge::{
    Asked, Changed, Failover, Figures, History, Span, Verified, Window,
};
use crate::store::redis::tests::overlap::{SECOND, of_line};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{AHEAD_SECS, fitting, nonce_is_refused, ready};
use crate::store::{
    redis::RedisStore, redis::options::Options, redis::tests::cluster::TestCluster, redis::tests::real::open,
};

/// How many replicas of the product there are. They share nothing but Redis.
pub(super) const REPLICAS: usize = 3;

/// How many masters a cluster has. Among its nodes the replica of the first one comes after them.
pub(super) const MASTERS: usize = 3;

/// At each master of a cluster so many agents have windows, at the API and at a tenant; so many others' keys change.
const WINDOWED_EACH: usize = 3;
const CHANGING_EACH: usize = 2;

pub(super) const LIMIT: u32 = 40;

/// As many admissions as nobody reaches: a window that is full says nothing of a key or of a nonce.
const PLENTY: Quota = Quota { limit: 1_000_000, window_micros: 1_000_000 };

/// How far ahead of a history its signatures are dated: each server that begins meanwhile takes them.
const SIGNED_AHEAD_SECS: u64 = 3_600;

/// Makes a change out of a new key.
type Make = fn(NewKey) -> KeyChange;

pub(super) struct Load {
    pub(super) stores: Vec<Arc<RedisStore>>,
    pub(super) os: Os,
    signed_at_secs: u64,
    /// When the load began; signatures of then, which only a server takes that had begun.
    began_secs: u64,
    quota: Quota,
    pub(super) windows: Vec<Window>,
    /// How often each was admitted to; nobody asks for one that has so many as `up_to`.
    admitted: Vec<AtomicUsize>,
    up_to: AtomicUsize,
    /// The agents whose keys change.
    pub(super) agents: Vec<u64>,
    /// How many nonces and keys there were.
    used: AtomicU64,
    /// Agents and their nonces that were used at the beginning.
    spent: Vec<(u64, u64)>,
    /// Every key that was shown, the newest last.
    pub(super) shown: Mutex<Vec<u64>>,
    history: Mutex<History>,
    /// While it is so nobody begins to change a key.
    pub(super) held: AtomicBool,
    over: AtomicBool,
}

impl Load {
    /// Replicas that work, with windows of this width.
    pub(super) async fn new(options: &Options, width: Duration) -> Arc<Self> {
        let stores: Vec<_> = (0..REPLICAS).map(|_| Arc::new(open(options.clone()))).collect();
        for store in &stores {
            ready(store).await;
        }
        let numbers = agents(WINDOWED_EACH + CHANGING_EACH);
        let of_master = || numbers.chunks(WINDOWED_EACH + CHANGING_EACH);
        let windowed: Vec<u64> = of_master().flat_map(|all| &all[..WINDOWED_EACH]).copied().collect();
        let both = |number: &u64| [(*number, Scope::Api), (*number, Scope::Tenant("t".into()))];
        let (os, (admitted, up_to, used)) = (Os::new(), Default::default());
        let mut load = Self {
            stores,
            os,
            signed_at_secs: os.unix_seconds() + SIGNED_AHEAD_SECS,
            began_secs: os.unix_seconds(),
            quota: Quota { limit: LIMIT, window_micros: width.as_micros().try_into().unwrap() },
            windows: windowed.iter().flat_map(both).collect(),
            admitted,
            up_to,
            agents: of_master().flat_map(|all| &all[WINDOWED_EACH..]).copied().collect(),
            used,
            spent: Vec::new(),
            shown: Mutex::default(),
            history: Mutex::default(),
            held: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        load.admitted.extend(load.windows.iter().map(|_| AtomicUsize::new(0)));
        for number in windowed {
            // A store that is impatient may have to try again.
            until("the agent has a key", async || {
                let claim = claim(load.new_number(), load.signed_at_secs);
                let change = KeyChange::Rotate(key(fitting(number, 0)));
                let changed = load.stores[0].changed(agent(number), claim, change).await;
                matches!(changed, Ok(KeyChanged::Done)).then_some(())
            })
            .await;
            let nonce = until("a nonce is used", async || {
                let nonce = load.new_number();
                matches!(load.sign(0, number, nonce).await?, Admission::Admitted { .. }).then_some(nonce)
            });
            load.spent.push((number, nonce.await));
        }
        until("it is another second", async || (os.unix_seconds() > load.began_secs).then_some(())).await;
        Arc::new(load)
    }

    pub(super) fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let second = self.agents.iter().filter(|number| *number % 2 == 1).map(|number| number + SECOND);
        for line in self.agents.iter().copied().chain(second) {
            tasks.spawn(Arc::clone(self).change_on(line));
        }
        for task in 0..2 * REPLICAS {
            tasks.spawn(Arc::clone(self).ask_on(task % REPLICAS));
            tasks.spawn(Arc::clone(self).verify_on(task % REPLICAS));
        }
        tasks
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Asks at a replica for each window that may be filled, and shows a nonce that was used.
    async fn ask_on(self: Arc<Self>, store: usize) {
        let mut rounds = paced(5);
        for turn in 0.. {
            rounds.tick().await;
            if self.is_over() {
                break;
            }
            for place in 0..self.windows.len() {
                if self.admitted[place].load(Ordering::SeqCst) < self.up_to.load(Ordering::SeqCst) {
                    self.ask(store, place).await;
                }
            }
            let (number, nonce) = self.spent[turn % self.spent.len()];
            self.sign(store, number, nonce).await;
        }
    }

    /// Half of the agents show keys, the others sign.
    async fn ask(&self, store: usize, place: usize) {
        let window @ (number, _) = &self.windows[place];
        let nonce = (place / 2).is_multiple_of(2).then(|| self.new_number());
        let proof = nonce.map_or_else(
            || Proof::Key(digest(fitting(*number, 0))),
            |nonce| Proof::Nonce(claim(nonce, self.signed_at_secs)),
        );
        let answer = self.admit(store, window, self.quota, &proof, nonce).await;
        if matches!(answer, Some(Admission::Admitted { .. })) {
            self.admitted[place].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Shows a signature of the time when the load began.
    async fn sign(&self, store: usize, number: u64, nonce: u64) -> Option<Admission> {
        let proof = Proof::Nonce(claim(nonce, self.began_secs + AHEAD_SECS + 1));
        self.admit(store, &(number, Scope::Tenant("signed".into())), PLENTY, &proof, Some(nonce)).await
    }

    async fn admit(
        &self,
        store: usize,
        window: &Window,
        quota: Quota,
        proof: &Proof,
        nonce: Option<u64>,
    ) -> Option<Admission> {
        let start = self.os.monotonic_micros();
        let answer = self.stores[store].admit(agent(window.0), &window.1, quota, proof).await.ok();
        let span = Span { start, end: self.os.monotonic_micros() };
        let asked = Asked { span, window: window.clone(), quota, nonce, answer };
        self.history.lock().unwrap().asked.push(asked);
        answer
    }

    /// Changes an agent's key, at one replica after the other, until it is over.
    async fn change_on(self: Arc<Self>, number: u64) {
        let mut rounds = paced(20);
        let mut has_none = true;
        for turn in 0.. {
            rounds.tick().await;
            if self.is_over() {
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
            if self.is_over() {
                break;
            }
            let mut keys = self.shown.lock().unwrap().clone();
            let any = keys.get(turn % keys.len().max(1)).copied();
            let newest = keys.split_off(keys.len().saturating_sub(5 * self.agents.len()));
            for key in newest.into_iter().chain(any) {
                self.verify(store, key).await;
            }
        }
    }

    fn new_number(&self) -> u64 {
        self.used.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Changes an agent's key at a replica. True when that was answered with "done".
    pub(super) async fn change(&self, store: usize, line: u64, make: Option<Make>) -> bool {
        let new = make.map(|make| (make, fitting(line % SECOND, self.new_number())));
        let revoked = KeyChange::Revoke(of_line(line, 0).terms.name);
        let change = new.map_or(revoked, |(make, digest)| make(of_line(line, digest)));
        let claim = claim(self.new_number(), self.signed_at_secs);
        let start = self.os.monotonic_micros();
        let answer = self.stores[store].changed(agent(line % SECOND), claim, change).await;
        let span = Span { start, end: self.os.monotonic_micros() };
        let (key, done) = (new.map(|(_, number)| number), matches!(answer, Ok(KeyChanged::Done)));
        self.history.lock().unwrap().changed.push(Changed { span, agent: line, key, done });
        self.shown.lock().unwrap().extend(key.filter(|_| done));
        done
    }

    /// Verifies a key at a replica: whether it passed.
    pub(super) async fn verify(&self, store: usize, key: u64) -> Option<bool> {
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

    /// Lets each window be admitted to so often and hardly more, and waits for that.
    pub(super) async fn fill(&self, times: u32) {
        self.up_to.store(times as usize, Ordering::SeqCst);
        self.admits(times).await;
    }

    /// Asks for each window however often it was admitted to.
    pub(super) fn fill_on(&self) {
        self.up_to.store(usize::MAX, Ordering::SeqCst);
    }

    /// Waits until each window was admitted to so often.
    pub(super) async fn admits(&self, times: u32) {
        until("all windows are admitted to", async || {
            let admitted = |count: &AtomicUsize| count.load(Ordering::SeqCst) >= times as usize;
            self.admitted.iter().all(admitted).then_some(())
        })
        .await;
    }

    /// Waits until so many calls that began after a moment were answered like this.
    pub(super) async fn answers(&self, times: usize, after: u64, like: impl Fn(&Asked) -> bool) {
        until("calls are answered so", async || {
            let history = self.history.lock().unwrap();
            let is_one = |asked: &&Asked| asked.span.start > after && like(asked);
            (history.asked.iter().filter(is_one).count() >= times).then_some(())
        })
        .await;
    }

    /// Waits until each window is said to be full.
    pub(super) async fn all_full(&self, after: u64) {
        for window in &self.windows {
            let is_limited = |asked: &Asked| matches!(asked.answer, Some(Admission::Limited { .. }));
            self.answers(1, after, |asked| asked.window == *window && is_limited(asked)).await;
        }
    }

    /// Waits until each of these agents has so many changes of a kind that began after a moment.
    pub(super) async fn changes(&self, of: &[u64], times: usize, after: u64, like: fn(&Changed) -> bool) {
        until("keys are changed", async || {
            let history = self.history.lock().unwrap();
            let has = |number: &u64| {
                let of_agent = |change: &&Changed| change.agent == *number && change.span.start > after;
                history.changed.iter().filter(of_agent).filter(|change| like(change)).count() >= times
            };
            of.iter().all(has).then_some(())
        })
        .await;
    }

    /// Waits until each agent's key was changed five times more.
    pub(super) async fn goes_on(&self) {
        self.changes(&self.agents, 5, self.os.monotonic_micros(), |change| change.done).await;
    }

    /// Verifies every key that was ever shown at each replica.
    pub(super) async fn verify_all(&self) {
        let shown = self.shown.lock().unwrap().clone();
        for store in 0..REPLICAS {
            for key in &shown {
                until("a verification is answered", async || self.verify(store, *key).await).await;
            }
        }
    }

    /// A server that took a place after the load began can't know whether a nonce of then was used, and takes none.
    pub(super) async fn forgets(&self, is_anew: impl Fn(u64) -> bool) {
        for (number, _) in &self.spent {
            let answered = async || self.sign(0, *number, self.new_number()).await;
            let refused = nonce_is_refused(Some(until("a signature is answered", answered).await));
            assert_eq!(refused, is_anew(*number), "{number}");
        }
    }

    /// Verifies every key once more, and ends the history.
    pub(super) async fn end(&self, mut tasks: JoinSet<()>, failover: Option<Failover>) -> History {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        self.verify_all().await;
        History { failover, ..std::mem::take(&mut self.history.lock().unwrap()) }
    }

    /// Ends a history without tasks and without faults.
    pub(super) async fn end_into(&self, figures: &mut Figures) {
        figures.add(&self.end(JoinSet::new(), None).await);
    }

    /// How many accepted times a replica has of each window of its master.
    pub(super) async fn received_by(&self, replica: &RedisServer) -> HashMap<Window, usize> {
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

fn paced(millis: u64) -> Interval {
    let mut rounds = interval(Duration::from_millis(millis));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rounds
}

/// The slot of an agent in a cluster, and the master that has it at first.
pub(super) fn slot(number: u64) -> u16 {
    Shard::of_agent(agent(number)).slot()
}

pub(super) fn home(number: u64) -> usize {
    TestCluster::home(slot(number))
}

/// Agents of which so many are at each master of a cluster.
fn agents(each: usize) -> Vec<u64> {
    (0..MASTERS).flat_map(|master| (1..).filter(move |number| home(*number) == master).take(each)).collect()
}
