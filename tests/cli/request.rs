//! `tiergate sign --request`: what it prints signs the request, as `curl -H @-` sends it.

use std::fs;

use alloy::primitives::Signature;
use alloy::signers::local::PrivateKeySigner;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::keystore::KEY;
use super::{command, failure};

const ADDRESS: &str = "https://api.example:8443/a%20b?q=%C3%A9&&r=1";

/// Runs it with this key.
fn sign(arguments: &[&str]) -> std::process::Output {
    let usual = ["sign", "--agent-id", "4", "--chain-id", "8004"];
    command(&[&usual[..], arguments].concat()).env("TIERGATE_OWNER_KEY", KEY).output().unwrap()
}

/// The headers that it printed, by their names.
fn headers(arguments: &[&str]) -> Vec<(String, String)> {
    let output = sign(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let field = |line: &str| line.split_once(": ").map(|(name, value)| (name.into(), value.into())).unwrap();
    printed.lines().map(field).collect()
}

#[test]
fn the_printed_headers_sign_the_request_with_its_body_once() {
    let body = tempfile::NamedTempFile::new().unwrap();
    fs::write(body.path(), "{\"a\":\"ü\"}").unwrap();
    let file = body.path().to_str().unwrap();
    let digest = BASE64_STANDARD.encode(Sha256::digest("{\"a\":\"ü\"}"));
    let lines = [
        "\"@scheme\": https".to_owned(),
        "\"@authority\": api.example:8443".to_owned(),
        "\"@method\": PUT".to_owned(),
        "\"@path\": /a%20b".to_owned(),
        "\"@query\": ?q=%C3%A9&&r=1".to_owned(),
        "\"x-agent-id\": 4".to_owned(),
        format!("\"content-digest\": sha-256=:{digest}:"),
        "\"content-type\": application/json".to_owned(),
    ];
    let signer: PrivateKeySigner = KEY.parse().unwrap();
    let mut signatures = Vec::new();
    for _ in 0..2 {
        let headers = headers(&["--request", "PUT", ADDRESS, "--body", file]);
        let value = |name: &str| headers.iter().find(|(other, _)| other == name).unwrap().1.clone();
        for line in lines.iter().skip(5) {
            let (name, expected) = line.split_once(": ").unwrap();
            assert_eq!(value(name.trim_matches('"')), expected);
        }
        let input = value("signature-input");
        let parameters = input.strip_prefix("request=").unwrap();
        let keyid = format!("keyid=\"eip155:8004:{:#x}\";tag=\"erc8128\"", signer.address());
        assert!(parameters.ends_with(&keyid), "{input}");
        let base = format!("{}\n\"@signature-params\": {parameters}", lines.join("\n"));
        let signature = value("signature");
        let encoded = signature.strip_prefix("request=:").unwrap().trim_end_matches(':');
        let bytes = BASE64_STANDARD.decode(encoded).unwrap();
        assert!(matches!(bytes.last(), Some(27 | 28)));
        let signature = Signature::try_from(bytes.as_slice()).unwrap();
        assert_eq!(signature.recover_address_from_msg(&base).unwrap(), signer.address());
        signatures.push(bytes);
    }
    assert_ne!(signatures.first(), signatures.last(), "each has a nonce of its own");
}

#[test]
fn a_request_without_a_body_has_neither_digest_nor_type() {
    let names: Vec<String> =
        headers(&["--request", "GET", "http://127.0.0.1:8000"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x-agent-id", "signature-input", "signature"]);
}

#[test]
fn a_request_that_programs_would_send_in_different_ways_is_refused() {
    for url in [
        "https://api.example/a b",
        "https://api.example/ü",
        "https://api.example/a/../b",
        "https://API.example/",
        "https://api.example:443/",
        "https://api.example/#part",
    ] {
        let said = failure(&sign(&["--request", "GET", url]), 2);
        assert!(said.contains("as it is sent"), "{said}");
    }
    for url in ["ftp://api.example/", "/items", "https://me:secret@api.example/"] {
        let said = failure(&sign(&["--request", "GET", url]), 2);
        assert!(said.contains("none of http or https") && !said.contains("secret"), "{said}");
    }
    assert!(failure(&sign(&["--request", "G T", "https://api.example/"]), 2).contains("method"));
    let missing = failure(&sign(&["--request", "PUT", "https://api.example/", "--body", "nowhere"]), 2);
    assert!(missing.contains("nowhere"), "{missing}");
    let both = sign(&["--request", "GET", "https://api.example/", "--headers"]);
    assert_eq!(both.status.code(), Some(2));
}
