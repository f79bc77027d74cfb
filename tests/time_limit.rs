//! A test that hangs fails by name: `scripts/time-limit`, through which `make test` runs every test binary, and the limit of
//! cases in `tests/support`.
#![expect(clippy::unwrap_used, reason = "a runner that can't be started is the failure of these tests")]

#[path = "support/limit.rs"]
mod limit;

use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use crate::limit::{Failure, within};

/// Runs a shell script as the test binary. A test may go on for so many seconds after it was named as slow.
fn command(script: &str, seconds_max: u32) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/time-limit"));
    command.args(["sh", "-c", script]).env("TG_TEST_SECONDS_MAX", seconds_max.to_string());
    command
}

fn run(script: &str, seconds_max: u32) -> Output {
    command(script, seconds_max).output().unwrap()
}

#[test]
fn a_test_that_hangs_is_named_and_fails_the_run() {
    let script = "echo 'test a::b has been running for over 60 seconds'; exec cat /dev/zero >/dev/null";
    let ended = run(script, 0);
    assert!(!ended.status.success());
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(text.contains("test a::b has hung"), "{text}");
}

/// Whoever is left holds the pipes of the output: this comes back when nobody does.
#[test]
fn processes_that_a_binary_leaves_behind_end_with_it() {
    let leaves_two = "cat /dev/zero >/dev/null & tail -f /dev/null & echo left two;";
    let hangs = "echo 'test a::b has been running for over 60 seconds'; exec cat /dev/zero >/dev/null";
    for rest in ["exit 0", hangs] {
        let text = String::from_utf8(run(&format!("{leaves_two} {rest}"), 0).stdout).unwrap();
        assert!(text.starts_with("left two\n"), "{text}");
    }
}

#[test]
fn a_slow_test_that_ends_before_the_limit_fails_nothing() {
    let script = "printf 'test a::b has been running for over 60 seconds\\ntest a::b ... ok\\n'";
    let ended = run(script, 600);
    assert!(ended.status.success());
    assert!(String::from_utf8(ended.stdout).unwrap().contains("test a::b ... ok\n"));
}

#[test]
fn tests_that_are_skipped_are_listed_by_name_at_the_end() {
    let list = tempfile::NamedTempFile::new().unwrap();
    let script = "echo 'test [anvil is not installed] a::b   ... ignored'; echo 'test a::c   ... ok'
        echo 'a::d: redis is not installed' >>\"$TG_SKIPPED\"; echo 'a::d: redis is not installed' >>\"$TG_SKIPPED\"";
    let ended = command(script, 600).env("TG_SKIPPED", list.path()).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    let names = ["a::b: anvil is not installed", "a::d: redis is not installed"];
    assert!(text.ends_with(&format!("2 tests were skipped:\n  {}\n  {}\n", names[0], names[1])), "{text}");
    assert_eq!(std::fs::read_to_string(list.path()).unwrap(), format!("{}\n{}\n", names[0], names[1]));
}

#[test]
fn the_verdict_and_the_output_of_a_binary_are_passed_on() {
    let ended = run("echo out; echo err >&2; exit 101", 600);
    assert_eq!(ended.status.code(), Some(101));
    assert!(ended.stdout.starts_with(b"out\n"));
    assert_eq!(ended.stderr, b"err\n");
}

#[test]
fn what_a_binary_took_is_said_with_its_ten_dearest_cases() {
    let script = "i=0; while [ $i -lt 12 ]; do echo \"$i 250 case::$i\" >>\"$TG_COSTS\"; i=$((i + 1)); done; sleep 0.2";
    let text = String::from_utf8(run(script, 600).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("sh took 0.") && lines[0].ends_with(" s of the processors"), "{text}");
    assert_eq!(
        lines[1..=2],
        ["  0.1 s of the processors in 2.5 s: case::11", "  0.1 s of the processors in 2.5 s: case::10"]
    );
    assert_eq!(lines.len(), 11, "{text}");
}

#[test]
fn a_case_that_hangs_fails_and_one_that_ends_does_not() {
    let (release, held) = mpsc::channel::<()>();
    let hangs = move || assert!(held.recv().is_err());
    assert_eq!(within(Duration::ZERO, "hangs".to_owned(), hangs), Err(Failure::Hung));
    drop(release);
    assert_eq!(within(Duration::MAX, "ends".to_owned(), || ()), Ok(()));
}

#[test]
fn a_case_that_panics_fails_with_its_message() {
    let panics = within(Duration::MAX, "panics".to_owned(), || panic!("seven is {}", 7));
    assert_eq!(panics, Err(Failure::Panicked("seven is 7".to_owned())));
}
