//! The command line as a newcomer types it: what it prints works as printed, and what goes wrong is one sentence.

use std::process::{Child, Command, Output, Stdio};
use std::{io::Write as _, net::TcpListener};

#[cfg(feature = "dev-chain")]
mod dev;
#[cfg(feature = "dev-chain")]
mod examples;
mod files;
mod given;
mod keystore;
#[cfg(feature = "dev-chain")]
mod lost;
#[cfg(feature = "dev-chain")]
mod own_types;
#[cfg(feature = "dev-chain")]
mod owner;
mod request;
#[cfg(feature = "dev-chain")]
#[path = "../support/dev.rs"]
mod started;
mod terminal;
#[cfg(feature = "dev-chain")]
mod wallet;

use crate::support::process::{free_port, own_ip};

/// An identity registry.
const REGISTRY: &str = "0x5FbDB2315678afecb367f032d93F642f64180aa3";

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

/// Runs the program to its end.
fn tiergate(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    command_of(PROGRAM, args)
}

fn command_of(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_remove("TIERGATE_CONFIG")
        .env_remove("TIERGATE_URL")
        .env_remove("TIERGATE_OWNER_KEY")
        .env_remove("TIERGATE_KEYSTORE_PASSWORD")
        .env_remove("TIERGATE_API_KEY");
    command
}

/// Runs a command with text on standard input.
fn piped(mut command: Command, text: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read it may have ended.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait_with_output().unwrap()
}

/// Without a name of the service's own there is a warning.
const OWN_NAME: &str = "TIERGATE__SIGNATURE__DOMAIN_NAME";

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
    free_port(own_ip()).to_string()
}

#[test]
fn what_goes_wrong_is_one_plain_sentence_and_each_exit_code_is_the_one_that_the_help_lists() {
    let help = String::from_utf8(tiergate(&["--help"]).stdout).unwrap();
    let listed = help.split("Exit codes:\n").nth(1).unwrap();
    let listed: Vec<&str> = listed.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(listed, ["0", "1", "2", "3", "101"]);
    for (args, code) in
        [(&["version"][..], 0), (&["--help"], 0), (&[], 2), (&["surprise"], 2), (&["run", "--surprise"], 2)]
    {
        assert_eq!(tiergate(args).status.code(), Some(code), "{args:?}");
    }
    let nowhere = format!("http://{}", free_address());
    let folder = tempfile::tempdir().unwrap();
    let [key, not_a_key] = [("key", "1".repeat(64)), ("not-a-key", "0x12".to_owned())].map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    let sign = ["sign", "--agent-id", "1", "--owner-key-file"];
    let revoke = ["keys", "revoke", "--registry", REGISTRY, "--agent-id", "1", "--owner-key-file"];
    for (args, code) in [
        (&["keys", "status", "--url", &nowhere, "--agent-id", "1"][..], 1),
        (&["init", "/nowhere/tiergate.toml"], 1),
        (&["health", "--config", "/nonexistent"], 2),
        (&["check", "--config", "/nonexistent"], 2),
        // It may still be mounted.
        (&["run", "--config", "/nonexistent/tiergate.toml"], 1),
        (&[&sign[..], &[&key, "--url", &nowhere]].concat(), 1),
        (&[&revoke[..], &[&key, "--url", &nowhere]].concat(), 1),
        (&sign[..3], 1),
        (&[&sign[..], &["/nonexistent/key"]].concat(), 1),
        (&[&sign[..], &[&not_a_key]].concat(), 1),
        (&["verify", "--url", &nowhere], 1),
    ] {
        let text = failure(&tiergate(args), code);
        assert!(text.lines().filter(|line| !line.is_empty()).count() <= 2, "{args:?}: {text}");
    }
}

#[test]
fn an_argument_that_is_no_number_is_named_and_the_exit_code_is_2() {
    for (args, name) in [
        (&["sign", "--agent-id", "1e3"][..], "--agent-id"),
        (&["sign", "--agent-id", "1", "--nonce", "7x"], "--nonce"),
        (&["keys", "status", "--agent-id", "x"], "--agent-id"),
        (&["keys", "revoke", "--agent-id", ""], "--agent-id"),
        (&["verify", "--by-signature"], "--agent-id"),
    ] {
        let output = tiergate(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(name), "{args:?}: {text}");
    }
}

#[test]
fn an_address_in_use_is_a_sentence_that_names_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let folder = tempfile::tempdir().unwrap();
    for key in ["api", "gateway", "admin"] {
        let mut run = command(&["run", "--config", shipped]);
        for other in ["api", "gateway", "admin"] {
            let address = if other == key { taken.clone() } else { free_address() };
            run.env(format!("TIERGATE__LISTEN__{}", other.to_uppercase()), address);
        }
        for permitted in ["STORE__EMBEDDED__CREATE", "GATEWAY__ALLOW_EMPTY"] {
            run.env(format!("TIERGATE__{permitted}"), "true");
        }
        // The line about the store that is made is none of the sentence.
        run.env(OWN_NAME, "own").env("TIERGATE__LOG__LEVEL", "warn");
        let said = failure(&run.current_dir(folder.path()).output().unwrap(), 1);
        assert!(said.contains(&format!("cannot listen on {taken} (listen.{key}): ")), "{said}");
    }
}

#[test]
fn a_machine_without_certificates_of_authorities_is_named_as_the_cause_where_a_node_has_tls() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let folder = tempfile::tempdir().unwrap();
    let mut run = command(&["run", "--config", shipped]);
    run.env(OWN_NAME, "own").env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", folder.path());
    run.env("TIERGATE__CHAIN__RPC_URLS", "https://127.0.0.1:1");
    for (listener, address) in [("API", free_address()), ("ADMIN", free_address())] {
        run.env(format!("TIERGATE__LISTEN__{listener}"), address);
    }
    let said = failure(&run.current_dir(folder.path()).output().unwrap(), 1);
    assert!(
        said.contains("cannot make an HTTP client for the chain: ") && said.contains("CA cert"),
        "{said}"
    );
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

// threat: All connections or descriptors taken
#[test]
fn with_too_few_descriptors_the_service_does_not_start_and_says_so() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let script = format!("ulimit -n 100; exec {PROGRAM} run --config {shipped}");
    let mut run = Command::new("sh");
    run.args(["-c", &script]).env_remove("TIERGATE_CONFIG").env(OWN_NAME, "own");
    let text = failure(&run.output().unwrap(), 1);
    assert!(text.contains("may open 100 files") && text.contains("LimitNOFILE"), "{text}");
}

#[test]
fn check_says_how_the_descriptors_would_be_divided() {
    let check = |limit: &str, options: &str| {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
        let script = format!("ulimit -n {limit}; exec {PROGRAM} check {options} --config {shipped}");
        let mut check = Command::new("sh");
        check.args(["-c", &script]).env_remove("TIERGATE_CONFIG").env(OWN_NAME, "own").output().unwrap()
    };
    let output = check("4000", "--strict");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let caps = ["limit=4000", "reserved=", "api=", "owners=", "gateway=", "requests=", "idle="];
    assert!(text.contains("file descriptors ") && caps.iter().all(|cap| text.contains(cap)), "{text}");
    let warned = check("100", "");
    assert!(warned.status.success(), "{warned:?}");
    let said = String::from_utf8(warned.stderr).unwrap();
    assert!(said.contains("warning: file descriptors: ") && said.contains("may open 100 files"), "{said}");
    failure(&check("100", "--strict"), 2);
}

#[test]
fn check_reads_the_certificates_that_are_named_whatever_is_wrong_elsewhere() {
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.toml");
    let tls = "[listen.tls]\ncert = \"/nowhere/tls.crt\"\nkey = \"/nowhere/tls.key\"\n\n[chain]";
    for typo in ["", "surprise = 1\n"] {
        std::fs::write(&file, format!("{typo}{}", shipped.replacen("[chain]", tls, 1))).unwrap();
        let said = failure(&tiergate(&["check", "--config", file.to_str().unwrap()]), 2);
        assert!(said.contains("/nowhere/tls.crt") && said.contains("/nowhere/tls.key"), "{said}");
    }
}

#[test]
fn check_finds_certificates_that_are_late_or_of_another_host_and_strict_refuses_them() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = self_signed();
    std::fs::write(folder.path().join("tls.crt"), cert).unwrap();
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
    let expired = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["acme.example".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    std::fs::write(folder.path().join("old.crt"), params.self_signed(&expired).unwrap().pem()).unwrap();
    std::fs::write(folder.path().join("old.key"), expired.serialize_pem()).unwrap();
    let text = "chain.chain_id = 8004\nchain.development = true\n[chain.contracts]\nidentity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
                stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n\
                [listen]\ngateway = [\"127.0.0.1:8443\"]\n[listen.tls]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
                [[tenants]]\nid = \"a\"\nhosts = [\"acme.example\"]\nupstreams = [\"127.0.0.1:1\"]\n\
                [tenants.tls]\ncert = \"old.crt\"\nkey = \"old.key\"\n\
                [[tenants]]\nid = \"b\"\nhosts = [\"other.example\"]\nupstreams = [\"127.0.0.1:1\"]\n";
    std::fs::write(folder.path().join("tiergate.toml"), text).unwrap();
    let check = |option: &str| command(&["check", option]).current_dir(folder.path()).output().unwrap();
    let said = failure(&check("--strict"), 2);
    for expected in [
        "tiergate.toml:16:8: warning: tenants[1].tls.cert: old.crt: the certificate has expired\n",
        "tiergate.toml:20:9: warning: tenants[2].hosts: tls.crt: the certificate is not for the host other.example\n",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let output = check("-ojson");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && found.as_array().unwrap().len() == 2, "{found}");
    assert_eq!((&found[0]["severity"], &found[0]["line"]), (&"warning".into(), &16.into()));
    assert_eq!(found[0]["place"], "tenants[1].tls.cert");
}

#[test]
fn config_schema_prints_a_schema_for_editors() {
    let output = command(&["config", "schema"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["properties"]["listen"]["properties"]["workers"]["maximum"], 1_024);
    assert_eq!(schema["additionalProperties"], false);
}

/// A certificate that vouches for itself, and its key.
fn self_signed() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["redis.example".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A configuration with these lines in `[store.redis]`, checked in a folder with these files.
fn check_store(files: &[(&str, &str)], store: &str, rest: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let contracts = "chain.chain_id = 8004\nchain.development = true\n[chain.contracts]\nidentity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
                     stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n";
    let text = format!("{contracts}\n[store]\nkind = \"redis\"\n[store.redis]\n{store}\n{rest}");
    std::fs::write(folder.path().join("tiergate.toml"), text).unwrap();
    command(&["check", "--config", "tiergate.toml"]).current_dir(folder.path()).output().unwrap()
}

#[test]
fn a_secret_of_another_gateway_for_nobody_is_refused_with_its_line() {
    let check = |secrets: &str| {
        let rest = "[listen]\nauthz = [\"127.0.0.1:9001\"]\n[authz]\nsecret_file = \"secrets\"\n[[tenants]]\nid = \"acme\"\n";
        check_store(&[("secrets", secrets)], "url = \"redis://127.0.0.1\"", rest)
    };
    let good = check("acme:0123456789abcdef");
    assert!(good.status.success(), "{good:?}");
    let said = failure(&check("\nacem:0123456789abcdef"), 2);
    assert!(said.contains("authz.secret_file: secrets: line 2 is neither"), "{said}");
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
        ("ca", &*key, "store.redis.ca: ca: holds no certificate"),
        ("ca", broken, "store.redis.ca: ca: is not well-formed PEM"),
        ("cert", &key, "store.redis.cert: cert: holds no certificate"),
        ("key", &cert, "store.redis.key: key: holds no private key"),
        ("key", &other_key, "store.redis.key: key: does not belong to the certificate in cert"),
        ("word", "\n", "store.redis.password_file: word: holds no secret"),
        ("other-word", "", "store.redis.sentinel_password_file: other-word: holds no secret"),
    ] {
        let mut files: Vec<(&str, &str)> = sound.into_iter().filter(|(other, _)| *other != name).collect();
        files.push((name, instead));
        let said = failure(&check_store(&files, all, ""), 2);
        assert!(said.contains("used: 1 problem\n\n"), "{problem}: {said}");
        assert!(said.contains(&format!(": error: {problem}")) && said.contains("\ntiergate.toml:"), "{said}");
    }

    // All of them, and what is wrong elsewhere, at once; with or without it.
    let places = ["ca: ca", "cert: cert", "key: key", "password_file", "sentinel_password_file"];
    for (rest, elsewhere) in [("", 0), ("[listen]\napi = \"x\"\n[surprise]", 2)] {
        let said = failure(&check_store(&[], all, rest), 2);
        assert!(said.contains(&format!("used: {} problems", places.len() + elsewhere)), "{said}");
        for place in places {
            assert!(said.contains(&format!(": error: store.redis.{place}: can't be read: ")), "{said}");
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
        .env("TIERGATE__STORE__REDIS__URL", "rediss://127.0.0.1:1")
        .env("TIERGATE__STORE__REDIS__CA", "no-ca")
        .env("TIERGATE__STORE__REDIS__PASSWORD_FILE", "no-password")
        .output()
        .unwrap();
    // Other tools may still write them.
    let said = failure(&output, 1);
    for problem in ["CA: no-ca: ", "PASSWORD_FILE: can't be read: "] {
        assert!(said.contains(&format!("error: TIERGATE__STORE__REDIS__{problem}")), "{said}");
    }
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
        command
            .env("TIERGATE__STORE__KIND", "redis")
            .env("TIERGATE__STORE__REDIS__URL", "redis://127.0.0.1:1");
        command.env("TIERGATE__CHAIN__RPC_URLS", "http://127.0.0.1:1");
        if speaks_tls {
            command.env("TIERGATE__LISTEN__TLS__CERT", "cert").env("TIERGATE__LISTEN__TLS__KEY", "key");
        }
        command
    };
    let health = |extra: &[&str]| in_place(&[&["health"], extra].concat()).output().unwrap();
    assert!(failure(&health(&[]), 1).contains("does not answer"));
    let mut running =
        Running(in_place(&["run"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // Each try is a process of its own, so that many of them are time enough.
    let alive = (0..5_000).any(|_| running.0.try_wait().unwrap().is_some() || health(&[]).status.success());
    assert!(alive && running.0.try_wait().unwrap().is_none());
    // An answer that is late is none.
    let mut said = String::new();
    (0..100).any(|_| {
        said = failure(&health(&["--ready"]), 1);
        said.contains("/readyz answers")
    });
    let scheme = if speaks_tls { "https" } else { "http" };
    assert!(said.contains(&format!("{scheme}://{api}/readyz answers 503")), "{said}");
}

#[test]
fn health_says_that_a_service_lives_and_is_not_ready() {
    for speaks_tls in [false, true] {
        lives_and_is_not_ready(speaks_tls);
    }
    assert!(
        failure(&tiergate(&["health", "--config", "/nonexistent"]), 2).contains("[listen] of /nonexistent")
    );
}
