//! Good traffic beside bad: what others do shows neither in answers, nor in time, nor in memory.

use std::time::Duration;

use serde_json::json;

use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::settings::Settings;
use crate::support::time::Stopwatch;
use crate::support::wire::{Request, Wire};

/// How long a good request may take on a machine that is busy with other things.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How much more memory a gateway may have afterwards: buffers, and what its allocator keeps.
const GROWTH_KIB_MAX: u64 = 24 * 1024;

/// A gateway with one tenant, an upstream, and an agent without a limit that is worth mentioning.
pub(crate) struct Neighbourhood {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    key: String,
}

impl Neighbourhood {
    pub(crate) fn new(stage: &Stage) -> Self {
        Self::with(stage, stage.settings())
    }

    pub(crate) fn with(stage: &Stage, settings: Settings) -> Self {
        let upstream = Upstream::start();
        let tenant = Tenant::new("t", ACME, upstream.address).public();
        let settings = settings.set("tiers.requests_per_minute", vec![1_000_000; 4]);
        let gateway = Gateway::start_with(settings, &[tenant], &[]);
        let key = stage.world().agent(4).generate(&gateway.service);
        Self { gateway, upstream, key }
    }

    /// One request of each kind: public and an agent's, HTTP/1 and HTTP/2, on a connection that stays and on new ones.
    #[track_caller]
    pub(crate) fn is_served(&self, open: &mut Wire) {
        let (one, two, three) = (public_path(), agents_path(), agents_path());
        let watch = Stopwatch::start();
        let answer = Request::get(ACME, &one).ask_on(open);
        assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(one)), "{}", answer.text());
        let answer = self.gateway.ask(&Request::get(ACME, &two).key(&self.key));
        assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(two)), "{}", answer.text());
        let request = Message::request(http::Method::GET, ACME, &three).with("x-api-key", &self.key);
        let answer = h2c::ask(self.gateway.address, &request).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(watch.elapsed() < 3 * ANSWER_WITHIN, "{:?}", watch.elapsed());
    }

    /// Does something bad on threads of its own while good requests are made, at least ten of each kind, and gives what
    /// came of it. Memory must not have grown by more than buffers.
    #[track_caller]
    pub(crate) fn endures<T: Send>(&self, threads: usize, bad: impl Fn() -> T + Sync) -> Vec<T> {
        let mut open = self.gateway.connect();
        self.is_served(&mut open);
        let before = self.gateway.service.resident_kib();
        let outcomes = std::thread::scope(|scope| {
            let others: Vec<_> = (0..threads).map(|_| scope.spawn(&bad)).collect();
            let mut rounds = 0;
            while rounds < 10 || others.iter().any(|other| !other.is_finished()) {
                self.is_served(&mut open);
                rounds += 1;
            }
            others.into_iter().map(|other| other.join().unwrap()).collect()
        });
        self.has_not_grown_since(before);
        outcomes
    }

    #[track_caller]
    pub(crate) fn has_not_grown_since(&self, before: u64) {
        let now = self.gateway.service.resident_kib();
        assert!(now < before + GROWTH_KIB_MAX, "{before} KiB, then {now} KiB");
    }
}
