//! Readiness: one probe a second whatever the crowd, and the truth again a second later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use super::Scene;
use crate::pipeline::readiness::Readiness;

fn readiness(scene: &Scene) -> Arc<Readiness> {
    Arc::new(Readiness::new(scene.chain.clone(), scene.store.clone(), scene.clock.clone()))
}

fn probes(scene: &Scene) -> (usize, usize) {
    (scene.chain.calls("probe"), scene.store.calls("probe"))
}

#[tokio::test]
async fn a_crowd_costs_one_probe_a_second() {
    let scene = Scene::new();
    let readiness = readiness(&scene);
    for second in 1..=3 {
        let crowd: Vec<_> = (0..100)
            .map(|_| {
                let readiness = Arc::clone(&readiness);
                tokio::spawn(async move { readiness.report().await })
            })
            .collect();
        for member in crowd {
            assert!(member.await.unwrap().is_ready());
        }
        scene.clock.advance_micros(999_999);
        assert!(readiness.report().await.is_ready());
        assert_eq!(probes(&scene), (second, second));
        scene.clock.advance_micros(1);
    }
}

#[tokio::test]
async fn what_fails_is_named_and_recovers_within_a_second() {
    let scene = Scene::new();
    let readiness = readiness(&scene);
    scene.chain.is_down.store(true, Ordering::SeqCst);
    let report = readiness.report().await;
    assert_eq!((report.is_ready(), report.chain.is_err(), report.store.is_ok()), (false, true, true));
    scene.chain.is_down.store(false, Ordering::SeqCst);
    *scene.store.broken.lock() = Some("probe");
    scene.clock.advance_secs(1);
    let report = readiness.report().await;
    assert_eq!((report.is_ready(), report.chain.is_ok(), report.store.is_err()), (false, true, true));
    *scene.store.broken.lock() = None;
    assert!(!readiness.report().await.is_ready(), "the answer serves for a second");
    scene.clock.advance_secs(1);
    assert!(readiness.report().await.is_ready());
}

#[tokio::test]
async fn from_the_moment_that_the_end_begins_nothing_is_ready_whatever_was_said_before() {
    let scene = Scene::new();
    let readiness = readiness(&scene);
    assert!(readiness.report().await.is_ready());
    readiness.stop();
    let report = readiness.report().await;
    assert_eq!((report.is_ready(), report.is_stopping), (false, true));
    assert!(report.chain.is_ok() && report.store.is_ok());
}

#[tokio::test]
async fn whoever_gives_up_waiting_does_not_take_the_answer_along() {
    let scene = Scene::new();
    let readiness = readiness(&scene);
    let mut abandoned = Box::pin(readiness.report());
    assert!(abandoned.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(abandoned);
    assert!(readiness.report().await.is_ready());
    assert_eq!(probes(&scene).0, 2);
}
