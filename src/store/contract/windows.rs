//! A refused proof leaves everything as it was, and windows are separate.

use super::{Bench, MANY, ONE, digest, key, limited};
use crate::ports::{Admission, KeyChange, KeyChanged, Proof, Scope};

pub(in crate::store) async fn windows_are_separate_per_scope_and_shared_by_both_proofs(bench: Bench) {
    bench.change(1, 100, KeyChange::Issue(key(1))).await;
    let scopes = [Scope::Api, Scope::Tenant("acme".into()), Scope::Tenant("other".into())];
    for (nonce, scope) in (0..).zip(&scopes) {
        let by_key = Proof::Key(digest(1));
        let by_nonce = Proof::Nonce(bench.claim(nonce));
        assert_eq!(bench.admit(1, scope, ONE, &by_key).await, Admission::Admitted { remaining: 0 });
        assert!(limited(bench.admit(1, scope, ONE, &by_nonce).await));
    }
}

pub(in crate::store) async fn a_key_opens_nothing_but_its_own_agent(bench: Bench) {
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    bench.change(2, 1, KeyChange::Issue(key(2))).await;
    assert_eq!(bench.by_key(2, 1, MANY).await, Admission::KeyRevoked);
    assert_eq!(bench.by_key(3, 1, MANY).await, Admission::KeyRevoked);
    assert_eq!((bench.finds(3).await, bench.by_key(1, 3, MANY).await), (None, Admission::KeyRevoked));
}

pub(in crate::store) async fn a_refused_key_burns_no_window(bench: Bench) {
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    for _ in 0..10 {
        assert_eq!(bench.by_key(1, 2, ONE).await, Admission::KeyRevoked);
    }
    assert_eq!(bench.by_key(1, 1, ONE).await, Admission::Admitted { remaining: 0 });
    assert_eq!(bench.by_key(1, 2, ONE).await, Admission::KeyRevoked, "also when the window is full");
}

pub(in crate::store) async fn a_refused_issue_burns_no_nonce(bench: Bench) {
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    assert_eq!(bench.change(1, 2, KeyChange::Issue(key(2))).await, KeyChanged::KeyExists);
    assert_eq!(bench.change(1, 2, KeyChange::Rotate(key(2))).await, KeyChanged::Done);
}
