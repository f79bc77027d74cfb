//! A busy agent while its nodes fail for seconds: who is answered, when, and for how many calls.

use std::{sync::Arc, time::Duration};

use crate::chain::fixture::{ALL, Bench, HEAD, OWNER, Reply, TestNode, agent, bench};
use crate::chain::{tests::clock::TestClock, tests::results::results};
use crate::domain::Holders;
use crate::ports::{Asker, Chain, Clock};

/// How long one try may take: the default.
const TRY: Duration = Duration::from_secs(2);

/// How long healthy nodes take to answer.
const LATENCY: Duration = Duration::from_millis(100);

/// When nodes begin to fail, in milliseconds.
const FAILS: u64 = 2_000;

/// For how long an agent asks.
const SECONDS: u64 = 15;

/// What became of one who asked: when it asked and when it was answered, in milliseconds, and whether with the owner.
struct Asked {
    at: u64,
    answered: u64,
    is_good: bool,
}

fn good() -> Reply {
    Reply::Late(LATENCY, Box::new(Reply::Agent(HEAD, results())))
}

/// A node that fails with this reply until then, in milliseconds.
async fn failing(reply: Reply, until: u64) -> TestNode {
    let clock = TestClock::new();
    TestNode::answering(move |_| {
        let now = clock.monotonic_micros() / 1_000;
        if (FAILS..until).contains(&now) { reply.clone() } else { good() }
    })
    .await
}

/// One agent's owner is asked for so often a second.
async fn ask(bench: &Bench, rate: u64) -> Vec<Asked> {
    let mut ticks = tokio::time::interval(Duration::from_millis(1_000 / rate));
    let mut asked = Vec::new();
    for _ in 0..SECONDS * rate {
        ticks.tick().await;
        let (reader, clock) = (Arc::clone(&bench.reader), Arc::clone(&bench.clock));
        asked.push(tokio::spawn(async move {
            let now = || clock.monotonic_micros() / 1_000;
            let at = now();
            let owner = reader.holders(agent(1), Asker::Vouched).await.ok().flatten();
            assert!(owner.is_none_or(|found| found == Holders::owned_by(OWNER)), "{owner:?}");
            Asked { at, answered: now(), is_good: owner.is_some() }
        }));
    }
    let mut done = Vec::new();
    for one in asked {
        done.push(one.await.unwrap());
    }
    done
}

/// When the first was answered with the owner after this time.
fn first_good(asked: &[Asked], after: u64) -> u64 {
    asked
        .iter()
        .filter(|one| one.is_good && one.answered >= after)
        .map(|one| one.answered)
        .min()
        .unwrap_or(u64::MAX)
}

/// How many who asked from then on got no answer.
fn refused(asked: &[Asked], from: u64) -> usize {
    asked.iter().filter(|one| one.at >= from && !one.is_good).count()
}

// threat: A busy agent stays refused after an outage
#[tokio::test]
async fn a_busy_agent_is_answered_within_three_seconds_after_its_node_hung() {
    for rate in [5, 30, 100] {
        let well = FAILS + 7_000;
        let node = failing(Reply::Hang, well).await;
        let bench = bench(&[node.url()], ALL, TRY);
        let asked = ask(&bench, rate).await;
        assert!(first_good(&asked, well) <= well + 3_000, "at {rate}: {}", first_good(&asked, well));
        assert_eq!(refused(&asked, well + 3_000), 0, "at {rate}");
        // One at a time: as many as fit one after the other, and while it hangs one for each try.
        let fit = (SECONDS * 1_000 - 7_000) / 100;
        assert!(node.calls("eth_call") as u64 <= fit + 7 / 2 + 2, "at {rate}: {}", node.calls("eth_call"));
        assert!(asked.iter().all(|one| one.answered - one.at <= 6_100), "at {rate}");
    }
}

// threat: A busy agent stays refused after an outage
#[tokio::test]
async fn a_busy_agent_is_answered_at_once_after_its_node_refused_for_six_seconds() {
    for rate in [30, 100] {
        let well = FAILS + 6_000;
        let node = failing(Reply::Http(429, String::new()), well).await;
        let bench = bench(&[node.url()], ALL, TRY);
        let asked = ask(&bench, rate).await;
        assert!(first_good(&asked, well) <= well + 1_000, "at {rate}: {}", first_good(&asked, well));
        assert_eq!(refused(&asked, well), 0, "at {rate}");
    }
}

// threat: A busy agent stays refused after an outage
#[tokio::test]
async fn a_busy_agent_is_answered_by_the_second_node_within_one_read_when_the_first_hangs() {
    for rate in [30, 100] {
        let nodes = [failing(Reply::Hang, u64::MAX).await, failing(good(), 0).await];
        let bench = bench(&nodes.each_ref().map(TestNode::url), ALL, TRY);
        let asked = ask(&bench, rate).await;
        assert!(first_good(&asked, FAILS + 200) <= FAILS + 6_000, "{}", first_good(&asked, FAILS + 200));
        // Some wait for two reads, each of which tries the first node first.
        let all = refused(&asked, FAILS);
        let after = asked.iter().filter(|one| one.at >= FAILS).count();
        assert!(all < after * 2 / 3, "at {rate}: {all} of {after}");
        for second in FAILS / 1_000 + 5..SECONDS {
            let is_good = |one: &&Asked| one.is_good && one.answered / 5_000 == second / 5;
            assert!(asked.iter().any(|one| is_good(&one)), "at {rate}: nobody around second {second}");
        }
    }
}
