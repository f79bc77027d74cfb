//! The service under test: `tiergate run` in a folder of its own, and how its endpoints are asked.

use std::path::{Path, PathBuf};
use std::{fs, io, net::SocketAddr, process::Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Answer, Connection};
use crate::support::process::{Process, free_ports, own_ip, run_to_end};
use crate::support::secrets::{self, AUDIT};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::{metrics::Samples, settings::Settings};

/// A running service.
pub(crate) struct Service {
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Ends before its log goes.
    pub(crate) process: Option<Process>,
    /// Where the configuration file is.
    pub(crate) folder: TempDir,
    /// Sent in front of every connection to the API.
    preface: &'static [u8],
}

impl Service {
    /// Starts the service and waits until it is ready.
    pub(crate) fn start(settings: Settings) -> Self {
        let service = Self::start_unready(settings);
        service.await_ready();
        service
    }

    /// Starts the service behind a balancer that sends these bytes in front of each connection, and waits until it is ready.
    pub(crate) fn start_behind(preface: &'static [u8], settings: Settings) -> Self {
        let mut service = Self { preface, ..Self::prepare(settings) };
        service.start_again("");
        service.await_ready();
        service
    }

    /// Starts the service and waits until it is alive.
    pub(crate) fn start_unready(settings: Settings) -> Self {
        let mut service = Self::prepare(settings);
        service.start_again("");
        service
    }

    /// Everything but the process.
    pub(crate) fn prepare(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (api, admin) = free_ports(own_ip());
        let settings = settings
            .set("listen.api", api.to_string())
            .set("listen.admin", admin.to_string())
            .embedded_in(&folder.path().join("data"))
            .with_store_in(&folder.path().join("data"))
            // No secret is in what is written: see `secrets`.
            .set_default("log.level", "info,tiergate=trace")
            .set_default("log.access", true)
            .set_default("log.audit", folder.path().join(AUDIT).to_str().unwrap());
        fs::write(folder.path().join("tiergate.toml"), settings.text()).unwrap();
        Self { api, admin, folder, process: None, preface: b"" }
    }

    /// Without the store that was made for it, where it is no other one's: the process may make one.
    pub(crate) fn without_store(self) -> Self {
        let file = self.folder.path().join("tiergate.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("create = false", "create = true")).unwrap();
        if self.data().exists() {
            fs::remove_dir_all(self.data()).unwrap();
        }
        self
    }

    /// Starts a process on the same folder, and waits until it is alive and has its store. `limits` are shell commands in
    /// front of it.
    pub(crate) fn start_again(&mut self, limits: &str) {
        self.start_alone(limits);
        // Readiness is not asked: it remembers its answers for a while.
        until("the store answers", SOON, || (self.status("1").status != 500).then_some(()));
    }

    /// Starts a process and waits until it is alive, whether its store is there or not.
    pub(crate) fn start_alone(&mut self, limits: &str) {
        let log = self.folder.path().join("log");
        let process = Process::start(program(), &self.arguments(), &log, limits);
        self.process = Some(process);
        until("the service is alive", SOON, || {
            let answer = self.open().and_then(|mut api| api.send("GET", "/livez", &[], None));
            let alive = answer.is_ok_and(|answer| answer.status == 200);
            alive.then_some(()).or_else(|| {
                let log = self.log();
                assert!(!log.contains("tiergate: "), "the service did not start: {log}");
                None
            })
        });
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn await_ready(&self) {
        until("the service is ready", SOON, || (self.get("/readyz").status == 200).then_some(()));
    }

    /// Waits until readiness is answered with this status and such a body, which it gives: a probe may be late on a busy machine.
    #[track_caller]
    pub(crate) fn await_readiness(&self, path: &str, status: u16, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Stopwatch::start();
        until(&format!("{path} is answered with {status}, as it should"), 2 * SOON, || {
            let answer = self.get(path);
            let shown = (answer.status == status).then(|| answer.success(status)).filter(&wanted);
            assert!(shown.is_some() || begun.elapsed() < SOON, "{path}: {}", answer.text());
            shown
        })
    }

    /// Runs a second process with the same configuration but other listeners; it should not stay.
    pub(crate) fn run_second(&self) -> Output {
        let text = fs::read_to_string(self.folder.path().join("tiergate.toml")).unwrap();
        let (api, admin) = free_ports(own_ip());
        let text = text
            .replace(&self.api.to_string(), &api.to_string())
            .replace(&self.admin.to_string(), &admin.to_string());
        let file = self.folder.path().join("second.toml");
        fs::write(&file, text).unwrap();
        let arguments = ["run", "--config", file.to_str().unwrap()].map(str::to_owned);
        run_to_end(program(), &arguments, self.folder.path())
    }

    /// Runs another command with the same configuration, to its end.
    pub(crate) fn command(&self, verb: &str, further: &[&str]) -> Output {
        let config = self.folder.path().join("tiergate.toml");
        let arguments = [&[verb, "--config", config.to_str().unwrap()], further].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        run_to_end(program(), &arguments, self.folder.path())
    }

    fn arguments(&self) -> Vec<String> {
        let file = self.folder.path().join("tiergate.toml");
        vec!["run".to_owned(), "--config".to_owned(), file.to_str().unwrap().to_owned()]
    }

    /// The folder of the store.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn log(&self) -> String {
        self.process.as_ref().unwrap().log()
    }

    /// [`Process::await_log`].
    #[track_caller]
    pub(crate) fn await_log(&self, parts: &[&str]) -> String {
        self.process.as_ref().unwrap().await_log(parts)
    }

    pub(crate) fn connect(&self) -> Connection {
        self.open().unwrap()
    }

    fn open(&self) -> io::Result<Connection> {
        let mut connection = Connection::open(self.api)?;
        connection.write(self.preface)?;
        Ok(connection)
    }

    /// A request on a connection of its own.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Answer {
        self.connect().send(method, path, headers, body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[], Some(body.to_string().as_bytes()))
    }

    /// `POST /verify` with a key and nothing else.
    pub(crate) fn verify(&self, key: &str) -> Answer {
        self.post("/verify", &json!({ "apiKey": key }))
    }

    pub(crate) fn verify_signature(&self, body: &Value) -> Answer {
        self.post("/verify/signature", body)
    }

    pub(crate) fn generate(&self, body: &Value) -> Answer {
        self.post("/keys/generate", body)
    }

    pub(crate) fn rotate(&self, body: &Value) -> Answer {
        self.post("/keys/rotate", body)
    }

    pub(crate) fn revoke(&self, body: &Value) -> Answer {
        self.request("DELETE", "/keys", &[], Some(body.to_string().as_bytes()))
    }

    /// Sends a signed body to an endpoint by method and path.
    pub(crate) fn signed(&self, (method, path): (&str, &str), body: &Value) -> Answer {
        self.request(method, path, &[], Some(body.to_string().as_bytes()))
    }

    pub(crate) fn status(&self, agent_id: &str) -> Answer {
        self.get(&format!("/keys/status?agentId={agent_id}"))
    }

    /// The metrics, read.
    pub(crate) fn samples(&self) -> Samples {
        Samples::parse(&self.metrics())
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn metrics(&self) -> String {
        let answer = Connection::open(self.admin).unwrap().send("GET", "/metrics", &[], None).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        secrets::are_not_in(&answer.body, "the metrics");
        answer.text()
    }
}

/// The four endpoints that take a signed request.
pub(crate) const SIGNED_ENDPOINTS: [(&str, &str); 4] = [
    ("POST", "/verify/signature"),
    ("POST", "/keys/generate"),
    ("POST", "/keys/rotate"),
    ("DELETE", "/keys"),
];

/// The status of such a request when it is granted.
pub(crate) fn status_of(endpoint: (&str, &str)) -> u16 {
    if endpoint.1 == "/keys/generate" { 201 } else { 200 }
}

/// Those of them that manage keys.
pub(crate) const KEY_ENDPOINTS: [(&str, &str); 3] =
    [("POST", "/keys/generate"), ("POST", "/keys/rotate"), ("DELETE", "/keys")];

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tiergate"))
}
