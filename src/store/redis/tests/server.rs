//! Real servers for tests: each listens on a loopback address of its own, has a folder of its own, and ends with the
//! test's process, whatever becomes of that.

use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::domain::redis_url::RedisHost;
use crate::store::redis::tests::watched::Watched;

#[path = "../../../../tests/support/loopback.rs"]
mod loopback;

/// Names another program than the distribution's `redis-server`; `others.rs` runs all tests over such.
pub(super) const PROGRAM_VARIABLE: &str = "TIERGATE_REDIS_SERVER";

/// Set to 1 where a server that is not installed is a failure, and no reason to skip a test.
pub(super) const REQUIRED_VARIABLE: &str = "TIERGATE_REQUIRE_SERVERS";

/// A running server.
pub(super) struct RedisServer {
    process: Watched,
    pub(super) host: RedisHost,
    arguments: Vec<String>,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server with further arguments, in which `{ip}` is its address; or says that there is none to start.
    pub(super) fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_at(own_ip(), arguments)
    }

    /// The same at an address that is known before.
    pub(super) fn start_at(ip: Ipv4Addr, arguments: &[&str]) -> Option<Self> {
        let ip = ip.to_string();
        let common = ["--bind", &ip, "--port", "6379", "--save", ""];
        let further = arguments.iter().map(|argument| argument.replace("{ip}", &ip));
        let arguments = common.iter().map(|argument| (*argument).to_owned()).chain(further).collect();
        Self::run(RedisHost { host: ip, port: 6_379 }, arguments, tempfile::tempdir().unwrap())
    }

    /// Starts a Sentinel that watches a master as "service", and decides alone.
    pub(super) fn start_sentinel(master: &RedisHost) -> Option<Self> {
        Self::start_sentinel_at(own_ip(), master, "")
    }

    /// The same at an address that is known before, with further lines in its file.
    pub(super) fn start_sentinel_at(ip: Ipv4Addr, master: &RedisHost, lines: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let RedisHost { host, port } = master;
        let text = format!(
            "bind {ip}\nport 26379\nsentinel monitor service {host} {port} 1\n\
             sentinel down-after-milliseconds service 300\nsentinel failover-timeout service 3000\n\
             {lines}"
        );
        std::fs::write(&file, text).unwrap();
        let arguments = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        Self::run(RedisHost { host: ip.to_string(), port: 26_379 }, arguments, folder)
    }

    fn run(host: RedisHost, arguments: Vec<String>, folder: TempDir) -> Option<Self> {
        if !is_installed(&program()) {
            is_missing(&program());
            return None;
        }
        let process = run(&folder, &arguments);
        Some(Self { process, host, arguments, folder })
    }

    /// Kills it as with `kill -9`, and starts it again on the same address and folder.
    pub(super) fn restart(&mut self) {
        self.kill();
        self.process = run(&self.folder, &self.arguments);
    }

    /// Starts it again with more arguments.
    pub(super) fn instead(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.restart();
        self
    }

    /// Kills it as with `kill -9`.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops its time, or lets it go on.
    pub(super) fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let done = Command::new("kill").args([signal, &self.process.pid.to_string()]).status().unwrap();
        assert!(done.success());
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.host)
    }
}

/// The server's program.
fn program() -> OsString {
    std::env::var_os(PROGRAM_VARIABLE).unwrap_or_else(|| "redis-server".into())
}

pub(super) fn is_installed(program: &OsStr) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Says that a test is skipped, or fails it where servers are required.
#[track_caller]
pub(super) fn is_missing(program: &OsStr) {
    let program = program.display();
    let required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "1");
    assert!(!required, "{program} is not installed; scripts/test-servers installs it");
    eprintln!("skipped: {program} is not installed");
}

fn run(folder: &TempDir, arguments: &[String]) -> Watched {
    let folder = folder.path();
    let arguments = [arguments, &["--dir".to_owned(), folder.to_str().unwrap().to_owned()]].concat();
    Watched::start(&program(), &arguments, &folder.join("log"), "")
}

/// A loopback address that nobody else uses.
pub(super) fn own_ip() -> Ipv4Addr {
    loopback::own_ip()
}
