//! The owner's private key.

use std::path::PathBuf;

use alloy::signers::local::PrivateKeySigner;

use crate::cli::{Failure, secret};

/// Where the key may stand when no file is named.
const KEY_VARIABLE: &str = "TIERGATE_OWNER_KEY";

/// Where the owner's private key is.
#[derive(clap::Args)]
pub(super) struct OwnerKey {
    /// File with the owner's private key in hex. Without it the key is read from TIERGATE_OWNER_KEY.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl OwnerKey {
    /// Reads the key.
    pub(super) fn signer(&self) -> Result<PrivateKeySigner, Failure> {
        let text = secret::read(self.key_file.as_deref(), "--key-file", KEY_VARIABLE)?;
        text.trim().parse().map_err(|_| {
            let place = self.key_file.as_ref().map_or(KEY_VARIABLE.into(), |file| file.to_string_lossy());
            Failure::new(format!("{place} does not hold a private key of 64 hex characters"))
        })
    }
}
