//! Encrypted keystores in the place of raw keys, and where their passwords come from.

use std::process::{Command, Stdio};
use std::{fs, os::unix::fs::PermissionsExt};

use super::terminal::typed_in_secret;
use super::{PROGRAM, REGISTRY, command, failure};

const PASSWORD: &str = "correct horse";

/// The key in the keystores.
pub(crate) const KEY: &str = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318";

/// Signs one and the same request without a network.
pub(super) const SIGN: [&str; 9] =
    ["sign", "--agent-id", "4", "--registry", REGISTRY, "--nonce", "7", "--timestamp", "1700000000"];

pub(super) fn keystore(kind: &str) -> String {
    format!("{}/tests/fixtures/keystore-{kind}.json", env!("CARGO_MANIFEST_DIR"))
}

fn sign(arguments: &[&str]) -> Command {
    command(&[&SIGN, arguments].concat())
}

/// The answer that the raw key gives.
fn expected() -> String {
    let output = sign(&[]).env("TIERGATE_OWNER_KEY", KEY).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_keystore_signs_like_its_key_with_a_password_from_a_file_or_a_variable() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let password = password.to_str().unwrap();
    let (file, expected) = (keystore("scrypt"), expected());
    let text = fs::read_to_string(&file).unwrap();
    let with_file = ["--owner-key-file", &file, "--password-file", password];
    for command in [
        sign(&with_file).env("TIERGATE_KEYSTORE_PASSWORD", "not this one"),
        sign(&["--owner-key-file", &file]).env("TIERGATE_KEYSTORE_PASSWORD", PASSWORD),
        sign(&["--password-file", password]).env("TIERGATE_OWNER_KEY", &text),
    ] {
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        assert!(output.stderr.is_empty());
    }
    let output =
        sign(&["--owner-key-file", &file]).env("TIERGATE_KEYSTORE_PASSWORD", "battery").output().unwrap();
    let said = failure(&output, 1);
    assert!(
        said.contains("the password is not that of this keystore") && !said.contains("battery"),
        "{said}"
    );
    let help = String::from_utf8(command(&["sign", "--help"]).output().unwrap().stdout).unwrap();
    assert!(help.contains("--password-file") && help.contains("--owner-key-file"), "{help}");
    assert!(!help.contains("--password ") && !help.contains("--key "), "{help}");
}

#[test]
fn without_a_terminal_and_a_password_both_ways_to_give_one_are_named() {
    // A session of its own has no terminal, wherever the tests run.
    let mut apart = Command::new("setsid");
    apart.args(["--wait", PROGRAM]).args(SIGN).args(["--owner-key-file", &keystore("scrypt")]);
    let output = apart.env_remove("TIERGATE_KEYSTORE_PASSWORD").stdin(Stdio::null()).output().unwrap();
    let said = failure(&output, 1);
    assert!(said.contains("--password-file") && said.contains("TIERGATE_KEYSTORE_PASSWORD"), "{said}");
}

#[test]
fn a_password_is_asked_for_at_the_terminal_and_not_shown_there() {
    let expected = expected();
    let file = keystore("scrypt");
    let shown = typed_in_secret(&[&SIGN[..], &["--owner-key-file", &file]].concat(), PASSWORD);
    assert!(shown.contains("Password of ") && shown.contains(expected.trim()), "{shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
}
