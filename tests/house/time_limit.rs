//! A test that hangs fails by name, and so does a suite that grows: `scripts/time-limit`, through which `scripts/run-tests` runs
//! every test binary, that script, and the limit of cases in `tests/support`.

use std::process::{Command, Output};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::mpsc, time::Duration};

use crate::limit::{Failure, run_limited};

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
    assert_eq!(fs::read_to_string(list.path()).unwrap(), format!("{}\n{}\n", names[0], names[1]));
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
    let took = lines[0].strip_prefix("sh took ").and_then(|rest| rest.split_once(' ')).unwrap().0;
    assert!(took.parse::<f64>().unwrap() >= 0.2 && lines[0].contains(" s of the processors"), "{text}");
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
    assert_eq!(run_limited(Duration::ZERO, "hangs".to_owned(), hangs), Err(Failure::Hung));
    drop(release);
    assert_eq!(run_limited(Duration::MAX, "ends".to_owned(), || ()), Ok(()));
}

#[test]
fn a_case_that_panics_fails_with_its_message() {
    let panics = run_limited(Duration::MAX, "panics".to_owned(), || panic!("seven is {}", 7));
    assert_eq!(panics, Err(Failure::Panicked("seven is 7".to_owned())));
}

/// Two suites without tests, which a compiler has built, on a machine that counts their instructions: in millions, as the files
/// that are called so say. One case took 21 s of the processors, another 76 s by the clock.
fn suites(folder: &Path) {
    let script = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\ncd '{}'\n{text}", folder.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let artifact = |name: &str| {
        let program = folder.join(format!("{name}-1f"));
        serde_json::json!({
            "reason": "compiler-artifact",
            "profile": { "test": true },
            "target": { "name": name },
            "executable": program,
        })
    };
    script("cargo", &format!("echo '{}'\necho '{}'\n", artifact("one"), artifact("other")));
    script(
        "one-1f",
        "echo \"2100 0 dev::topic::dear\" >>\"$TG_COSTS\"; echo \"0 7600 dev::topic::slow\" >>\"$TG_COSTS\"\n",
    );
    script("other-1f", "[ ! -e killed ] || kill -KILL $$\n");
    script("perf", "exec python3 perf.py \"$@\"\n");
    // As may be with the real one, its status is not that of the program.
    let perf = "import os, subprocess, sys\nat = sys.argv.index('--')\nsubprocess.call(sys.argv[at + 1:])
with open(os.path.basename(sys.argv[-1]) + '.count') as count, open(sys.argv[sys.argv.index('-o') + 1], 'w') as out:
    out.write(f'{count.read()},,instructions:u\\n')\n";
    fs::write(folder.join("perf.py"), perf).unwrap();
}

/// Runs the suites of a folder as `make test` does. Returns what is said, and if it is all right.
fn judged(folder: &Path, counts: [&str; 3], more: &[&str]) -> (bool, String) {
    for (name, count) in ["true", "one-1f", "other-1f"].iter().zip(counts) {
        fs::write(folder.join(format!("{name}.count")), count).unwrap();
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let ended = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/run-tests"))
        .args(more)
        .args(["--features", "dev-chain"])
        .envs([("PATH", path.as_str()), ("TG_REQUIRE_SERVERS", "1")])
        .env("TG_BUDGET", folder.join("budget.toml"))
        .env_remove("TG_WHOLE")
        .output()
        .unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8(said).unwrap())
}

const REASONS: &str = "[dear]\ndear = \"why\"\nslow = \"why\"\n\n";

#[test]
fn a_suite_that_grows_fails_until_its_budget_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    suites(folder.path());
    let budget = folder.path().join("budget.toml");
    let known = format!("{REASONS}[instructions]\none = 1000\nother = 3000\n\n[seconds]\n");
    fs::write(&budget, &known).unwrap();
    for (one, other, complaint) in [
        ("1040000000", "3000000000", None),
        ("1060000000", "2900000000", Some("one: 1,060 million instructions, of 1,000")),
        ("1040000000", "3100000000", Some("all: 4,140 million instructions, of 4,000")),
        ("1000000000", "<not counted>", Some("other: no figure")),
    ] {
        let (is_right, said) = judged(folder.path(), ["1", one, other], &[]);
        assert_eq!(is_right, complaint.is_none(), "{said}");
        assert!(said.contains(complaint.unwrap_or("all: ")), "{said}");
    }
    let grown = ["1", "1060000000", "3000000000"];
    let (is_right, said) = judged(folder.path(), ["<not supported>", grown[1], grown[2]], &[]);
    assert!(is_right && said.contains("perf counts none here"), "{said}");
    assert!(judged(folder.path(), grown, &["--write"]).0);
    let written = fs::read_to_string(&budget).unwrap();
    assert!(
        written.starts_with(&format!("{REASONS}[instructions]\none = 1060\nother = 3000\n")),
        "{written}"
    );
    assert!(judged(folder.path(), grown, &[]).0);
    fs::write(folder.path().join("killed"), "").unwrap();
    assert!(!judged(folder.path(), grown, &[]).0, "a binary was killed");
}

#[test]
fn a_dear_case_needs_a_line_and_a_line_its_case() {
    let folder = tempfile::tempdir().unwrap();
    suites(folder.path());
    for (reasons, complaint) in [
        (REASONS.to_owned(), None),
        (
            REASONS.replace("dear = ", "slow_ = "),
            Some("dear: 21.0 s of the processors in 0.0 s, and no line"),
        ),
        (
            REASONS.replace("slow = ", "slow_ = "),
            Some("slow: 0.0 s of the processors in 76.0 s, and no line"),
        ),
        (format!("{REASONS}gone = \"why\"\n"), Some("gone: no case is called so")),
        // A machine on which all takes so many times what it took.
        ("[dear]\nslow = \"why\"\n[seconds]\none = 0.0001\n".to_owned(), None),
    ] {
        let seconds = if reasons.contains("[seconds]") { "" } else { "[seconds]\n" };
        fs::write(folder.path().join("budget.toml"), format!("{reasons}[instructions]\n{seconds}")).unwrap();
        let (is_right, said) = judged(folder.path(), ["<not supported>", "", ""], &[]);
        assert_eq!(is_right, complaint.is_none(), "{said}");
        assert!(said.contains(complaint.unwrap_or("all: ")), "{said}");
    }
}
