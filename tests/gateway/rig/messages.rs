//! Requests that are signed themselves, by the text of ERC-8128 and RFC 9421, written independently of the product.

use alloy::primitives::U256;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use crate::rig::{authz::Original, stage::ACME};
use crate::support::signing::{Account, fresh_nonce};
use crate::support::{agents::Agent, secrets, time::unix_seconds, wire::Request};

/// A request to be signed.
#[derive(Debug, Clone)]
pub(crate) struct Signing {
    pub(crate) method: String,
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) agent: U256,
    /// The account that is named.
    pub(crate) account: String,
    /// The account whose key signs.
    pub(crate) signer: Account,
    pub(crate) nonce: String,
    pub(crate) created: u64,
    pub(crate) lasts: u64,
    pub(crate) body: Option<Vec<u8>>,
    /// What the body hashes to, if that is announced; of another body where they are to differ.
    pub(crate) announced: Option<Vec<u8>>,
    pub(crate) content_type: Option<String>,
    pub(crate) tag: &'static str,
}

impl Signing {
    pub(crate) fn get(agent: &Agent, chain_id: i64, target: &str) -> Self {
        Self {
            method: "GET".into(),
            scheme: "http",
            host: ACME.into(),
            target: target.into(),
            agent: agent.id,
            account: format!("eip155:{chain_id}:{}", agent.owner.address.to_string().to_lowercase()),
            signer: agent.owner,
            nonce: format!("n{}", fresh_nonce()),
            created: unix_seconds(),
            lasts: 60,
            body: None,
            announced: None,
            content_type: None,
            tag: ";tag=\"erc8128\"",
        }
    }

    /// With this body, and its own digest.
    pub(crate) fn post(self, body: &[u8]) -> Self {
        Self { method: "POST".into(), body: Some(body.into()), announced: Some(body.into()), ..self }
    }

    fn digest(&self) -> Option<String> {
        let announced = self.announced.as_ref()?;
        Some(format!("sha-256=:{}:", BASE64_STANDARD.encode(Sha256::digest(announced))))
    }

    /// The headers that sign it.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut parts = vec![
            ("@scheme", self.scheme.to_owned()),
            ("@authority", self.host.clone()),
            ("@method", self.method.clone()),
            ("@path", path.to_owned()),
            ("@query", format!("?{query}")),
            ("x-agent-id", self.agent.to_string()),
        ];
        parts.extend(self.digest().map(|digest| ("content-digest", digest)));
        parts.extend(self.content_type.clone().map(|text| ("content-type", text)));
        let names: Vec<String> = parts.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let Self { created, nonce, account, tag, .. } = self;
        let expires = created + self.lasts;
        let parameters = format!(
            "({});created={created};expires={expires};nonce=\"{nonce}\";keyid=\"{account}\"{tag}",
            names.join(" ")
        );
        let lines: String = parts.iter().map(|(name, value)| format!("\"{name}\": {value}\n")).collect();
        let base = format!("{lines}\"@signature-params\": {parameters}");
        let signer: PrivateKeySigner = self.signer.key.parse().unwrap();
        let signature = BASE64_STANDARD.encode(signer.sign_message_sync(base.as_bytes()).unwrap().as_bytes());
        secrets::keep(&signature);
        let mut headers = vec![
            ("Signature-Input".to_owned(), format!("s={parameters}")),
            ("Signature".to_owned(), format!("s=:{signature}:")),
            ("X-Agent-Id".to_owned(), self.agent.to_string()),
        ];
        headers.extend(self.digest().map(|digest| ("Content-Digest".to_owned(), digest)));
        headers.extend(self.content_type.clone().map(|text| ("Content-Type".to_owned(), text)));
        headers
    }

    /// The signed request.
    pub(crate) fn request(&self) -> Request {
        let request = Request::new(&self.method, &self.host, &self.target).with_all(&self.headers());
        match &self.body {
            Some(body) => request.body(body),
            None => request,
        }
    }

    /// The same at another gateway.
    pub(crate) fn original(&self) -> Original {
        Original::new(&self.method, &self.host, &self.target).with_all(&self.headers())
    }
}
