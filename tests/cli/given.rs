//! Keys as they are given to a command, and failures as scripts and people hear of them.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use serde_json::Value;

use super::keystore::{KEY, SIGN, keystore};
use super::terminal::typed_in_secret;
use super::{command, failure, piped, tiergate};

fn sign(arguments: &[&str], input: &str) -> Output {
    piped(command(&[&SIGN, arguments].concat()), input)
}

#[test]
fn a_dash_is_standard_input_for_a_key_a_keystore_or_a_password_and_for_one_of_them_only() {
    let from_variable = command(&SIGN).env("TIERGATE_OWNER_KEY", KEY).output().unwrap();
    let (file, folder) = (keystore("scrypt"), tempfile::tempdir().unwrap());
    let password = folder.path().join("password");
    fs::write(&password, "correct horse").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    for (arguments, input) in [
        (&["--owner-key-file", "-"][..], format!("{KEY}\n")),
        (
            &["--owner-key-file", "-", "--password-file", password.to_str().unwrap()],
            fs::read_to_string(&file).unwrap(),
        ),
        (&["--owner-key-file", &file, "--password-file", "-"], "correct horse\n".to_owned()),
    ] {
        let output = sign(arguments, &input);
        assert!(
            output.stderr.is_empty() && output.stdout == from_variable.stdout,
            "{arguments:?}: {output:?}"
        );
    }
    let said = failure(&sign(&["--owner-key-file", "-", "--password-file", "-"], "{}"), 1);
    assert!(said.contains("standard input: is JSON, but no keystore"), "{said}");
    let whole = fs::read_to_string(&file).unwrap();
    let said = failure(&sign(&["--owner-key-file", "-", "--password-file", "-"], &whole), 2);
    assert!(said.contains("standard input holds one secret"), "{said}");
    let shown = typed_in_secret(&[&SIGN[..], &["--owner-key-file", "-"]].concat(), KEY);
    assert!(shown.contains("Paste the owner-key: ") && !shown.contains(KEY), "{shown}");
    let verify = ["verify", "--api-key-file", "-", "--url", "http://127.0.0.1:1"];
    assert!(failure(&piped(command(&verify), "svc"), 1).contains("cannot reach"));
}

// threat: A new key in a history or readable file
#[test]
fn a_file_with_a_key_that_others_may_read_is_warned_about_and_an_encrypted_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("owner.key");
    fs::write(&file, KEY).unwrap();
    let file = file.to_str().unwrap();
    for (mode, is_warned) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        let output = sign(&["--owner-key-file", file], "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success());
        assert_eq!(said.contains(&format!("warning: others may read {file}")), is_warned, "{mode:o}: {said}");
        assert!(said.is_empty() != is_warned && !said.contains(KEY), "{said}");
    }
}

// threat: A credential goes over plain HTTP
#[test]
fn keys_and_signatures_go_by_plain_http_to_this_machine_alone_unless_a_host_is_allowed_by_name() {
    let ask = |url: &str, arguments: &[&str], further: &[&str], code| {
        let mut command = command(&[arguments, &["--url", url], further].concat());
        command.env("TIERGATE_API_KEY", "svc").env("TIERGATE_OWNER_KEY", KEY);
        failure(&command.output().unwrap(), code)
    };
    // Each of these is reached, but for the name, and nobody listens there.
    for (url, arguments, further, code) in [
        ("http://0.0.0.0:1", &["verify"][..], &[][..], 2),
        ("http://keys.invalid", &["verify"], &[], 2),
        ("http://localhost.invalid", &["verify"], &[], 2),
        ("http://0.0.0.0:1", &["verify"], &["--allow-http", "keys.invalid"], 2),
        ("http://0.0.0.0:1", &["verify"], &["--allow-http", "0.0.0.0"], 1),
        ("http://[64:ff9b:1::A]:1", &["verify"], &["--allow-http", "64:FF9B:1::a"], 1),
        ("http://127.0.0.1:1", &["verify"], &[], 1),
        ("http://127.9.0.1:1", &["verify"], &[], 1),
        ("http://[::1]:1", &["verify"], &[], 1),
        ("http://[::ffff:127.0.0.1]:1", &["verify"], &[], 1),
        ("http://localhost:1", &["verify"], &[], 1),
        ("https://0.0.0.0:1", &["verify"], &[], 1),
        // No credential goes with it.
        ("http://0.0.0.0:1", &["keys", "status", "--agent-id", "4"], &[], 1),
    ] {
        let said = ask(url, arguments, further, code);
        assert_eq!(said.contains("--allow-http"), code == 2, "{url}: {said}");
    }
}

#[test]
fn a_script_that_asks_for_json_gets_it_also_where_nothing_answers() {
    for arguments in
        [&["keys", "status", "--agent-id", "4"][..], &["keys", "revoke", "--agent-id", "4"], &["verify"]]
    {
        let mut asked = command(&[arguments, &["--url", "http://127.0.0.1:1", "-ojson"]].concat());
        let output = asked.env("TIERGATE_API_KEY", "svc").env("TIERGATE_OWNER_KEY", KEY).output().unwrap();
        failure(&output, 1);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["errorType"], "NO_ANSWER");
        assert!(told["error"].as_str().unwrap().contains("cannot reach http://127.0.0.1:1"), "{told}");
    }
}

#[test]
fn config_show_prints_json_with_the_types_of_the_values() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let mut show = command(&["config", "show", "-o", "json", "--config", shipped]);
    let output = show.env("TIERGATE__KEYS__PREFIX", "own_").output().unwrap();
    let values: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| values.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("{key}"));
    assert_eq!(
        (&of("keys.prefix")["value"], &of("keys.prefix")["origin"]),
        (&"own_".into(), &"TIERGATE__KEYS__PREFIX".into())
    );
    assert!(of("gateway.max_in_flight")["value"].is_u64() && of("tiers.stake")["value"].is_array());
    assert_eq!(values.iter().find(|value| value["value"].is_null()), None);
    let lines = tiergate(&["config", "show", "--config", shipped]).stdout;
    assert_eq!(String::from_utf8(lines).unwrap().lines().count(), values.len());
}

#[test]
fn a_failure_that_has_a_next_step_names_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiergate.toml"), "").unwrap();
    for (arguments, step) in [
        (&["init"][..], "is left alone: name another"),
        (&["run", "--config", "none.toml"], "`tiergate init` writes one"),
        (&["check", "--config", "none.toml"], "--config names another"),
        (&["sign", "--agent-id", "4", "--owner-key-file", "none"], "or - for standard input"),
        (&["keys", "status", "--agent-id", "4", "--url", "127.0.0.1:8080"], "such as https://keys.example"),
        (&["keys", "status", "--agent-id", "4", "--url", "localhost:8080"], "such as https://keys.example"),
        (&["check", "--online", "--through", "/path"], "such as https://keys.example"),
        (&["keys", "status", "--agent-id", "4", "--url", "http://me:secret@127.0.0.1:1"], "without a login"),
    ] {
        let output = command(arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(step), "{arguments:?}: {said}");
        assert!(!said.contains("me:secret"), "{said}");
    }
}

#[test]
fn the_flags_of_signed_commands_stand_in_groups() {
    for verb in [&["sign"][..], &["keys", "generate"], &["keys", "rotate"], &["keys", "revoke"], &["verify"]]
    {
        let help = String::from_utf8(tiergate(&[verb, &["--help"]].concat()).stdout).unwrap();
        let groups = ["Service:", "Owner's key:", "Signed data:", "Signing elsewhere, in two steps:"];
        let of = |flag: &str| {
            let (before, _) =
                help.split_once(&format!("      {flag} ")).unwrap_or_else(|| panic!("{flag}: {help}"));
            groups.into_iter().max_by_key(|group| before.rfind(&format!("\n{group}\n")))
        };
        for (flag, group) in [
            ("--url", groups[0]),
            ("--allow-http", groups[0]),
            ("--owner-key-file", groups[1]),
            ("--registry", groups[2]),
            ("--nonce", groups[2]),
            ("--signed", groups[3]),
        ] {
            assert_eq!(of(flag), Some(group), "{verb:?} {flag}");
        }
    }
}

#[test]
fn the_manual_lists_every_variable_that_the_program_reads_by_name() {
    let page = String::from_utf8(tiergate(&["man"]).stdout).unwrap();
    let (_, section) = page.split_once(".SH ENVIRONMENT").unwrap();
    let sources = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli")).unwrap();
    let mut named = 0;
    for file in sources.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok()) {
        let strings = file
            .split('"')
            .filter(|text| text.starts_with("TIERGATE_") && !text.contains("__") && *text != "TIERGATE_");
        for variable in
            strings.filter(|text| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        {
            assert!(section.contains(&format!("fB{variable}\\fR")), "{variable}");
            named += 1;
        }
    }
    assert!(named >= 6, "{named}");
    let folder = tempfile::tempdir().unwrap();
    assert!(tiergate(&["man", folder.path().to_str().unwrap()]).status.success());
    assert!(fs::read_to_string(folder.path().join("tiergate.1")).unwrap().contains(section));
}
