//! Signatures of requests: published vectors, each refusal by its name, and requests that were altered.

mod altered;
mod bots;
mod refusals;
mod signing;
mod vectors;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::{MessageRefusal, SignedMessage, UnixSeconds};
use crate::message_signature::{Content, ERC_8128, ERC_8128_UNTAGGED, Message, Profile, Terms};

/// The account of the key 1, on chain 1.
const ACCOUNT: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";

/// The terms under which the vectors are good.
const TERMS: Terms = Terms { chain_id: 1, validity_secs_max: 60, ahead_secs_max: 30 };

/// The time at which they are.
const NOW: u64 = 1_700_000_001;

/// The signatures that may count, and the refusal of the first of all if it is none of them.
type Read = (Vec<SignedMessage>, Option<MessageRefusal>);

/// A request with everything that is signed, to be changed.
#[derive(Debug, Clone)]
struct Request {
    method: String,
    scheme: Option<String>,
    authority: String,
    target: String,
    fields: Vec<(String, String)>,
    content: Content,
    now: u64,
    terms: Terms,
}

/// A signature of 65 bytes that is nobody's.
const UNVERIFIED: &str =
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

impl Request {
    /// The request of the vector with an agent, changed by nothing.
    fn signed() -> Self {
        let components = r#""@scheme" "@authority" "@method" "@path" "@query" "x-agent-id""#;
        let signature =
            "P2myBhUFhjJy4FKd2IFYuw4nbBIGoPPfkt9ZvG7FCzQf7zr33CZNyVXEngOA7yzJ+xDdXNuF75KJ/h0+zM62SBs=";
        let request = Self {
            method: "GET".into(),
            scheme: Some("https".into()),
            authority: "api.example".into(),
            target: "/items".into(),
            fields: vec![("x-agent-id".into(), "7".into())],
            content: Content::Empty,
            now: NOW,
            terms: TERMS,
        };
        request.with_signature(components, "AAAAAAAAAAAAAAAAAAAAAQ", signature)
    }

    /// The same with a body of which only the framing is known, and a signature that no test verifies.
    fn with_body() -> Self {
        let request = Self { content: Content::Follows, method: "POST".into(), ..Self::signed() };
        let digest = "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:";
        let covered = r#""@scheme" "@authority" "@method" "@path" "@query" "x-agent-id" "content-digest""#;
        request.field("content-digest", digest).with_signature(covered, "n", UNVERIFIED)
    }

    fn with_signature(self, components: &str, nonce: &str, signature: &str) -> Self {
        let input = format!(
            "request=({components});created=1700000000;expires=1700000060;nonce=\"{nonce}\";\
             keyid=\"eip155:1:{ACCOUNT}\";tag=\"erc8128\""
        );
        self.field("signature-input", &input).field("signature", &format!("request=:{signature}:"))
    }

    /// Sets a field; an empty value removes it.
    fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.retain(|(other, _)| other != name);
        if !value.is_empty() {
            self.fields.push((name.into(), value.into()));
        }
        self
    }

    /// Replaces a part of a field.
    fn edit(self, name: &str, from: &str, to: &str) -> Self {
        let value = &self.fields.iter().find(|(other, _)| other == name).unwrap().1;
        assert!(value.contains(from), "{value}");
        let value = value.replacen(from, to, 1);
        self.field(name, &value)
    }

    /// Replaces a part of `Signature-Input`.
    fn input(self, from: &str, to: &str) -> Self {
        self.edit("signature-input", from, to)
    }

    fn headers(&self) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in &self.fields {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            fields.append(HeaderName::try_from(name.as_str()).unwrap(), value);
        }
        fields
    }

    fn message<'a>(&'a self, fields: &'a HeaderMap) -> Message<'a, HeaderMap> {
        Message {
            method: &self.method,
            scheme: self.scheme.as_deref(),
            authority: &self.authority,
            hosts: None,
            target: self.target.as_bytes(),
            fields,
            content: self.content,
        }
    }

    fn read(&self, profiles: &[&Profile]) -> Option<Result<Read, MessageRefusal>> {
        let fields = self.headers();
        let candidates = self.message(&fields).candidates(profiles, &self.terms, UnixSeconds(self.now))?;
        Some(candidates.map(|candidates| (candidates.messages, candidates.first_refusal)))
    }

    /// The only signature.
    fn only(&self) -> Result<SignedMessage, MessageRefusal> {
        let (messages, first_refusal) = self.read(&[&ERC_8128, &ERC_8128_UNTAGGED]).unwrap()?;
        assert_eq!((messages.len(), first_refusal), (1, None));
        Ok(messages.into_iter().next().unwrap())
    }

    /// The name of its refusal.
    fn refusal(&self) -> &'static str {
        self.only().unwrap_err().code()
    }

    /// True if the account that is named has signed it.
    fn is_signed(&self) -> bool {
        self.only().is_ok_and(|message| message.signature.recover(&message.digest) == Some(message.account))
    }
}
