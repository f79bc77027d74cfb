//! The oldest Redis that is supported, and Valkey: the contract, what may differ between servers, and one cluster over
//! each of them, by running the tests' program once more with another server named.

use std::path::Path;
use std::process::{Command, Output};

use crate::store::redis::tests::server::skip::{LIST_VARIABLE, REQUIRED_VARIABLE, skip};
use crate::store::redis::tests::server::{PROGRAM_VARIABLE, is_installed};

/// The tests that run over each.
const TOPICS: [&str; 8] = [
    "kept::",
    "differential::",
    "sequences::",
    "steps::",
    "key_changes::",
    "real::",
    "roles::",
    "cluster::a_cluster_keeps_the_contract",
];

/// Runs tests of the Redis store in a process of its own, which must have a server or may do without one.
fn run(server: &Path, topics: &[&str], without: &[&str], required: bool) -> Output {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(topics.iter().map(|topic| format!("store::redis::tests::{topic}")));
    tests.args(without.iter().flat_map(|topic| ["--skip", *topic]));
    tests.env(PROGRAM_VARIABLE, server).env(REQUIRED_VARIABLE, if required { "1" } else { "0" });
    // What is skipped there is not skipped here.
    tests.env_remove(LIST_VARIABLE).output().unwrap()
}

/// Runs the topics over a server, but tests whose names hold one of `without`.
#[track_caller]
fn topics_pass_over(server: &str, without: &[&str]) {
    // Where `scripts/other-servers` puts it.
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/servers").join(server);
    if !is_installed(program.as_os_str()) {
        return skip(&program.to_string_lossy());
    }
    let done = run(&program, &TOPICS, without, true);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{server}: {said}");
    for topic in TOPICS {
        let has_passed = |line: &str| line.contains(&format!("::{topic}")) && line.ends_with("... ok");
        assert!(said.lines().any(has_passed), "{topic} did not run: {said}");
    }
}

#[test]
#[ignore = "before a release: make test-all"]
fn redis_6_2_keeps_the_contract() {
    // That program is built without TLS, which is no matter of the version.
    topics_pass_over("redis-6.2/redis-server", &["real::tls_"]);
}

#[test]
#[ignore = "before a release: make test-all"]
fn valkey_8_keeps_the_contract() {
    topics_pass_over("valkey-8/valkey-server", &[]);
}

#[test]
fn tests_without_their_server_are_skipped_by_name_and_fail_where_servers_are_required() {
    let run = |required| run(Path::new("/nowhere/redis-server"), &["findings::"], &[], required);
    let skipped = run(false);
    assert!(skipped.status.success());
    let said = String::from_utf8_lossy(&skipped.stderr);
    let skipped = |line: &str| {
        line.starts_with("skipped: store::redis::tests::findings::")
            && line.ends_with(": /nowhere/redis-server is not installed")
    };
    assert!(said.lines().any(skipped), "{said}");
    assert!(!run(true).status.success());
}
