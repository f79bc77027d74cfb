//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`, or its headers, for `curl -H @-`.

use crate::cli::output::with;
use crate::cli::signing::Signing;
use crate::cli::{Failure, say};
use crate::domain::eip712::KeyOperation;

/// Sign a request as an agent's owner and print the JSON body that the signed endpoints take, or the headers that the gateway
/// takes.
#[derive(clap::Args)]
pub(super) struct Sign {
    #[command(flatten)]
    signing: Signing,
    /// The endpoint URL to declare, for generate and rotate.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
    /// The request, where changes of keys are signed as types of their own.
    #[arg(long = "for", value_name = "REQUEST", default_value = "verify")]
    request: For,
    /// Print the headers that the gateway takes, instead of a body.
    #[arg(long, conflicts_with_all = ["declared_endpoint", "request"])]
    headers: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum For {
    Verify,
    Generate,
    Rotate,
    Revoke,
}

impl Sign {
    /// Prints the body.
    pub(super) fn run(self) -> Result<(), Failure> {
        let change = match self.request {
            For::Verify => None,
            For::Generate => Some(KeyOperation::Generate),
            For::Rotate => Some(KeyOperation::Rotate),
            For::Revoke => Some(KeyOperation::Revoke),
        };
        let Some(body) = self.signing.body(change)? else { return Ok(()) };
        if self.headers {
            let field = |name: &str| body.get(name).map(ToString::to_string).unwrap_or_default();
            for (header, name) in [
                ("X-Agent-Id", "agentId"),
                ("X-Agent-Signature", "signature"),
                ("X-Agent-Nonce", "nonce"),
                ("X-Agent-Timestamp", "timestamp"),
            ] {
                say(format_args!("{header}: {}", field(name).trim_matches('"')))?;
            }
            return Ok(());
        }
        say(format_args!("{}", with(body, "declaredEndpoint", self.declared_endpoint)))
    }
}
