//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`, or its headers, for `curl -H @-`; or the headers that
//! sign a whole request.

use std::path::{Path, PathBuf};

use alloy::primitives::hex;
use alloy::signers::SignerSync;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sha2::{Digest, Sha256};
use url::Url;

use crate::cli::output::{Output, with};
use crate::cli::{Failure, client, say, signing::Signing};
use crate::domain::KeyOperation;
use crate::files;
use crate::message_signature::{Content, Message, Unsigned};
use crate::os::Os;
use crate::ports::{Clock, Entropy};
use crate::wire::SIGNATURE_HEADERS;

/// Sign a request as an agent's owner and print the JSON body that the signed endpoints take, or the headers that the gateway
/// takes; or sign a whole request by ERC-8128 with --request.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/sign.txt"))]
pub(super) struct Sign {
    #[command(flatten)]
    signing: Signing,
    /// The endpoint URL to declare, for generate and rotate.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
    /// The request, where changes of keys are signed as types of their own.
    #[arg(long = "for", value_name = "REQUEST", default_value = "verify", value_parser = ["verify", "generate", "rotate", "revoke"])]
    purpose: String,
    /// Print the headers that the gateway takes, instead of a body.
    #[arg(long, conflicts_with_all = ["declared_endpoint", "purpose"])]
    headers: bool,
    /// Sign this request, with its body, and print the headers to send with it: for `curl -X METHOD -H @- URL`.
    #[arg(
        long,
        num_args = 2,
        value_names = ["METHOD", "URL"],
        conflicts_with_all = ["headers", "declared_endpoint", "purpose", "nonce", "timestamp", "typed_data", "signed"],
    )]
    request: Option<Vec<String>>,
    /// File with the body of --request, as `curl --data-binary @FILE` sends it.
    #[arg(long, value_name = "FILE", requires = "request")]
    body: Option<PathBuf>,
    /// The Content-Type of the body.
    #[arg(long, value_name = "TYPE", requires = "body", default_value = "application/json")]
    content_type: String,
}

impl Sign {
    pub(super) fn run(self) -> Result<(), Failure> {
        if let Some([method, url]) = self.request.as_deref() {
            let body = self.body.as_deref().map(|file| (file, self.content_type.as_str()));
            return headers(method, url, body, &self.signing)?
                .iter()
                .try_for_each(|line| say(format_args!("{line}")));
        }
        let change = KeyOperation::ALL.into_iter().find(|operation| operation.name() == self.purpose);
        let Some(body) = self.signing.body(Output::Text, change)? else { return Ok(()) };
        if self.headers {
            let field = |name: &str| body.get(name).map(ToString::to_string).unwrap_or_default();
            for (header, name) in
                SIGNATURE_HEADERS.into_iter().zip(["agentId", "signature", "nonce", "timestamp"])
            {
                say(format_args!("{header}: {}", field(name).trim_matches('"')))?;
            }
            return Ok(());
        }
        say(format_args!("{}", with(body, "declaredEndpoint", self.declared_endpoint)))
    }
}

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

const AGENT_ID: HeaderName = HeaderName::from_static("x-agent-id");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The headers of a request with a body in a file, if there is one, of this type.
pub(super) fn headers(
    method: &str,
    url: &str,
    body: Option<(&Path, &str)>,
    signing: &Signing,
) -> Result<Vec<String>, Failure> {
    let method: Method = method.parse().map_err(|_| Failure::unusable("the method of --request is none"))?;
    let (url, target) = address(url)?;
    let (agent, signer, chain_id) = signing.account()?;
    let mut fields = HeaderMap::from_iter([(AGENT_ID, header(&agent.to_string())?)]);
    let mut content = Content::Empty;
    if let Some((file, content_type)) = body {
        let unreadable = |why: String| Failure::unusable(format!("{} {why}", file.display()));
        let bytes = files::bytes(file, BODY_BYTES_MAX).map_err(unreadable)?;
        fields.insert(CONTENT_TYPE, header(content_type)?);
        if !bytes.is_empty() {
            content = Content::Follows;
            let digest = BASE64_STANDARD.encode(Sha256::digest(&*bytes));
            fields.insert(CONTENT_DIGEST, header(&format!("sha-256=:{digest}:"))?);
        }
    }
    let message = Message {
        method: method.as_str(),
        scheme: Some(url.scheme()),
        authority: url.authority(),
        hosts: None,
        target: target.as_bytes(),
        fields: &fields,
        content,
    };
    let os = Os::new();
    let nonce = hex::encode(os.key_bytes()?);
    let unsigned = Unsigned::over(&message, (chain_id, signer.address()), &nonce, os.unix_seconds())
        .ok_or_else(|| Failure::new("the request can't be signed"))?;
    let signature = BASE64_STANDARD.encode(signer.sign_hash_sync(&unsigned.digest)?.as_bytes());
    let values = fields.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let sent = values.map(|(name, value)| format!("{name}: {value}"));
    let signed = [
        format!("signature-input: {}", unsigned.input),
        format!("signature: {}", unsigned.signature(&signature)),
    ];
    Ok(sent.chain(signed).collect())
}

/// The address, and the part of it that is sent in the request line. Others than those in normal form are refused: programs
/// differ in how they send them.
fn address(text: &str) -> Result<(Url, String), Failure> {
    let url = client::address(text).ok().filter(|url| url.username().is_empty() && url.password().is_none());
    let url = url.ok_or_else(|| Failure::unusable("the URL of --request is none of http or https"))?;
    let is_normal = url.fragment().is_none() && (url.as_str() == text || url.as_str() == format!("{text}/"));
    if !is_normal {
        return Err(Failure::unusable(format!(
            "write the URL of --request as it is sent, without a fragment: {url}"
        )));
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("{}{query}", url.path());
    Ok((url, target))
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    let value = HeaderValue::from_str(text).ok().filter(|value| value.to_str().is_ok());
    value.ok_or_else(|| Failure::unusable("the type of the body is none"))
}
