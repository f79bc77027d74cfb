//! No API key, signature or provider key in the log or in metrics, whatever was asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io::Write};

use serde_json::{Value, json};

use crate::support::agents::{key_of, unknown_key};
use crate::support::harness::{Case, cases};
use crate::support::relay::{Behaviour, Relay};
use crate::support::secrets::{self, AUDIT};
use crate::support::service::{SIGNED_ENDPOINTS, Service};
use crate::support::time::{SOON, until};
use crate::support::{client::with, signing::BOB, world::World};

pub(crate) const CASES: &[Case<World>] =
    cases![neither_log_nor_metrics_hold_a_secret_after_every_endpoint_was_driven];

/// About the support code, which searches what every service of the suites writes.
pub(crate) const SEARCH: &[Case<World>] = cases![a_service_that_writes_a_secret_anywhere_fails_its_case];

/// About the embedded store's file.
pub(crate) const ON_A_DISK: &[Case<World>] = cases![the_stores_file_holds_no_key];

// threat: Credentials upstream, in logs, metrics or traces
// threat: Providers' keys in `rpcUrl`
fn neither_log_nor_metrics_hold_a_secret_after_every_endpoint_was_driven(world: &World) {
    let mut relay = Relay::new(world.chain().node);
    let url = format!("http://user-secret:pass-secret@{}/v2/path-secret?k=query-secret", relay.address);
    let mut service = Service::prepare(world.settings().set("chain.rpc_urls", vec![url]));
    service.start_again("export TIERGATE__LOG__LEVEL=trace");
    service.await_ready();
    let (agent, blocked) = (world.agent(1), world.agent(0));
    let mut secrets: Vec<String> =
        ["user-secret", "pass-secret", "path-secret", "query-secret"].map(str::to_owned).into();
    secrets.iter().for_each(|secret| secrets::keep(secret));
    let remember = |secrets: &mut Vec<String>, body: &Value| {
        let signature = body["signature"].as_str().unwrap();
        secrets.push(signature[2..66].to_owned());
        secrets.push(signature[66..].to_owned());
    };

    let mut key = agent.generate(&service);
    secrets.push(key[12..].to_owned());
    let rotated = agent.signed();
    remember(&mut secrets, &rotated);
    key = key_of(&service.rotate(&rotated).success(200));
    secrets.push(key[12..].to_owned());
    service.verify(&key).success(200);
    service.verify(&key).error(429, "RATE_LIMITED");
    let stranger = unknown_key(8);
    secrets.push(stranger[12..].to_owned());
    service.verify(&stranger).error(401, "INVALID_API_KEY");
    service.verify(&format!("{key}0")).error(400, "VALIDATION_ERROR");
    service.get(&format!("/verify?apiKey={key}")).error(405, "METHOD_NOT_ALLOWED");
    service.get(&format!("/{key}")).error(404, "NOT_FOUND");
    service.status(&key).error(400, "VALIDATION_ERROR");
    for reader in [agent.draft(), agent.draft().by(BOB)] {
        let body = reader.profile_body();
        remember(&mut secrets, &body);
        service.post("/profile", &body);
    }
    for endpoint in SIGNED_ENDPOINTS {
        for body in [
            agent.signed(),
            agent.draft().by(BOB).body(),
            agent.draft().timestamp(1).body(),
            blocked.signed(),
            with(&agent.signed(), "nonce", json!(key)),
        ] {
            remember(&mut secrets, &body);
            service.signed(endpoint, &body);
        }
    }
    // Malformed requests and the words of nodes are not quoted either.
    let mut connection = service.connect();
    connection.write(format!("POST /verify HTTP/1.1\r\nX {key}\0: {stranger}\r\n\r\n").as_bytes()).unwrap();
    connection.rest();
    let quoting = "bad key path-secret query-secret user-secret pass-secret".to_owned();
    for behaviour in [
        Some(Behaviour::Members(json!({ "error": { "code": -32_000, "message": quoting } }))),
        Some(Behaviour::Http(403, quoting)),
        Some(Behaviour::Close),
        Some(Behaviour::Hang),
        None,
    ] {
        match behaviour {
            Some(behaviour) => relay.behave(behaviour),
            None => relay.close(),
        }
        // The log tells of one fault of a kind in a second.
        let told = || service.log().lines().filter(|line| line.contains("ERROR")).count();
        let before = told();
        until("the fault is logged", SOON, || {
            // The answer names the node by scheme, host and port, and quotes nothing.
            service.verify_signature(&agent.signed()).is_unreadable(relay.address, "eth_call");
            (told() > before).then_some(())
        });
    }
    let (log, metrics) = (service.log(), service.metrics());
    assert!(log.contains("API key generated") && log.contains("API key rotated"), "{log}");
    assert!(metrics.contains("tiergate_rpc_errors_total"), "{metrics}");
    assert!(secrets.len() > 40 && secrets.iter().all(|secret| secret.len() > 8), "{secrets:?}");
    for secret in secrets {
        assert!(!metrics.contains(&secret), "{secret} in metrics");
        assert!(!log.to_lowercase().contains(&secret.to_lowercase()), "{secret} in the log: {log}");
    }
}

fn a_service_that_writes_a_secret_anywhere_fails_its_case(world: &World) {
    let (key, signature) =
        (unknown_key(9), world.agent(1).signed()["signature"].as_str().unwrap().to_uppercase());
    for (file, text, is_noticed) in [
        ("log", "nothing of that", false),
        ("log", &key[..20], false),
        ("log", &key[12..], true),
        (AUDIT, &key, true),
        (AUDIT, &signature[2..], true),
    ] {
        let service = Service::start(world.settings());
        let path = service.folder.path().join(file);
        fs::File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| drop(service)));
        assert_eq!(ended.is_err(), is_noticed, "{file}: {text}");
    }
}

// threat: Credentials upstream, in logs, metrics or traces
fn the_stores_file_holds_no_key(world: &World) {
    let mut service = Service::start(world.settings());
    let agent = world.agent(4);
    let signed = agent.signed();
    let key = key_of(&service.generate(&signed).success(201));
    service.kill();
    let (key, signature) = (key.into_bytes(), signed["signature"].as_str().unwrap().as_bytes().to_vec());
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&key);
    let mut is_found = false;
    for entry in fs::read_dir(service.data()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        is_found |= bytes.windows(digest.len()).any(|window| window == digest.as_slice());
        for secret in [&key[12..], &signature[2..]] {
            let raw = alloy::primitives::hex::decode(secret).unwrap();
            for form in [secret, raw.as_slice()] {
                assert!(!bytes.windows(form.len()).any(|window| window == form), "a secret on the disk");
            }
        }
    }
    assert!(is_found, "the key's digest is on the disk");
}
