//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`, or its headers, for `curl -H @-`.

use crate::cli::output::with;
use crate::cli::signing::Signing;
use crate::cli::{Failure, say};

/// Sign a request as an agent's owner and print the JSON body that the signed endpoints take, or the headers that the gateway
/// takes.
#[derive(clap::Args)]
pub(super) struct Sign {
    #[command(flatten)]
    signing: Signing,
    /// The endpoint URL to declare, for generate and rotate.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
    /// Print the headers that the gateway takes, instead of a body.
    #[arg(long, conflicts_with = "declared_endpoint")]
    headers: bool,
}

impl Sign {
    /// Prints the body.
    pub(super) fn run(self) -> Result<(), Failure> {
        let Some(body) = self.signing.body()? else { return Ok(()) };
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
