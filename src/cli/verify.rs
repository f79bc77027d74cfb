//! `tiergate verify`: an agent's verification at a running service, by API key or by owner signature.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::cli::Failure;
use crate::cli::client::Service;
use crate::cli::signing::Signing;

/// Where the API key may stand when no file is named.
const API_KEY_VARIABLE: &str = "TIERGATE_API_KEY";

/// Verify an agent.
#[derive(clap::Args)]
pub(super) struct Verify {
    #[command(flatten)]
    service: Service,
    /// The agent's id: with an API key, the agent that the key must belong to.
    #[arg(long, value_name = "N", required_if_eq("by_signature", "true"))]
    agent_id: Option<String>,
    /// File with the API key. Without it the key is read from TIERGATE_API_KEY.
    #[arg(long, value_name = "FILE", conflicts_with = "by_signature")]
    api_key_file: Option<PathBuf>,
    /// The application origin to compare with the endpoint declared for the key.
    #[arg(long, value_name = "URL", conflicts_with = "by_signature")]
    origin: Option<String>,
    /// Verify with an owner signature instead of an API key.
    #[arg(long)]
    by_signature: bool,
    #[command(flatten)]
    signing: Signing,
}

impl Verify {
    /// Asks the service and prints its answer.
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.by_signature {
            let agent_id = self.agent_id.as_deref().unwrap_or_default();
            let body = Value::Object(self.signing.body(agent_id)?);
            return self.service.ask(Method::POST, "/verify/signature", Some(body));
        }
        let mut body = Map::new();
        body.insert("apiKey".to_owned(), json!(self.api_key()?.trim()));
        if let Some(agent_id) = &self.agent_id {
            body.insert("agentId".to_owned(), json!(agent_id));
        }
        if let Some(origin) = &self.origin {
            body.insert("origin".to_owned(), json!(origin));
        }
        self.service.ask(Method::POST, "/verify", Some(Value::Object(body)))
    }

    fn api_key(&self) -> Result<Zeroizing<String>, Failure> {
        let text = match &self.api_key_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|cause| Failure::new(format!("cannot read {}: {cause}", file.display())))?,
            None => std::env::var(API_KEY_VARIABLE).map_err(|_| {
                Failure::new(format!(
                    "no API key: name its file with --api-key-file, or set {API_KEY_VARIABLE}"
                ))
            })?,
        };
        Ok(Zeroizing::new(text))
    }
}
