//! `tiergate keys`: an agent's API key at a running service.

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::client::Service;
use crate::cli::signing::Signing;
use crate::cli::{BAD_CONFIGURATION, Failure};
use crate::domain::agent_id::AgentId;

/// What to do with an agent's API key.
#[derive(clap::Subcommand)]
pub(super) enum Keys {
    /// Make the agent's API key and print it, once.
    Generate(NewKey),
    /// Replace the agent's API key; the old one is invalid at once.
    Rotate(NewKey),
    /// Revoke the agent's API key.
    Revoke(Revoke),
    /// Say whether the agent has an API key.
    Status(Status),
}

/// A key to be made.
#[derive(clap::Args)]
pub(super) struct NewKey {
    #[command(flatten)]
    service: Service,
    /// The agent's id.
    #[arg(long, value_name = "N")]
    agent_id: String,
    #[command(flatten)]
    signing: Signing,
    /// The application endpoint that the key is for.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
}

/// A key to be revoked.
#[derive(clap::Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    service: Service,
    /// The agent's id.
    #[arg(long, value_name = "N")]
    agent_id: String,
    #[command(flatten)]
    signing: Signing,
}

/// A look-up.
#[derive(clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    service: Service,
    /// The agent's id.
    #[arg(long, value_name = "N")]
    agent_id: String,
}

impl Keys {
    /// Asks the service and prints its answer.
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Generate(new) => new.send("/keys/generate"),
            Self::Rotate(new) => new.send("/keys/rotate"),
            Self::Revoke(Revoke { service, agent_id, signing }) => {
                service.ask(Method::DELETE, "/keys", Some(Value::Object(signing.body(&agent_id)?)))
            }
            Self::Status(Status { service, agent_id }) => {
                let agent = AgentId::parse(&agent_id)
                    .map_err(|why| Failure::new(format!("--agent-id is not an agent's id: {why}")))
                    .map_err(|failure| failure.with_code(BAD_CONFIGURATION))?;
                service.ask(Method::GET, &format!("/keys/status?agentId={agent}"), None)
            }
        }
    }
}

impl NewKey {
    fn send(self, path: &str) -> Result<(), Failure> {
        let mut body = self.signing.body(&self.agent_id)?;
        if let Some(endpoint) = self.declared_endpoint {
            body.insert("declaredEndpoint".to_owned(), json!(endpoint));
        }
        self.service.ask(Method::POST, path, Some(Value::Object(body)))
    }
}
