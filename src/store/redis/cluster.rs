//! What nodes of a cluster say of its slots.

use std::collections::HashSet;

use redis::Value;

use crate::domain::RedisHost;
use crate::store::redis::answers::{number, read};
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::{redis::error::RedisError, redis::names::Shard, redis::options::Shared};

/// Asks one node after the other, until one answers.
pub(super) async fn ask(shared: &Shared, seeds: &[RedisHost]) -> Result<Vec<Range>, RedisError> {
    let mut last = RedisError::Down("no node is named".to_owned());
    for host in seeds {
        let asked = async {
            let mut connection = connect(shared, host, Login::Server).await?;
            let answer = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
            ranges(&answer, host)
        };
        match in_time(shared.options.timeout, asked).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The masters that a node names, if together they have all slots.
pub(super) async fn masters(shared: &Shared, seeds: &[RedisHost]) -> Result<HashSet<RedisHost>, RedisError> {
    let ranges = ask(shared, seeds).await?;
    if !Shard::all().all(|shard| ranges.iter().any(|range| range.has(shard))) {
        return Err(not_every_slot());
    }
    Ok(ranges.into_iter().map(|range| range.master).collect())
}

/// The error of a cluster in which a slot has no node.
pub(super) fn not_every_slot() -> RedisError {
    RedisError::Down("not every slot of the cluster has a node".to_owned())
}

/// Reads the answer to `CLUSTER SLOTS`, as the node at `asked` gives it.
pub(super) fn ranges(answer: &Value, asked: &RedisHost) -> Result<Vec<Range>, RedisError> {
    let rows: Vec<Vec<Value>> = read(answer)?;
    let ranges = rows.iter().map(|row| Range::read(row, asked)).collect::<Result<Vec<_>, _>>()?;
    if ranges.is_empty() { Err(RedisError::Unreadable) } else { Ok(ranges) }
}

/// Slots in a row, and the node that has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    pub(super) master: RedisHost,
}

impl Range {
    pub(super) fn has(&self, shard: Shard) -> bool {
        (self.first..=self.last).contains(&shard.slot())
    }

    /// A row of `CLUSTER SLOTS`, as the node at `asked` says it. A node may not know its own address.
    fn read(row: &[Value], asked: &RedisHost) -> Result<Self, RedisError> {
        let [first, last, master, ..] = row else { return Err(RedisError::Unreadable) };
        let master: Vec<Value> = read(master)?;
        let [host, port, ..] = master.as_slice() else { return Err(RedisError::Unreadable) };
        let host = read::<Option<String>>(host)?.filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| asked.host.clone());
        let number = |value| number::<u16>(read(value)?);
        let master = RedisHost { host, port: number(port)? };
        Ok(Self { first: number(first)?, last: number(last)?, master })
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Range, ranges};
    use crate::domain::RedisHost;

    fn row(first: i64, last: i64, host: &str, port: i64) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![text(host), Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node("replica", 9)])
    }

    #[test]
    fn a_row_names_slots_and_their_master() {
        let asked = RedisHost { host: "asked".to_owned(), port: 1 };
        let master = |host: &str, port| RedisHost { host: host.to_owned(), port };
        let read = |row: &Value| ranges(&Value::Array(vec![row.clone()]), &asked).ok();
        let range = Range { first: 0, last: 5_460, master: master("10.0.0.1", 7_000) };
        assert_eq!(read(&row(0, 5_460, "10.0.0.1", 7_000)), Some(vec![range]));
        let range = Range { first: 1, last: 1, master: master("asked", 7) };
        assert_eq!(read(&row(1, 1, "", 7)), Some(vec![range]));
        for wrong in [Value::Nil, row(-1, 0, "a", 1), row(0, 70_000, "a", 1), row(0, 1, "a", 70_000)] {
            assert_eq!(read(&wrong), None);
        }
    }
}
