//! The description of the API says what the API is: its endpoints, the errors of the contract, and nothing else. Its page
//! shows the same.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::handlers::{OPENAPI, PAGE, POLICY};
use super::routes::{ENDPOINTS, Endpoint};

/// The errors of each endpoint: those that the contract lists, and where it lists none for an input that can be wrong or
/// a store that can fail, those of its error table.
fn errors(endpoint: Endpoint) -> BTreeSet<(u16, String)> {
    let any: &[_] = &[(400, "VALIDATION_ERROR"), (500, "INTERNAL_ERROR")];
    let body: &[_] = &[
        (404, "AGENT_NOT_FOUND"),
        (408, "REQUEST_TIMEOUT"),
        (413, "PAYLOAD_TOO_LARGE"),
        (429, "RATE_LIMITED"),
        (503, "RPC_ERROR"),
    ];
    let signed: &[_] = &[(400, "REPLAY_DETECTED"), (401, "SIGNATURE_INVALID")];
    let listed = match endpoint {
        Endpoint::Livez
        | Endpoint::Readyz
        | Endpoint::OpenApi
        | Endpoint::Docs
        | Endpoint::Signing
        | Endpoint::KeySet
        | Endpoint::Console => Vec::new(),
        Endpoint::KeyStatus => [any, &[(429, "RATE_LIMITED")]].concat(),
        Endpoint::Verify => [any, body, &[(401, "INVALID_API_KEY"), (403, "TIER_BLOCKED")]].concat(),
        Endpoint::VerifySignature => [any, body, signed, &[(403, "TIER_BLOCKED")]].concat(),
        Endpoint::ReadProfile => [any, body, signed].concat(),
        Endpoint::GenerateKey => [any, body, signed, &[(409, "KEY_ALREADY_EXISTS")]].concat(),
        Endpoint::RotateKey | Endpoint::RevokeKey => [any, body, signed].concat(),
    };
    listed.into_iter().map(|(status, error_type)| (status, error_type.to_owned())).collect()
}

/// The whole description.
fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// What a local reference points at; the value itself when it is none.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} is not local"));
            document.pointer(pointer).unwrap_or_else(|| panic!("{reference} points at nothing"))
        }
        None => value,
    }
}

fn operation(document: &Value, endpoint: Endpoint) -> &Value {
    &document["paths"][endpoint.path()][endpoint.method().to_lowercase()]
}

/// Status and every `errorType` of every answer of an operation that is an error.
fn described_errors(document: &Value, endpoint: Endpoint) -> BTreeSet<(u16, String)> {
    let mut errors = BTreeSet::new();
    for (status, response) in operation(document, endpoint)["responses"].as_object().unwrap() {
        let schema = resolve(document, &resolve(document, response)["content"]["application/json"]["schema"]);
        let alternatives = schema["oneOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
        for alternative in alternatives {
            let types = &resolve(document, alternative)["properties"]["errorType"]["enum"];
            for error_type in types.as_array().into_iter().flatten() {
                errors.insert((status.parse().unwrap(), error_type.as_str().unwrap().to_owned()));
            }
        }
    }
    errors
}

#[test]
fn it_describes_every_endpoint_and_no_other() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let served = ENDPOINTS.iter().map(|endpoint| (endpoint.path().to_owned(), endpoint.method().to_owned()));
    assert_eq!(described, served.collect::<BTreeSet<_>>());
}

#[test]
fn it_describes_the_errors_of_each_endpoint_and_no_other() {
    let document = document();
    for &endpoint in ENDPOINTS {
        assert_eq!(described_errors(&document, endpoint), errors(endpoint), "{}", endpoint.path());
    }
}

#[test]
fn each_answer_carries_the_headers_of_limits_waits_and_help_that_it_can_have() {
    let document = document();
    for &endpoint in ENDPOINTS {
        let is_signed = errors(endpoint).contains(&(400, "REPLAY_DETECTED".to_owned()));
        let has_nonce = is_signed && endpoint != Endpoint::ReadProfile;
        let limited = !matches!(
            endpoint,
            Endpoint::Livez
                | Endpoint::Readyz
                | Endpoint::OpenApi
                | Endpoint::Docs
                | Endpoint::Signing
                | Endpoint::KeySet
        );
        for (status, response) in operation(&document, endpoint)["responses"].as_object().unwrap() {
            let headers = resolve(&document, response).get("headers").and_then(Value::as_object);
            let names: Vec<&str> =
                headers.into_iter().flat_map(|all| all.keys().map(String::as_str)).collect();
            let expected: &[&str] = match status.as_str() {
                "200" | "201" if limited => &["X-RateLimit-Limit", "X-RateLimit-Remaining"],
                "429" => &["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining"],
                // Nonces may have been lost: `Retry-After` says when to sign again.
                "400" if has_nonce => &["Retry-After"],
                "401" => &["Link"],
                "500" | "503" => &["Retry-After"],
                _ => &[],
            };
            let names: BTreeSet<&str> = names.into_iter().collect();
            assert_eq!(names, expected.iter().copied().collect(), "{} {status}", endpoint.path());
        }
    }
}

#[test]
fn every_reference_points_at_something_and_every_component_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    let mut left = vec![&document];
    while let Some(value) = left.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            resolve(&document, value);
            used.insert(reference.to_owned());
        }
        left.extend(value.as_object().into_iter().flat_map(|object| object.values()));
        left.extend(value.as_array().into_iter().flatten());
    }
    for (kind, components) in document["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys() {
            assert!(used.contains(&format!("#/components/{kind}/{name}")), "{kind}/{name} is used by nobody");
        }
    }
}

#[test]
fn the_page_has_every_operation_schema_and_error_type() {
    for &endpoint in ENDPOINTS {
        assert!(PAGE.contains(&format!("<code>{} {}</code></h3>", endpoint.method(), endpoint.path())));
    }
    for (name, schema) in document()["components"]["schemas"].as_object().unwrap() {
        assert!(PAGE.contains(&format!("<h3 id=\"schema-{name}\">")), "{name}");
        if let Some(error_type) = schema["properties"]["errorType"]["enum"][0].as_str() {
            assert!(PAGE.contains(&format!("<br><code>{error_type}</code>")), "{error_type}");
        }
    }
    for part in
        ["agentId</code> in the query", "X-RateLimit-Remaining", "Example of 201", "&quot;apiKey&quot;"]
    {
        assert!(PAGE.contains(part), "{part}");
    }
}

#[test]
fn the_page_runs_no_script_and_loads_nothing() {
    for word in ["<script", "javascript:", "onclick", "src=", "style=", "@import", "url(", "<iframe", "<form"]
    {
        assert!(!PAGE.contains(word), "{word}");
    }
    for link in PAGE.split("href=\"").skip(1) {
        let target = link.split('"').next().unwrap();
        assert!(target.starts_with('#') || ["data:,", "openapi.json"].contains(&target), "{target}");
    }
    let (style, after) = PAGE.split_once("<style>").unwrap().1.split_once("</style>").unwrap();
    assert!(!after.contains("<style"));
    let digest = STANDARD.encode(Sha256::digest(style));
    let expected = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    assert_eq!(POLICY, expected.as_str());
}
