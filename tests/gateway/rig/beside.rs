//! Good traffic beside bad: bad traffic changes no answer of the good, and holds nothing in the gateway for long.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::rig::h2c::{self, Message};
use crate::rig::scope::{Running, beside};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

/// How often good requests of each kind are made beside bad ones, at least.
const ROUNDS: usize = 10;

impl Site {
    /// A site with an agent that has no limit.
    pub(crate) fn crowded(stage: &Stage) -> Self {
        Self::of(stage).unlimited().agent(4).start()
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

    /// Serves some rounds of good requests.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let mut open = self.gateway.connect();
        (0..ROUNDS).for_each(|_| self.serves(&mut open));
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
            let mut open = self.gateway.connect();
            let is_over = || !running.is_on() || over.load(Ordering::SeqCst) == threads;
            until("what is bad is over", 2 * SOON, || {
                self.serves(&mut open);
                is_over().then_some(())
            });
        })
    }
}
