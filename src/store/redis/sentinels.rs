//! Sentinels: which master most of them name.
//!
//! A Sentinel that was cut off together with a deposed master goes on naming it, so none is believed unless more than
//! half of all that are configured say the same.

use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::domain::RedisHost;
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::error::RedisError;
use crate::store::redis::options::{Options, Shared};

/// The Sentinels of one master, with a connection to each that is kept from one question to the next.
pub(super) struct Sentinels {
    /// Their name for the master.
    pub(super) service: String,
    sentinels: Vec<Sentinel>,
    /// How often all of them were asked.
    #[cfg(test)]
    pub(super) rounds: std::sync::atomic::AtomicU64,
}

struct Sentinel {
    host: RedisHost,
    /// Taken out while it is used, and put back if it works.
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// One Sentinel's place in the configuration, and the master that it names.
type Named = (usize, Result<RedisHost, RedisError>);

impl Sentinels {
    pub(super) fn new(hosts: Vec<RedisHost>, service: String) -> Arc<Self> {
        let of = |host| Sentinel { host, connection: Mutex::new(None) };
        Arc::new(Self {
            service,
            sentinels: hosts.into_iter().map(of).collect(),
            #[cfg(test)]
            rounds: Default::default(),
        })
    }

    /// The master that more than half of the Sentinels name. All are asked at once, each within `store.redis.timeout`; silent
    /// ones hold nothing up when the others agree.
    pub(super) async fn master(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<RedisHost, RedisError> {
        #[cfg(test)]
        self.rounds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut asked = JoinSet::new();
        for place in 0..self.sentinels.len() {
            let (sentinels, shared) = (Arc::clone(self), Arc::clone(shared));
            asked.spawn(async move { (place, sentinels.ask(place, &shared).await) });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            answers.extend(answer);
            if let Some(host) = of_most(&answers, self.sentinels.len()) {
                // The others answer a moment later, and keep their connections.
                asked.detach_all();
                return Ok(host.clone());
            }
        }
        Err(self.no_majority(answers))
    }

    /// The same text for the same answers, in whichever order they came.
    fn no_majority(&self, mut answers: Vec<Named>) -> RedisError {
        answers.sort_unstable_by_key(|(place, _)| *place);
        let said = |(place, named): (usize, Result<RedisHost, RedisError>)| {
            let sentinel = &self.sentinels.get(place)?.host;
            Some(match named {
                Ok(master) => format!("{sentinel} names {master}"),
                Err(error) => format!("{sentinel}: {error}"),
            })
        };
        RedisError::NoMajority(answers.into_iter().filter_map(said).collect::<Vec<_>>().join("; "))
    }

    async fn ask(&self, place: usize, shared: &Shared) -> Result<RedisHost, RedisError> {
        let Some(sentinel) = self.sentinels.get(place) else { return Err(RedisError::Unreadable) };
        let asked = async {
            let kept = sentinel.connection.lock().take();
            let mut connection = match kept {
                Some(kept) => kept,
                None => connect(shared, &sentinel.host, Login::Sentinel).await?,
            };
            let named = self.name_of_master(&mut connection, &shared.options).await;
            // A broken one is made anew with the next question.
            if !matches!(named, Err(RedisError::Broken(_))) {
                *sentinel.connection.lock() = Some(connection);
            }
            named
        };
        in_time(shared.options.timeout, asked).await
    }

    async fn name_of_master(
        &self,
        connection: &mut MultiplexedConnection,
        options: &Options,
    ) -> Result<RedisHost, RedisError> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = command.query_async(connection).await;
        let answer: Option<(String, u16)> = answer.map_err(|error| Login::Sentinel.error(error, options))?;
        let unknown = || RedisError::Refused(format!("it knows no master {:?}", self.service));
        let (host, port) = answer.ok_or_else(unknown)?;
        Ok(RedisHost { host, port })
    }
}

/// The host that more than half of all Sentinels name.
fn of_most(answers: &[Named], sentinels: usize) -> Option<&RedisHost> {
    let named = || answers.iter().filter_map(|(_, named)| named.as_ref().ok());
    named().find(|host| named().filter(|other| other == host).count() * 2 > sentinels)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Named, Sentinels, of_most};
    use crate::domain::RedisHost;
    use crate::store::redis::error::RedisError;

    fn host(number: u16) -> RedisHost {
        RedisHost { host: "a".to_owned(), port: number }
    }

    fn silent() -> RedisError {
        RedisError::Timeout(Duration::from_secs(1))
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
    fn a_missing_majority_is_told_alike_whichever_answer_came_first_and_each_with_its_sentinel() {
        let sentinels = Sentinels::new([7, 8, 9].map(host).into(), "service".to_owned());
        let mut turned = answers(&[Some(1), None, Some(2)]);
        let text = sentinels.no_majority(turned.clone()).to_string();
        turned.reverse();
        assert_eq!(text, sentinels.no_majority(turned).to_string());
        assert_eq!(
            text,
            "no majority of the Sentinels names one master: a:7 names a:1; a:8: Redis did not answer within 1s; \
             a:9 names a:2"
        );
    }
}
