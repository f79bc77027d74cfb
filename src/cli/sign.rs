//! `tiergate sign`: the JSON body of a signed request, for `curl -d @-`.

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
}

impl Sign {
    /// Prints the body.
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut body = self.signing.body(&self.agent_id)?;
        if let Some(endpoint) = self.declared_endpoint {
            body.insert("declaredEndpoint".to_owned(), json!(endpoint));
        }
        say(format_args!("{}", Value::Object(body)))
    }
}
