//! Limits of public routes: at no cost of refused requests, and gone after two windows.

use redis::Value;

use crate::domain::{ClientNet, Quota, Verdict};
use crate::ports::{Budget, RouteScope, Store};
use crate::store::redis::names::{Name, Shard};
use crate::store::{redis::RedisStore, redis::answers::read, redis::scripts::Request, redis::tests::served};

const LIMIT: Quota = Quota::per_minute(166);

fn visitor() -> (ClientNet, RouteScope) {
    (ClientNet::of("192.0.2.1".parse().unwrap()), RouteScope("acme/docs/* ".into()))
}

async fn pass(store: &RedisStore) -> Verdict {
    let (client, route) = visitor();
    store.count(&Budget::Route((client, route)), LIMIT).await.unwrap()
}

// threat: One visitor takes a public route
#[tokio::test]
async fn a_flood_beyond_the_limit_does_not_reach_redis_and_leaves_nothing_there_after_two_windows() {
    let Some((_server, store, clock)) = served(&[]).await else { return };
    let scripts = async || {
        let stats = Request::command("INFO", Shard::FIRST).arg("commandstats");
        let stats = store.servers.ask(stats).await.unwrap();
        let Value::BulkString(stats) = stats else { panic!("{stats:?}") };
        let stats = String::from_utf8(stats).unwrap();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..LIMIT.limit {
        assert!(matches!(pass(&store).await, Verdict::Admitted { .. }));
    }
    assert!(matches!(pass(&store).await, Verdict::Limited { .. }));
    let before = scripts().await;
    for _ in 0..1_000 {
        assert!(matches!(pass(&store).await, Verdict::Limited { .. }));
    }
    assert_eq!(scripts().await, before);
    assert_eq!(store.refused_visitors(), 1);
    let (client, route) = visitor();
    let ttl = store.shared.command("PTTL", Name::Visits(client, &route));
    let ttl = read::<u64>(&store.servers.ask(ttl).await.unwrap()).unwrap();
    assert!((60_000..=120_000).contains(&ttl), "{ttl}");
    clock.advance_secs(60);
    assert_eq!(pass(&store).await, Verdict::Admitted { remaining: LIMIT.limit - 1 });
}
