//! The composition as processes on loopback: each service has an address of its own, and the ports that it has inside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::{collections::BTreeMap, fs, io, net::IpAddr};

use alloy::primitives::{Address, U256, address};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::composition::{Composition, Service};
use crate::support::client::{Answer, Connection};
use crate::support::process::{Process, own_ip};
use crate::support::signing::{ALICE, Account, BOB, Draft};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{metrics::Samples, skip::skip, stop::Stop};

/// The two that are alike.
pub(crate) const REPLICAS: [&str; 2] = ["tiergate-1", "tiergate-2"];

/// Ports that every door has everywhere.
pub(crate) const GATEWAY: u16 = 8_000;
pub(crate) const API: u16 = 8_080;
pub(crate) const OWNERS: u16 = 8_081;
const ADMIN: u16 = 8_082;
const BALANCER_HEALTH: u16 = 8_404;

/// How many requests a credential may fail in a minute, at each replica.
pub(crate) const FAILURES_PER_MINUTE: usize = 30;

/// Limits that tests reach, or do not reach, within a minute on a machine that is busy with other things.
const LIMITS: &str =
    "export TIERGATE__TIERS__REQUESTS_PER_MINUTE=1,16,166,1000000 TIERGATE__ABUSE__FAILURES_PER_MINUTE=30";

/// How far ahead a signature may be: with an empty Redis only those are accepted that can't have been used before.
const MAX_AHEAD_SECS: u64 = 60;

/// Owners of the development chain's agents 1 to 4, whose tiers are their numbers.
pub(crate) const SAMPLE_OWNERS: [Account; 4] = [
    ALICE,
    BOB,
    Account {
        address: address!("0x90F79bf6EB2c4f870365E785982E1f101E93b906"),
        key: "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    },
    Account {
        address: address!("0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"),
        key: "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
    },
];

/// The services, while they run.
pub(crate) struct Running {
    composition: Composition,
    addresses: BTreeMap<String, IpAddr>,
    identity: Address,
    /// End before their logs go.
    processes: Mutex<BTreeMap<String, Process>>,
    folder: TempDir,
}

/// A client with an address of its own, on a connection that stays open.
pub(crate) struct Client {
    connection: Connection,
    identity: Address,
}

impl Running {
    /// One for all tests that break nothing; nothing when a program is missing that need not be there.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Running>> = OnceLock::new();
        // For each test, that each is skipped by its name.
        are_installed().then(|| SHARED.get_or_init(Self::start).as_ref())?
    }

    /// Starts the replicas before what they stand on, and waits until everything is ready.
    pub(crate) fn start() -> Option<Self> {
        if !are_installed() {
            return None;
        }
        let composition = Composition::shipped();
        let addresses = composition.services.keys().map(|name| (name.clone(), own_ip())).collect();
        let config: toml::Table = composition.text("tiergate.toml").parse().unwrap();
        let identity = config["chain"]["contracts"]["identity"].as_str().unwrap().parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let running = Self { composition, addresses, folder, identity, processes: Mutex::default() };
        for replica in REPLICAS {
            running.launch(replica);
            until("it lives without anything", SOON, || {
                let mut replica = running.try_client(own_ip(), replica, API).ok()?;
                (replica.get("/livez", &[]).status == 200).then_some(())
            });
            let mut replica = running.client(own_ip(), replica, API);
            assert_eq!(replica.get("/readyz", &[]).status, 503, "and is not ready");
        }
        for service in ["redis", "chain", "upstream"] {
            running.launch(service);
        }
        for replica in REPLICAS {
            let mut replica = running.client(own_ip(), replica, API);
            until("the replica is ready", SOON, || (replica.get("/readyz", &[]).status == 200).then_some(()));
            until("signatures count that can't be older than Redis", SOON, || {
                (replica.signed("POST", "/verify/signature", 4).status == 200).then_some(())
            });
        }
        running.launch("balancer");
        until("the balancer is ready", SOON, || (running.balancer_health() == 200).then_some(()));
        let count = running.processes.lock().unwrap().len();
        assert_eq!(count, running.composition.services.len(), "all of them run");
        Some(running)
    }

    /// Starts a service, or starts it again where it was.
    pub(crate) fn launch(&self, name: &str) {
        let service = &self.composition.services[name];
        let home = self.folder.path().join(name);
        fs::create_dir_all(&home).unwrap();
        for (file, _) in &service.files {
            let text = self.localized(name, service, &fs::read_to_string(file).unwrap());
            fs::write(home.join(file.file_name().unwrap()), text).unwrap();
        }
        for (volume, _) in &service.volumes {
            fs::create_dir_all(self.folder.path().join(volume)).unwrap();
        }
        let mut words: Vec<String> =
            service.command.iter().map(|word| self.localized(name, service, word)).collect();
        let program = match service.image.split(':').next().unwrap() {
            "haproxy" => {
                words = vec!["-db".to_owned(), "-f".to_owned(), text(&home.join("haproxy.cfg"))];
                PathBuf::from("haproxy")
            }
            "redis" => PathBuf::from(words.remove(0)),
            image @ ("tiergate" | "tiergate-dev") => {
                if words == ["run"] {
                    words.extend(["--config".to_owned(), text(&home.join("tiergate.toml"))]);
                }
                program(image)
            }
            other => panic!("who runs {other}?"),
        };
        let variables = service.environment.iter();
        let variables =
            variables.map(|(key, value)| format!(" {key}={}", self.localized(name, service, value)));
        let before = LIMITS.to_owned() + &variables.collect::<String>();
        let process = Process::start(&program, &words, &home.join("log"), &before);
        self.processes.lock().unwrap().insert(name.to_owned(), process);
    }

    /// A service's process, which ends when it is dropped.
    pub(crate) fn take(&self, name: &str) -> Process {
        self.processes.lock().unwrap().remove(name).unwrap()
    }

    /// A text of a service with this machine's addresses, files and folders in place of those inside.
    fn localized(&self, name: &str, service: &Service, original: &str) -> String {
        let own = self.addresses[name];
        let mut text = original.replace("0.0.0.0", &own.to_string());
        for (host, ip) in &self.addresses {
            text = with_host(&text, host, *ip);
            for inside in self.composition.services[host].networks.values().flatten() {
                text = text.replace(&inside.to_string(), &ip.to_string());
            }
        }
        for (file, inside) in &service.files {
            let here = self.folder.path().join(name).join(file.file_name().unwrap());
            text = text.replace(inside, here.to_str().unwrap());
        }
        for (volume, inside) in &service.volumes {
            let here = self.folder.path().join(volume);
            text = text.replace(&format!(" {inside}\n"), &format!(" {}\n", here.display()));
        }
        // On loopback everybody would come from the same address. Tests share a machine that is busy with other things.
        text.replace("default-server check", &format!("default-server source {own} check"))
            // It takes two descriptors for each connection at its start; a test may have a thousand in all.
            .replace("maxconn 4096", "maxconn 128")
            .replace("[store.redis]\n", "[store.redis]\ntimeout = \"5s\"\n")
            .replace("[chain]\n", "[chain]\nrequest_timeout = \"5s\"\nmax_staleness = \"60s\"\n")
            .replace("timeout check 3s", "timeout check 30s")
    }

    /// A client at `ip`, connected to a service.
    pub(crate) fn client(&self, ip: IpAddr, service: &str, port: u16) -> Client {
        self.try_client(ip, service, port).unwrap()
    }

    /// The same, or why it can't be connected.
    pub(crate) fn try_client(&self, ip: IpAddr, service: &str, port: u16) -> io::Result<Client> {
        let connection = Connection::open_from(ip, (self.addresses[service], port).into())?;
        Ok(Client { connection, identity: self.identity })
    }

    /// Generates an agent's key and gives it.
    pub(crate) fn generate(&self, client: &mut Client, agent: usize) -> String {
        let body = client.signed("POST", "/keys/generate", agent).success(201);
        body["apiKey"].as_str().unwrap().to_owned()
    }

    /// How many requests of agents a replica has passed on.
    pub(crate) fn forwarded(&self, replica: &str) -> f64 {
        let Ok(mut client) = self.try_client(own_ip(), replica, ADMIN) else { return 0.0 };
        let samples = Samples::parse(&client.get("/metrics", &[]).text());
        samples.sum("tiergate_gateway_requests_total", &["outcome=\"forwarded\""])
    }

    /// The status of the balancer's own check; 0 while it does not listen.
    pub(crate) fn balancer_health(&self) -> u16 {
        let client = self.try_client(own_ip(), "balancer", BALANCER_HEALTH);
        client.map_or(0, |mut client| client.get("/healthz", &[]).status)
    }

    /// One client that asks until it is stopped, one request after the other, and comes back when its connection
    /// breaks.
    pub(crate) fn hammer(&self, key: &str, load: &Load, stop: &Stop) {
        let ip = own_ip();
        let mut client = self.client(ip, "balancer", GATEWAY);
        while !stop.is_set() {
            let lost = if load.is_over.load(Ordering::SeqCst) { &load.lost_after } else { &load.lost_before };
            let answer = client.connection.send("GET", "/", &[("X-API-Key", key)], None);
            if !answer.is_ok_and(|answer| answer.status == 200) {
                lost.fetch_add(1, Ordering::SeqCst);
                client = self.client(ip, "balancer", GATEWAY);
            }
            load.asked.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Counts of requests while something happens.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) asked: AtomicUsize,
    /// Set when it has happened.
    pub(crate) is_over: AtomicBool,
    /// Requests without a good answer that had begun before it was over.
    pub(crate) lost_before: AtomicUsize,
    /// Those that began later.
    pub(crate) lost_after: AtomicUsize,
}

impl Client {
    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.try_get(path, headers).unwrap()
    }

    pub(crate) fn try_get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<Answer> {
        self.connection.send("GET", path, headers, None)
    }

    /// `POST /verify` with a key and nothing else.
    pub(crate) fn verify(&mut self, key: &str) -> Answer {
        self.connection.post("/verify", &json!({ "apiKey": key })).unwrap()
    }

    /// A request that a sample agent's owner signs.
    pub(crate) fn signed(&mut self, method: &str, path: &str, agent: usize) -> Answer {
        let draft = Draft::new(U256::from(agent), SAMPLE_OWNERS[agent - 1], self.identity);
        let body: Value = draft.timestamp(unix_seconds() + MAX_AHEAD_SECS).body();
        self.connection.send(method, path, &[], Some(body.to_string().as_bytes())).unwrap()
    }
}

/// SIGTERM.
pub(crate) fn terminate(pid: u32) {
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
}

/// The program of an image of ours.
pub(crate) fn program(image: &str) -> PathBuf {
    match image {
        "tiergate" => env!("CARGO_BIN_EXE_tiergate").into(),
        "tiergate-dev" => env!("CARGO_BIN_EXE_tiergate-dev").into(),
        other => panic!("{other} is no image of ours"),
    }
}

/// True when what the composition runs is installed. Skips the test when it is not.
fn are_installed() -> bool {
    ["haproxy", "redis-server"].into_iter().all(is_installed)
}

/// True when a program is installed. Skips the test when it is not.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip(program);
    }
    found
}

/// `name:PORT` as `ip:PORT`, wherever it stands as a whole.
fn with_host(text: &str, name: &str, ip: IpAddr) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&format!("{name}:")) {
        let (before, from) = rest.split_at(at);
        let behind = &from[name.len()..];
        let is_port = behind[1..].starts_with(|char: char| char.is_ascii_digit());
        let is_whole = !before.ends_with(|char: char| char.is_alphanumeric() || "-_.".contains(char));
        replaced.push_str(before);
        replaced.push_str(&if is_port && is_whole { ip.to_string() } else { name.to_owned() });
        rest = behind;
    }
    replaced + rest
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
