//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`, or its headers, for `curl -H @-`; or the headers that
//! sign a whole request.

use std::path::PathBuf;

use crate::cli::output::{Output, with};
use crate::cli::sign_request::headers;
use crate::cli::signing::Signing;
use crate::cli::{Failure, say};
use crate::domain::eip712::KeyOperation;
use crate::wire::credentials::SIGNATURE_HEADERS;

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
    /// Prints the body.
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
