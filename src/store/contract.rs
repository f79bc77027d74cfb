//! The contract of every store, as tests against the port alone. `store_contract!` puts an implementation through them.

use std::net::{IpAddr, Ipv4Addr};
use std::{any::Any, sync::Arc, time::Duration};

use alloy::primitives::U256;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::domain::{
    AgentId, ClientNet, KeyDigest, KeyTerms, Nonce, NonceClaim, Quota, RetryAfter, UnixSeconds, Verdict,
    WebOrigin,
};
use crate::ports::{
    Admission, Budget, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, NewKey, NonceRefused, Proof,
    RouteScope, Scope, Store,
};

#[path = "../../tests/support/seed.rs"]
pub(super) mod seed;
mod several;
mod signers;
mod windows;
pub(super) use self::several::{
    a_change_tells_the_name_and_end_of_the_key_that_it_made, a_key_is_found_with_the_tenants_that_it_is_for,
    a_key_with_an_end_is_refused_from_then_on_and_leaves_its_place,
    a_replaced_key_goes_on_for_its_grace_and_no_longer,
    an_agent_has_as_many_keys_as_it_may_and_each_ends_by_itself,
    each_key_tells_the_days_of_its_making_and_of_its_last_use, named,
    of_too_many_replaced_keys_the_oldest_end_and_the_last_ones_go_on,
};
pub(super) use self::signers::{SIGNER, a_key_names_the_account_that_signed_for_it_and_no_other};
pub(super) use self::windows::{
    a_key_opens_nothing_but_its_own_agent, a_refused_issue_burns_no_nonce, a_refused_key_burns_no_window,
    windows_are_separate_per_scope_and_shared_by_both_proofs,
};

/// How often a condition is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Longer than anything takes on a machine that is busy with other things.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `look` gives something. Between two looks the processor is others'.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let seen = async {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Some(seen) = look().await {
                return seen;
            }
        }
    };
    let Ok(seen) = timeout(PATIENCE, seen).await else { panic!("not within {PATIENCE:?}: {what}") };
    seen
}

/// A fresh store and its time.
pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    /// Lets so many seconds pass for the store.
    pub(super) advance_secs: Box<dyn Fn(u64) + Send + Sync>,
    /// The time of the bench's signatures, in Unix seconds.
    pub(super) signed_at_secs: u64,
    /// Guards that must live as long as the store.
    pub(super) _keep: Box<dyn Any + Send + Sync>,
}

/// Makes one test of each of the contract's, on the benches that the async function at the path makes: none where a
/// server is not installed. Or calls all of them in turn, on benches of an expression.
macro_rules! store_contract {
    (in_turn: $bench:expr) => {
        store_contract! { @names in_turn_all $bench }
    };
    ($bench:path) => {
        store_contract! { @names each_a_test $bench }
    };
    (@names $how:ident $bench:expr) => {
        store_contract! { @$how $bench,
            each_key_change_has_its_documented_effect,
            a_replaced_key_is_refused_at_once,
            a_key_opens_nothing_but_its_own_agent,
            rotations_at_once_leave_one_key,
            a_nonce_is_used_once_per_agent_whatever_for,
            a_refused_key_burns_no_window,
            a_refused_issue_burns_no_nonce,
            windows_are_separate_per_scope_and_shared_by_both_proofs,
            retry_after_is_honest_and_a_limited_request_burns_no_nonce,
            a_key_does_not_expire,
            a_key_names_the_account_that_signed_for_it_and_no_other,
            an_agent_has_as_many_keys_as_it_may_and_each_ends_by_itself,
            a_replaced_key_goes_on_for_its_grace_and_no_longer,
            a_key_with_an_end_is_refused_from_then_on_and_leaves_its_place,
            of_too_many_replaced_keys_the_oldest_end_and_the_last_ones_go_on,
            a_key_is_found_with_the_tenants_that_it_is_for,
            each_key_tells_the_days_of_its_making_and_of_its_last_use,
            a_change_tells_the_name_and_end_of_the_key_that_it_made,
            of_a_thousand_twins_exactly_one_passes,
            ten_changes_and_ten_revocations_an_hour_per_client_and_agent,
            each_client_passes_each_public_route_exactly_so_often_a_minute,
        }
    };
    (@each_a_test $bench:expr, $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(bench) = Option::<crate::store::contract::Bench>::from($bench().await) {
                    crate::store::contract::$name(bench).await;
                }
            }
        )*
    };
    (@in_turn_all $bench:expr, $($name:ident),* $(,)?) => {
        $(crate::store::contract::$name($bench().await).await;)*
    };
}
pub(super) use store_contract;

pub(super) const ONE: Quota = Quota::per_minute(1);
pub(super) const MANY: Quota = Quota::per_minute(2_700);

pub(super) fn agent(number: u64) -> AgentId {
    AgentId::new(U256::from(number))
}

/// Different numbers differ all over, as digests do.
pub(super) fn digest(number: u64) -> KeyDigest {
    KeyDigest::from_bytes(U256::from_limbs([number; 4]).to_be_bytes())
}

pub(super) fn claim(nonce: u64, signed_at_secs: u64) -> NonceClaim {
    NonceClaim { nonce: Nonce::new(U256::from(nonce)), signed_at: UnixSeconds(signed_at_secs) }
}

pub(super) fn key(number: u64) -> NewKey {
    NewKey {
        digest: digest(number),
        origin: None,
        signer: SIGNER,
        terms: KeyTerms::default(),
        per_agent_max: 1,
    }
}

impl Bench {
    fn claim(&self, nonce: u64) -> NonceClaim {
        claim(nonce, self.signed_at_secs)
    }

    async fn by_key(&self, agent_number: u64, key: u64, quota: Quota) -> Admission {
        self.admit(agent_number, &Scope::Api, quota, &Proof::Key(digest(key))).await
    }

    async fn by_nonce(&self, agent_number: u64, nonce: u64, quota: Quota) -> Admission {
        self.admit(agent_number, &Scope::Api, quota, &Proof::Nonce(self.claim(nonce))).await
    }

    async fn admit(&self, agent_number: u64, scope: &Scope, quota: Quota, proof: &Proof) -> Admission {
        self.store.admit(agent(agent_number), scope, quota, proof).await.unwrap()
    }

    async fn change(&self, agent_number: u64, nonce: u64, change: KeyChange) -> KeyChanged {
        self.store.changed(agent(agent_number), self.claim(nonce), change).await.unwrap()
    }

    async fn finds(&self, key: u64) -> Option<u64> {
        let owner = self.store.find(&digest(key)).await.unwrap()?;
        Some(owner.agent.token_id().to())
    }
}

/// The change to the key with this number.
type MakeChange = fn(u64) -> KeyChange;

fn admitted(admission: Admission) -> bool {
    matches!(admission, Admission::Admitted { .. })
}

fn limited(admission: Admission) -> bool {
    matches!(admission, Admission::Limited { .. })
}

// threat: "Unknown" is remembered
pub(super) async fn each_key_change_has_its_documented_effect(bench: Bench) {
    let old = 1_000;
    let new = 2_000;
    // Has it a key, the change, the answer, and the key afterwards.
    let table: [(bool, MakeChange, KeyChanged, Option<u64>); 6] = [
        (false, |new| KeyChange::Issue(key(new)), KeyChanged::Done, Some(new)),
        (false, |new| KeyChange::Rotate(key(new)), KeyChanged::Done, Some(new)),
        (false, |_| KeyChange::Revoke(None), KeyChanged::Done, None),
        (true, |new| KeyChange::Issue(key(new)), KeyChanged::KeyExists, Some(old)),
        (true, |new| KeyChange::Rotate(key(new)), KeyChanged::Done, Some(new)),
        (true, |_| KeyChange::Revoke(None), KeyChanged::Done, None),
    ];
    for (row, (active, change, answer, after)) in (1..).zip(table) {
        if active {
            assert_eq!(bench.change(row, 1, KeyChange::Issue(key(old + row))).await, KeyChanged::Done);
        }
        assert_eq!(bench.store.has_key(agent(row)).await.unwrap(), active);
        assert_eq!(bench.finds(new + row).await, None, "row {row}: a stranger asks before it is made");
        assert_eq!(bench.change(row, 2, change(new + row)).await, answer, "row {row}");
        let client = ClientNet::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let seen = bench.store.status(client, agent(row), ONE).await.unwrap();
        assert_eq!(seen, KeySeen { has_key: after.is_some(), left: 1 }, "row {row}");
        assert_eq!(bench.store.has_key(agent(row)).await.unwrap(), after.is_some(), "row {row}");
        for candidate in [old, new] {
            let current = after == Some(candidate);
            assert_eq!(bench.finds(candidate + row).await, current.then_some(row), "row {row}");
            assert_eq!(admitted(bench.by_key(row, candidate + row, MANY).await), current, "row {row}");
        }
    }
    let declared = WebOrigin::parse("https://app.example/hook").unwrap();
    let new_key = NewKey { origin: Some(declared.clone()), ..key(7) };
    assert_eq!(bench.change(70, 1, KeyChange::Issue(new_key)).await, KeyChanged::Done);
    let owner =
        KeyOwner { agent: agent(70), declared_origin: Some(declared), signer: Some(SIGNER), tenants: None };
    assert_eq!(bench.store.find(&digest(7)).await.unwrap(), Some(owner));
}

// threat: A revoked key opens again
pub(super) async fn a_replaced_key_is_refused_at_once(bench: Bench) {
    bench.change(1, 0, KeyChange::Issue(key(0))).await;
    for round in 1..20 {
        assert!(admitted(bench.by_key(1, round - 1, MANY).await));
        bench.change(1, round, KeyChange::Rotate(key(round))).await;
        assert_eq!(bench.by_key(1, round - 1, MANY).await, Admission::KeyRevoked);
        assert_eq!((bench.finds(round - 1).await, bench.finds(round).await), (None, Some(1)));
    }
    // Whoever has just found the key is too late as well.
    bench.change(1, 100, KeyChange::Revoke(None)).await;
    assert_eq!(bench.by_key(1, 19, MANY).await, Admission::KeyRevoked);
    assert_eq!(bench.finds(19).await, None);
}

pub(super) async fn rotations_at_once_leave_one_key(bench: Bench) {
    let mut rotations = JoinSet::new();
    for number in 0..50 {
        let (store, claim) = (Arc::clone(&bench.store), bench.claim(number));
        rotations.spawn(async move { store.changed(agent(1), claim, KeyChange::Rotate(key(number))).await });
    }
    for answer in rotations.join_all().await {
        assert_eq!(answer.unwrap(), KeyChanged::Done);
    }
    let mut current = Vec::new();
    for number in 0..50 {
        let found = bench.finds(number).await.is_some();
        assert_eq!(found, admitted(bench.by_key(1, number, MANY).await));
        current.extend(found.then_some(number));
    }
    assert_eq!(current.len(), 1, "{current:?}");
}

pub(super) async fn a_nonce_is_used_once_per_agent_whatever_for(bench: Bench) {
    assert!(admitted(bench.by_nonce(1, 7, MANY).await));
    assert_eq!(bench.by_nonce(1, 7, MANY).await, Admission::NonceRefused(NonceRefused::Used));
    let again = bench.change(1, 7, KeyChange::Rotate(key(1))).await;
    assert_eq!(again, KeyChanged::NonceRefused(NonceRefused::Used));
    assert!(!bench.store.has_key(agent(1)).await.unwrap());
    // It is named before the limit, and before a key that is there.
    assert!(admitted(bench.by_nonce(4, 7, ONE).await));
    assert_eq!(bench.by_nonce(4, 7, ONE).await, Admission::NonceRefused(NonceRefused::Used));
    assert_eq!(bench.change(5, 7, KeyChange::Issue(key(5))).await, KeyChanged::Done);
    let again = bench.change(5, 7, KeyChange::Issue(key(6))).await;
    assert_eq!(again, KeyChanged::NonceRefused(NonceRefused::Used));
    assert!(admitted(bench.by_nonce(2, 7, MANY).await));
    assert_eq!(bench.change(3, 7, KeyChange::Revoke(None)).await, KeyChanged::Done);
    assert_eq!(bench.by_nonce(3, 7, MANY).await, Admission::NonceRefused(NonceRefused::Used));
}

pub(super) async fn a_key_does_not_expire(bench: Bench) {
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    (bench.advance_secs)(400 * 86_400);
    assert_eq!(bench.finds(1).await, Some(1));
    assert!(admitted(bench.by_key(1, 1, MANY).await) && bench.store.has_key(agent(1)).await.unwrap());
}

pub(super) async fn retry_after_is_honest_and_a_limited_request_burns_no_nonce(bench: Bench) {
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

// threat: A nonce passes twice, or a stranger burns it
pub(super) async fn of_a_thousand_twins_exactly_one_passes(bench: Bench) {
    let mut twins = JoinSet::new();
    for _ in 0..1_000 {
        let (store, claim) = (Arc::clone(&bench.store), bench.claim(7));
        twins.spawn(async move { store.admit(agent(1), &Scope::Api, MANY, &Proof::Nonce(claim)).await });
    }
    let answers = twins.join_all().await;
    let passed = answers.iter().filter(|answer| admitted(*answer.as_ref().unwrap())).count();
    let used = Admission::NonceRefused(NonceRefused::Used);
    let used = answers.iter().filter(|answer| *answer.as_ref().unwrap() == used).count();
    assert_eq!((passed, used), (1, 999));
    assert_eq!(bench.by_nonce(1, 8, MANY).await, Admission::Admitted { remaining: 2_698 });
}

pub(super) async fn ten_changes_and_ten_revocations_an_hour_per_client_and_agent(bench: Bench) {
    let ten = Quota::per_hour(10);
    let client = |last| ClientNet::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    let charge =
        async |budget| bench.store.count(&Budget::Key(client(1), agent(1), budget), ten).await.unwrap();
    assert_eq!(bench.store.status(client(1), agent(1), ten).await.unwrap().left, 10);
    for remaining in (0..10).rev() {
        assert_eq!(charge(KeyBudget::Changes).await, Verdict::Admitted { remaining });
        assert_eq!(bench.store.status(client(1), agent(1), ten).await.unwrap().left, remaining);
        (bench.advance_secs)(60);
    }
    let Verdict::Limited { retry_after_micros } = charge(KeyBudget::Changes).await else {
        panic!("the eleventh should be limited");
    };
    assert_eq!(RetryAfter::from_micros(retry_after_micros).seconds(), 3_000);
    for remaining in (0..10).rev() {
        assert_eq!(charge(KeyBudget::Revocations).await, Verdict::Admitted { remaining });
    }
    assert!(matches!(charge(KeyBudget::Revocations).await, Verdict::Limited { .. }));
    assert_eq!(bench.store.status(client(2), agent(1), ten).await.unwrap().left, 10);
    assert_eq!(bench.store.status(client(1), agent(2), ten).await.unwrap().left, 10);
    (bench.advance_secs)(3_000);
    assert_eq!(charge(KeyBudget::Changes).await, Verdict::Admitted { remaining: 0 });
}

// threat: One visitor takes a public route
pub(super) async fn each_client_passes_each_public_route_exactly_so_often_a_minute(bench: Bench) {
    let [docs, feed] = ["acme/docs/* GET", "acme/feed "].map(|text| RouteScope(text.into()));
    let [one, other] =
        ["2001:db8:1:2::1", "2001:db8:1:3::1"].map(|text| ClientNet::of(text.parse().unwrap()));
    let two = Quota::per_minute(2);
    let pass = async |client, route: &RouteScope, quota| {
        bench.store.count(&Budget::Route((client, route.clone())), quota).await.unwrap()
    };
    assert_eq!(pass(one, &docs, two).await, Verdict::Admitted { remaining: 1 });
    (bench.advance_secs)(20);
    assert_eq!(pass(one, &docs, two).await, Verdict::Admitted { remaining: 0 });
    for (client, route) in [(one, &feed), (other, &docs)] {
        assert_eq!(pass(client, route, two).await, Verdict::Admitted { remaining: 1 });
    }
    // Refused requests count nothing, however many they are.
    for waited_secs in 0..40 {
        let Verdict::Limited { retry_after_micros } = pass(one, &docs, two).await else {
            panic!("limited after {waited_secs} s")
        };
        assert_eq!(RetryAfter::from_micros(retry_after_micros).seconds(), 40 - waited_secs);
        (bench.advance_secs)(1);
    }
    assert_eq!(pass(one, &docs, two).await, Verdict::Admitted { remaining: 0 });
    assert!(matches!(pass(one, &docs, two).await, Verdict::Limited { .. }));
    // A limit that was changed counts at once.
    assert!(matches!(pass(one, &docs, ONE).await, Verdict::Limited { .. }));
    assert_eq!(pass(one, &docs, Quota::per_minute(3)).await, Verdict::Admitted { remaining: 0 });
}
