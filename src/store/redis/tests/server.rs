//! Real servers for tests: each listens on a loopback address of its own, has a folder of its own, and ends with the
//! test's process, whatever becomes of that. None is believed before it has said that it is the child that was started.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use std::{net::Ipv4Addr, path::Path};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    Value,
};
use tempfile::TempDir;
use tokio::task::{LocalSet, spawn_local};

use crate::domain::RedisHost;
use crate::store::contract::{PATIENCE, until};
use crate::store::{
    redis::certificates, redis::info::Info, redis::options::TlsFiles, redis::tests::server::skip::skip,
    redis::tests::watched::Watched,
};

#[path = "../../../../tests/support/loopback.rs"]
mod loopback;
#[path = "../../../../tests/support/skip.rs"]
pub(super) mod skip;

/// Names another program than the distribution's `redis-server`; `others.rs` runs tests over such.
pub(super) const PROGRAM_VARIABLE: &str = "TG_REDIS_SERVER";

/// How a server's administrator logs in.
#[derive(Clone, Default)]
pub(super) struct Admin {
    /// Not the default where the server speaks TLS alone.
    pub(super) tls: TlsFiles,
    pub(super) password: Option<&'static str>,
}

/// A running server.
pub(super) struct RedisServer {
    process: Watched,
    pub(super) host: RedisHost,
    arguments: Vec<String>,
    folder: TempDir,
    admin: Admin,
}

/// A server whose time stands still until this is dropped.
pub(super) struct Frozen<'a>(&'a RedisServer);

impl RedisServer {
    /// Starts a server with further arguments, in which `{ip}` is its address; or says that there is none to start.
    pub(super) async fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_at(own_ip(), arguments, Admin::default()).await
    }

    /// The same at an address that is known before, with another login.
    pub(super) async fn start_at(ip: Ipv4Addr, arguments: &[&str], admin: Admin) -> Option<Self> {
        let ip = ip.to_string();
        // A replica that comes is served at once, and not after five seconds.
        let common = ["--bind", &ip, "--port", "6379", "--save", "", "--repl-diskless-sync-delay", "0"];
        let arguments =
            common.iter().chain(arguments).map(|argument| argument.replace("{ip}", &ip)).collect();
        Self::run(RedisHost { host: ip, port: 6_379 }, arguments, tempfile::tempdir().unwrap(), admin).await
    }

    /// The oldest server that is supported, whose clock is ahead by as much as a file says: `+0`, or `+2d`.
    pub(super) async fn with_clock(file: &Path) -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/servers/redis-6.2/redis-server");
        let mut libraries = std::fs::read_dir("/usr/lib").unwrap();
        let library = libraries.find_map(|entry| {
            Some(entry.ok()?.path().join("faketime/libfaketime.so.1")).filter(|path| path.is_file())
        });
        let Some(library) = library.filter(|_| is_installed(program.as_os_str())) else {
            skip("Redis 6.2 or faketime");
            return None;
        };
        let clock = format!(
            "export LD_PRELOAD='{}' FAKETIME_TIMESTAMP_FILE='{}' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1",
            library.display(),
            file.display(),
        );
        let (host, folder) =
            (RedisHost { host: own_ip().to_string(), port: 6_379 }, tempfile::tempdir().unwrap());
        let arguments: Vec<String> =
            ["--bind", &host.host, "--port", "6379", "--save", ""].map(str::to_owned).to_vec();
        let process = Watched::start(program.as_os_str(), &arguments, &folder.path().join("log"), &clock);
        let server = Self { process, host, arguments, folder, admin: Admin::default() };
        server.connected().await;
        Some(server)
    }

    /// A replica of it, which has everything.
    pub(super) async fn replica(&self) -> Self {
        let more = ["--replicaof", &self.host.host, "6379", "--replica-announce-ip", "{ip}"];
        let replica = Self::start(&more).await.unwrap();
        self.replicated().await;
        replica
    }

    /// Waits until a replica has everything that was written so far.
    pub(super) async fn replicated(&self) {
        let mut connection = self.connected().await;
        until("a replica is in step", async || {
            // WAIT is about what was there at the command before it.
            say(&mut connection, &["PING"]).await.unwrap();
            (say(&mut connection, &["WAIT", "1", "100"]).await.unwrap() == Value::Int(1)).then_some(())
        })
        .await;
    }

    /// Starts a Sentinel that watches a master as "service", and decides alone.
    pub(super) async fn start_sentinel(master: &RedisHost) -> Option<Self> {
        Self::start_sentinel_at(own_ip(), master, "", Admin::default()).await
    }

    /// The same at an address that is known before, with further lines in its file and another login.
    pub(super) async fn start_sentinel_at(
        ip: Ipv4Addr,
        master: &RedisHost,
        lines: &str,
        admin: Admin,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let RedisHost { host, port } = master;
        let text = format!(
            "bind {ip}\nport 26379\nsentinel monitor service {host} {port} 1\n\
             sentinel down-after-milliseconds service 10000\nsentinel failover-timeout service 10000\n\
             {lines}"
        );
        std::fs::write(&file, text).unwrap();
        let arguments = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let host = RedisHost { host: ip.to_string(), port: 26_379 };
        let sentinel = Self::run(host, arguments, folder, admin).await?;
        // A Sentinel that was itself held up for 2 s does nothing for the next 30, and asks for replicas every 10 s. Those
        // that can't be told otherwise take so long.
        let calm = ["SENTINEL", "DEBUG", "TILT-TRIGGER", "3600000", "INFO-PERIOD", "1000"];
        let _ = say(&mut sentinel.connected().await, &calm).await;
        Some(sentinel)
    }

    async fn run(host: RedisHost, arguments: Vec<String>, folder: TempDir, admin: Admin) -> Option<Self> {
        if !is_installed(&program()) {
            skip(&program().to_string_lossy());
            return None;
        }
        let process = run(&folder, &arguments);
        let server = Self { process, host, arguments, folder, admin };
        server.connected().await;
        Some(server)
    }

    /// Kills it as with `kill -9`, and starts it again on the same address and folder.
    pub(super) async fn restart(&mut self) {
        self.kill();
        self.process = run(&self.folder, &self.arguments);
        self.connected().await;
    }

    /// Kills it as with `kill -9`.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops its time.
    pub(super) fn freeze(&self) -> Frozen<'_> {
        self.signal("-STOP");
        Frozen(self)
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.pid.to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// A connection of its administrator, to the very child that was started.
    pub(super) async fn connected(&self) -> MultiplexedConnection {
        let (client, child) = (self.client(), self.process.pid.to_string());
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let what = format!("{} answers", self.host);
        let (connection, process) = until(&what, async || {
            let connected = client.get_multiplexed_async_connection_with_config(&patient).await;
            let mut connection = connected.ok()?;
            let said: String = redis::cmd("INFO").arg("SERVER").query_async(&mut connection).await.ok()?;
            Some((connection, Info::read(&said).value("process_id").to_owned()))
        })
        .await;
        assert_eq!(process, child, "another process answers at {}", self.host);
        connection
    }

    fn client(&self) -> Client {
        let Admin { tls, password } = &self.admin;
        let (certificates, RedisHost { host, port }) = (certificates(tls).unwrap(), self.host.clone());
        let address = match &certificates {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        let login = RedisConnectionInfo::default();
        let login = password.map_or(login.clone(), |password| login.set_password(password));
        let info = address.into_connection_info().unwrap().set_redis_settings(login);
        match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
        .unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.host)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.signal("-CONT");
    }
}

/// Says something to a server.
pub(super) async fn say(connection: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
    let (name, rest) = words.split_first().unwrap();
    redis::cmd(name).arg(rest).query_async(connection).await
}

/// The server's program.
fn program() -> OsString {
    std::env::var_os(PROGRAM_VARIABLE).unwrap_or_else(|| "redis-server".into())
}

pub(super) fn is_installed(program: &OsStr) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
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

#[tokio::test]
async fn another_server_at_the_same_address_is_not_taken_for_the_child_that_was_started() {
    let Some(other) = RedisServer::start(&[]).await else { return };
    let ip = other.host.host.parse().unwrap();
    let started = async move { RedisServer::start_at(ip, &[], Admin::default()).await.is_some() };
    let ended = LocalSet::new().run_until(async { spawn_local(started).await }).await;
    let panic = ended.unwrap_err().into_panic();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("another process answers"), "{said}");
}
