//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`, or its headers, for `curl -H @-`.

use serde_json::{Value, json};

use crate::cli::signing::Signing;
use crate::cli::{Failure, say};

/// Sign a request as an agent's owner.
#[derive(clap::Args)]
pub(super) struct Sign {
    /// The agent's id.
    #[arg(long, value_name = "N")]
    agent_id: String,
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
        let mut body = self.signing.body(&self.agent_id)?;
        if self.headers {
            let field = |name: &str| match body.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
            return say(format_args!(
                "X-Agent-Id: {}\nX-Agent-Signature: {}\nX-Agent-Nonce: {}\nX-Agent-Timestamp: {}",
                field("agentId"),
                field("signature"),
                field("nonce"),
                field("timestamp"),
            ));
        }
        if let Some(endpoint) = self.declared_endpoint {
            body.insert("declaredEndpoint".to_owned(), json!(endpoint));
        }
        say(format_args!("{}", Value::Object(body)))
    }
}
