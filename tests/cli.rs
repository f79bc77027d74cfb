//! The command line as a newcomer types it: what it prints works as printed, and what goes wrong is one sentence.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

#[path = "support/loopback.rs"]
mod loopback;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

/// The longest that a start in a debug build on a busy machine may take.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs the program to its end.
fn tiergate(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(args)
        .env_remove("TIERGATE_CONFIG")
        .env_remove("TIERGATE_OWNER_KEY")
        .env_remove("TIERGATE_API_KEY");
    command
}

/// Standard error of a failed run, after checking that it is what a person wants to see.
fn failure(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("tiergate: "), "{text}");
    assert!(!text.contains("panicked") && !text.contains("backtrace") && !text.contains("Error {"), "{text}");
    text
}

/// An address that nobody else uses.
fn free_address() -> String {
    TcpListener::bind((loopback::own_ip(), 0)).unwrap().local_addr().unwrap().to_string()
}

/// `tiergate dev` and what it printed. It dies with this process, however that ends: its shell waits for a pipe that
/// closes then.
struct Dev {
    alive: Option<ChildStdin>,
    shell: Child,
    api: String,
    printed: String,
}

impl Dev {
    fn start() -> Self {
        let api = free_address();
        let others =
            ["--admin", "--chain", "--gateway", "--upstream"].map(|door| [door.to_owned(), free_address()]);
        let script = r#""$@" & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid"#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh", PROGRAM, "dev", "--api", &api])
            .args(others.concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let alive = shell.stdin.take();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut printed = String::new();
        while !printed.contains("Ctrl-C") {
            let line = lines.recv_timeout(START_TIME_MAX).expect("it starts and says what to paste");
            printed.push_str(&line);
            printed.push('\n');
        }
        Self { alive, shell, api, printed }
    }

    /// One for all tests of this file.
    fn shared() -> &'static Self {
        static DEV: OnceLock<Dev> = OnceLock::new();
        DEV.get_or_init(Self::start)
    }

    fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// The key file of a sample agent's owner, as the printed commands name it.
    fn key_file(&self, agent: u8) -> String {
        self.sibling(&format!("agent-{agent}.key"))
    }

    fn config(&self) -> String {
        self.sibling("tiergate.toml")
    }

    fn sibling(&self, name: &str) -> String {
        let config = self.printed.lines().find_map(|line| line.trim().strip_prefix("config")).unwrap().trim();
        Path::new(config).with_file_name(name).display().to_string()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.shell.wait();
    }
}

#[test]
fn the_printed_commands_work_as_printed() {
    let dev = Dev::start();
    let commands: Vec<&str> = dev
        .printed
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains("curl"))
        .map(str::trim)
        .collect();
    assert_eq!(commands.len(), 8, "{}", dev.printed);
    let answers: Vec<Value> = commands
        .iter()
        .map(|command| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{command}: {output:?}"))
        })
        .collect();
    assert!(answers[0]["apiKey"].as_str().unwrap().starts_with("svc_live_v1_"), "{}", answers[0]);
    assert_eq!((&answers[1]["valid"], &answers[1]["agentId"]), (&true.into(), &"2".into()), "{}", answers[1]);
    assert_eq!((&answers[2]["valid"], &answers[2]["agentId"]), (&true.into(), &"3".into()), "{}", answers[2]);
    assert_eq!(answers[3]["errorType"], "TIER_BLOCKED", "{}", answers[3]);
    assert_eq!(answers[4]["path"], "/public/forecast", "{}", answers[4]);
    assert!(answers[4]["headers"].get("x-agent-id").is_none(), "{}", answers[4]);
    let headers = &answers[5]["headers"];
    assert_eq!(
        (&headers["x-agent-id"], &headers["x-agent-tier"]),
        (&"2".into(), &"2".into()),
        "{}",
        answers[5]
    );
    assert_eq!(headers.get("x-api-key"), None, "{}", answers[5]);
    assert_eq!(answers[6]["headers"]["x-agent-id"], "3", "{}", answers[6]);
    assert_eq!(answers[6]["headers"].get("x-agent-signature"), None, "{}", answers[6]);
    let refused = &answers[7];
    assert_eq!(
        (&refused["errorType"], &refused["details"]["requiredTier"]),
        (&"TIER_BLOCKED".into(), &3.into()),
        "{refused}"
    );
}

#[test]
fn sample_agents_stand_for_every_tier() {
    let printed = &Dev::shared().printed;
    for (agent, tier) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)] {
        assert!(printed.contains(&format!("agent {agent}  tier {tier}")), "{printed}");
    }
}

#[test]
fn keys_are_generated_used_rotated_and_revoked_from_the_command_line() {
    let dev = Dev::shared();
    let (url, key_file, config) = (dev.url(), dev.key_file(4), dev.config());
    let signed = ["--url", &url, "--agent-id", "4", "--key-file", &key_file, "--config", &config];
    let keys = |verb: &str| tiergate(&[&["keys", verb], &signed[..]].concat());
    let status = || {
        let output = tiergate(&["keys", "status", "--url", &url, "--agent-id", "004"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["hasKey"].as_bool().unwrap()
    };
    let verify =
        |key: &str| command(&["verify", "--url", &url]).env("TIERGATE_API_KEY", key).output().unwrap();
    let passes = |key: &str| {
        let output = verify(key);
        assert!(output.status.success(), "{output:?}");
    };
    let api_key = |output: Output| {
        assert!(output.status.success(), "{output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["apiKey"].as_str().unwrap().to_owned()
    };

    assert!(!status());
    let first = api_key(keys("generate"));
    assert!(status());
    passes(&first);
    assert!(failure(&keys("generate"), 1).contains("KEY_ALREADY_EXISTS"));
    let second = api_key(keys("rotate"));
    assert!(failure(&verify(&first), 1).contains("401 INVALID_API_KEY"));
    passes(&second);
    assert!(keys("revoke").status.success() && keys("revoke").status.success(), "revoke is idempotent");
    assert!(failure(&verify(&second), 1).contains("401 INVALID_API_KEY"));
    assert!(!status());
    let by_signature = tiergate(&[&["verify", "--by-signature"], &signed[..]].concat());
    assert!(by_signature.status.success(), "{by_signature:?}");
}

#[test]
fn sign_prints_the_body_that_the_signed_endpoints_take() {
    let dev = Dev::shared();
    let key_file = dev.key_file(3);
    let body = |extra: &[&str]| -> Value {
        let output = tiergate(&[&["sign", "--agent-id", "03", "--key-file", &key_file], extra].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let registry = ["--registry", "0x5FbDB2315678afecb367f032d93F642f64180aa3"];
    let fixed = [&registry[..], &["--nonce", "7", "--timestamp", "1700000000"]].concat();
    assert_eq!(body(&fixed), body(&fixed), "a given nonce and timestamp sign the same");
    assert_eq!((&body(&fixed)["agentId"], &body(&fixed)["nonce"]), (&"3".into(), &"7".into()));
    assert_ne!(body(&registry)["nonce"], body(&registry)["nonce"], "nonces are random");
    assert_eq!(body(&fixed)["signature"].as_str().unwrap().len(), 132);
    let config = dev.config();
    let by_config = body(&["--config", &config, "--nonce", "7", "--timestamp", "1700000000"]);
    assert_eq!(
        by_config["signature"],
        body(&fixed)["signature"],
        "the configuration names the same registry"
    );
}

#[test]
fn private_keys_come_from_a_file_or_the_environment_and_never_from_an_argument() {
    let help = String::from_utf8(tiergate(&["sign", "--help"]).stdout).unwrap();
    assert!(help.contains("--key-file") && !help.contains("--key "), "{help}");
    let dev = Dev::shared();
    let key = std::fs::read_to_string(dev.key_file(3)).unwrap();
    let config = dev.config();
    let mut from_environment = command(&["sign", "--agent-id", "3", "--config", &config]);
    let output = from_environment.env("TIERGATE_OWNER_KEY", key).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_goes_wrong_is_one_plain_sentence_and_a_non_zero_exit_code() {
    let nowhere = format!("http://{}", free_address());
    let folder = tempfile::tempdir().unwrap();
    let not_a_key = folder.path().join("not-a-key");
    std::fs::write(&not_a_key, "0x12").unwrap();
    let not_a_key = not_a_key.display().to_string();
    for args in [
        &["run", "--config", "/nonexistent/tiergate.toml"][..],
        &["keys", "status", "--url", &nowhere, "--agent-id", "1"],
        &["keys", "status", "--url", &nowhere, "--agent-id", "x"],
        &["sign", "--agent-id", "1"],
        &["sign", "--agent-id", "1", "--key-file", "/nonexistent/key"],
        &["sign", "--agent-id", "1", "--key-file", &not_a_key],
        &["sign", "--agent-id", "1e3", "--key-file", &not_a_key],
        &["verify", "--url", &nowhere],
    ] {
        let output = tiergate(args);
        assert!(!output.status.success(), "{args:?}");
        let text = failure(&output, output.status.code().unwrap());
        assert!(text.lines().count() <= 2, "{args:?}: {text}");
    }
}

#[test]
fn check_lists_every_problem_at_once_and_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "[listen]\napi = \"nowhere\"\ngatewy = []\n[tiers]\nstake = [\"1\"]\n").unwrap();
    let file = file.display().to_string();
    for verb in ["check", "run"] {
        let text = failure(&tiergate(&[verb, "--config", &file]), 2);
        for place in ["listen.api", "listen.gatewy", "tiers.stake", "chain.contracts.identity"] {
            assert!(text.contains(place), "{verb}: {place} is missing in {text}");
        }
    }
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    assert!(tiergate(&["check", "--config", shipped]).status.success());
}

#[test]
fn check_reads_the_certificates_that_are_named() {
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.toml");
    let tls = "[listen.tls]\ncert = \"/nowhere/tls.crt\"\nkey = \"/nowhere/tls.key\"\n\n[chain]";
    std::fs::write(&file, shipped.replacen("[chain]", tls, 1)).unwrap();
    let said = failure(&tiergate(&["check", "--config", file.to_str().unwrap()]), 2);
    assert!(said.contains("/nowhere/tls.crt") && said.contains("/nowhere/tls.key"), "{said}");
}

/// A certificate that vouches for itself, and its key.
fn self_signed() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["redis.example".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A configuration with these lines in `[store]`, checked in a folder with these files.
fn check_store(files: &[(&str, &str)], store: &str, rest: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let contracts = "[chain.contracts]\nidentity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
                     stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n";
    let text = format!("{contracts}\n[store]\nkind = \"redis\"\n{store}\n{rest}");
    std::fs::write(folder.path().join("tiergate.toml"), text).unwrap();
    command(&["check", "--config", "tiergate.toml"]).current_dir(folder.path()).output().unwrap()
}

#[test]
fn check_reads_every_file_of_the_store_and_names_the_key_of_each_that_is_wrong() {
    let (cert, key) = self_signed();
    let (_, other_key) = self_signed();
    let all = "url = \"rediss-sentinel://a,b/service\"\nca = \"ca\"\ncert = \"cert\"\nkey = \"key\"\n\
               password_file = \"word\"\nsentinel_password_file = \"other-word\"";
    let sound = [("ca", &*cert), ("cert", &cert), ("key", &key), ("word", "p\n"), ("other-word", "q")];
    let output = check_store(&sound, all, "");
    assert!(output.status.success(), "{output:?}");

    let broken = "-----BEGIN CERTIFICATE-----\nAAAA";
    for (name, instead, problem) in [
        ("ca", None, "store.ca: ca: can't be read: No such file"),
        ("ca", Some(&*key), "store.ca: ca: holds no certificate"),
        ("ca", Some(broken), "store.ca: ca: is not well-formed PEM"),
        ("cert", None, "store.cert: cert: can't be read: "),
        ("cert", Some(&key), "store.cert: cert: holds no certificate"),
        ("key", None, "store.key: key: can't be read: "),
        ("key", Some(&cert), "store.key: key: holds no private key"),
        ("key", Some(&other_key), "store.key: key: does not belong to the certificate in cert"),
        ("word", None, "store.password_file: word: can't be read: "),
        ("word", Some("\n"), "store.password_file: word: holds no password"),
        ("other-word", None, "store.sentinel_password_file: other-word: can't be read: "),
        ("other-word", Some(""), "store.sentinel_password_file: other-word: holds no password"),
    ] {
        let mut files: Vec<(&str, &str)> = sound.into_iter().filter(|(other, _)| *other != name).collect();
        files.extend(instead.map(|text| (name, text)));
        let said = failure(&check_store(&files, all, ""), 2);
        assert!(said.lines().count() == 2 && said.contains(&format!("\n  {problem}")), "{problem}: {said}");
    }

    // All of them, and what is wrong elsewhere, at once; with or without it.
    let places = ["ca", "cert", "key", "password_file", "sentinel_password_file"];
    for (rest, elsewhere) in [("", 0), ("[listen]\napi = \"x\"\n[surprise]", 2)] {
        let said = failure(&check_store(&[], all, rest), 2);
        assert_eq!(said.lines().count(), 1 + places.len() + elsewhere, "{said}");
        for place in places {
            assert!(said.contains(&format!("\n  store.{place}: ")), "{place}: {said}");
        }
    }
}

#[test]
fn a_service_whose_store_names_unusable_files_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let output = command(&["run", "--config", shipped])
        .current_dir(folder.path())
        .env("TIERGATE__LISTEN__API", free_address())
        .env("TIERGATE__LISTEN__ADMIN", free_address())
        .env("TIERGATE__STORE__KIND", "redis")
        .env("TIERGATE__STORE__URL", "rediss://127.0.0.1:1")
        .env("TIERGATE__STORE__CA", "no-ca")
        .env("TIERGATE__STORE__PASSWORD_FILE", "no-password")
        .output()
        .unwrap();
    let said = failure(&output, 1);
    assert!(
        said.contains("store.ca: no-ca: ") && said.contains("store.password_file: no-password: "),
        "{said}"
    );
}

/// A process that ends with the test, also when that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A service without its chain and its store.
fn lives_and_is_not_ready(speaks_tls: bool) {
    let folder = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let (api, admin) = (free_address(), free_address());
    let (cert, key) = self_signed();
    std::fs::write(folder.path().join("cert"), cert).unwrap();
    std::fs::write(folder.path().join("key"), key).unwrap();
    let in_place = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.current_dir(folder.path()).env("TIERGATE_CONFIG", shipped);
        command.env("TIERGATE__LISTEN__API", &api).env("TIERGATE__LISTEN__ADMIN", &admin);
        command.env("TIERGATE__STORE__KIND", "redis").env("TIERGATE__STORE__URL", "redis://127.0.0.1:1");
        command.env("TIERGATE__CHAIN__RPC_URLS", "http://127.0.0.1:1");
        if speaks_tls {
            command.env("TIERGATE__LISTEN__TLS__CERT", "cert").env("TIERGATE__LISTEN__TLS__KEY", "key");
        }
        command
    };
    let health = |extra: &[&str]| in_place(&[&["health"], extra].concat()).output().unwrap();
    assert!(failure(&health(&[]), 1).contains("does not answer"));
    let mut running = Running(in_place(&["run"]).stderr(Stdio::null()).spawn().unwrap());
    // Each try is a process of its own, so that many of them are time enough.
    let alive = (0..5_000).any(|_| running.0.try_wait().unwrap().is_some() || health(&[]).status.success());
    assert!(alive && running.0.try_wait().unwrap().is_none());
    let said = failure(&health(&["--ready"]), 1);
    let scheme = if speaks_tls { "https" } else { "http" };
    assert!(said.contains(&format!("{scheme}://{api}/readyz answers 503")), "{said}");
}

#[test]
fn health_says_whether_the_service_lives_and_whether_it_is_ready() {
    let dev = Dev::shared();
    let config = dev.config();
    for (extra, path) in [(&[][..], "alive"), (&["--ready"], "ready")] {
        let output = tiergate(&[&["health", "--config", &config], extra].concat());
        assert!(output.status.success(), "{path}: {output:?}");
    }

    for speaks_tls in [false, true] {
        lives_and_is_not_ready(speaks_tls);
    }
    assert!(
        failure(&tiergate(&["health", "--config", "/nonexistent"]), 2).contains("[listen] of /nonexistent")
    );
}

#[test]
fn an_address_in_use_is_a_sentence_and_not_a_backtrace() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let others =
        ["--admin", "--chain", "--gateway", "--upstream"].map(|door| [door.to_owned(), free_address()]);
    let arguments: Vec<String> =
        ["dev", "--api", &address].map(str::to_owned).into_iter().chain(others.concat()).collect();
    let output = tiergate(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(failure(&output, 1).contains(&format!("cannot listen on {address}")));
}

#[test]
fn dev_leaves_nothing_behind_when_it_is_interrupted() {
    let mut dev = Dev::start();
    let folder = Path::new(&dev.config()).parent().unwrap().to_owned();
    assert!(folder.is_dir());
    drop(dev.alive.take());
    assert!(dev.shell.wait().unwrap().success(), "an interrupt is an orderly end");
    assert!(!folder.exists(), "{}", folder.display());
    assert!(TcpStream::connect(dev.api.as_str()).is_err());
}
