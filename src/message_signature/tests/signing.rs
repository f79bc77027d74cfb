//! Signatures that are made here are those of the vectors that the clients make, too.

use alloy::primitives::{Address, hex};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;

use crate::message_signature::{Content, Message, Unsigned};

const VECTORS: &str = include_str!("../../../clients/erc8128.json");

#[test]
fn each_vector_whose_coverage_is_the_usual_one_is_signed_with_the_same_hash() {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let text = |vector: &Value, name: &str| vector[name].as_str().unwrap().to_owned();
    let is_usual = |vector: &&Value| {
        let fields = ["x-agent-id", "content-digest", "content-type"];
        let derived = ["@scheme", "@authority", "@method", "@path", "@query"];
        let covered: Vec<&str> =
            vector["covered"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        !vector["agent"].is_null()
            && covered.starts_with(&derived)
            && covered.iter().skip(5).all(|name| fields.contains(name))
    };
    let mut count = 0;
    for vector in vectors.iter().filter(is_usual) {
        let url = Url::parse(&text(vector, "url")).unwrap();
        let fields: HeaderMap = vector["headers"].as_array().unwrap().iter().map(field).collect();
        let message = Message {
            method: &text(vector, "method"),
            scheme: Some(url.scheme()),
            authority: url.authority(),
            hosts: None,
            target: url.as_str().split_at(url.origin().ascii_serialization().len()).1.as_bytes(),
            fields: &fields,
            content: if vector["body"].is_null() { Content::Empty } else { Content::Follows },
        };
        let keyid = text(vector, "keyid");
        let (chain, account) = keyid.strip_prefix("eip155:").unwrap().split_once(':').unwrap();
        let account: (u64, Address) = (chain.parse().unwrap(), account.parse().unwrap());
        let created = vector["created"].as_u64().unwrap();
        let made = Unsigned::over(&message, account, &text(vector, "nonce"), created).unwrap();
        assert_eq!(made.input, format!("request={}", text(vector, "params")), "{}", vector["name"]);
        assert_eq!(hex::encode_prefixed(made.digest), text(vector, "hash"), "{}", vector["name"]);
        count += 1;
    }
    assert!(count > 10, "{count}");
}

fn field(line: &Value) -> (HeaderName, HeaderValue) {
    (line[0].as_str().unwrap().parse().unwrap(), line[1].as_str().unwrap().trim().parse().unwrap())
}
