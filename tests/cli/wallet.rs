//! An owner whose key is in a wallet: one run prints the typed data, something else signs it, the next run sends it.

use std::process::{Command, Output};
use std::{env, fs, path::Path};

use alloy::hex;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy_dyn_abi::TypedData;
use serde_json::Value;

use super::dev::Dev;
use super::owner::{Elsewhere, quiet};
use super::terminal::typed_in_secret;
use super::{REGISTRY, command, failure, piped, tiergate};
use crate::support::skip::skip;

const SECOND_STEP: [&str; 4] = ["--signed", "request.json", "--signature", "signature"];

/// The signature of a wallet that has the key of an agent's owner.
fn wallet(agent: u8, typed_data: &[u8]) -> String {
    let key = fs::read_to_string(Dev::shared().key_file(agent)).unwrap();
    let signer: PrivateKeySigner = key.trim().parse().unwrap();
    let typed_data: TypedData = serde_json::from_slice(typed_data).unwrap();
    hex::encode_prefixed(signer.sign_dynamic_typed_data_sync(&typed_data).unwrap().as_bytes())
}

/// Prints the typed data of a request and has it signed, in the service's folder. Returns the first step's words.
pub(super) fn prepare(service: &Elsewhere, arguments: &[&str]) -> String {
    let output = service.ask(&[arguments, &["--agent-id", "4", "--typed-data"]].concat());
    let said = failure(&output, 0);
    fs::write(service.folder.path().join("request.json"), &output.stdout).unwrap();
    fs::write(service.folder.path().join("signature"), wallet(4, &output.stdout) + "\n").unwrap();
    said
}

/// Standard error of a second step that went well.
pub(super) fn sent(output: &Output) -> String {
    let said = failure(output, 0);
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn an_owner_with_a_wallet_gets_a_key_by_the_pipe_that_the_first_step_prints() {
    let service = Elsewhere::start();
    let generate =
        ["keys", "generate", "--declared-endpoint", "https://a.example/it's?a&b", "--out", "api.key"];
    let said = prepare(&service, &generate);
    let typed: Value =
        serde_json::from_slice(&fs::read(service.folder.path().join("request.json")).unwrap()).unwrap();
    assert_eq!((&typed["message"]["agentId"], &typed["domain"]["name"]), (&"4".into(), &"Elsewhere".into()));
    for word in [
        "to be signed by the owner of agent 4",
        "name \"Elsewhere\"",
        "within 300 s",
        typed["message"]["nonce"].as_str().unwrap(),
        "\n  cast wallet sign --ledger --data --from-file request.json | ",
        " --signed request.json --signature - ",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!service.folder.path().join("api.key").exists());
    let mut typed_line = Command::new("sh");
    typed_line.args(["-c", &format!("cast() {{ cat signature; }}; {}", said.lines().last().unwrap())]);
    let output = service.in_place(typed_line).output().unwrap();
    let said = sent(&output);
    assert!(said.starts_with("tiergate: the signature recovers to the account 0x"), "{said}");
    quiet(&service.ask(&["verify", "--api-key-file", "api.key"]));

    // A signature is spent, whichever request it is sent with.
    let again = failure(&service.ask(&[&["keys", "revoke"], &SECOND_STEP[..]].concat()), 1);
    assert!(again.contains("400 REPLAY_DETECTED"), "{again}");
}

/// As printed, but for the Ledger, in whose place is a keystore.
#[test]
fn each_line_for_foundry_on_the_page_and_in_the_manual_signs_what_the_first_step_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs = ["amd64", "arm64"]
        .map(|processor| root.join(format!("tools/node_modules/@foundry-rs/cast-linux-{processor}/bin")));
    let Some(programs) = programs.into_iter().find(|folder| folder.exists()) else {
        return skip("tools/node_modules/@foundry-rs/cast");
    };
    let output = tiergate(&["sign", "--registry", REGISTRY, "--agent-id", "4", "--typed-data"]);
    let said = failure(&output, 0);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("request.json"), &output.stdout).unwrap();
    fs::write(folder.path().join("password"), "horse").unwrap();
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
    let typed = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(folder.path()).env("HOME", folder.path()).env("PATH", &path);
        let output = shell.env("ETH_PASSWORD", "password").output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let owner = PrivateKeySigner::random();
    let key = hex::encode_prefixed(owner.to_bytes());
    typed(&format!("cast wallet import owner --private-key {key} --unsafe-password horse"));
    let request: TypedData = serde_json::from_slice(&output.stdout).unwrap();
    let signature = hex::encode_prefixed(owner.sign_dynamic_typed_data_sync(&request).unwrap().as_bytes());

    let page = ["console/src/elsewhere.ts", "docs/signing.md", "README.md"];
    let texts = page.map(|file| fs::read_to_string(root.join(file)).unwrap()).into_iter().chain([said]);
    let mut count = 0;
    for text in texts {
        for (start, _) in text.match_indices("cast wallet sign ") {
            let line = text[start..].split(['"', '`', '|']).next().unwrap();
            let line = line.replace("--ledger", "--account owner").replace("NAME", "owner");
            // A table of the manual names the wallets beside the line.
            let wallet = if line.contains("--account") { "" } else { "--account owner" };
            assert_eq!(typed(&format!("{line} {wallet}")).trim(), signature, "{line}");
            count += 1;
        }
    }
    assert!(count >= 6, "the page has lost its lines: {count}");
}

#[test]
fn every_signed_command_has_the_two_steps_and_takes_the_signature_from_standard_input() {
    let service = Elsewhere::start();
    quiet(&service.ask_signed(&["keys", "generate"]));
    for verb in [&["keys", "rotate"][..], &["keys", "revoke"], &["verify", "--by-signature"], &["sign"]] {
        prepare(&service, verb);
        let arguments =
            [verb, &["--signed", "request.json", "--signature", "-", "--url", &service.url]].concat();
        let signature = fs::read_to_string(service.folder.path().join("signature")).unwrap();
        let output = piped(service.in_place(command(&arguments)), &signature);
        sent(&output);
        assert!(!output.stdout.is_empty(), "{verb:?}");
    }
    // The domain of a given registry needs no service, in neither step.
    let offline = ["sign", "--registry", REGISTRY, "--agent-id", "4"];
    let output = tiergate(&[&offline[..], &["--typed-data"]].concat());
    assert!(failure(&output, 0).contains(REGISTRY));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("request.json"), &output.stdout).unwrap();
    fs::write(folder.path().join("signature"), wallet(4, &output.stdout)).unwrap();
    let mut second = command(&[&offline[..], &SECOND_STEP, &["--headers"]].concat());
    let output = second.current_dir(folder.path()).output().unwrap();
    sent(&output);
    assert!(String::from_utf8(output.stdout).unwrap().contains("X-Agent-Signature: 0x"));
}

#[test]
fn a_second_step_that_does_not_fit_the_first_says_what_differs_and_sends_nothing() {
    let service = Elsewhere::start();
    prepare(&service, &["keys", "generate"]);
    let path = |name: &str| service.folder.path().join(name);
    let signature = fs::read_to_string(path("signature")).unwrap();
    let request = fs::read_to_string(path("request.json")).unwrap();
    let second = |extra: &[&str]| service.ask(&[&["keys", "generate"], &SECOND_STEP[..], extra].concat());
    for (flag, value) in [("--agent-id", "3"), ("--nonce", "7"), ("--timestamp", "1700000000")] {
        let said = failure(&second(&[flag, value]), 1);
        assert!(said.contains(&format!("{flag} is {value}, but request.json is for ")), "{said}");
    }
    for (file, text, problem) in [
        ("request.json", "0x00", "request.json is not JSON: "),
        ("request.json", "{}", "request.json is not what --typed-data prints"),
        ("request.json", &request.replace("Verification", "ProfileRead"), "is not what --typed-data prints"),
        ("signature", "", "signature does not hold a signature"),
        ("signature", signature.trim_start_matches("0x"), "signature does not hold a signature"),
        ("signature", signature.trim_end().split_at(131).0, "signature does not hold a signature"),
        ("signature", &signature.replace("0x", "0xg"), "signature does not hold a signature"),
    ] {
        let kept = fs::read_to_string(path(file)).unwrap();
        fs::write(path(file), text).unwrap();
        let said = failure(&second(&[]), 1);
        assert!(said.contains(problem) && !said.contains(&signature[2..60]), "{problem}: {said}");
        fs::write(path(file), kept).unwrap();
    }
    let from_pipe =
        ["keys", "generate", "--signed", "request.json", "--signature", "-", "--url", &service.url];
    let said = failure(&piped(service.in_place(command(&from_pipe)), "0x12\n"), 1);
    assert!(said.contains("standard input does not hold a signature"), "{said}");
    let nowhere = service.ask(&["keys", "generate", "--signed", "nowhere", "--signature", "signature"]);
    assert!(failure(&nowhere, 1).contains("nowhere: can't be read"), "{nowhere:?}");
    sent(&second(&[]));

    prepare(&service, &["keys", "rotate", "--timestamp", "1700000000"]);
    let said = failure(&second(&[]), 1);
    assert!(
        said.contains("request.json is of 2023-11-14T22:13:20Z") && said.contains("make a new one"),
        "{said}"
    );
}

#[test]
fn a_signature_for_another_domain_is_sent_only_if_that_domain_is_given_again() {
    let service = Elsewhere::start();
    prepare(&service, &["keys", "generate"]);
    // The owner forgets the address, and the usual one is that of another service.
    let mut forgotten = command(&[&["keys", "generate"], &SECOND_STEP[..]].concat());
    forgotten.env("TIERGATE_URL", Dev::shared().url());
    let said = failure(&service.in_place(forgotten).output().unwrap(), 1);
    let [signed, expected] = ["Elsewhere", "Service Verification"].map(|name| format!("name {name:?}"));
    assert!(said.contains(&format!("request.json is signed for the domain of {signed}")), "{said}");
    assert!(said.contains(&expected) && said.contains("--url"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    let generate = [&["keys", "generate"], &SECOND_STEP[..]].concat();
    let other = ["--chain-id", "8004"];
    let said = failure(&service.ask(&[&generate[..], &other].concat()), 1);
    assert!(
        said.contains("request.json is signed for the domain") && !said.contains("SIGNATURE_INVALID"),
        "{said}"
    );
    sent(&service.ask(&generate));

    prepare(&service, &["keys", "rotate", "--chain-id", "8004"]);
    let rotate = [&["keys", "rotate"], &SECOND_STEP[..]].concat();
    let said = failure(&service.ask(&rotate), 1);
    assert!(said.contains("version \"1\", chain id 8004") && !said.contains("SIGNATURE_INVALID"), "{said}");
    let said = failure(&service.ask(&[&rotate[..], &other].concat()), 1);
    assert!(said.contains("as given, but") && said.contains("401 SIGNATURE_INVALID"), "{said}");
}

#[test]
fn a_signature_of_any_length_is_asked_for_at_the_terminal_and_not_shown_there() {
    let folder = tempfile::tempdir().unwrap();
    let typed_data = tiergate(&["sign", "--registry", REGISTRY, "--agent-id", "4", "--typed-data"]).stdout;
    let file = folder.path().join("request.json");
    fs::write(&file, &typed_data).unwrap();
    let file = file.to_str().unwrap();
    // A terminal that edits lines cuts them at 4,095 characters.
    for signature in [wallet(4, &typed_data), format!("0x{}", "5a".repeat(4_096))] {
        let arguments = ["sign", "--registry", REGISTRY, "--signed", file, "--signature", "-"];
        let shown = typed_in_secret(&arguments, &signature);
        assert!(shown.contains("Paste the signature: "), "{shown}");
        assert_eq!(shown.matches(&signature).count(), 1, "{shown}");
    }
}

#[test]
fn the_two_steps_are_not_mixed_with_each_other_or_with_a_key() {
    for arguments in [
        &["--typed-data", "--owner-key-file", "k"][..],
        &["--typed-data", "--agent-id", "4", "--signed", "r", "--signature", "s"],
        &["--signed", "r", "--signature", "s", "--owner-key-file", "k"],
        &["--signed", "r", "--agent-id", "4"],
        &["--signature", "s", "--agent-id", "4"],
        &["--typed-data"],
    ] {
        for verb in [&["keys", "revoke"][..], &["sign"], &["verify", "--by-signature"]] {
            let output = tiergate(&[verb, arguments].concat());
            assert_eq!(output.status.code(), Some(2), "{verb:?} {arguments:?}: {output:?}");
        }
    }
}

#[test]
fn verify_with_an_api_key_takes_no_key_and_no_signature_of_the_owner() {
    for arguments in
        [&["--typed-data"][..], &["--signed", "r", "--signature", "s"], &["--owner-key-file", "k"]]
    {
        let mut verify = command(&[&["verify", "--agent-id", "4"], arguments].concat());
        let output =
            verify.env("TIERGATE_API_KEY", "k").env("TIERGATE_URL", "http://[::1]:1").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains("--by-signature"), "{arguments:?}: {said}");
    }
}

#[test]
fn the_usage_of_a_signed_command_says_that_it_needs_an_agent_or_the_file_that_names_it() {
    for verb in [&["keys", "generate"][..], &["keys", "rotate"], &["keys", "revoke"], &["sign"]] {
        let help = String::from_utf8(tiergate(&[verb, &["--help"]].concat()).stdout).unwrap();
        let usage =
            format!("Usage: tiergate {} [OPTIONS] <--agent-id <N>|--signed <FILE>>\n", verb.join(" "));
        assert!(help.contains(&usage), "{help}");
    }
}
