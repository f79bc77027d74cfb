//! The one way to skip a test: by name, never where servers are required. `scripts/time-limit` lists the skipped at the end.

use std::{fs::OpenOptions, io::Write};

/// Set to 1 where a missing server is a failure, and no reason to skip a test.
pub(crate) const REQUIRED_VARIABLE: &str = "TG_REQUIRE_SERVERS";

/// A file to which each skipped test is added.
pub(crate) const LIST_VARIABLE: &str = "TG_SKIPPED";

/// True where a missing server is a failure.
pub(crate) fn are_servers_required() -> bool {
    std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "1")
}

/// Says that the test of this thread is skipped, or fails it where servers are required.
#[track_caller]
pub(crate) fn skip(missing: &str) {
    assert!(!are_servers_required(), "{missing} is not installed; scripts/test-servers installs it");
    let thread = std::thread::current();
    let line = format!("{}: {missing} is not installed\n", thread.name().unwrap_or("a test"));
    // Past the harness, which keeps what a test that passes says through `eprintln!`.
    let _ = write!(std::io::stderr(), "skipped: {line}");
    if let Some(list) = std::env::var_os(LIST_VARIABLE) {
        let file = OpenOptions::new().create(true).append(true).open(list);
        let listed = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(listed.is_ok(), "the list of skipped tests: {listed:?}");
    }
}
