//! The embedded store and Redis are fed the same schedule at the same times, and say the same.

use std::net::{IpAddr, Ipv4Addr};
use std::{path::Path, sync::Arc};

use crate::domain::{ClientNet, HeldKey, KeyDays, Quota};
use crate::ports::{Budget, KeyBudget, KeyChange, Proof, Scope, Store};
use crate::store::contract::seed::seed;
use crate::store::contract::{agent, claim, digest, named};
use crate::store::embedded::{EmbeddedStore, Options};
use crate::store::redis::tests::{AHEAD_SECS, DAY_SECS, SIGNED_SECS, binding, opened, options, served};

/// Says how many questions are asked, where it is not this many.
const QUESTIONS_VARIABLE: &str = "TG_QUESTIONS";
const QUESTIONS: u32 = 10_000;

const AGENTS: u64 = 6;

/// Numbers that a seed determines.
struct Dice(fastrand::Rng);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }
}

/// One question to both stores.
#[derive(Debug)]
enum Question {
    Find(u64),
    Admit(u64, Scope, Quota, Proof),
    Change(u64, u64, KeyChange),
    HasKey(u64),
    Keys(u64),
    Charge(ClientNet, u64, KeyBudget, Quota),
    Status(ClientNet, u64, Quota),
}

/// Draws questions. Of keys and nonces it knows how many there were, so that old ones come up again.
struct Schedule {
    dice: Dice,
    keys: u64,
    nonces: u64,
}

impl Schedule {
    fn quota(&mut self) -> Quota {
        let limits = [1, 2, 3, 16, 17, 166];
        Quota::per_minute(limits[self.dice.below(limits.len() as u64) as usize])
    }

    /// Mostly one of the last few.
    fn old(&mut self, count: u64) -> u64 {
        count.saturating_sub(self.dice.below(8))
    }

    fn nonce(&mut self) -> u64 {
        if self.dice.below(3) == 0 {
            return self.old(self.nonces);
        }
        self.nonces += 1;
        self.nonces
    }

    fn change(&mut self) -> KeyChange {
        self.keys += 1;
        let max = [1, 1, 3][self.dice.below(3) as usize];
        let mut new = named(self.keys, ["", "", "ci", "app"][self.dice.below(4) as usize], max);
        new.terms.grace_secs = [0, 0, 1, 20][self.dice.below(4) as usize];
        new.terms.expires_in_secs = [None, None, Some(1), Some(30)][self.dice.below(4) as usize];
        match self.dice.below(5) {
            0 | 1 => KeyChange::Issue(new),
            2 => KeyChange::Revoke(new.terms.name),
            _ => KeyChange::Rotate(new),
        }
    }

    fn next(&mut self) -> Question {
        let agent = self.dice.below(AGENTS);
        let scope = if self.dice.below(2) == 0 { Scope::Api } else { Scope::Tenant("acme".into()) };
        let last = u8::try_from(self.dice.below(2)).unwrap();
        let client = ClientNet::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let ten = Quota::per_hour(10 + u32::from(last));
        match self.dice.below(100) {
            0..60 => {
                let number = self.old(self.keys);
                Question::Admit(agent, scope, self.quota(), Proof::Key(digest(number)))
            }
            60..75 => {
                let proof = Proof::Nonce(claim(self.nonce(), SIGNED_SECS));
                Question::Admit(agent, scope, self.quota(), proof)
            }
            75..80 => Question::Change(agent, self.nonce(), self.change()),
            80..85 => Question::Find(self.old(self.keys)),
            85..87 => Question::HasKey(agent),
            87 => Question::Keys(agent),
            88..92 => Question::Charge(client, agent, KeyBudget::Changes, ten),
            92..95 => Question::Charge(client, agent, KeyBudget::Revocations, ten),
            _ => Question::Status(client, agent, ten),
        }
    }

    /// Often nothing, often to the edge of a window, in microseconds.
    fn pause_micros(&mut self) -> u64 {
        match self.dice.below(10) {
            0..5 => 0,
            5 => 1,
            6 => self.dice.below(1_000_000),
            7 => 1_000_000,
            8 => self.dice.below(3_000_000),
            _ => [59_999_999, 60_000_000, 7_500_000, 100][self.dice.below(4) as usize] / 16,
        }
    }
}

/// The whole answer, as text.
async fn answer(store: &dyn Store, question: &Question) -> String {
    match question {
        // A store that many share may still find one that has ended.
        Question::Find(number) => match store.find(&digest(*number)).await.unwrap() {
            Some(found) if !store.is_current(found.agent, &digest(*number)).await.unwrap() => {
                "None".to_owned()
            }
            found => format!("{found:?}"),
        },
        Question::Keys(number) => {
            // In Redis entries of digests have the rest, and uses are written now and then.
            let made = |key: &HeldKey| key.days.map(|days| KeyDays { used: None, ..days });
            let plain = |key| HeldKey { signer: None, origin: None, days: made(&key), ..key };
            let keys = store.keys(agent(*number)).await.unwrap();
            format!("keys {:?}", keys.into_iter().map(plain).collect::<Vec<_>>())
        }
        Question::Admit(number, scope, quota, proof) => {
            format!("{:?}", store.admit(agent(*number), scope, *quota, proof).await.unwrap())
        }
        Question::Change(number, nonce, change) => {
            let claim = claim(*nonce, SIGNED_SECS);
            format!("{:?}", store.changed(agent(*number), claim, change.clone()).await.unwrap())
        }
        Question::HasKey(number) => format!("{:?}", store.has_key(agent(*number)).await.unwrap()),
        Question::Charge(client, number, budget, quota) => {
            format!(
                "counted {:?}",
                store.count(&Budget::Key(*client, agent(*number), *budget), *quota).await.unwrap()
            )
        }
        Question::Status(client, number, quota) => {
            format!("{:?}", store.status(*client, agent(*number), *quota).await.unwrap())
        }
    }
}

/// A folder in memory where there is one: what is compared is not the disk.
pub(super) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[tokio::test]
async fn thousands_of_questions_are_answered_alike_by_both_stores() {
    let Some((server, redis, clock)) = served(&[]).await else { return };
    let folder = folder();
    let path = folder.path().to_owned();
    let embedded =
        Options { path, binding: binding(), nonce_retention_secs: DAY_SECS, max_ahead_secs: AHEAD_SECS };
    let embedded = EmbeddedStore::open(embedded, Arc::clone(&clock) as _).unwrap();
    // A second replica, which takes every other admission. It counts requests that prove nothing by itself.
    let other = opened(options(&server.url()), &clock).await;

    let mut schedule = Schedule { dice: Dice(fastrand::Rng::with_seed(seed())), keys: 0, nonces: 0 };
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    let questions = std::env::var(QUESTIONS_VARIABLE).map_or(QUESTIONS, |text| text.parse().unwrap());
    for number in 0..questions {
        clock.advance_micros(schedule.pause_micros());
        let question = schedule.next();
        let by_other = matches!(question, Question::Admit(..) | Question::HasKey(_));
        let replica = if by_other && number % 2 == 0 { &other } else { &redis };
        let expected = answer(&embedded, &question).await;
        assert_eq!(answer(replica, &question).await, expected, "{number}: {question:?}");
        let kind: String = match expected.starts_with("NonceRefused(Used") {
            true => "NonceUsed".to_owned(),
            false => expected.chars().take_while(|char| char.is_alphabetic()).collect(),
        };
        *seen.entry(kind).or_default() += 1;
    }
    for kind in [
        "Admitted",
        "Limited",
        "KeyRevoked",
        "NonceUsed",
        "Done",
        "KeyExists",
        "counted",
        "None",
        "keys",
        "Some",
        "true",
    ] {
        assert!(seen.get(kind).is_some_and(|count| *count > questions / 1_000), "{kind}: {seen:?}");
    }
}
