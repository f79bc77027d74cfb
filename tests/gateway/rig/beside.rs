//! Good traffic beside bad: bad traffic changes no answer of the good, delays none, and holds nothing in the gateway for long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::rig::h2c::{self, Message};
use crate::rig::scope::{Running, beside};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};

/// How often good requests of each kind are made beside bad ones, at least.
const ROUNDS: usize = 10;

/// How many times as long others may wait here as at a gateway that is left alone. Some of the processors' time is the bad traffic's.
const TIMES_MAX: u32 = 4;

/// Some of a scheduler's turns for those who have the processors, and less than a worker that is held for 100 ms.
const TURN: Duration = Duration::from_millis(75);

/// How long a busy machine may keep one of many waiting: less than the gateway waits for a client.
const HICCUP: Duration = Duration::from_secs(4);

/// The waits of others, at addresses of their own: here, and at the same time at a gateway that is left alone.
#[derive(Default)]
struct Waits([Vec<Duration>; 2]);

impl Waits {
    #[track_caller]
    fn take(&mut self, site: &Site) {
        let gateways = site.calm.map(|calm| [site.gateway.address, calm]);
        for (gateway, waits) in gateways.into_iter().flatten().zip(&mut self.0) {
            waits.push(Stopwatch::of(|| {
                let mut wire = Wire::open_from([127, 0, 0, 77].into(), gateway);
                assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
            }));
        }
    }

    /// A quarter of them may be long, and none so long as if it had waited for a client: the machine is busy.
    fn are_alike(mut self) -> Result<(), String> {
        self.0.iter_mut().for_each(|waits| waits.sort());
        for (quarters, more) in [(3, TURN), (4, HICCUP)] {
            let longest = |waits: &Vec<Duration>| {
                let last = (waits.len() * quarters).div_ceil(4).checked_sub(1)?;
                waits.get(last).copied()
            };
            let [here, calm] = self.0.each_ref().map(|waits| longest(waits).unwrap_or_default());
            if here >= TIMES_MAX * calm + more {
                return Err(format!("others wait for {here:?}, and for {calm:?} elsewhere"));
            }
        }
        Ok(())
    }
}

impl Site {
    /// A site with an agent that has no limit.
    pub(crate) fn crowded(stage: &Stage) -> Self {
        // A flood is none the less one where the log says little of it.
        let site = Self::of(stage).unlimited().set("log.level", "info").agent(4);
        // No case of floods changes the chain.
        let mut site = site.set("chain.poll_interval", "1s").start();
        site.calm = Some(stage.site().gateway.address);
        site
    }

    /// One request of each kind: public and an agent's, HTTP/1 and HTTP/2, on a connection that stays and on new ones.
    #[track_caller]
    pub(crate) fn serves(&self, open: &mut Wire) {
        let (one, two, three) = (public_path(), agents_path(), agents_path());
        let answer = Request::get(ACME, &one).ask_on(open);
        assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(one)), "{}", answer.text());
        let answer = self.gateway.ask(&Request::get(ACME, &two).key(self.key()));
        assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(two)), "{}", answer.text());
        let request = Message::request(http::Method::GET, ACME, &three).with("x-api-key", self.key());
        let answer = h2c::ask(self.gateway.address, &request).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Serves some rounds of good requests. What holds others up does so each time, a busy machine now and then.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let mut open = self.gateway.connect();
        let mut rounds = || {
            let mut waits = Waits::default();
            for _ in 0..ROUNDS {
                waits.take(self);
                self.serves(&mut open);
            }
            waits.are_alike()
        };
        rounds().or_else(|_| rounds()).or_else(|_| rounds()).unwrap();
    }

    /// Does something bad on threads of its own, and serves good requests until it is over. Gives what came of it.
    #[track_caller]
    pub(crate) fn endures<T: Send>(&self, threads: usize, bad: impl Fn(&Running) -> T + Sync) -> Vec<T> {
        let over = AtomicUsize::new(0);
        let work = |running: &Running| {
            let outcome = bad(running);
            over.fetch_add(1, Ordering::SeqCst);
            outcome
        };
        beside(threads, work, |running| {
            self.goes_on();
            let (mut open, mut waits) = (self.gateway.connect(), Waits::default());
            let is_over = || !running.is_on() || over.load(Ordering::SeqCst) == threads;
            until("what is bad is over", 2 * SOON, || {
                waits.take(self);
                self.serves(&mut open);
                is_over().then_some(())
            });
            waits.are_alike().unwrap();
        })
    }
}
