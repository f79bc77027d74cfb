//! A process of its own that is killed while it writes: this very test binary, started again for one test with a
//! variable set.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::ports::store::{Admission, KeyChanged, Store};
use crate::store::contract::agent;
use crate::store::embedded::file::OpenError;
use crate::store::embedded::tests::{by_key, by_nonce, clock, open, rotate};

const ROLE: &str = "TIERGATE_TEST_CHILD";
const TASKS: u64 = 8;
const ROUNDS: u64 = 12;

/// Starts `test` of this module in a process of its own.
fn child(test: &str, role: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args([
            &format!("store::embedded::tests::killed::{test}"),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Every line with this word in front, as long as the child talks.
fn reports(child: &mut Child, word: &'static str) -> impl Iterator<Item = Vec<u64>> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).filter_map(move |line| {
        // The test harness may have begun the line.
        let (_, numbers) = line.split_once(word)?;
        Some(numbers.split_whitespace().map(|number| number.parse().unwrap()).collect())
    })
}

/// Rotates one agent's key again and again, beginning with `first`, and reports each change that was acknowledged.
async fn rotate_for_ever(store: Arc<crate::store::embedded::EmbeddedStore>, agent_number: u64, first: u64) {
    for count in first.. {
        assert_eq!(rotate(&store, agent_number, count, count * TASKS + agent_number).await, KeyChanged::Done);
        println!("\nacknowledged {agent_number} {count}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    if let Some(role) = role() {
        let (first, folder) = role.split_once(' ').unwrap();
        let first = first.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let store = Arc::new(open(&PathBuf::from(folder), &clock()).unwrap());
        let tasks: Vec<_> =
            (0..TASKS).map(|task| runtime.spawn(rotate_for_ever(Arc::clone(&store), task, first))).collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut total = 0;
    for round in 0..ROUNDS {
        // Every round counts from a number of its own, so that no nonce comes twice.
        let first = round * 1_000_000;
        let mut child = child(
            "nothing_acknowledged_is_lost_to_a_kill",
            &format!("{first} {}", folder.path().to_str().unwrap()),
        );
        let mut acknowledged = [const { Vec::new() }; TASKS as usize];
        let lines = reports(&mut child, "acknowledged ");
        for (seen, report) in (1..).zip(lines) {
            acknowledged[report[0] as usize].push(report[1]);
            if seen == 3 && round == 0 {
                assert!(matches!(open(folder.path(), &clock()), Err(OpenError::InUse { .. })));
            }
            if seen == 5 + 17 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();

        let store = open(folder.path(), &clock()).unwrap();
        runtime.block_on(async {
            for (agent_number, counts) in (0..).zip(&acknowledged) {
                for count in counts {
                    assert_eq!(by_nonce(&store, agent_number, *count).await, Admission::NonceUsed);
                }
                let Some(last) = counts.last() else { continue };
                // The change after the last one that was heard of may have been made, too.
                let mut current = Vec::new();
                for count in [*last, last + 1] {
                    let admission = by_key(&store, agent_number, count * TASKS + agent_number).await;
                    current.extend((admission != Admission::KeyRevoked).then_some(count));
                }
                assert_eq!(current.len(), 1, "agent {agent_number}, round {round}");
                assert!(store.has_key(agent(agent_number)).await.unwrap());
            }
        });
        total += acknowledged.iter().map(Vec::len).sum::<usize>();
    }
    println!("{total} acknowledged changes in {ROUNDS} killed processes, none lost");
    assert!(total as u64 >= ROUNDS * 5);
}
