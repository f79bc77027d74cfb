//! Readiness: asked in the background, each part on its own, and read without waiting for either.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};
use tracing::dispatcher::set_default;

use super::Scene;
use crate::pipeline::readiness::{Readiness, Report};
use crate::telemetry::fixture::LogCapture;

const SECOND: Duration = Duration::from_secs(1);

/// Asks both in the background until the test ends.
struct Asked {
    scene: Scene,
    readiness: Arc<Readiness>,
    asking: JoinHandle<()>,
}

impl Asked {
    /// Begins when `before` has happened.
    fn after(before: impl FnOnce(&Scene)) -> Self {
        let scene = Scene::new();
        before(&scene);
        let readiness = Readiness::new(scene.chain.clone(), scene.store.clone(), scene.clock.clone());
        let readiness = Arc::new(readiness);
        let asking = Arc::clone(&readiness);
        let asking = tokio::spawn(async move { asking.refresh().await });
        Self { scene, readiness, asking }
    }

    /// Lets time pass, and what is due happen.
    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            self.scene.clock.advance_micros(10_000);
            advance(Duration::from_millis(10)).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn probes(&self) -> (usize, usize) {
        (self.scene.chain.calls("probe"), self.scene.store.calls("probe"))
    }

    fn report(&self) -> Report {
        self.readiness.report()
    }
}

#[tokio::test(start_paused = true)]
async fn each_is_asked_once_a_second_whatever_the_crowd() {
    let asked = Asked::after(|_| {});
    asked.pass(SECOND * 5).await;
    let before = asked.probes();
    for _ in 0..10 {
        (0..100).for_each(|_| assert!(asked.report().is_ready()));
        asked.pass(SECOND).await;
    }
    let (chain, store) = asked.probes();
    assert!((9..=11).contains(&(chain - before.0)) && (9..=11).contains(&(store - before.1)));
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_is_there_at_once_and_before_it_nothing_is_ready() {
    let asked = Asked::after(|_| {});
    let report = asked.report();
    assert!(report.store.is_err() && report.chain.is_err() && !report.is_ready());
    assert!(timeout(Duration::from_millis(1), asked.readiness.first_report()).await.unwrap().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_start_is_not_held_up_for_a_second_by_a_dependency_that_comes_a_moment_later() {
    let asked = Asked::after(|scene| scene.chain.is_down.store(true, Ordering::SeqCst));
    asked.pass(SECOND / 10).await;
    assert!(asked.report().chain.is_err());
    asked.scene.chain.is_down.store(false, Ordering::SeqCst);
    asked.pass(SECOND / 5).await;
    assert!(asked.report().is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_named_and_recovers_within_two_seconds() {
    let asked = Asked::after(|_| {});
    asked.pass(SECOND * 2).await;
    asked.scene.chain.is_down.store(true, Ordering::SeqCst);
    asked.pass(SECOND * 2).await;
    let report = asked.report();
    assert_eq!((report.is_ready(), report.chain.is_err(), report.store.is_ok()), (false, true, true));
    asked.scene.chain.is_down.store(false, Ordering::SeqCst);
    *asked.scene.store.broken.lock() = Some("probe");
    asked.pass(SECOND * 2).await;
    let report = asked.report();
    assert_eq!((report.is_ready(), report.chain.is_ok(), report.store.is_err()), (false, true, true));
    *asked.scene.store.broken.lock() = None;
    asked.pass(SECOND * 2).await;
    assert!(asked.report().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_hides_nothing_of_the_chain() {
    for hangs_from_the_start in [true, false] {
        let asked = Asked::after(|scene| scene.store.hangs.store(hangs_from_the_start, Ordering::SeqCst));
        asked.pass(SECOND).await;
        asked.scene.store.hangs.store(true, Ordering::SeqCst);
        for is_down in [true, false, true, false] {
            asked.scene.chain.is_down.store(is_down, Ordering::SeqCst);
            asked.pass(SECOND * 5).await;
            let report = asked.report();
            assert_eq!(report.chain.is_err(), is_down);
            assert!(report.store.unwrap_err().reason.contains("did not answer a probe within 2 s"));
        }
        asked.scene.store.hangs.store(false, Ordering::SeqCst);
        asked.pass(SECOND * 4).await;
        assert!(asked.report().is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_renews_is_no_answer() {
    let asked = Asked::after(|_| {});
    asked.pass(SECOND).await;
    asked.asking.abort();
    asked.pass(SECOND * 4).await;
    assert!(asked.report().is_ready() && asked.report().age_micros >= 4_000_000);
    asked.pass(SECOND * 2).await;
    let report = asked.report();
    assert!(!report.is_ready());
    for word in [report.store, report.chain] {
        assert!(word.unwrap_err().reason.contains("was last asked 6 s ago"));
    }
}

#[tokio::test(start_paused = true)]
async fn from_the_moment_that_the_end_begins_nothing_is_ready_whatever_was_said_before() {
    let asked = Asked::after(|_| {});
    assert!(asked.readiness.first_report().await.is_ready());
    asked.readiness.stop();
    let report = asked.report();
    assert_eq!((report.is_ready(), report.is_stopping), (false, true));
    assert!(report.chain.is_ok() && report.store.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_keeps_from_being_ready_is_logged_once_per_change_though_nobody_asks() {
    let captured = LogCapture::default();
    // While there is but one log the threads of other tests, which have none, decide which lines there are.
    let _other = LogCapture::default().dispatch();
    let _log = set_default(&captured.dispatch());
    let asked = Asked::after(|_| {});
    for is_down in [false, true, false] {
        asked.scene.chain.is_down.store(is_down, Ordering::SeqCst);
        asked.pass(SECOND * 5).await;
    }
    let lines = captured.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, said) in lines.iter().zip(["not ready: eth_call", "is well again"]) {
        assert!(line.contains(said) && line.contains("kind=\"chain\""), "{line}");
    }
}
