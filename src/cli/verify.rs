//! `tiergate verify`: an agent's verification at a running service, by API key or by owner signature.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::json;

use crate::cli::output::{Output, with};
use crate::cli::{Failure, secret, signing::Signing};

/// The variable with the API key, read when no file is named.
const API_KEY_VARIABLE: &str = "TIERGATE_API_KEY";

/// Verify an agent at a running service.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/verify.txt"))]
#[command(mut_arg("agent_id", |id| id.help("The agent's id: with an API key, the agent that the key must belong to")))]
#[command(mut_group("agent", |agent| agent.required(false)))]
#[command(mut_group("OwnerKey", |owner_key| owner_key.requires("by_signature")))]
#[command(mut_group("Elsewhere", |elsewhere| elsewhere.requires("by_signature")))]
pub(super) struct Verify {
    /// File with the API key; - is standard input. Without it the key is read from TIERGATE_API_KEY.
    #[arg(long, value_name = "FILE", conflicts_with = "by_signature")]
    api_key_file: Option<PathBuf>,
    /// The application origin to compare with the endpoint declared for the key.
    #[arg(long, value_name = "URL", conflicts_with = "by_signature")]
    origin: Option<String>,
    /// Verify with an owner signature instead of an API key. A key or signature of the owner needs this flag.
    #[arg(long)]
    by_signature: bool,
    #[command(flatten)]
    signing: Signing,
    /// How to print the answer.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Verify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (path, body) = if self.by_signature {
            ("/verify/signature", self.signing.body(self.output, None)?)
        } else {
            let key = secret::read(self.api_key_file.as_deref(), "api-key", API_KEY_VARIABLE)?;
            let body = json!({ "apiKey": key.trim() });
            let body = with(body, "agentId", self.signing.agent_id.map(|agent| agent.to_string()));
            ("/verify", Some(with(body, "origin", self.origin)))
        };
        let Some(body) = body else { return Ok(()) };
        self.output.print(&self.signing.service.ask(self.output, Method::POST, path, Some(body))?)
    }
}
