//! The owner's private key: in hex, or in an encrypted keystore.

use std::path::PathBuf;

use alloy::signers::local::PrivateKeySigner;
use zeroize::Zeroizing;

use crate::cli::keystore::Keystore;
use crate::cli::{Failure, secret};

/// The variable with the key, read when no file is named.
const KEY_VARIABLE: &str = "TIERGATE_OWNER_KEY";

/// The variable with a keystore's password, read when no file is named.
const PASSWORD_VARIABLE: &str = "TIERGATE_KEYSTORE_PASSWORD";

/// The flags for the owner's private key.
#[derive(clap::Args)]
#[command(next_help_heading = "Owner's key")]
pub(super) struct OwnerKey {
    /// File with the owner's private key: in hex, or an encrypted keystore (Web3 secret storage); - is standard
    /// input. Without it the key is read from TIERGATE_OWNER_KEY.
    #[arg(long, value_name = "FILE")]
    owner_key_file: Option<PathBuf>,
    /// File with the keystore's password; - is standard input. Without it the password is read from TIERGATE_KEYSTORE_PASSWORD, or asked for at
    /// the terminal.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl OwnerKey {
    /// Reads the key.
    pub(super) fn signer(&self) -> Result<PrivateKeySigner, Failure> {
        let text = secret::read(self.owner_key_file.as_deref(), "owner-key", KEY_VARIABLE)?;
        let text = text.trim();
        let place = self.owner_key_file.as_deref().map_or(KEY_VARIABLE.into(), secret::place);
        let unusable = |problem: &str| Failure::new(format!("{place}: {problem}"));
        if text.starts_with('{') {
            let keystore = Keystore::parse(text).map_err(unusable)?;
            return keystore.unlock(&self.password(&place)?).map_err(unusable);
        }
        text.parse().map_err(|_| unusable("holds neither a private key of 64 hex characters nor a keystore"))
    }

    /// The password, without a line end behind it.
    fn password(&self, place: &str) -> Result<Zeroizing<String>, Failure> {
        match secret::read(self.password_file.as_deref(), "password", PASSWORD_VARIABLE) {
            Err(nowhere) if self.password_file.is_none() => {
                let asked = rpassword::prompt_password(format!("Password of {place}: "));
                asked.map(Zeroizing::new).map_err(|_| nowhere)
            }
            read => Ok(Zeroizing::new(read?.trim_end_matches(['\r', '\n']).to_owned())),
        }
    }
}
