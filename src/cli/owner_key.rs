//! The owner's private key.

use std::path::PathBuf;

use alloy::primitives::{B256, hex};
use alloy::signers::local::PrivateKeySigner;
use zeroize::Zeroizing;

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
        parse(&text).ok_or_else(|| {
            let place = self.key_file.as_ref().map_or(KEY_VARIABLE.into(), |file| file.to_string_lossy());
            Failure::new(format!("{place} does not hold a private key of 64 hex characters"))
        })
    }
}

fn parse(text: &str) -> Option<PrivateKeySigner> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let mut bytes = Zeroizing::new([0_u8; 32]);
    if digits.len() != 64 {
        return None;
    }
    hex::decode_to_slice(digits, bytes.as_mut_slice()).ok()?;
    PrivateKeySigner::from_bytes(&B256::from(*bytes)).ok()
}
