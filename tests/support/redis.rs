//! A Redis that replicas of the service share: a real server in a process of its own.
//!
//! Each service that is to know nothing of the others gets a database of its own. It is made to look like one that has
//! been in use for a while: a new one refuses signatures for the first minute, which the store's own tests are about.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::support::process::{Process, own_ip};
use crate::support::time::{SOON, until};

/// How many databases there are: more than cases that need one.
const DATABASES: u32 = 512;

/// Begins every shard's epoch and nonces long ago, for the life that the server is in, with room for any settings.
const IN_USE: &str = r"
local info = redis.call('INFO')
local life = info:match('master_replid:(%x+)') .. ':' .. info:match('evicted_keys:(%d+)')
for shard = 0, 1023 do
  redis.call('HSET', string.format('tg2:{%x}e', shard), 'life', life, 'since', '0', 'ahead', '600', 'kept', '40000000')
  redis.call('ZADD', string.format('tg2:{%x}n', shard), 0, '')
end";

/// A running server.
pub(crate) struct Redis {
    host: String,
    arguments: Vec<String>,
    folder: TempDir,
    process: Option<Process>,
    next_database: AtomicU32,
}

impl Redis {
    /// Starts a server with further arguments, in which `{ip}` is its address, and waits until it answers.
    pub(crate) fn start(further: &[&str]) -> Self {
        let (host, folder) = (own_ip().to_string(), tempfile::tempdir().unwrap());
        let databases = DATABASES.to_string();
        let common = ["--bind", &host, "--port", "6379", "--save", "", "--databases", &databases, "--dir"];
        let common = common.into_iter().chain([folder.path().to_str().unwrap()]).map(str::to_owned);
        let further = further.iter().map(|argument| argument.replace("{ip}", &host));
        let arguments = common.chain(further).collect();
        let mut redis = Self { host, arguments, folder, process: None, next_database: AtomicU32::new(0) };
        redis.start_again();
        redis
    }

    /// Starts a master, a replica that follows it, and a Sentinel that knows both.
    pub(crate) fn start_watched() -> [Self; 3] {
        let master = Self::start(&[]);
        let follows = ["--replicaof", master.host(), "6379", "--replica-announce-ip", "{ip}"];
        let replica = Self::start(&[&follows[..], &["--repl-diskless-sync-delay", "0"]].concat());
        until("the replica has what its master has", SOON, || replica.follows().then_some(()));
        let sentinel = Self::start_sentinel(&master);
        until("the Sentinel knows the replica", SOON, || sentinel.knows_a_replica().then_some(()));
        [master, replica, sentinel]
    }

    /// Starts a Sentinel that watches a master as "service", and decides alone.
    fn start_sentinel(master: &Self) -> Self {
        let (host, folder) = (own_ip().to_string(), tempfile::tempdir().unwrap());
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "bind {host}\nport 6379\nsentinel monitor service {} 6379 1\n\
             sentinel down-after-milliseconds service 10000\nsentinel failover-timeout service 10000\n",
            master.host
        );
        std::fs::write(&file, text).unwrap();
        let arguments = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let mut sentinel = Self { host, arguments, folder, process: None, next_database: AtomicU32::new(0) };
        sentinel.start_again();
        // A Sentinel that was itself held up for 2 s does nothing for the next 30, and asks for replicas every 10 s. Those
        // that can't be told otherwise take so long.
        let calm = ["DEBUG", "TILT-TRIGGER", "3600000", "INFO-PERIOD", "1000"];
        let _ = redis::cmd("SENTINEL").arg(&calm).exec(&mut sentinel.connect(0).unwrap());
        sentinel
    }

    /// Starts the server on the same address and folder, and waits until it answers.
    pub(crate) fn start_again(&mut self) {
        let program = redis_server().unwrap();
        let log = self.folder.path().join("log");
        let process = Process::start(&program, &self.arguments, &log, "");
        until("Redis answers", SOON, || {
            let info: String = redis::cmd("INFO").arg("server").query(&mut self.connect(0)?).ok()?;
            // Another server may have the port, and ours has ended then.
            assert!(info.contains(&format!("process_id:{}\r", process.pid)), "another Redis: {info}");
            Some(())
        });
        self.process = Some(process);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Stops its time, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) {
        let pid = self.process.as_ref().unwrap().pid.to_string();
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let done = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(done.success(), "the server takes signals");
    }

    /// A database of one's own, as a URL.
    pub(crate) fn database(&self) -> String {
        let number = self.next_database.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES, "more cases than databases");
        self.be_in_use(number);
        self.url(number)
    }

    /// Where one of its databases is.
    pub(crate) fn url(&self, database: u32) -> String {
        format!("redis://{}:6379/{database}", self.host)
    }

    /// Makes a database look as if its first minute was over.
    pub(crate) fn be_in_use(&self, database: u32) {
        redis::cmd("EVAL").arg(IN_USE).arg(0).exec(&mut self.connect(database).unwrap()).unwrap();
    }

    /// A command, in the first database.
    pub(crate) fn command(&self, words: &[&str]) -> redis::Value {
        let (name, arguments) = words.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut self.connect(0).unwrap()).unwrap()
    }

    /// Its address; the port is always the same.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// True when it is in sync with its master.
    fn follows(&self) -> bool {
        let info: String = redis::cmd("INFO").query(&mut self.connect(0).unwrap()).unwrap();
        info.contains("master_link_status:up")
    }

    /// How many replicas have everything that was written so far.
    pub(crate) fn acknowledged(&self) -> u32 {
        // WAIT counts from the writes of the connection that asks.
        let mut connection = self.connect(0).unwrap();
        redis::cmd("SET").arg("mark").arg("").exec(&mut connection).unwrap();
        redis::cmd("WAIT").arg(1).arg(100).query(&mut connection).unwrap()
    }

    /// True when a Sentinel knows a replica that it could promote.
    fn knows_a_replica(&self) -> bool {
        let known = self.command(&["SENTINEL", "REPLICAS", "service"]);
        known.as_sequence().is_some_and(|replicas| !replicas.is_empty())
    }

    /// Everything that a database holds, names and values, one after the other.
    pub(crate) fn dump(&self, database: u32) -> Vec<Vec<u8>> {
        const DUMP: &str = r"
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  all[#all + 1] = name
  all[#all + 1] = redis.call('DUMP', name)
end
return all";
        redis::cmd("EVAL").arg(DUMP).arg(0).query(&mut self.connect(database).unwrap()).unwrap()
    }

    fn connect(&self, database: u32) -> Option<redis::Connection> {
        redis::Client::open(self.url(database)).unwrap().get_connection().ok()
    }
}

impl std::fmt::Display for Redis {
    /// Host and port.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:6379", self.host)
    }
}

/// The server's program, or why it is not there.
pub(crate) fn redis_server() -> Result<PathBuf, String> {
    let named = std::env::var_os("TG_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let version = Command::new(&named).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(named.into()),
        Ok(_) | Err(_) => Err(format!("{} is not installed: make test installs it", named.display())),
    }
}
