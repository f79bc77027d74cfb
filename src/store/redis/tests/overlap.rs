//! Programs of one agent that each replace its key at their start, over three replicas.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::domain::Quota;
use crate::ports::{Admission, KeyChange, KeyChanged, NewKey, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key, named};
use crate::store::redis::tests::{SIGNED_SECS, fitting, opened, options, served};

/// The number that histories add to an odd agent's number for its second key: it has two, whose changes follow each other apart.
pub(super) const SECOND: u64 = 1 << 40;

/// A key of this line of a history.
pub(super) fn of_line(line: u64, digest: u64) -> NewKey {
    match (line % 2, line < SECOND) {
        (0, _) => key(digest),
        (_, is_first) => named(digest, if is_first { "a" } else { "b" }, 2),
    }
}

const PROGRAMS: u64 = 50;

/// More than all ask.
const PLENTY: Quota = Quota::per_minute(1_000_000);

// threat: A replaced key outlives its grace
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_programs_that_rotate_with_overlap_are_never_refused_and_a_revocation_ends_all_at_once() {
    let Some((server, first, clock)) = served(&[]).await else { return };
    let mut stores = vec![Arc::new(first)];
    for _ in 0..2 {
        stores.push(Arc::new(opened(options(&server.url()), &clock).await));
    }
    let passes = async |store: &dyn Store, key: u64| {
        let Some(owner) = store.find(&digest(key)).await.unwrap() else { return false };
        let admission =
            store.admit(owner.agent, &Scope::Api, PLENTY, &Proof::Key(digest(key))).await.unwrap();
        matches!(admission, Admission::Admitted { .. })
    };
    let mut programs = JoinSet::new();
    for number in 1..=PROGRAMS {
        let stores = stores.clone();
        programs.spawn(async move {
            let key = fitting(1, number);
            let mut new = named(key, "", 1);
            new.terms.grace_secs = 60;
            let at = number as usize;
            let changed =
                stores[at % 3].changed(agent(1), claim(number, SIGNED_SECS), KeyChange::Rotate(new));
            assert_eq!(changed.await.unwrap(), KeyChanged::Done);
            for turn in 0..30 {
                assert!(passes(&*stores[(at + turn) % 3], key).await, "program {number}, request {turn}");
            }
            key
        });
    }
    let keys = programs.join_all().await;
    clock.advance_secs(60);
    let mut left = Vec::new();
    for key in &keys {
        left.extend(passes(&*stores[(*key % 3) as usize], *key).await.then_some(*key));
    }
    assert_eq!(left.len(), 1, "the last one goes on, and each other has ended with its grace");
    let mut last = named(fitting(1, 100), "", 1);
    last.terms.grace_secs = 3_600;
    stores[0].changed(agent(1), claim(100, SIGNED_SECS), KeyChange::Rotate(last)).await.unwrap();
    let both = [left[0], fitting(1, 100)];
    for store in &stores {
        assert!(passes(&**store, both[0]).await && passes(&**store, both[1]).await);
    }
    stores[1].changed(agent(1), claim(101, SIGNED_SECS), KeyChange::Revoke(None)).await.unwrap();
    for store in &stores {
        assert!(!passes(&**store, both[0]).await && !passes(&**store, both[1]).await);
    }
}
