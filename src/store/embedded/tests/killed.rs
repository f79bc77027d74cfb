//! A process of its own that is killed while it writes: this very test binary, started again for one test with a
//! variable set.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::{env, path::Path, sync::Arc};

use crate::ports::{Admission, KeyChanged, NonceRefused, Store};
use crate::store::contract::{PATIENCE, agent};
use crate::store::embedded::tests::{by_key, by_nonce, clock, open, reopen, rotate};
use crate::store::{embedded::EmbeddedStore, embedded::file::OpenError};

const NAME: &str = "store::embedded::tests::killed::nothing_acknowledged_is_lost_to_a_kill";
const ROLE: &str = "TG_TEST_CHILD";
const TASKS: u64 = 8;
const ROUNDS: u64 = 6;

/// A process that changes keys, and what it says was acknowledged: the agent and its count.
struct Writing {
    process: Child,
    acknowledged: Receiver<[u64; 2]>,
}

impl Writing {
    /// Counts from `first` on.
    fn start(folder: &Path, first: u64) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{first} {}", folder.to_str().unwrap()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (report, acknowledged) = channel();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Ends with the process.
        std::thread::spawn(move || {
            for line in lines {
                // The test harness may have begun the line.
                let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
                let (agent, count) = numbers.split_once(' ').unwrap();
                let _ = report.send([agent.parse().unwrap(), count.parse().unwrap()]);
            }
        });
        Self { process, acknowledged }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Rotates one agent's key again and again, beginning with `first`, and reports each change that was acknowledged.
async fn rotate_for_ever(store: Arc<EmbeddedStore>, agent_number: u64, first: u64) {
    for count in first.. {
        assert_eq!(rotate(&store, agent_number, count, count * TASKS + agent_number).await, KeyChanged::Done);
        println!("\nacknowledged {agent_number} {count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_to_a_kill() {
    if let Ok(role) = env::var(ROLE) {
        let (first, folder) = role.split_once(' ').unwrap();
        let first = first.parse().unwrap();
        let store = Arc::new(reopen(Path::new(folder), &clock()).await);
        let tasks: Vec<_> =
            (0..TASKS).map(|task| tokio::spawn(rotate_for_ever(Arc::clone(&store), task, first))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        // Every round counts from a number of its own, so that no nonce comes twice.
        let mut writing = Writing::start(folder.path(), round * 1_000_000);
        // Killed a little later in each round.
        let heard = 5 + 17 * round;
        let mut reports: Vec<[u64; 2]> =
            (0..heard).map(|_| writing.acknowledged.recv_timeout(PATIENCE).unwrap()).collect();
        if round == 0 {
            assert!(matches!(open(folder.path(), &clock()), Err(OpenError::InUse { .. })));
        }
        writing.kill();
        // Those of its last moments.
        reports.extend(writing.acknowledged.iter());

        let store = reopen(folder.path(), &clock()).await;
        let mut checked = 0;
        for agent_number in 0..TASKS {
            let counts = reports.iter().filter(|[agent, _]| *agent == agent_number).map(|[_, count]| *count);
            let mut last = None;
            for count in counts {
                assert_eq!(
                    by_nonce(&store, agent_number, count).await,
                    Admission::NonceRefused(NonceRefused::Used)
                );
                (last, checked) = (Some(count), checked + 1);
            }
            let Some(last) = last else { continue };
            // The change after the last one that was heard of may have been made, too.
            let mut current = Vec::new();
            for count in [last, last + 1] {
                let admission = by_key(&store, agent_number, count * TASKS + agent_number).await;
                current.extend((admission != Admission::KeyRevoked).then_some(count));
            }
            assert_eq!(current.len(), 1, "agent {agent_number}, round {round}");
            assert!(store.has_key(agent(agent_number)).await.unwrap());
        }
        assert!(checked >= heard, "{checked} of {heard}");
    }
}
