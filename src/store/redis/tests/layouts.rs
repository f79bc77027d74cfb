//! Releases with other names: the former ones can't begin once this one has, and this one ends where a later one has begun.

use redis::aio::ConnectionLike as _;
use redis::{RedisResult, Value};

use crate::ports::{KeyChange, KeyChanged, Store};
use crate::store::contract::{agent, claim, digest, key, named, until};
use crate::store::redis::names::{Name, Shard};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::redis::tests::{
    SIGNED_SECS, by_key, by_nonce, clock, fitting, is_admitted, open, opened, options, refused,
};
use crate::store::{redis::options::Options, redis::tests::cluster::TestCluster};

/// What a release with the former names asks of each shard before it serves; `tests/fixtures/README.md` says which.
const FORMER: &str = include_str!("../../../../tests/fixtures/epoch-tg1.lua");

async fn begin_former(server: &RedisServer, shard: u16) -> RedisResult<Value> {
    let epoch = format!("tg1:{{{shard:x}}}e");
    say(&mut server.connected().await, &["EVAL", FORMER, "1", &epoch, "a:b", "1700000000", "60", "900"]).await
}

/// All shards, as such a release goes through them.
async fn former_shards(server: &RedisServer) -> Vec<RedisResult<Value>> {
    let mut begun = Vec::new();
    for shard in 0..1_024 {
        begun.push(begin_former(server, shard).await);
    }
    begun
}

#[tokio::test]
async fn a_release_with_the_former_names_can_not_begin_where_this_one_has() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    // It has served here, and left a key.
    assert!(former_shards(&server).await.iter().all(Result::is_ok));
    say(&mut server.connected().await, &["SET", "tg1:{1}k:1", "digest"]).await.unwrap();
    let prefixed = Options { prefix: "blue:".to_owned(), ..options(&server.url()) };
    drop(opened(prefixed, &clock()).await);
    assert!(begin_former(&server, 0).await.is_ok(), "a deployment with a prefix is another one");

    drop(opened(options(&server.url()), &clock()).await);
    for begun in former_shards(&server).await {
        assert!(begun.unwrap_err().to_string().contains("WRONGTYPE"));
    }
    // Nor does it after a flush: the marks are there again with the next session.
    say(&mut server.connected().await, &["FLUSHALL"]).await.unwrap();
    drop(opened(options(&server.url()), &clock()).await);
    assert!(begin_former(&server, 1_023).await.is_err());
}

#[tokio::test]
async fn going_back_on_purpose_takes_the_former_keys_away_with_the_marks() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    drop(opened(options(&server.url()), &clock()).await);
    say(&mut server.connected().await, &["SET", "tg1:{1}k:1", "digest"]).await.unwrap();
    // As docs/operations.md says.
    let page = include_str!("../../../../docs/operations.md");
    assert!(page.contains("redis-cli --scan --pattern 'tg1:*' | xargs redis-cli UNLINK"));
    let all = "for _, name in ipairs(redis.call('KEYS', 'tg1:*')) do redis.call('UNLINK', name) end";
    say(&mut server.connected().await, &["EVAL", all, "0"]).await.unwrap();
    assert!(former_shards(&server).await.iter().all(Result::is_ok));
    assert_eq!(say(&mut server.connected().await, &["EXISTS", "tg1:{1}k:1"]).await.unwrap(), Value::Int(0));
}

#[tokio::test]
async fn in_a_cluster_no_node_serves_a_release_with_the_former_names() {
    let Some(cluster) = TestCluster::form().await else { return };
    drop(opened(options(&cluster.url()), &clock()).await);
    let names: Vec<String> = Shard::all().map(|shard| format!("tg1:{{{:x}}}e", shard.place())).collect();
    let mut marked = 0;
    for node in &cluster.nodes {
        let mut connection = node.connected().await;
        for name in &names {
            if let Ok(Value::BulkString(text)) = say(&mut connection, &["GET", name]).await {
                assert_eq!(text, b"names tg2:");
                marked += 1;
            }
        }
    }
    assert_eq!(marked, names.len());
}

#[tokio::test]
async fn a_later_release_ends_this_one_within_seconds_and_both_its_ways_in() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let store = opened(options(&server.url()), &clock()).await;
    store.changed(agent(1), claim(1, SIGNED_SECS), KeyChange::Issue(key(fitting(1, 1)))).await.unwrap();
    assert!(is_admitted(by_key(&store, fitting(1, 1)).await));
    let mark = "for shard = 0, 1023 do \
                redis.call('HSET', string.format('tg2:{%x}b', shard), 'chain', 'names tg3:') end";
    say(&mut server.connected().await, &["EVAL", mark, "0"]).await.unwrap();
    let expected = "a later release has its names, tg3:, in it: this release must not use it";
    until("it says why it serves nobody", async || {
        let fault = store.has_key(agent(1)).await.err()?.to_string();
        fault.contains(expected).then_some(())
    })
    .await;
    assert_eq!((by_key(&store, fitting(1, 1)).await, by_nonce(&store, 2, SIGNED_SECS).await), (None, None));
    assert!(store.probe().await.is_err());
    let again = open(options(&server.url()), &clock());
    refused(&again).await;
    assert_eq!(by_key(&again, fitting(1, 1)).await, None);
}

#[tokio::test]
async fn a_record_of_version_1_is_read_and_is_one_again_once_nothing_else_is_left() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let store = opened(options(&server.url()), &clock()).await;
    // As releases write it that know no other.
    let (old, new) = (fitting(1, 1), fitting(1, 2));
    let (record, entry) = (Name::Record(agent(1)).to_string(), Name::Entry(&digest(old)).to_string());
    let mut connection = server.connected().await;
    let mut set = redis::cmd("SET");
    connection.req_packed_command(set.arg(&record).arg(&digest(old).to_bytes()[..])).await.unwrap();
    let value = [&agent(1).to_bytes()[..], b"https://app.example"].concat();
    connection.req_packed_command(redis::cmd("SET").arg(&entry).arg(value)).await.unwrap();
    assert!(is_admitted(by_key(&store, old).await));
    let change =
        async |nonce, change| store.changed(agent(1), claim(nonce, SIGNED_SECS), change).await.unwrap();
    assert_eq!(change(1, KeyChange::Issue(key(new))).await, KeyChanged::KeyExists);
    assert_eq!(change(1, KeyChange::Issue(named(new, "ci", 2))).await, KeyChanged::Done);
    for number in [old, new] {
        assert!(is_admitted(by_key(&store, number).await), "{number}");
    }
    let days = store.keys(agent(1)).await.unwrap().into_iter().map(|key| key.days.is_some());
    assert_eq!(days.collect::<Vec<_>>(), [false, true], "nobody kept the days of the first one");
    let mut stored = async || say(&mut connection, &["GET", &record]).await.unwrap();
    let Value::BulkString(second) = stored().await else { panic!() };
    assert!(second.starts_with(b"2\n") && second.len() > 32, "former releases find no digest in it");
    let name = named(new, "ci", 2).terms.name;
    assert_eq!(change(2, KeyChange::Revoke(name)).await, KeyChanged::Done);
    assert_eq!(stored().await, Value::BulkString(digest(old).to_bytes().to_vec()));
    assert!(is_admitted(by_key(&store, old).await) && !is_admitted(by_key(&store, new).await));
}
