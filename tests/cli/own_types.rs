//! An owner at a service where changes of keys are signed as types of their own.

use std::fs;

use serde_json::Value;

use super::dev::Dev;
use super::owner::{Elsewhere, quiet};
use super::wallet::{prepare, sent};
use super::{REGISTRY, command, failure};

const OWN_TYPES: (&str, &str) = ("TIERGATE__SIGNATURE__KEY_OPERATIONS", "own_types");
const NAME: &str = "Hafen 東京's \"Süd\"";

/// A service whose name is its URL.
fn by_url() -> Elsewhere {
    let (key, value) = OWN_TYPES;
    Elsewhere::start_with(|url| vec![(key, value.to_owned()), ("TIERGATE__KEYS__PUBLIC_URL", url.to_owned())])
}

#[test]
fn an_owner_changes_keys_by_every_command_and_in_two_steps_and_signs_for_one_change_alone() {
    let service = by_url();
    for change in ["generate", "rotate", "revoke"] {
        quiet(&service.ask_signed(&["keys", change]));
    }
    quiet(&service.ask_signed(&["verify", "--by-signature"]));

    let said = prepare(&service, &["keys", "rotate"]);
    assert!(said.contains("for one request: to rotate its key\n"), "{said}");
    assert!(said.contains(&format!("type RotateKey of the service \"{}\"", service.url)), "{said}");
    let typed: Value =
        serde_json::from_slice(&fs::read(service.folder.path().join("request.json")).unwrap()).unwrap();
    assert_eq!(
        (&typed["primaryType"], &typed["message"]["service"]),
        (&"RotateKey".into(), &Value::from(&*service.url))
    );
    let second = |verb: &[&str]| {
        service.ask(&[verb, &["--signed", "request.json", "--signature", "signature"]].concat())
    };
    for (other, expected) in [
        (&["keys", "revoke"][..], "type RevokeKey of the service"),
        (&["keys", "generate"], "type GenerateKey of the service"),
        (&["verify", "--by-signature"], "but expected is name \"Elsewhere\""),
        (&["sign", "--for", "revoke"], "type RevokeKey of the service"),
    ] {
        let said = failure(&second(other), 1);
        assert!(said.contains("type RotateKey of the service") && said.contains(expected), "{said}");
    }
    sent(&second(&["sign", "--for", "rotate"]));
    sent(&second(&["keys", "rotate"]));
}

// threat: A signature for one service, or for a verification, is spent on a key at another
#[test]
fn a_name_that_is_not_the_services_address_is_signed_only_if_the_owner_gives_it() {
    let (key, value) = OWN_TYPES;
    let variables = [(key, value), ("TIERGATE__SIGNATURE__SERVICE_NAME", NAME)];
    let service = Elsewhere::start_with(|_| variables.map(|(key, value)| (key, value.to_owned())).into());
    for change in [&["keys", "rotate"][..], &["keys", "rotate", "--typed-data"], &["sign", "--for", "rotate"]]
    {
        let output = if change.contains(&"--typed-data") {
            service.ask(&[change, &["--agent-id", "4"]].concat())
        } else {
            service.ask_signed(change)
        };
        let said = failure(&output, 1);
        assert!(output.stdout.is_empty() && said.contains(&format!("calls itself {NAME:?}")), "{said}");
        assert!(said.contains("--service-name"), "{said}");
    }
    quiet(&service.ask_signed(&["verify", "--by-signature"]));
    quiet(&service.ask_signed(&["keys", "rotate", "--service-name", NAME]));
    let said = failure(&service.ask_signed(&["keys", "rotate", "--service-name", "Other"]), 1);
    assert!(said.contains("as given, but") && said.contains("401 SIGNATURE_INVALID"), "{said}");
    assert!(said.contains(&format!("type RotateKey of the service {NAME:?}")), "{said}");

    // Without the service, by its name or by its configuration.
    let fixed = ["--nonce", "7", "--timestamp", "1700000000"];
    let bodies = ["verify", "generate", "rotate", "revoke"].map(|purpose| {
        let sign = [&["sign", "--for", purpose][..], &fixed].concat();
        let asked = quiet(&service.ask_signed(&[&sign[..], &["--service-name", NAME]].concat()));
        let key_file = Dev::shared().key_file(4);
        let offline =
            [&sign[..], &["--agent-id", "4", "--owner-key-file", &key_file, "--chain-id", "31337"]].concat();
        let domain = ["--registry", REGISTRY, "--domain-name", "Elsewhere"];
        let by_name = command(&[&offline[..], &domain, &["--service-name", NAME]].concat()).output().unwrap();
        assert_eq!(quiet(&by_name), asked);
        let config = Dev::shared().config();
        let mut by_config =
            command(&[&offline[..], &["--config", &config, "--domain-name", "Elsewhere"]].concat());
        assert_eq!(quiet(&by_config.envs(variables).output().unwrap()), asked);
        asked
    });
    assert!((1..4).all(|at| !bodies[..at].contains(&bodies[at])), "{bodies:?}");
}
