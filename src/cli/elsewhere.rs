//! Signing in two steps, for owners whose key is in a wallet, a Ledger or a Safe: one run prints the typed data, the next
//! reads it again, with its signature. An unused signature is a credential, so it is no argument.

use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::cli::{Failure, complain, output::quoted, say, secret, typed_data::Request};
use crate::domain::{Freshness, SignatureFormat};
use crate::files::{self, SECRET_BYTES_MAX};
use crate::wire::answers::rfc3339;

/// The flags of both steps.
#[derive(clap::Args)]
#[command(next_help_heading = "Signing elsewhere, in two steps")]
pub(super) struct Elsewhere {
    /// Print the typed data (EIP-712) for a wallet, a Ledger or a Safe to sign, and send nothing.
    #[arg(long, conflicts_with_all = ["owner_key_file", "password_file"])]
    pub(super) typed_data: bool,
    /// File with the typed data that was signed elsewhere.
    #[arg(long, value_name = "FILE", requires = "signature", conflicts_with_all = ["typed_data", "owner_key_file", "password_file"])]
    signed: Option<PathBuf>,
    /// File with the signature of it; - reads it from standard input.
    #[arg(long, value_name = "FILE", requires = "signed")]
    signature: Option<PathBuf>,
}

/// The typed data of the first step, with its signature.
pub(super) struct Signed {
    /// The file of the typed data, for people.
    pub(super) file: String,
    pub(super) request: Request,
    pub(super) signature: Zeroizing<String>,
}

impl Elsewhere {
    /// Reads both files in the second step.
    pub(super) fn signed(&self) -> Result<Option<Signed>, Failure> {
        let Some((file, signature)) = self.signed.as_ref().zip(self.signature.as_ref()) else {
            return Ok(None);
        };
        let (read, file) = (files::text_or_pipe(file, SECRET_BYTES_MAX), file.display().to_string());
        let text = read.map_err(|why| format!("{file}: {why}"))?;
        let typed = serde_json::from_str(&text).map_err(|why| format!("{file} is not JSON: {why}"))?;
        let request = Request::read(&typed).ok_or_else(|| {
            Failure::new(format!("{file} is not what --typed-data prints: its types or fields differ"))
        })?;
        let (text, place) = (secret::text(signature, "Paste the signature: ")?, secret::place(signature));
        let signature = Zeroizing::new(text.trim().to_owned());
        if let Err(problem) = SignatureFormat::Contracts.parse(&signature) {
            return Err(Failure::new(format!("{place} does not hold a signature: it {problem}")));
        }
        Ok(Some(Signed { file, request, signature }))
    }
}

/// Prints the typed data, and on standard error what it means and the command that follows.
pub(super) fn print(request: &Request, window: Option<Freshness>) -> Result<(), Failure> {
    say(format_args!("{:#}", request.typed_data()))?;
    let Request { purpose, agent, nonce, timestamp } = request;
    let aim = match &purpose.own_type {
        None => "verify the agent, or to generate, rotate or revoke its key",
        Some(own_type) => &format!("{} its key", own_type.operation.name()),
    };
    let within = window.map(|window| format!(" within {} s", window.max_age_secs)).unwrap_or_default();
    // The command line of this run, with the arguments of the second step. A pipe brings the signature: no file holds it.
    let next = std::env::args_os().map(|argument| match &*argument.to_string_lossy() {
        "--typed-data" => "--signed request.json --signature -".to_owned(),
        other => quoted(other),
    });
    let next: Vec<String> = next.collect();
    complain(format_args!(
        "\
to be signed by the owner of agent {agent}, for one request: to {aim}
  domain     {purpose}
  nonce      {nonce}
  timestamp  {} ({})
Keep it in request.json, and send it with its signature{within}. Keep the signature secret until then. With a Ledger:
  cast wallet sign --ledger --data --from-file request.json | {}",
        timestamp.0,
        rfc3339(*timestamp),
        next.join(" ")
    ));
    Ok(())
}
