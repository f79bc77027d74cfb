//! The pool against nodes over HTTP.

mod arrivals;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Call, Input, PLACES_MAX, Pool};
use crate::chain::fault::{ReadError, ReadFault};
use crate::chain::fixture::{CHAIN_ID, PATIENT, Reply, TestNode, pool, provide_crypto};
use crate::chain::tests::clock::{TestClock, until};
use crate::domain::{PoolSettings, RpcUrl};
use crate::ports::Clock;
use crate::telemetry::Metrics;

fn calls(count: usize) -> Vec<Call> {
    vec![Call { method: "test", params: json!([]) }; count]
}

fn pool_of(nodes: &[&TestNode]) -> (Pool, Arc<TestClock>) {
    let clock = Arc::new(TestClock::new());
    let urls: Vec<String> = nodes.iter().map(|node| node.url()).collect();
    (pool(&urls, PATIENT, clock.clone(), &Metrics::new().unwrap()), clock)
}

async fn ask(pool: &Pool, count: usize) -> Result<Vec<Value>, ReadFault> {
    let deadline = pool.deadline();
    let calls = calls(count);
    let read =
        pool.ask(deadline, (&calls, Input::Ours), |answers| (0..count).map(|_| answers.next()).collect());
    read.await
}

/// A node that gives these replies one after the other, and then 7.
async fn node(replies: Vec<Reply>) -> TestNode {
    let next = AtomicUsize::new(0);
    TestNode::start(move |_| {
        replies.get(next.fetch_add(1, Ordering::SeqCst)).cloned().unwrap_or(Reply::Result(json!(7)))
    })
    .await
}

// threat: A sick node
#[tokio::test]
async fn a_try_that_fails_is_made_again_whatever_the_failure() {
    let rpc_error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":429,"message":"compute units"}}"#;
    let infura = json!({"rate": {"backoff_seconds": 0.01}});
    for reply in [
        Reply::CloseMidway,
        Reply::RetryAfter(0),
        Reply::Http(429, "slow down".to_owned()),
        Reply::Http(200, rpc_error.to_owned()),
        Reply::Http(429, rpc_error.to_owned()),
        Reply::Error(-32_005, "limit".to_owned(), Some(infura)),
        Reply::Error(-32_603, "internal error".to_owned(), None),
        Reply::Http(502, String::new()),
        Reply::Http(200, "<html>".to_owned()),
        Reply::Http(200, r#"{"jsonrpc":"2.0","id":99999,"result":"0x01"}"#.to_owned()),
    ] {
        let shown = format!("{reply:?}");
        let node = node(vec![reply]).await;
        assert_eq!(ask(&pool_of(&[&node]).0, 1).await.unwrap(), [json!(7)], "{shown}");
        assert_eq!(node.calls("test"), 2, "{shown}");
    }
}

// threat: A sick node
#[tokio::test]
async fn the_next_node_answers_when_the_first_does_not_and_the_first_is_asked_first_again() {
    let first = node(vec![Reply::Http(502, String::new()); 2]).await;
    let second = node(Vec::new()).await;
    let (pool, _) = pool_of(&[&first, &second]);
    assert_eq!(ask(&pool, 1).await.unwrap(), [json!(7)]);
    assert_eq!((first.calls("test"), second.calls("test")), (2, 1));
    ask(&pool, 1).await.unwrap();
    assert_eq!((first.calls("test"), second.calls("test")), (3, 1));
}

// threat: A sick node
#[tokio::test]
async fn nodes_that_hang_leave_the_last_one_its_share_of_the_time() {
    let hanging = [node(vec![Reply::Hang; 9]).await, node(vec![Reply::Hang; 9]).await];
    let last = node(Vec::new()).await;
    let (pool, clock) = pool_of(&[&hanging[0], &hanging[1], &last]);
    let begun = clock.monotonic_micros();
    assert_eq!(ask(&pool, 1).await.unwrap(), [json!(7)]);
    assert!(clock.monotonic_micros() - begun < 5_000_000, "a third each");
    assert_eq!(hanging.each_ref().map(|node| node.calls("test")), [1, 1]);
}

// threat: A sick node
#[tokio::test]
async fn the_probe_of_a_node_that_hangs_leaves_the_next_one_its_share_of_the_time() {
    let mut replies = vec![Reply::Http(502, String::new()); 6];
    replies.extend(vec![Reply::Hang; 9]);
    let (first, second) = (node(replies).await, node(Vec::new()).await);
    let (pool, clock) = pool_of(&[&first, &second]);
    for _ in 0..3 {
        ask(&pool, 1).await.unwrap();
    }
    assert_eq!(first.calls("test"), 5, "it is unhealthy");
    for probes in 1..=3 {
        clock.advance(Duration::from_secs(3));
        assert_eq!(ask(&pool, 1).await.unwrap(), [json!(7)], "{probes}");
        assert_eq!(first.calls("test"), 5 + probes);
    }
}

// threat: A sick node
#[tokio::test]
async fn a_dead_node_is_unhealthy_at_once_costs_a_probe_a_second_then_and_reads_say_why_they_fail() {
    let dead = TestNode::refusing();
    let (pool, clock) = pool_of(&[&dead]);
    let short = clock.monotonic_micros() + 700_000;
    let ask = async |deadline, input| pool.ask(deadline, (&calls(1), input), |_| Ok(())).await.unwrap_err();
    let fault = ask(short, Input::Ours).await;
    assert_eq!((fault.error.kind(), &*fault.endpoint), ("connection", &*dead.url()));
    let fault = ask(pool.deadline(), Input::Strangers).await;
    assert_eq!(*fault.error, pool.health.lock().unhealthy().unwrap().1.1);
    let begun = clock.monotonic_micros();
    let fault = ask(pool.deadline(), Input::Ours).await;
    assert_eq!(fault.error.kind(), "connection");
    assert!(clock.monotonic_micros() - begun >= 5_900_000, "it waits for a node");
    let tried = pool.metrics.rpc_calls.with_label_values(&["test"]).get();
    assert!((5 + 3..=5 + 9).contains(&tried), "{tried}");
}

/// 1 if the node is healthy.
fn healthy(pool: &Pool, node: &TestNode) -> i64 {
    pool.metrics.rpc_node_healthy.with_label_values(&[&node.url()]).get()
}

// threat: A sick node
#[tokio::test]
async fn calls_in_flight_that_fail_at_once_refuse_nobody() {
    for count in [5, 50, 100] {
        let late = |reply| Reply::Late(Duration::from_millis(50), Box::new(reply));
        let node = node(vec![late(Reply::Http(502, String::new())); count]).await;
        let (pool, clock) = pool_of(&[&node]);
        let begun = clock.monotonic_micros();
        join_all((0..count).map(async |_| ask(&pool, 1).await.unwrap())).await;
        assert!(clock.monotonic_micros() - begun < 1_000_000, "{count}");
        assert_eq!(healthy(&pool, &node), 1);
    }
}

// threat: A sick node
#[tokio::test]
async fn reads_of_an_unhealthy_node_are_answered_as_soon_as_one_probe_is() {
    let mut replies = vec![Reply::Http(502, String::new()); 6];
    replies.push(Reply::Hang);
    let node = node(replies).await;
    let clock = Arc::new(TestClock::new());
    let pool = pool(&[node.url()], Duration::from_secs(1), clock.clone(), &Metrics::new().unwrap());
    let read = async |input| {
        pool.ask(pool.deadline(), (&calls(1), input), |answers| answers.next::<Value>()).await.unwrap();
        clock.monotonic_micros()
    };
    let begun = clock.monotonic_micros();
    let (_, answered) = tokio::join!(read(Input::Ours), async {
        until(|| healthy(&pool, &node) == 0).await;
        join_all((0..40).map(|n| read(if n < 20 { Input::Ours } else { Input::Strangers }))).await
    });
    // It is unhealthy within 300 ms. A second later a probe fails, then one hangs, two seconds later one is answered.
    let last = answered.iter().max().unwrap() - begun;
    assert!((3_000_000..4_500_000).contains(&last), "{last}");
    assert!(answered.iter().all(|time| time - begun >= last - 100_000), "{answered:?}");
    assert_eq!(node.calls("test"), 8 + 40);
}

#[tokio::test]
async fn a_batch_is_answered_as_one_and_in_any_order() {
    let node = TestNode::start(|call| Reply::Result(call["id"].clone())).await;
    assert_eq!(ask(&pool_of(&[&node]).0, 3).await.unwrap(), [json!(1), json!(2), json!(3)]);
    assert_eq!(node.calls("test"), 3);
    let refused = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}"#;
    let node = TestNode::start(move |_| Reply::Http(400, refused.to_owned())).await;
    let fault = ask(&pool_of(&[&node]).0, 3).await.unwrap_err();
    assert_eq!(fault.error.kind(), "node_error");
}

/// A pool of one node that gets so many calls a second.
fn pool_at_rate(node: &TestNode, rate: u32, request_timeout: Duration) -> (Pool, Arc<TestClock>) {
    let clock = Arc::new(TestClock::new());
    let metrics = Metrics::new().unwrap();
    provide_crypto();
    let settings = PoolSettings {
        urls: vec![RpcUrl::parse(&node.url()).unwrap()],
        request_timeout,
        calls_per_second: NonZeroU32::new(rate),
        proxy: None,
        chain_id: CHAIN_ID,
    };
    (Pool::new(&settings, &[], clock.clone(), metrics).unwrap(), clock)
}

#[tokio::test]
async fn no_more_calls_go_to_a_node_in_a_second_than_are_configured() {
    let node = node(Vec::new()).await;
    let (pool, clock) = pool_at_rate(&node, 20, PATIENT);
    let begun = clock.monotonic_micros();
    for _ in 0..30 {
        ask(&pool, 1).await.unwrap();
    }
    // The first twenty are a burst.
    let passed = Duration::from_micros(clock.monotonic_micros() - begun);
    assert!((Duration::from_secs(1)..Duration::from_millis(1_500)).contains(&passed), "{passed:?}");
}

#[tokio::test]
async fn waiting_for_the_configured_rate_is_not_the_nodes_time() {
    let node = node(Vec::new()).await;
    let (pool, _clock) = pool_at_rate(&node, 1, Duration::from_millis(500));
    for _ in 0..5 {
        ask(&pool, 1).await.unwrap();
    }
    assert_eq!(node.calls("test"), 5);
}

#[tokio::test]
async fn nodes_are_reached_through_a_proxy_where_one_is_configured() {
    let proxy = node(Vec::new()).await;
    let clock = Arc::new(TestClock::new());
    let metrics = Metrics::new().unwrap();
    provide_crypto();
    let settings = PoolSettings {
        urls: vec![RpcUrl::parse("http://node.invalid/").unwrap()],
        request_timeout: PATIENT,
        calls_per_second: None,
        proxy: Some(RpcUrl::parse(&proxy.url()).unwrap()),
        chain_id: CHAIN_ID,
    };
    let pool = Pool::new(&settings, &[], clock, metrics).unwrap();
    assert_eq!(ask(&pool, 1).await.unwrap(), [json!(7)]);
    assert_eq!(proxy.calls("test"), 1);
}

#[tokio::test]
async fn whoever_finds_no_place_in_time_gets_a_fault_and_asks_no_node_but_the_follower_needs_none() {
    let node = node(Vec::new()).await;
    let (pool, clock) = pool_of(&[&node]);
    let mut held = Vec::new();
    for _ in 0..PLACES_MAX {
        held.push(pool.places.acquire().await.unwrap());
    }
    let deadline = clock.monotonic_micros() + 20_000;
    let fault = pool.ask(deadline, (&calls(1), Input::Ours), |_| Ok(())).await.unwrap_err();
    assert!(matches!(*fault.error, ReadError::Timeout(_)));
    assert_eq!(node.calls("test"), 0);
    pool.ask(pool.deadline(), (&calls(1), Input::Follower), |_| Ok(())).await.unwrap();
}

// threat: Strangers' requests make the only node unhealthy
#[tokio::test]
async fn a_strangers_input_counts_against_no_node_and_probes_none() {
    let ask = async |pool: &Pool, input| {
        pool.ask(pool.deadline(), (&calls(1), input), |answers| answers.next::<Value>()).await
    };
    for reply in [Reply::Http(502, String::new()), Reply::CloseMidway, Reply::Http(200, "<html>".to_owned())]
    {
        let node = node(vec![reply; 17]).await;
        let (pool, clock) = pool_of(&[&node]);
        for _ in 0..2 {
            assert_ne!(ask(&pool, Input::Strangers).await.unwrap_err().error.kind(), "unhealthy");
        }
        assert_eq!(node.calls("test"), 12);
        let short = clock.monotonic_micros() + 500_000;
        pool.ask(short, (&calls(1), Input::Ours), |_| Ok(())).await.unwrap_err();
        assert_eq!(ask(&pool, Input::Strangers).await.unwrap_err().error.kind(), "unhealthy");
        assert_eq!(node.calls("test"), 17, "unhealthy by our own read");
        ask(&pool, Input::Ours).await.unwrap();
        ask(&pool, Input::Strangers).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_node_writes_as_null_beside_result_or_error_is_not_there() {
    for (answer, expected) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":7,"error":null}"#, Ok(json!(7))),
        (r#"[{"id":ID,"error":null,"result":7}]"#, Ok(json!(7))),
        (r#"{"id":ID,"result":null,"error":null}"#, Ok(Value::Null)),
        (r#"{"id":ID,"result":null,"error":{"code":-32000,"message":"no"}}"#, Err("node_error")),
        (r#"{"id":null,"result":null,"error":{"code":-32000,"message":"no"}}"#, Err("node_error")),
    ] {
        let node = TestNode::always(Reply::Http(200, answer.to_owned())).await;
        let read = ask(&pool_of(&[&node]).0, 1).await;
        let read = read.map(|mut values| values.remove(0));
        assert_eq!(
            read.as_ref().map_err(|fault| fault.error.kind()),
            expected.as_ref().map_err(|kind| *kind),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn limits_by_providers_codes_count_against_no_node_unless_they_are_of_logs() {
    for (code, status) in [(-32_090, 200), (15, 500), (-32_005, 429)] {
        let error = format!(r#"{{"id":ID,"error":{{"code":{code},"message":"limit"}}}}"#);
        let replies = vec![Reply::Http(status, error); 20];
        let (first, second) = (node(replies).await, node(Vec::new()).await);
        let (pool, _) = pool_of(&[&first, &second]);
        for reads in 1..=9 {
            assert_eq!(ask(&pool, 1).await.unwrap(), [json!(7)]);
            assert_eq!(first.calls("test"), 2 * reads, "{code}: it is asked first");
        }
    }
    let error = r#"{"id":ID,"error":{"code":-32005,"message":"limit exceeded"}}"#;
    let node = TestNode::always(Reply::Http(200, error.to_owned())).await;
    let calls = [Call { method: "eth_getLogs", params: json!([]) }];
    let (pool, _) = pool_of(&[&node]);
    let read = pool.ask(pool.deadline(), (&calls, Input::Ours), |answers| answers.next::<Value>());
    assert_eq!(read.await.unwrap_err().error.kind(), "node_error", "fewer blocks may do");
}

#[tokio::test]
async fn a_node_that_refuses_logs_by_any_answer_is_asked_once_and_stays_healthy() {
    for (status, body) in [(413, ""), (200, "<html>"), (400, "{}")] {
        let node = TestNode::always(Reply::Http(status, body.to_owned())).await;
        let calls = [Call { method: "eth_getLogs", params: json!([]) }];
        let (pool, _) = pool_of(&[&node]);
        for asked in 1..10 {
            let read =
                pool.ask(pool.deadline(), (&calls, Input::Follower), |answers| answers.next::<Value>());
            assert!(read.await.unwrap_err().error.is_refusal(), "{body}");
            assert_eq!(node.calls("eth_getLogs"), asked, "less is asked for, and not the same again");
        }
        assert_eq!(pool.metrics.rpc_node_healthy.with_label_values(&[&node.url()]).get(), 1, "{body}");
    }
}
