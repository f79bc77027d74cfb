//! `tiergate keys`: an agent's API key at a running service.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::client::Service;
use crate::cli::output::{Output, with};
use crate::cli::signing::Signing;
use crate::cli::{Failure, secret};
use crate::domain::agent_id::AgentId;
use crate::domain::eip712::KeyOperation;

/// Generate, rotate, revoke or look up an agent's API key at a running service.
#[derive(clap::Subcommand)]
pub(super) enum Keys {
    /// Make the agent's API key and print it, once, or keep it in a file.
    Generate(NewKey),
    /// Replace the agent's API key; the old one is invalid at once.
    Rotate(NewKey),
    /// Revoke the agent's API key.
    Revoke(Change),
    /// Say whether the agent has an API key.
    Status(Status),
}

/// A key to be changed.
#[derive(clap::Args)]
pub(super) struct Change {
    #[command(flatten)]
    signing: Signing,
    /// How to print the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// A key to be made.
#[derive(clap::Args)]
pub(super) struct NewKey {
    #[command(flatten)]
    change: Change,
    /// The application endpoint that the key is for.
    #[arg(long, value_name = "URL")]
    declared_endpoint: Option<String>,
    /// Write the key to this new file, which its owner alone can read, and don't print it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A look-up.
#[derive(clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    service: Service,
    /// The agent's id.
    #[arg(long, value_name = "N", value_parser = AgentId::parse)]
    agent_id: AgentId,
    /// How to print the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Keys {
    /// Asks the service and prints its answer.
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Generate(new) => new.send(KeyOperation::Generate),
            Self::Rotate(new) => new.send(KeyOperation::Rotate),
            Self::Revoke(Change { signing, output }) => {
                let body = signing.body(Some(KeyOperation::Revoke))?;
                let Some(body) = body else { return Ok(()) };
                output.print(&signing.service.ask(output, Method::DELETE, "/keys", Some(body))?)
            }
            Self::Status(Status { service, agent_id, output }) => {
                let path = format!("/keys/status?agentId={agent_id}");
                output.print(&service.ask(output, Method::GET, &path, None)?)
            }
        }
    }
}

impl NewKey {
    fn send(self, operation: KeyOperation) -> Result<(), Failure> {
        let Self { change: Change { signing, output }, declared_endpoint, out } = self;
        let Some(body) = signing.body(Some(operation))? else { return Ok(()) };
        let path = format!("/keys/{}", operation.name());
        let body = with(body, "declaredEndpoint", declared_endpoint);
        let ask = || signing.service.ask(output, Method::POST, &path, Some(body));
        match out {
            Some(file) => output.print(&kept_in(&file, ask)?),
            None => output.print(&ask()?),
        }
    }
}

/// The answer with its key in a file instead. The file is there before the key is made, and goes if none is.
fn kept_in(path: &Path, ask: impl FnOnce() -> Result<Value, Failure>) -> Result<Value, Failure> {
    let mut file = secret::create(path)?;
    let kept = ask().and_then(|answer| {
        let key = answer.get("apiKey").and_then(Value::as_str).unwrap_or_default();
        let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
        written.map_err(|cause| {
            let path = path.display();
            Failure::new(format!("a key was made and can't be kept in {path}: {cause}; rotate it"))
        })?;
        Ok(json!({ "agentId": answer.get("agentId"), "file": path.to_string_lossy() }))
    });
    if kept.is_err() {
        let _ = std::fs::remove_file(path);
    }
    kept
}
