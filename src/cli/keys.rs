//! `tiergate keys`: an agent's API key at a running service.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::output::{Output, with};
use crate::cli::{Failure, client::Service, secret::KeyFile, signing::Signing, write};
use crate::domain::{AgentId, KeyOperation};

/// Generate, rotate, revoke or look up an agent's API key at a running service.
#[derive(clap::Subcommand)]
pub(super) enum Keys {
    /// Make an API key of the agent and print it, once, or keep it in a file.
    #[command(after_help = include_str!("help/generate.txt"))]
    Generate(NewKey),
    /// Replace the agent's API key; the old one is invalid at once, or after its grace.
    #[command(after_help = include_str!("help/rotate.txt"))]
    Rotate {
        #[command(flatten)]
        new: NewKey,
        /// For how many seconds the old key goes on, at most 3600, so that every process can have the new one before.
        #[arg(long, value_name = "SECONDS")]
        grace_seconds: Option<u64>,
    },
    /// Revoke the agent's API keys: all, or the one that is named.
    #[command(after_help = include_str!("help/revoke.txt"))]
    Revoke {
        #[command(flatten)]
        signing: Signing,
        /// How to print the answer.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
        /// The key of this name alone. Without it all that the agent has.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Say whether the agent has an API key.
    #[command(after_help = include_str!("help/status.txt"))]
    Status {
        #[command(flatten)]
        service: Service,
        /// The agent's id.
        #[arg(long, value_name = "N", value_parser = AgentId::parse)]
        agent_id: AgentId,
        /// How to print the answer.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
}

/// A key to be made.
#[derive(clap::Args)]
pub(super) struct NewKey {
    #[command(flatten)]
    signing: Signing,
    /// How to print the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// The application endpoint that the key is for.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
    /// The key's name, where the agent may have several.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// After how many seconds the key ends. Without it: never.
    #[arg(long, value_name = "SECONDS")]
    expires_in: Option<u64>,
    /// The ids of the tenants that the key is for, with commas between them. Without it: all, and the API.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    tenants: Option<Vec<String>>,
    /// Write the key to this file, which you alone can read, and don't print it. `generate` wants a new one; `rotate` replaces
    /// one that holds an API key, once there is a new key.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Keys {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Generate(new) => new.send(KeyOperation::Generate, None),
            Self::Rotate { new, grace_seconds } => new.send(KeyOperation::Rotate, grace_seconds),
            Self::Revoke { signing, output, name } => {
                let body = signing.body(output, Some(KeyOperation::Revoke))?;
                let Some(body) = body else { return Ok(()) };
                let body = with(body, "name", name);
                output.print(&signing.service.ask(output, Method::DELETE, "/keys", Some(body))?)
            }
            Self::Status { service, agent_id, output } => {
                let path = format!("/keys/status?agentId={agent_id}");
                output.print(&service.ask(output, Method::GET, &path, None)?)
            }
        }
    }
}

impl NewKey {
    fn send(self, operation: KeyOperation, grace_seconds: Option<u64>) -> Result<(), Failure> {
        let Self { signing, output, declared_endpoint, name, expires_in, tenants, out } = self;
        let Some(body) = signing.body(output, Some(operation))? else { return Ok(()) };
        let path = format!("/keys/{}", operation.name());
        let body = with(with(body, "declaredEndpoint", declared_endpoint), "name", name);
        let body = with(with(body, "expiresIn", expires_in), "tenants", tenants);
        let body = with(body, "graceSeconds", grace_seconds);
        let replaces = operation == KeyOperation::Rotate;
        let file = out.as_deref().map(|path| KeyFile::create(path, replaces)).transpose()?;
        let answer = signing.service.ask(output, Method::POST, &path, Some(body))?;
        let Some(file) = file else {
            // A reader that has gone has no key.
            let written = write(format_args!("{}", output.text(&answer)));
            return written.map_err(|error| Failure::new(error).with_key_unsure());
        };
        file.keep(answer.get("apiKey").and_then(Value::as_str).unwrap_or_default())?;
        output.print(&json!({ "agentId": answer.get("agentId"), "file": out.map(|path| path.to_string_lossy().into_owned()) }))
    }
}
