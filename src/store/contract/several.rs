//! Several keys of an agent, their ends, and the grace of those that are replaced.

use super::{Admission, Bench, MANY, agent, digest, key, limited};
use crate::domain::{KeyName, KeyTerms, TenantList};
use crate::ports::{KeyChange, KeyChanged, NewKey, Scope};
use crate::store::held_keys::REPLACED_MAX;

const DONE: KeyChanged = KeyChanged::Done;
const EXISTS: KeyChanged = KeyChanged::KeyExists;
const NONE: KeyChanged = KeyChanged::NoSuchKey;

fn name(text: &str) -> Option<KeyName> {
    (!text.is_empty()).then(|| KeyName::parse(text).unwrap())
}

/// A key with this name, of an agent that may have so many.
pub(in crate::store) fn named(number: u64, text: &str, per_agent_max: u32) -> NewKey {
    NewKey { terms: KeyTerms { name: name(text), ..KeyTerms::default() }, per_agent_max, ..key(number) }
}

fn with(key: NewKey, change: impl FnOnce(&mut KeyTerms)) -> NewKey {
    let mut key = key;
    change(&mut key.terms);
    key
}

fn graced(key: NewKey, secs: u64) -> NewKey {
    with(key, |terms| terms.grace_secs = secs)
}

impl Bench {
    /// Which of these keys of agent 1 are good, as every way to ask says.
    async fn good(&self, numbers: &[u64]) -> Vec<u64> {
        let mut good = Vec::new();
        for number in numbers.iter().copied() {
            let admission = self.by_key(1, number, MANY).await;
            let is_current = self.store.is_current(agent(1), &digest(number)).await.unwrap();
            assert_eq!(
                matches!(admission, Admission::Admitted { .. }),
                is_current,
                "{number}: {admission:?}"
            );
            // A store that many share may still find one that has ended.
            assert!(!is_current || self.finds(number).await == Some(1), "{number}");
            assert!(!limited(admission), "{number}");
            good.extend(is_current.then_some(number));
        }
        good
    }

    async fn names(&self) -> Vec<String> {
        let keys = self.store.keys(agent(1)).await.unwrap();
        let text = |name: Option<KeyName>| name.map_or_else(String::new, |name| name.to_string());
        keys.into_iter().map(|key| text(key.name) + if key.is_replaced { " replaced" } else { "" }).collect()
    }
}

pub(in crate::store) async fn an_agent_has_as_many_keys_as_it_may_and_each_ends_by_itself(bench: Bench) {
    let issue = async |nonce, number, text: &str| {
        bench.change(1, nonce, KeyChange::Issue(named(number, text, 3))).await
    };
    assert_eq!((issue(1, 1, "").await, issue(2, 2, "ci").await), (DONE, DONE));
    assert_eq!((issue(3, 3, "ci").await, issue(3, 3, "").await), (EXISTS, EXISTS), "names are unique");
    assert_eq!((issue(3, 3, "app").await, issue(4, 4, "more").await), (DONE, EXISTS), "no room");
    assert_eq!(bench.good(&[1, 2, 3, 4]).await, [1, 2, 3]);
    assert_eq!(bench.names().await, ["", "ci", "app"]);

    let rotate = async |nonce, key| bench.change(1, nonce, KeyChange::Rotate(key)).await;
    assert_eq!(rotate(5, named(5, "ci", 3)).await, DONE);
    assert_eq!(rotate(6, named(6, "", 3)).await, DONE, "of several the one without a name");
    assert_eq!(rotate(7, named(7, "more", 3)).await, NONE, "of nobody");
    assert_eq!(bench.good(&[1, 2, 3, 5, 6, 7]).await, [3, 5, 6]);
    let revoke = async |nonce, text: &str| bench.change(1, nonce, KeyChange::Revoke(name(text))).await;
    assert_eq!((revoke(8, "ci").await, revoke(9, "nobody").await), (DONE, NONE));
    assert_eq!(bench.good(&[3, 5, 6]).await, [3, 6]);
    assert_eq!(rotate(9, named(7, "more", 3)).await, NONE, "of nobody, with room");
    assert_eq!(issue(9, 7, "more").await, DONE, "the nonce was not used");
    assert_eq!((revoke(10, "app").await, issue(20, 8, "ci").await), (DONE, DONE));
    assert_eq!(bench.names().await, ["", "more", "ci"]);
    assert_eq!(revoke(11, "").await, DONE);
    assert_eq!((bench.good(&[3, 6, 7]).await, bench.names().await.len()), (vec![], 0));
    assert!(!bench.store.has_key(agent(1)).await.unwrap());
    // One alone is rotated whatever its name is, and keeps it.
    assert_eq!((issue(12, 12, "ci").await, rotate(13, named(13, "", 3)).await), (DONE, DONE));
    assert_eq!((bench.good(&[12, 13]).await, bench.names().await), (vec![13], vec!["ci".to_owned()]));
    // Where there may be one from now on, all go.
    assert_eq!(issue(14, 14, "app").await, DONE);
    assert_eq!(bench.change(1, 15, KeyChange::Issue(key(15))).await, EXISTS);
    assert_eq!((rotate(15, key(15)).await, bench.good(&[13, 14, 15]).await), (DONE, vec![15]));
}

pub(in crate::store) async fn a_replaced_key_goes_on_for_its_grace_and_no_longer(bench: Bench) {
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    let rotate = async |nonce, number, secs| {
        bench.change(1, nonce, KeyChange::Rotate(graced(key(number), secs))).await
    };
    assert_eq!(rotate(2, 2, 10).await, DONE);
    assert_eq!(bench.names().await, [" replaced", ""]);
    (bench.advance_secs)(9);
    assert_eq!(bench.good(&[1, 2]).await, [1, 2]);
    assert_eq!(rotate(3, 3, 3_600).await, DONE, "a later one does not lengthen it");
    assert_eq!(bench.good(&[1, 2, 3]).await, [1, 2, 3]);
    (bench.advance_secs)(1);
    assert_eq!(bench.by_key(1, 1, MANY).await, Admission::KeyRevoked);
    assert_eq!(bench.good(&[1, 2, 3]).await, [2, 3]);
    assert_eq!(rotate(4, 4, 5).await, DONE, "but shortens it");
    (bench.advance_secs)(5);
    for number in [2, 3] {
        assert_eq!(bench.by_key(1, number, MANY).await, Admission::KeyRevoked);
    }
    assert_eq!((rotate(5, 5, 60).await, bench.good(&[4, 5]).await), (DONE, vec![4, 5]));
    assert_eq!((rotate(6, 6, 0).await, bench.good(&[4, 5, 6]).await), (DONE, vec![6]), "at once, all");
    assert_eq!((rotate(7, 7, 60).await, bench.good(&[6, 7]).await), (DONE, vec![6, 7]));
    bench.change(1, 8, KeyChange::Revoke(None)).await;
    assert_eq!(bench.good(&[6, 7]).await, Vec::<u64>::new(), "a revocation ends those in their grace too");
    assert_eq!(bench.change(1, 9, KeyChange::Issue(key(9))).await, DONE);
}

pub(in crate::store) async fn a_key_with_an_end_is_refused_from_then_on_and_leaves_its_place(bench: Bench) {
    let ending = |number, secs| with(key(number), |terms| terms.expires_in_secs = Some(secs));
    bench.change(1, 1, KeyChange::Issue(ending(1, 60))).await;
    (bench.advance_secs)(59);
    assert_eq!(bench.good(&[1]).await, [1]);
    assert_eq!(bench.change(1, 2, KeyChange::Issue(key(2))).await, EXISTS);
    (bench.advance_secs)(1);
    assert_eq!(bench.by_key(1, 1, MANY).await, Admission::KeyRevoked);
    assert!(bench.good(&[1]).await.is_empty() && bench.names().await.is_empty());
    assert!(!bench.store.has_key(agent(1)).await.unwrap());
    assert_eq!(bench.change(1, 2, KeyChange::Issue(ending(2, 60))).await, DONE);
    // A grace ends no key later than it would.
    (bench.advance_secs)(30);
    bench.change(1, 3, KeyChange::Rotate(graced(ending(3, 86_400), 3_600))).await;
    assert_eq!(bench.good(&[1, 2, 3]).await, [2, 3]);
    (bench.advance_secs)(30);
    assert_eq!(bench.by_key(1, 2, MANY).await, Admission::KeyRevoked);
    (bench.advance_secs)(86_400 - 31);
    assert_eq!(bench.good(&[2, 3]).await, [3]);
    (bench.advance_secs)(1);
    assert_eq!(bench.by_key(1, 3, MANY).await, Admission::KeyRevoked);
}

pub(in crate::store) async fn of_too_many_replaced_keys_the_oldest_end_and_the_last_ones_go_on(bench: Bench) {
    let last = REPLACED_MAX as u64 + 3;
    for number in 0..=last {
        bench.change(1, number, KeyChange::Rotate(graced(key(number), 3_600))).await;
    }
    let all: Vec<u64> = (0..=last).collect();
    assert_eq!(bench.good(&all).await, all[3..]);
    assert_eq!(bench.names().await.len(), REPLACED_MAX + 1);
}

pub(in crate::store) async fn a_key_is_found_with_the_tenants_that_it_is_for(bench: Bench) {
    let tenants = TenantList::parse(["acme", "other"]).ok();
    let restricted = with(named(1, "ci", 2), |terms| terms.tenants = tenants.clone());
    bench.change(1, 1, KeyChange::Issue(restricted)).await;
    bench.change(1, 2, KeyChange::Issue(named(2, "", 2))).await;
    let (one, all) = (
        bench.store.find(&digest(1)).await.unwrap().unwrap(),
        bench.store.find(&digest(2)).await.unwrap().unwrap(),
    );
    assert_eq!((&one.tenants, &all.tenants), (&tenants, &None));
    for (scope, is_for) in [
        (Scope::Api, false),
        (Scope::Tenant("acme".into()), true),
        (Scope::Tenant("other".into()), true),
        (Scope::Tenant("acm".into()), false),
        (Scope::Tenant("acme,other".into()), false),
    ] {
        assert_eq!((one.is_for(&scope), all.is_for(&scope)), (is_for, true), "{scope:?}");
    }
    let listed = bench.store.keys(agent(1)).await.unwrap();
    assert_eq!(listed.into_iter().map(|key| key.tenants).collect::<Vec<_>>(), [tenants, None]);
}

pub(in crate::store) async fn each_key_tells_the_days_of_its_making_and_of_its_last_use(bench: Bench) {
    let days = async |numbers: &[u64]| {
        // A store that many share notes uses once a minute.
        bench.store.note_uses().await;
        let keys = bench.store.keys(agent(1)).await.unwrap();
        assert_eq!(
            keys.iter().map(|key| key.digest).collect::<Vec<_>>(),
            numbers.iter().copied().map(digest).collect::<Vec<_>>()
        );
        keys.into_iter().map(|key| key.days.map(|days| (days.made, days.used)).unwrap()).collect::<Vec<_>>()
    };
    bench.change(1, 1, KeyChange::Issue(key(1))).await;
    let first = days(&[1]).await[0].0;
    assert_eq!((u64::from(first), days(&[1]).await[0].1), (bench.signed_at_secs / 86_400, None));
    bench.finds(1).await;
    assert_eq!(days(&[1]).await, [(first, Some(first))]);
    // Midnight is no further from any bench's first moment, and the next one is.
    (bench.advance_secs)(7_000);
    let next = first + 1;
    bench.change(1, 2, KeyChange::Issue(named(2, "ci", 2))).await;
    bench.finds(2).await;
    assert_eq!(days(&[1, 2]).await, [(first, Some(first)), (next, Some(next))]);
    bench.finds(1).await;
    // Alone again it is stored as releases did that know no other, and keeps its days.
    bench.change(1, 3, KeyChange::Revoke(name("ci"))).await;
    assert_eq!(days(&[1]).await, [(first, Some(next))]);
    bench.change(1, 4, KeyChange::Rotate(graced(key(4), 60))).await;
    assert_eq!(days(&[1, 4]).await, [(first, Some(next)), (next, None)]);
}

pub(in crate::store) async fn a_change_tells_the_name_and_end_of_the_key_that_it_made(bench: Bench) {
    let made = async |nonce, change| {
        let change = bench.store.change_key(agent(1), bench.claim(nonce), change).await.unwrap();
        change.1.map(|made| (made.name, made.ends))
    };
    let ending = with(named(1, "ci", 2), |terms| terms.expires_in_secs = Some(60));
    let (ci, ends) = made(1, KeyChange::Issue(ending)).await.unwrap();
    assert_eq!((ci, ends.is_some()), (name("ci"), true));
    let listed = bench.store.keys(agent(1)).await.unwrap();
    assert_eq!(listed[0].ends, ends);
    assert_eq!(made(2, KeyChange::Issue(named(2, "ci", 2))).await, None, "refused");
    assert_eq!(made(2, KeyChange::Rotate(named(2, "", 2))).await, Some((name("ci"), None)), "kept");
    assert_eq!(made(3, KeyChange::Revoke(None)).await, None);
    assert_eq!(made(4, KeyChange::Rotate(key(4))).await, Some((None, None)));
}
