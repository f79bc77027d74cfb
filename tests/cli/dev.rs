//! `tiergate-dev`, and the commands that need a chain to talk to.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::started::Started;
use super::{PROGRAM, REGISTRY, command_of, failure, free_address, tiergate};

const DEVELOPMENT: &str = env!("CARGO_BIN_EXE_tiergate-dev");

/// The shell finds `curl` there, and no program of ours.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// `tiergate-dev` and where its API is.
pub(super) struct Dev {
    process: Started,
    api: String,
}

impl Dev {
    fn start_at(program: &Path, further: &[&str], variables: &[(&str, &str)], stderr: Stdio) -> Self {
        let doors = ["--api", "--admin", "--chain", "--gateway", "--upstream"];
        let doors = doors.map(|door| [door.to_owned(), free_address()]);
        let further: Vec<String> = further.iter().copied().map(str::to_owned).collect();
        let process = Started::new(program, &[doors.concat(), further].concat(), variables, stderr);
        let [[_, api], ..] = doors;
        Self { process, api }
    }

    /// One for all tests of this file.
    pub(super) fn shared() -> &'static Self {
        static DEV: OnceLock<Dev> = OnceLock::new();
        DEV.get_or_init(|| Self::start_at(DEVELOPMENT.as_ref(), &[], &[], Stdio::inherit()))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// The key file of a sample agent's owner, as the printed commands name it.
    pub(super) fn key_file(&self, agent: u8) -> String {
        self.sibling(&format!("agent-{agent}.key"))
    }

    pub(super) fn config(&self) -> String {
        self.sibling("tiergate.toml")
    }

    fn sibling(&self, name: &str) -> String {
        let config =
            self.process.printed.lines().find_map(|line| line.trim().strip_prefix("config")).unwrap().trim();
        Path::new(config).with_file_name(name).display().to_string()
    }
}

/// Runs the development program to its end.
fn development(args: &[&str]) -> Output {
    command_of(DEVELOPMENT, args).output().unwrap()
}

/// A folder with these programs, as somebody has them who downloaded them. It is beside them, so that they can be linked: a
/// file that was just written may still be open in a process that another test is starting, and can't be run then.
fn downloaded(folder: &str, programs: &[&str]) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let folder = place.path().join(folder);
    fs::create_dir(&folder).unwrap();
    for program in programs {
        fs::hard_link(program, folder.join(Path::new(program).file_name().unwrap())).unwrap();
    }
    (place, folder.join("tiergate-dev"))
}

#[test]
fn the_printed_commands_work_as_printed_where_both_programs_were_downloaded() {
    let (_place, program) = downloaded("it's my\\ folder", &[PROGRAM, DEVELOPMENT]);
    let dev = Dev::start_at(&program, &[], &[], Stdio::inherit());
    let commands: Vec<&str> = dev
        .process
        .printed
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains("curl"))
        .map(str::trim)
        .collect();
    assert_eq!(commands.len(), 8, "{}", dev.process.printed);
    let answers: Vec<Value> = commands
        .iter()
        .map(|command| {
            let output = Command::new("sh").args(["-c", command]).env("PATH", PATH).output().unwrap();
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
fn the_program_of_production_has_no_development_chain_in_its_command_line() {
    let refused = tiergate(&["dev"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("unrecognized subcommand 'dev'"), "{said}");
    let help = String::from_utf8(tiergate(&["--help"]).stdout).unwrap();
    assert!(!help.contains("chain with sample agents"), "{help}");
    let version = String::from_utf8(development(&["--version"]).stdout).unwrap();
    assert!(version.starts_with("tiergate-dev ") && version.contains("dev-chain"), "{version}");
}

#[test]
fn sample_agents_stand_for_every_tier() {
    let printed = &Dev::shared().process.printed;
    for (agent, tier) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)] {
        assert!(printed.contains(&format!("agent {agent}  tier {tier}")), "{printed}");
    }
}

#[test]
fn sample_agents_of_erc_8004_stand_for_every_tier_and_verify() {
    let dev = Dev::start_at(DEVELOPMENT.as_ref(), &["--registries", "erc8004"], &[], Stdio::inherit());
    for (agent, tier) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 0)] {
        assert!(
            dev.process.printed.contains(&format!("agent {agent}  tier {tier}")),
            "{}",
            dev.process.printed
        );
        let (url, key_file, id) = (dev.url(), dev.key_file(agent), agent.to_string());
        let signed = ["--url", &url, "--agent-id", &id, "--owner-key-file", &key_file, "--output", "json"];
        let verified = tiergate(&[&["verify", "--by-signature"], &signed[..]].concat());
        assert_eq!(verified.status.success(), tier > 0, "agent {agent}: {verified:?}");
        if agent == 2 {
            let profile: Value = serde_json::from_slice(&verified.stdout).unwrap();
            assert_eq!(profile["trustTier"], tier);
            assert_eq!(profile["reputation"]["totalScore"], "170");
            assert_eq!(profile["validation"]["latestPassed"], true);
        }
    }
}

#[test]
fn sign_prints_the_body_that_the_signed_endpoints_take() {
    let key_file = Dev::shared().key_file(3);
    let body = |further: &[&str]| -> Value {
        let sign = ["sign", "--agent-id", "03", "--owner-key-file", &key_file, "--registry", REGISTRY];
        let output = tiergate(&[&sign, further].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let fixed = body(&["--nonce", "7", "--timestamp", "1700000000"]);
    assert_eq!((&fixed["agentId"], &fixed["nonce"]), (&"3".into(), &"7".into()));
    assert_eq!(fixed["signature"].as_str().unwrap().len(), 132);
    assert_ne!(body(&[])["nonce"], body(&[])["nonce"], "nonces are random");
}

#[test]
fn an_address_in_use_is_a_sentence_that_names_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let flags = ["--api", "--admin", "--chain", "--gateway", "--upstream"];
    for flag in flags {
        let addresses = flags.map(|other| if other == flag { taken.clone() } else { free_address() });
        let addresses = flags.iter().zip(&addresses).flat_map(|(flag, address)| [*flag, address]);
        let args: Vec<&str> = addresses.collect();
        let output = development(&args);
        let said = String::from_utf8(output.stderr).unwrap();
        let last = said.lines().last().unwrap_or_default();
        let expected = format!("tiergate: cannot listen on {taken} ({flag}): ");
        assert!(output.status.code() == Some(1) && last.starts_with(&expected), "{said}");
    }
    for flag in ["--only-chain", "--only-upstream"] {
        let output = development(&[flag, "--chain", &taken, "--upstream", &taken]);
        let said = failure(&output, 1);
        assert!(said.contains(&format!("({}): ", flag.replace("only-", ""))), "{said}");
    }
    let said = failure(&development(&["--gateway", &taken, "--upstream", &taken]), 2);
    assert!(said.contains(&format!("--gateway and --upstream are both {taken}")), "{said}");
}

#[test]
fn a_start_alone_prints_the_program_of_the_path_takes_no_variables_and_leaves_nothing_behind() {
    let elsewhere = free_address();
    let (place, program) = downloaded("alone", &[DEVELOPMENT]);
    let stderr = place.path().join("stderr");
    let variables = [
        ("TIERGATE__LISTEN__API", &*elsewhere),
        ("TIERGATE__LISTEN__GATEWAY", "127.0.0.1:1"),
        ("TIERGATE__SURPRISE", "x"),
    ];
    let mut dev = Dev::start_at(&program, &[], &variables, File::create(&stderr).unwrap().into());
    assert!(dev.process.printed.contains("\n  tiergate sign "), "{}", dev.process.printed);
    let printed = dev.process.printed.split("Sample agents").next().unwrap();
    let addresses = printed.split("http://").skip(1).map(|rest| rest.split(['/', ' ', '\n']).next().unwrap());
    assert_eq!(addresses.clone().count(), 6, "{printed}");
    for address in addresses {
        assert!(TcpStream::connect(address).is_ok(), "nobody listens at {address}");
    }
    let said = fs::read_to_string(&stderr).unwrap();
    let warning = said.lines().find(|line| line.contains("tiergate-dev takes flags")).unwrap();
    for (name, _) in variables {
        assert!(warning.contains(name), "{warning}");
    }
    let folder = Path::new(&dev.config()).parent().unwrap().to_owned();
    assert!(folder.is_dir());
    assert!(dev.process.end().success(), "an interrupt is an orderly end");
    assert!(!folder.exists(), "{}", folder.display());
    assert!(TcpStream::connect(dev.api.as_str()).is_err());
}

/// The head and the body of an answer.
fn curl(arguments: &[&str]) -> (String, String) {
    let output = Command::new("curl").args(["-s", "-i", "--noproxy", "*"]).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{arguments:?}: {text}"));
    (head.to_lowercase() + "\r\n", body.to_owned())
}

#[test]
fn a_page_of_the_api_may_make_the_first_request_and_read_the_limits() {
    let dev = Dev::shared();
    let (head, page) = curl(&[&format!("{}/console", dev.url())]);
    assert!(head.starts_with("http/1.1 200 ") && page.contains("<!doctype html>"), "{head}{page}");
    assert!(dev.process.printed.contains(&format!("{}/console", dev.url())), "{}", dev.process.printed);
    let (_, settings) = curl(&[&format!("{}/console/settings.json", dev.url())]);
    let settings: Value = serde_json::from_str(&settings).unwrap();
    assert_eq!(settings["chain"]["chainId"], "0x1f44", "{settings}");
    let gateway = settings["gateway"]["url"].as_str().unwrap();
    let node = settings["developmentRpcUrl"].as_str().unwrap().trim_end_matches('/');
    assert!(head.contains(&format!("connect-src 'self' {gateway} {node};")), "{head}");
    let sample = format!("{gateway}{}", settings["gateway"]["path"].as_str().unwrap());

    let signed = ["--url", &dev.url(), "--agent-id", "2", "--owner-key-file", &dev.key_file(2)];
    let issued = tiergate(&[&["keys", "generate", "-o", "json"], &signed[..]].concat());
    let issued: Value = serde_json::from_slice(&issued.stdout).unwrap();
    let key = format!("X-API-Key: {}", issued["apiKey"].as_str().unwrap());
    let local = dev.url().replace("127.0.0.1", "localhost");
    for page in [dev.url(), local] {
        let origin = format!("Origin: {page}");
        let asks = ["Access-Control-Request-Method: GET", "Access-Control-Request-Headers: x-api-key"];
        let (head, _) = curl(&["-X", "OPTIONS", "-H", &origin, "-H", asks[0], "-H", asks[1], &sample]);
        assert!(head.starts_with("http/1.1 204 "), "{head}");
        assert!(head.contains(&format!("access-control-allow-origin: {page}\r\n")), "{head}");
        let allowed = head.lines().find(|line| line.starts_with("access-control-allow-headers: ")).unwrap();
        assert!(allowed.contains("x-api-key") && allowed.contains("authorization"), "{allowed}");

        let (head, body) = curl(&["-H", &origin, "-H", &key, &sample]);
        assert!(head.starts_with("http/1.1 200 "), "{head}{body}");
        assert!(head.contains(&format!("access-control-allow-origin: {page}\r\n")), "{head}");
        let exposed = head.lines().find(|line| line.starts_with("access-control-expose-headers: ")).unwrap();
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-request-id"] {
            assert!(exposed.contains(name) && head.contains(&format!("\r\n{name}: ")), "{name}: {head}");
        }
        assert!(exposed.contains("retry-after"), "{exposed}");
        let seen: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(seen["headers"]["x-agent-id"], "2", "{seen}");
    }
    let (head, _) = curl(&["-H", "Origin: http://elsewhere.example", "-H", &key, &sample]);
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("access-control-allow-origin"), "{head}");
}
