//! An agent's owner, who has a private key, the address of a service, and nothing of the operator's.

use std::process::{Command, Output, Stdio};
use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;
use tempfile::TempDir;
use tiergate::os::Os;
use tiergate::ports::Clock;

use super::dev::Dev;
use super::{REGISTRY, Running, command, failure, free_address};

/// The domain of [`Elsewhere`], as warnings and refusals name it.
const DOMAIN: &str = "name \"Elsewhere\", version \"1\", chain id 31337, verifying contract";

/// A service over TLS on the development chain, with a domain of its own.
pub(super) struct Elsewhere {
    pub(super) folder: TempDir,
    pub(super) url: String,
    admin: String,
    _running: Running,
}

impl Elsewhere {
    pub(super) fn start() -> Self {
        Self::start_with(|_| Vec::new())
    }

    /// The same with further variables, made of its URL.
    pub(super) fn start_with(variables: impl Fn(&str) -> Vec<(&'static str, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (api, admin) = (free_address(), free_address());
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([api.split(':').next().unwrap().to_owned()]).unwrap();
        fs::write(folder.path().join("cert"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(folder.path().join("tls.key"), key.serialize_pem()).unwrap();
        let running = command(&["run", "--config", &Dev::shared().config()])
            .current_dir(folder.path())
            .env("TIERGATE__LISTEN__API", &api)
            .env("TIERGATE__LISTEN__ADMIN", &admin)
            .env("TIERGATE__LISTEN__GATEWAY", free_address())
            .env("TIERGATE__LISTEN__TLS__CERT", folder.path().join("cert"))
            .env("TIERGATE__LISTEN__TLS__KEY", folder.path().join("tls.key"))
            .env("TIERGATE__STORE__EMBEDDED__PATH", folder.path().join("data"))
            .env("TIERGATE__SIGNATURE__DOMAIN_NAME", "Elsewhere")
            .env("TIERGATE__SIGNATURE__CHAIN_ID", "31337")
            .envs(variables(&format!("https://{api}")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let service = Self { folder, url: format!("https://{api}"), admin, _running: Running(running) };
        // Each try is a process of its own, so that many of them are time enough.
        let answers =
            (0..1_000).any(|_| service.ask(&["keys", "status", "--agent-id", "4"]).status.success());
        assert!(answers, "{:?}", service.ask(&["keys", "status", "--agent-id", "4"]));
        // A new store takes no signature of the second in which it was made.
        let made = Os::new().unix_seconds();
        while Os::new().unix_seconds() == made {
            service.ask(&["keys", "status", "--agent-id", "4"]);
        }
        service
    }

    /// Runs a command against the service, in a folder without a configuration.
    pub(super) fn ask(&self, arguments: &[&str]) -> Output {
        self.in_place(command(&[arguments, &["--url", &self.url]].concat())).output().unwrap()
    }

    /// A command in that folder, which believes the service's certificate.
    pub(super) fn in_place(&self, mut command: Command) -> Command {
        command.current_dir(self.folder.path()).env("SSL_CERT_FILE", self.folder.path().join("cert"));
        command
    }

    /// The same with the key of agent 4's owner.
    pub(super) fn ask_signed(&self, arguments: &[&str]) -> Output {
        let key_file = Dev::shared().key_file(4);
        self.ask(&[arguments, &["--agent-id", "4", "--owner-key-file", &key_file]].concat())
    }
}

/// Standard output of a run that went well, and without a word beside it.
pub(super) fn quiet(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

// threat: A new key in a history or readable file
#[test]
fn an_owner_without_any_configuration_gets_and_uses_a_key_of_a_service_with_another_domain() {
    let service = Elsewhere::start();
    let printed = quiet(&service.ask_signed(&["keys", "generate", "--out", "api.key"]));
    assert_eq!(printed, "agentId  4\nfile     api.key\n");
    let file = service.folder.path().join("api.key");
    let key = fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("svc_live_v1_") && key.ends_with('\n'));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let verify = ["verify", "--api-key-file", "api.key"];
    let printed = quiet(&service.ask(&verify));
    assert!(printed.lines().any(|line| line.starts_with("valid  ") && line.ends_with("  true")), "{printed}");
    let printed = quiet(&service.ask(&[&verify[..], &["-o", "json"]].concat()));
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["agentId"], "4");
    quiet(&service.ask_signed(&["verify", "--by-signature"]));

    quiet(&service.ask_signed(&["keys", "rotate", "--out", "new.key"]));
    assert!(failure(&service.ask(&verify), 1).contains("401 INVALID_API_KEY"));
    quiet(&service.ask_signed(&["keys", "rotate", "--out", "api.key"]));
    quiet(&service.ask(&verify));
    quiet(&service.ask_signed(&["keys", "revoke"]));
}

#[test]
fn a_private_authority_is_named_with_a_flag_and_what_is_wrong_with_a_certificate_is_told_plainly() {
    let service = Elsewhere::start();
    let run = |arguments: &[&str]| {
        let mut command = command(&[&["keys", "status", "--agent-id", "4"], arguments].concat());
        command.current_dir(service.folder.path()).output().unwrap()
    };
    quiet(&run(&["--url", &service.url, "--ca", "cert"]));
    let plain = service.url.replace("https:", "http:");
    let admin = format!("https://{}", service.admin);
    let key = service.folder.path().join("tls.key");
    for (arguments, code, said) in [
        (
            &["--url", &service.url][..],
            1,
            "its certificate is of an authority that is not believed; --ca names a file",
        ),
        (&["--url", &admin, "--ca", "cert"], 1, "it does not speak TLS"),
        (&["--url", &service.url, "--ca", "absent"], 2, "absent can't be read: No such file"),
        (&["--url", &service.url, "--ca", key.to_str().unwrap()], 2, "tls.key holds no certificate (PEM)"),
    ] {
        let said_so = failure(&run(arguments), code);
        assert!(said_so.contains(said), "{said_so}");
        for debug in ["UnknownIssuer", "InvalidContentType", "InvalidCertificate", "hyper", "reqwest"] {
            assert!(!said_so.contains(debug), "{said_so}");
        }
    }
    assert!(!run(&["--url", &plain]).status.success());
}

// threat: A service names another's domain
#[test]
fn given_values_win_over_what_the_service_says_and_a_disagreement_is_a_warning() {
    let service = Elsewhere::start();
    let fixed = ["sign", "--nonce", "7", "--timestamp", "1700000000"];
    let signed = |extra: &[&str]| service.ask_signed(&[&fixed, extra].concat());
    let asked = quiet(&signed(&[]));
    let same = ["--registry", REGISTRY, "--chain-id", "31337", "--domain-name", "Elsewhere"];
    let key_file = Dev::shared().key_file(4);
    let offline = [&fixed[..], &same, &["--agent-id", "4", "--owner-key-file", &key_file]].concat();
    assert_eq!(quiet(&command(&offline).output().unwrap()), asked, "without a service");
    assert_eq!(quiet(&signed(&same)), asked, "nobody is warned of values that agree");

    let config = Dev::shared().config();
    for (given, differs) in [
        (["--chain-id", "8004"], "chain id 8004"),
        (["--domain-name", "X"], "name \"X\""),
        (["--domain-version", "2"], "version \"2\""),
        (
            ["--registry", "0x0000000000000000000000000000000000000001"],
            "contract 0x0000000000000000000000000000000000000001",
        ),
        (["--config", &config], "name \"Service Verification\""),
    ] {
        let output = signed(&given);
        let said = failure(&output, 0);
        let (ours, theirs) = said.split_once(&format!("as given, but {} expects ", service.url)).unwrap();
        assert!(ours.contains(differs) && theirs.starts_with(DOMAIN), "{said}");
        let body: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(body["signature"], serde_json::from_str::<Value>(&asked).unwrap()["signature"]);
    }
}

#[test]
fn a_refusal_for_the_wrong_domain_names_the_right_one_and_leaves_no_file() {
    let service = Elsewhere::start();
    let generate = ["keys", "generate", "--out", "api.key", "--chain-id", "8004"];
    let said = failure(&service.ask_signed(&generate), 1);
    let refusal = said.lines().find(|line| line.contains("401 SIGNATURE_INVALID")).unwrap();
    assert!(refusal.contains(DOMAIN), "{said}");
    assert!(said.contains("\n  recoveredSigner  0x"), "{said}");
    assert!(!service.folder.path().join("api.key").exists());
    let output = service.ask_signed(&[&generate[..], &["-o", "json"]].concat());
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["errorType"], "SIGNATURE_INVALID");
}

#[test]
fn a_service_that_does_not_say_what_to_sign_gets_no_signature_unless_the_registry_is_given() {
    let dev = Dev::shared();
    let url = format!("{}/nowhere", dev.url());
    let signed = ["sign", "--agent-id", "4", "--owner-key-file", &dev.key_file(4), "--url", &url];
    let output = command(&signed).output().unwrap();
    let said = failure(&output, 1);
    assert!(said.contains("does not say what to sign") && said.contains("404 NOT_FOUND"), "{said}");
    assert!(output.stdout.is_empty());
}
