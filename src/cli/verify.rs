//! `tiergate verify`: an agent's verification at a running service, by API key or by owner signature.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::client::Service;
use crate::cli::signing::Signing;

/// Where the API key may stand when no file is named.
const API_KEY_VARIABLE: &str = "TIERGATE_API_KEY";

/// Verify an agent.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Verify {
    #[command(subcommand)]
    by_signature: Option<BySignature>,
    #[command(flatten)]
    by_key: Option<ByKey>,
}

/// Verification by owner signature.
#[derive(clap::Subcommand)]
enum BySignature {
    /// Verify with an owner signature instead of an API key.
    Signature {
        #[command(flatten)]
        service: Service,
        #[command(flatten)]
        signing: Signing,
    },
}

/// Verification by API key.
#[derive(clap::Args)]
struct ByKey {
    #[command(flatten)]
    service: Service,
    /// File with the API key. Without it the key is read from TIERGATE_API_KEY.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The agent that the key must belong to.
    #[arg(long, value_name = "N")]
    agent_id: Option<String>,
    /// The application origin to compare with the endpoint declared for the key.
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
}

impl Verify {
    /// Asks the service and prints its answer.
    pub(super) fn run(self) -> Result<(), Failure> {
        match (self.by_signature, self.by_key) {
            (Some(BySignature::Signature { service, signing }), _) => {
                service.ask(Method::POST, "/verify/signature", Some(Value::Object(signing.body()?)))
            }
            (None, Some(by_key)) => by_key.send(),
            (None, None) => Err(Failure::new("say where the service is with --url")),
        }
    }
}

impl ByKey {
    fn send(self) -> Result<(), Failure> {
        let key = match &self.api_key_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|cause| Failure::new(format!("cannot read {}: {cause}", file.display())))?,
            None => std::env::var(API_KEY_VARIABLE).map_err(|_| {
                Failure::new(format!(
                    "no API key: name its file with --api-key-file, or set {API_KEY_VARIABLE}"
                ))
            })?,
        };
        let mut body = json!({ "apiKey": key.trim() });
        if let (Some(fields), Some(agent)) = (body.as_object_mut(), &self.agent_id) {
            fields.insert("agentId".to_owned(), json!(agent));
        }
        if let (Some(fields), Some(origin)) = (body.as_object_mut(), &self.origin) {
            fields.insert("origin".to_owned(), json!(origin));
        }
        self.service.ask(Method::POST, "/verify", Some(body))
    }
}
