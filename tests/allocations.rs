//! A key check out of memory allocates nothing, and strangers leave nothing: the whole `Pipeline::admit` over the real store and
//! the real chain reader.
#![expect(clippy::expect_used, reason = "a scene that can't be set up has nothing to count")]

#[path = "../benches/scene/mod.rs"]
#[expect(dead_code, reason = "shared with the benchmark, which measures signatures too")]
mod scene;

use std::{future::pending, ops::Range};

use alloy::primitives::U256;
use tiergate::domain::{KeyDigest, PerTier, Quota};
use tiergate::pipeline::{Access, Credential};

use crate::scene::{Scene, access, ask, ready};

/// So many that a table or a log that grows would be seen.
const CHECKS: u64 = 1_000;

#[test]
fn a_key_check_out_of_memory_allocates_nothing() {
    let scene = Scene::new();
    let digest = scene.generate_key().digest();
    // One window is full in the course of it: refusals allocate nothing either.
    let access = Access { quotas: PerTier([Quota::per_minute(512); 4]), ..access() };
    let check =
        || ready(scene.pipeline.admit(&ask(Credential::Key { digest, named: None }, &access))).is_ok();
    // The window's log has its whole size from here on.
    let admitted = (0..300).filter(|_| check()).count();
    assert_eq!(admitted, 300);
    let mut admitted = 0;
    let counted = allocation_counter::measure(|| {
        admitted = (0..CHECKS).filter(|_| check()).count();
    });
    assert_eq!((admitted, counted.count_total), (512 - 300, 0));
}

// threat: Made-up keys fill memory
#[test]
fn strangers_leave_no_byte_in_memory() {
    let (scene, access) = (Scene::new(), access());
    let refused = |numbers: Range<u64>| {
        let digest = |number: u64| KeyDigest::from_bytes(U256::from(number).to_be_bytes());
        let keys = numbers.map(|number| Credential::Key { digest: digest(number), named: None });
        keys.filter_map(|key| ready(scene.pipeline.admit(&ask(key, &access))).err()).count()
    };
    // The client's count of refusals stays.
    assert_eq!(refused(0..1_000), 1_000);
    let mut count = 0;
    let counted = allocation_counter::measure(|| count = refused(1_000..5_000));
    assert_eq!((count, counted.count_current, counted.bytes_current), (4_000, 0, 0));
}

#[test]
fn a_box_for_a_future_is_counted() {
    let counted = allocation_counter::measure(|| drop(Box::pin(pending::<()>())));
    assert_eq!(counted.count_total, 0, "a future of no size needs no allocation");
    let mut text = String::from("x");
    let counted = allocation_counter::measure(|| drop(Box::pin(async { text.push('y') })));
    assert_eq!(counted.count_total, 1);
}
