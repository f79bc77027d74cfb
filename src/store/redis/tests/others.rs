//! The oldest Redis that is supported, and Valkey: every test of this store over each of them, by running the tests'
//! program once more with another server named.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::store::redis::tests::server::{PROGRAM_VARIABLE, REQUIRED_VARIABLE, is_installed, is_missing};

/// Where this module's tests are, which must not run themselves again.
const OTHERS: &str = "store::redis::tests::others::";

/// Fewer tests than this store has would be a mistake in what is run here.
const TESTS_MIN: usize = 40;

/// Runs every test of the store over a server, but those whose names begin with one of `without`.
#[track_caller]
fn every_test_passes_over(server: &str, without: &[&str]) {
    let program = server_at(server);
    if !is_installed(program.as_os_str()) {
        return is_missing(program.as_os_str());
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["store::redis::", "--test-threads", "4", "--skip", OTHERS]);
    for name in without {
        tests.args(["--skip", name]);
    }
    let done = tests.env(PROGRAM_VARIABLE, &program).env(REQUIRED_VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}: {said}", program.display());
    let passed = said.split_once("test result: ok. ").and_then(|(_, rest)| rest.split(' ').next());
    let passed: usize = passed.unwrap().parse().unwrap();
    assert!(passed >= TESTS_MIN, "{said}");
}

/// Where `scripts/other-servers` puts a server.
fn server_at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/servers").join(path)
}

#[test]
fn every_test_of_the_store_passes_over_redis_6_2() {
    // That program is built without TLS, which is no matter of the version.
    let of_tls = ["store::redis::tests::real::tls_", "store::redis::tests::secured::"];
    every_test_passes_over("redis-6.2/redis-server", &of_tls);
}

#[test]
fn every_test_of_the_store_passes_over_valkey_8() {
    every_test_passes_over("valkey-8/valkey-server", &[]);
}
