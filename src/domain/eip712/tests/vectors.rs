//! The golden vectors that the clients in other languages read too.

use std::fs;

use alloy::primitives::{Address, B256, U256};
use serde_json::Value;

use super::super::{Eip712Domain, KeyOperation, SigningDomain};
use crate::domain::{agent_id::AgentId, freshness::UnixSeconds, nonce::Nonce, signature::SignatureFormat};

fn vectors(kind: &str) -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/vectors.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    vectors[kind].as_array().unwrap().clone()
}

fn text<'a>(vector: &'a Value, path: &str) -> &'a str {
    vector.pointer(path).unwrap().as_str().unwrap()
}

/// The digest that the service computes for a vector's message.
fn digest(vector: &Value) -> B256 {
    let domain = SigningDomain::new(Eip712Domain {
        name: text(vector, "/domain/name").to_owned(),
        version: text(vector, "/domain/version").to_owned(),
        chain_id: vector["domain"]["chainId"].as_u64().unwrap(),
        verifying_contract: text(vector, "/domain/verifyingContract").parse().unwrap(),
    });
    let number = |path| U256::from_str_radix(text(vector, path), 10).unwrap();
    let agent = AgentId::new(number("/message/agentId"));
    let signed_at = UnixSeconds(vector["message"]["timestamp"].as_u64().unwrap());
    match text(vector, "/primaryType") {
        "Verification" => domain.digest(agent, Nonce::new(number("/message/nonce")), signed_at),
        "ProfileRead" => domain.profile_digest(agent, signed_at),
        other => {
            let is_named = |operation: &KeyOperation| operation.type_name() == other;
            let operation = KeyOperation::ALL.into_iter().find(is_named).unwrap();
            let domain = domain.with_own_types(text(vector, "/message/service"));
            domain.own_digest(
                &domain.own_type(operation).unwrap(),
                agent,
                Nonce::new(number("/message/nonce")),
                signed_at,
            )
        }
    }
}

/// The signer that the service takes the signature for.
fn signer(vector: &Value) -> Option<Address> {
    SignatureFormat::Keys.parse(text(vector, "/signature")).ok()?.recover(&digest(vector))
}

#[test]
fn the_golden_vectors_have_these_digests_and_signers() {
    let signatures = vectors("signatures");
    assert!(signatures.len() >= 14);
    for vector in signatures {
        assert_eq!(digest(&vector), text(&vector, "/digest").parse::<B256>().unwrap(), "{}", vector["name"]);
        assert_eq!(signer(&vector), Some(text(&vector, "/address").parse().unwrap()), "{}", vector["name"]);
    }
}

#[test]
fn no_refused_vector_is_taken_for_the_owners_signature() {
    let refused = vectors("refused");
    assert!(refused.len() >= 22);
    for vector in refused {
        assert_ne!(signer(&vector), Some(text(&vector, "/owner").parse().unwrap()), "{}", vector["name"]);
    }
}
