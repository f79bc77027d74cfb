//! Windows of agents, by scope and as told to the refused.

use super::{Bench, ONE, admitted, digest, key, limited};
use crate::domain::quota::Quota;
use crate::ports::store::{Admission, KeyChange, Proof, Scope};

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

pub(in crate::store) async fn retry_after_is_honest_and_a_limited_request_burns_no_nonce(bench: Bench) {
    let three = Quota::per_minute(3);
    for nonce in 0..3 {
        assert!(admitted(bench.by_nonce(1, nonce, three).await));
        (bench.advance_secs)(7);
    }
    for nonce in 3..6 {
        let Admission::Limited { retry_after } = bench.by_nonce(1, nonce, three).await else {
            panic!("nonce {nonce} should be limited");
        };
        (bench.advance_secs)(retry_after.seconds() - 1);
        assert!(limited(bench.by_nonce(1, nonce, three).await), "a second early");
        (bench.advance_secs)(1);
        assert!(admitted(bench.by_nonce(1, nonce, three).await), "after exactly so long");
    }
}
