//! Sentinels: which master most of them name, and for how long that holds.
//!
//! A Sentinel that was cut off together with a deposed master goes on naming it, so none is believed unless more than
//! half of all that are configured say the same. Must not know what the master is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::domain::redis_url::RedisHost;
use crate::ports::clock::Clock;
use crate::store::redis::dial::{Login, connect};
use crate::store::redis::options::Shared;
use crate::store::redis::trouble::Trouble;

/// How often they are asked whether the master is still the master.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(1);

/// How late an answer may be before nobody is served without one: the process was stopped meanwhile, or starved.
const OVERDUE: Duration = Duration::from_secs(2);

/// So many looks in a row that no majority confirms are one too many.
const DOUBTS_MAX: u32 = 3;

/// What one Sentinel says, and its place in the configuration.
type Named = (usize, Result<RedisHost, Trouble>);

/// The master that more than half of the Sentinels name. All are asked at once, each within `store.timeout`; those that
/// are silent hold nothing up when the others agree.
pub(super) async fn master(
    shared: &Arc<Shared>,
    sentinels: &[RedisHost],
    service: &str,
) -> Result<RedisHost, Trouble> {
    let mut asked = JoinSet::new();
    for (place, sentinel) in sentinels.iter().cloned().enumerate() {
        let (shared, service) = (Arc::clone(shared), service.to_owned());
        asked.spawn(async move { (place, ask(&shared, &sentinel, &service).await) });
    }
    let mut answers = Vec::new();
    while let Some(answer) = asked.join_next().await {
        answers.extend(answer);
        if let Some(host) = of_most(&answers, sentinels.len()) {
            return Ok(host.clone());
        }
    }
    Err(disagreement(answers, sentinels.len()))
}

async fn ask(shared: &Shared, sentinel: &RedisHost, service: &str) -> Result<RedisHost, Trouble> {
    let asked = async {
        let mut connection = connect(shared, sentinel, Login::Sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        let answer: Option<(String, u16)> =
            command.query_async(&mut connection).await.map_err(|error| Trouble::of(&error))?;
        let (host, port) =
            answer.ok_or_else(|| Trouble::Refused(format!("a Sentinel knows no master {service:?}")))?;
        Ok(RedisHost { host, port })
    };
    let time_max = shared.options.timeout;
    timeout(time_max, asked).await.unwrap_or(Err(Trouble::Silent(time_max)))
}

/// The host that more than half of all Sentinels name.
fn of_most(answers: &[Named], sentinels: usize) -> Option<&RedisHost> {
    let named = || answers.iter().filter_map(|(_, named)| named.as_ref().ok());
    named().find(|host| named().filter(|other| other == host).count() * 2 > sentinels)
}

/// Why there is no majority: the same words for the same answers, in whichever order they came.
fn disagreement(mut answers: Vec<Named>, sentinels: usize) -> Trouble {
    answers.sort_unstable_by_key(|(place, _)| *place);
    let (mut hosts, mut troubles) = (Vec::new(), Vec::new());
    for (_, named) in answers {
        match named {
            Ok(host) => hosts.push(host.to_string()),
            Err(trouble) => troubles.push(trouble),
        }
    }
    let named = hosts.len();
    hosts.dedup();
    if hosts.len() > 1 {
        return Trouble::Divided(hosts.join(", "));
    }
    let why = troubles.first().map_or_else(|| "there are no others".to_owned(), Trouble::to_string);
    Trouble::TooFew { named, sentinels, why }
}

/// What is believed of a master after one look after the other.
#[derive(Debug, Default)]
pub(super) struct Belief {
    doubts: u32,
}

/// What a look leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is the master.
    Confirmed,
    /// No majority says anything. That happens, and takes nothing away yet.
    Doubtful,
    /// It is not served from any more, for this reason.
    Deposed(String),
}

impl Belief {
    /// Takes in what most of the Sentinels say of the master at `host`.
    pub(super) fn hear(&mut self, named: Result<RedisHost, Trouble>, host: &RedisHost) -> Heard {
        match named {
            Ok(named) if named == *host => {
                self.doubts = 0;
                Heard::Confirmed
            }
            Ok(named) => Heard::Deposed(format!("the Sentinels name another master, {named}")),
            Err(trouble) => {
                self.doubts = self.doubts.saturating_add(1);
                if self.doubts < DOUBTS_MAX { Heard::Doubtful } else { Heard::Deposed(trouble.to_string()) }
            }
        }
    }
}

/// Until when a master is served from without another look.
///
/// It runs out when looks are overdue. So a process that was stopped while a master was deposed asks before it serves.
#[derive(Debug)]
pub(super) struct Lease {
    /// Monotonic, in microseconds.
    pub(super) until_micros: AtomicU64,
}

impl Lease {
    /// For a server that no Sentinel speaks for.
    pub(super) const fn endless() -> Self {
        Self { until_micros: AtomicU64::new(u64::MAX) }
    }

    /// Of a look that began at `asked_micros`.
    pub(super) fn of_look(asked_micros: u64, time_max: Duration) -> Self {
        Self { until_micros: AtomicU64::new(end_of(asked_micros, time_max)) }
    }

    /// The Sentinels were asked again, at `asked_micros`, each for no longer than `time_max`.
    pub(super) fn renew(&self, asked_micros: u64, time_max: Duration) {
        self.until_micros.store(end_of(asked_micros, time_max), Ordering::Relaxed);
    }

    /// Whether it has not run out.
    pub(super) fn holds(&self, clock: &dyn Clock) -> bool {
        let until = self.until_micros.load(Ordering::Relaxed);
        until == u64::MAX || clock.monotonic_micros() <= until
    }
}

/// A look may take `time_max`, and so may the next one.
fn end_of(asked_micros: u64, time_max: Duration) -> u64 {
    let held = ASK_EVERY + OVERDUE + time_max * 2;
    asked_micros.saturating_add(u64::try_from(held.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Belief, DOUBTS_MAX, Heard, Lease, Named, disagreement, of_most};
    use crate::domain::redis_url::RedisHost;
    use crate::ports::simulated::SimulatedClock;
    use crate::store::redis::trouble::Trouble;

    fn host(number: u16) -> RedisHost {
        RedisHost { host: "a".to_owned(), port: number }
    }

    fn silent() -> Trouble {
        Trouble::Silent(Duration::from_secs(1))
    }

    fn answers(named: &[Option<u16>]) -> Vec<Named> {
        let answer = |named: &Option<u16>| named.map(host).ok_or_else(silent);
        named.iter().map(answer).enumerate().collect()
    }

    proptest! {
        #[test]
        fn a_host_is_believed_exactly_when_more_than_half_of_all_sentinels_name_it(
            named in prop::collection::vec(prop::option::of(1_u16..4), 1..9),
            more in 0_usize..4,
        ) {
            let sentinels = named.len() + more;
            let count = |number| named.iter().filter(|named| **named == Some(number)).count();
            let expected = (1..4).find(|number| count(*number) * 2 > sentinels).map(host);
            let answers = answers(&named);
            prop_assert_eq!(of_most(&answers, sentinels), expected.as_ref());
        }
    }

    #[test]
    fn why_there_is_no_majority_is_said_alike_whichever_answer_came_first() {
        let said = |named: &[Option<u16>]| {
            let (mut turned, sentinels) = (answers(named), named.len());
            let straight = disagreement(turned.clone(), sentinels).to_string();
            turned.reverse();
            assert_eq!(straight, disagreement(turned, sentinels).to_string());
            straight
        };
        assert_eq!(said(&[Some(1), None, Some(2)]), "the Sentinels name different masters: a:1, a:2");
        let few = "only 1 of 3 Sentinels names a master";
        assert!(said(&[None, Some(1), None]).starts_with(few), "{}", said(&[None, Some(1), None]));
        assert!(said(&[None]).ends_with("did not answer within 1s"), "{}", said(&[None]));
    }

    #[test]
    fn a_silence_takes_nothing_away_and_several_in_a_row_or_another_name_do() {
        let mut belief = Belief::default();
        for _ in 0..10 {
            for _ in 1..DOUBTS_MAX {
                assert_eq!(belief.hear(Err(silent()), &host(1)), Heard::Doubtful);
            }
            assert_eq!(belief.hear(Ok(host(1)), &host(1)), Heard::Confirmed);
        }
        assert!(matches!(belief.hear(Ok(host(2)), &host(1)), Heard::Deposed(_)));
        for _ in 1..DOUBTS_MAX {
            assert_eq!(belief.hear(Err(silent()), &host(1)), Heard::Doubtful);
        }
        assert!(matches!(belief.hear(Err(silent()), &host(1)), Heard::Deposed(_)));
    }

    #[test]
    fn a_lease_runs_out_two_seconds_after_the_next_look_should_have_been_done() {
        let clock = SimulatedClock::new(0);
        let lease = Lease::of_look(0, Duration::from_millis(500));
        clock.advance_micros(4_000_000);
        assert!(lease.holds(&clock));
        clock.advance_micros(1);
        assert!(!lease.holds(&clock));
        lease.renew(4_000_000, Duration::from_millis(500));
        assert!(lease.holds(&clock));
        clock.advance_secs(1_000_000);
        assert!(!lease.holds(&clock));
        assert!(Lease::endless().holds(&clock));
    }
}
