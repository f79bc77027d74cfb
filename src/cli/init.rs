//! `tiergate init`: a configuration to begin with.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use crate::cli::{Failure, say};
use crate::config::chain::contract;

/// Write a small configuration file to begin with.
#[derive(clap::Args)]
pub(super) struct Init {
    /// The file. One that exists is left alone.
    #[arg(default_value = "tiergate.toml")]
    file: PathBuf,
    /// The address of the identity registry [default: to be filled in].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    identity: Option<String>,
    /// The address of the stake vault [default: to be filled in].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    stake_vault: Option<String>,
}

impl Init {
    /// Writes the file.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut text = include_str!("init.toml").to_owned();
        for (key, address) in [("identity", &self.identity), ("stake_vault", &self.stake_vault)] {
            if let Some(address) = address {
                text = text.replace(&format!("# {key} = \"0x...\""), &format!("{key} = \"{address}\""));
            }
        }
        let file = self.file.display();
        let written = File::create_new(&self.file).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|cause| Failure::new(format!("cannot create {file}: {cause}")))?;
        say(format_args!("{file}: written. Look through it, and try it with: tiergate check --config {file}"))
    }
}

/// An address that `check` takes, as it is written: to write its checksum anew would hide a typing error.
fn address(text: &str) -> Result<String, String> {
    contract(text).map(|_| text.to_owned())
}
