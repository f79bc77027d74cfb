//! Every sequence of three requests out of a few, at every distance out of a few: keys that are current, replaced and
//! revoked, nonces that come again, two limits and two tenants. Both stores answer as the rules say.
//!
//! The embedded store counts by a clock that is never set back, so time only passes here. Steps of Redis' clock are in
//! `steps.rs`.

use std::{collections::BTreeSet, sync::Arc};

use tokio::task::JoinSet;

use crate::domain::{Quota, RetryAfter, Verdict, window::tests::model::Model};
use crate::ports::{Admission, Clock, KeyChange, KeyChanged, NonceRefused, Proof, Scope, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::embedded::{EmbeddedStore, Options};
use crate::store::redis::tests::differential::folder;
use crate::store::redis::tests::{AHEAD_SECS, DAY_SECS, SIGNED_SECS, binding, opened, options, served};

/// How many requests there are in a sequence.
const LENGTH: usize = 3;

/// How long after another request the next one comes, in seconds: at once, and after half and all of a window.
const PAUSES_SECS: [u64; 3] = [0, 30, 60];

/// The nonce that revokes, each time.
const REVOKES: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Current,
    /// The key before the current one.
    Replaced,
    Nonce(u64),
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A request, at the API or at a tenant, under a limit.
    Ask(Shown, bool, u32),
    Revoke,
}

const EVENTS: [Event; 9] = [
    Event::Ask(Shown::Current, false, 1),
    Event::Ask(Shown::Current, false, 2),
    Event::Ask(Shown::Current, true, 1),
    Event::Ask(Shown::Replaced, false, 2),
    Event::Ask(Shown::Nonce(1), false, 1),
    Event::Ask(Shown::Nonce(1), true, 2),
    Event::Ask(Shown::Nonce(2), false, 2),
    Event::Ask(Shown::Nonce(2), true, 1),
    Event::Revoke,
];

/// The state of an agent, by the rules.
#[derive(Default)]
struct Rules {
    is_revoked: bool,
    used: BTreeSet<u64>,
    windows: [Model; 2],
}

impl Rules {
    fn step(&mut self, event: Event, now_micros: u64) -> String {
        let Event::Ask(shown, at_tenant, limit) = event else {
            let changed = if self.used.insert(REVOKES) {
                KeyChanged::Done
            } else {
                KeyChanged::NonceRefused(NonceRefused::Used)
            };
            self.is_revoked = true;
            return format!("{changed:?}");
        };
        let refusal = match shown {
            Shown::Current => self.is_revoked.then_some(Admission::KeyRevoked),
            Shown::Replaced => Some(Admission::KeyRevoked),
            Shown::Nonce(nonce) => {
                self.used.contains(&nonce).then_some(Admission::NonceRefused(NonceRefused::Used))
            }
        };
        let answer = refusal.unwrap_or_else(|| {
            let window = &mut self.windows[usize::from(at_tenant)];
            let (next, verdict) = window.step(Quota::per_minute(limit), now_micros);
            *window = next;
            match (verdict, shown) {
                (Verdict::Limited { retry_after_micros }, _) => {
                    Admission::Limited { retry_after: RetryAfter::from_micros(retry_after_micros) }
                }
                (Verdict::Admitted { remaining }, shown) => {
                    if let Shown::Nonce(nonce) = shown {
                        self.used.insert(nonce);
                    }
                    Admission::Admitted { remaining }
                }
            }
        });
        format!("{answer:?}")
    }
}

/// The first numbers of a round's keys and nonces, and the time of its signatures.
#[derive(Clone, Copy)]
struct Round {
    first: u64,
    signed_at_secs: u64,
}

impl Round {
    /// The event at a store.
    async fn ask(self, store: &dyn Store, number: u64, event: Event) -> String {
        let signed = |nonce| claim(self.first + nonce, self.signed_at_secs);
        let Event::Ask(shown, at_tenant, limit) = event else {
            let changed =
                store.changed(agent(number), signed(REVOKES), KeyChange::Revoke(None)).await.unwrap();
            return format!("{changed:?}");
        };
        let scope = if at_tenant { Scope::Tenant("acme".into()) } else { Scope::Api };
        let proof = match shown {
            Shown::Current => Proof::Key(digest(self.key(number))),
            Shown::Replaced => Proof::Key(digest(self.key(number) + 1)),
            Shown::Nonce(nonce) => Proof::Nonce(signed(nonce)),
        };
        let answer = store.admit(agent(number), &scope, Quota::per_minute(limit), &proof).await.unwrap();
        format!("{answer:?}")
    }

    /// The current key; the next number is that of the one before it.
    const fn key(self, number: u64) -> u64 {
        self.first + 10 + 2 * number
    }

    /// Gives the agent a key, and another.
    async fn issue(self, store: &dyn Store, number: u64) {
        for (nonce, key_number) in [(7, self.key(number) + 1), (8, self.key(number))] {
            let claim = claim(self.first + nonce, self.signed_at_secs);
            let change = KeyChange::Rotate(key(key_number));
            assert_eq!(store.changed(agent(number), claim, change).await.unwrap(), KeyChanged::Done);
        }
    }
}

/// All sequences of events, by the number of the agent that each is for.
fn sequences() -> Vec<[Event; LENGTH]> {
    let pairs = EVENTS.iter().flat_map(|one| EVENTS.iter().map(move |two| (*one, *two)));
    pairs.flat_map(|(one, two)| EVENTS.map(|three| [one, two, three])).collect()
}

/// Does something for each agent at once, and says the answers in the order of the agents.
async fn for_each<F>(count: usize, one: impl Fn(u64) -> F) -> Vec<String>
where
    F: Future<Output = String> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let answer = one(number as u64);
        tasks.spawn(async move { (number, answer.await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

// threat: A revoked key opens again
#[tokio::test]
async fn both_stores_answer_every_short_sequence_as_the_rules_say() {
    let Some((server, one, clock)) = served(&[]).await else { return };
    let folder = folder();
    let path = folder.path().to_owned();
    let embedded =
        Options { path, binding: binding(), nonce_retention_secs: DAY_SECS, max_ahead_secs: AHEAD_SECS };
    let embedded: Arc<dyn Store> = Arc::new(EmbeddedStore::open(embedded, Arc::clone(&clock) as _).unwrap());
    // Sequences go from one replica to the other.
    let replicas: [Arc<dyn Store>; 2] =
        [Arc::new(one), Arc::new(opened(options(&server.url()), &clock).await)];
    let sequences = Arc::new(sequences());
    let count = sequences.len();
    let mut seen = BTreeSet::new();
    for (number, pauses) in
        PAUSES_SECS.iter().flat_map(|one| PAUSES_SECS.map(|two| [0, *one, two])).enumerate()
    {
        let passed_secs = clock.monotonic_micros() / 1_000_000;
        let round = Round { first: number as u64 * 10_000, signed_at_secs: SIGNED_SECS + passed_secs };
        for store in [&embedded, &replicas[0]] {
            for_each(count, |number| {
                let store = Arc::clone(store);
                async move {
                    round.issue(&*store, number).await;
                    String::new()
                }
            })
            .await;
        }
        let mut rules: Vec<Rules> = sequences.iter().map(|_| Rules::default()).collect();
        for (place, pause_secs) in pauses.into_iter().enumerate() {
            clock.advance_secs(pause_secs);
            let now = clock.monotonic_micros();
            let asked = sequences.iter().zip(&mut rules);
            let expected: Vec<String> = asked.map(|(events, rules)| rules.step(events[place], now)).collect();
            for store in [&embedded, &replicas[place % 2]] {
                let answers = for_each(count, |number| {
                    let (store, sequences) = (Arc::clone(store), Arc::clone(&sequences));
                    async move { round.ask(&*store, number, sequences[number as usize][place]).await }
                });
                for (number, (answer, expected)) in answers.await.iter().zip(&expected).enumerate() {
                    assert_eq!(answer, expected, "{place} of {:?} with {pauses:?}", sequences[number]);
                }
            }
            seen.extend(expected);
        }
        // Every window is empty again.
        clock.advance_secs(60);
    }
    let kinds = ["Admitted", "Limited", "KeyRevoked", "NonceRefused", "Done"];
    assert!(kinds.iter().all(|kind| seen.iter().any(|answer| answer.starts_with(kind))), "{seen:?}");
}
