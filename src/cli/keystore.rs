//! Encrypted keystores (Web3 secret storage, version 3), as geth, Foundry and other tools write them.
//!
//! The file says how much memory and time its key derivation takes, so that is bounded before the derivation begins.

use aes::Aes128;
use alloy::primitives::{B128, B256, Bytes, Keccak256};
use alloy::signers::local::PrivateKeySigner;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use pbkdf2::pbkdf2_hmac;
use serde::Deserialize;
use sha2::Sha256;
use zeroize::Zeroizing;

/// The most blocks of 128 bytes that scrypt may pass through: 512 MiB, twice what geth asks for.
const SCRYPT_BLOCKS_MAX: u64 = 1 << 22;

/// The most rounds of PBKDF2: some seconds.
const PBKDF2_ROUNDS_MAX: u32 = 10_000_000;

/// How many bytes of the derived key are used.
const DERIVED_BYTES: usize = 32;

/// An encrypted private key.
#[derive(Deserialize)]
pub(super) struct Keystore {
    version: u32,
    #[serde(alias = "Crypto")]
    crypto: Crypto,
}

#[derive(Deserialize)]
struct Crypto {
    cipher: String,
    cipherparams: CipherParams,
    ciphertext: B256,
    #[serde(flatten)]
    derivation: Derivation,
    mac: B256,
}

#[derive(Deserialize)]
struct CipherParams {
    iv: B128,
}

/// How the password becomes a key.
#[derive(Deserialize)]
#[serde(tag = "kdf", content = "kdfparams", rename_all = "lowercase")]
enum Derivation {
    Scrypt { n: u64, r: u32, p: u32, dklen: usize, salt: Bytes },
    Pbkdf2 { c: u32, prf: String, dklen: usize, salt: Bytes },
}

impl Keystore {
    /// Reads a keystore, or says why it can't be used.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        // The parser's own error might show a part of the file.
        let keystore: Self = serde_json::from_str(text)
            .map_err(|_| "is JSON, but no keystore of version 3 with a private key (Web3 secret storage)")?;
        if keystore.version != 3 || keystore.crypto.cipher != "aes-128-ctr" {
            return Err("is a keystore of another version than 3, or of another cipher than aes-128-ctr");
        }
        keystore.crypto.derivation.check()?;
        Ok(keystore)
    }

    pub(super) fn unlock(&self, password: &str) -> Result<PrivateKeySigner, &'static str> {
        let Crypto { cipherparams, ciphertext, derivation, mac, .. } = &self.crypto;
        let derived = derivation.derive(password.as_bytes())?;
        let (cipher_key, mac_key) = derived.split_at(DERIVED_BYTES / 2);
        let mut hasher = Keccak256::new();
        hasher.update(mac_key);
        hasher.update(ciphertext);
        if hasher.finalize() != *mac {
            return Err("the password is not that of this keystore");
        }
        let mut key = Zeroizing::new(ciphertext.0);
        let unusable = "does not hold a private key";
        let cipher = Ctr128BE::<Aes128>::new_from_slices(cipher_key, cipherparams.iv.as_slice());
        cipher.map_err(|_| unusable)?.apply_keystream(key.as_mut_slice());
        PrivateKeySigner::from_slice(key.as_slice()).map_err(|_| unusable)
    }
}

impl Derivation {
    fn check(&self) -> Result<(), &'static str> {
        let (dklen, is_within, is_known) = match self {
            Self::Scrypt { n, r, p, dklen, .. } => {
                let blocks = n.saturating_mul(u64::from(*r)).saturating_mul(u64::from(*p));
                (dklen, blocks <= SCRYPT_BLOCKS_MAX, n.is_power_of_two() && *n > 1)
            }
            Self::Pbkdf2 { c, prf, dklen, .. } => (dklen, *c <= PBKDF2_ROUNDS_MAX, prf == "hmac-sha256"),
        };
        if !is_within {
            return Err("asks for more memory or time than any wallet's keystore needs");
        }
        if !is_known || *dklen < DERIVED_BYTES {
            return Err("asks for a key derivation that is not known");
        }
        Ok(())
    }

    /// The first bytes of the derived key, which are the same for every length.
    fn derive(&self, password: &[u8]) -> Result<Zeroizing<[u8; DERIVED_BYTES]>, &'static str> {
        let mut derived = Zeroizing::new([0; DERIVED_BYTES]);
        match self {
            Self::Scrypt { n, r, p, salt, .. } => {
                let log_n = u8::try_from(n.ilog2()).unwrap_or(u8::MAX);
                let unknown = "asks for a key derivation that is not known";
                let params = scrypt::Params::new(log_n, *r, *p).map_err(|_| unknown)?;
                scrypt::scrypt(password, salt, &params, derived.as_mut_slice()).map_err(|_| unknown)?;
            }
            Self::Pbkdf2 { c, salt, .. } => {
                pbkdf2_hmac::<Sha256>(password, salt, *c, derived.as_mut_slice());
            }
        }
        Ok(derived)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::address;
    use serde_json::{Value, json};

    use super::Keystore;

    /// Written by eth-account, with a throw-away key and few rounds.
    const SCRYPT: &str = include_str!("../../tests/fixtures/keystore-scrypt.json");
    const PBKDF2: &str = include_str!("../../tests/fixtures/keystore-pbkdf2.json");

    fn changed(text: &str, pointer: &str, value: Value) -> String {
        let mut keystore: Value = serde_json::from_str(text).unwrap();
        *keystore.pointer_mut(pointer).unwrap() = value;
        keystore.to_string()
    }

    #[test]
    fn a_keystore_of_either_kind_opens_with_its_password_alone() {
        let owner = address!("0x2c7536E3605D9C16a7a3D7b1898e529396a65c23");
        for text in [SCRYPT, PBKDF2, &SCRYPT.replace("\"crypto\"", "\"Crypto\"")] {
            let keystore = Keystore::parse(text).unwrap();
            assert_eq!(keystore.unlock("correct horse").unwrap().address(), owner);
            for wrong in ["", "correct", "correct horse "] {
                assert_eq!(keystore.unlock(wrong).err(), Some("the password is not that of this keystore"));
            }
        }
    }

    #[test]
    fn what_a_hostile_file_asks_for_is_refused_before_any_of_it_is_done() {
        let scrypt = "/crypto/kdfparams";
        let too_much = "more memory or time";
        let unknown = "not known";
        for (text, pointer, value, problem) in [
            (SCRYPT, "/crypto/kdfparams/n", json!(1_u64 << 20), too_much),
            (SCRYPT, "/crypto/kdfparams/n", json!(1_u64 << 63), too_much),
            (SCRYPT, "/crypto/kdfparams/r", json!(u32::MAX), too_much),
            (SCRYPT, "/crypto/kdfparams/p", json!(u32::MAX), too_much),
            (PBKDF2, "/crypto/kdfparams/c", json!(u32::MAX), too_much),
            (SCRYPT, "/crypto/kdfparams/n", json!(3), unknown),
            (SCRYPT, "/crypto/kdfparams/n", json!(1), unknown),
            (SCRYPT, "/crypto/kdfparams/n", json!(0), unknown),
            (SCRYPT, "/crypto/kdfparams/dklen", json!(31), unknown),
            (PBKDF2, "/crypto/kdfparams/prf", json!("hmac-md5"), unknown),
            (SCRYPT, "/crypto/kdf", json!("argon2"), "no keystore"),
            (SCRYPT, "/crypto/cipherparams/iv", json!("00"), "no keystore"),
            (SCRYPT, "/crypto/ciphertext", json!("00"), "no keystore"),
            (SCRYPT, scrypt, json!({}), "no keystore"),
            (SCRYPT, "/crypto/cipher", json!("aes-256-ctr"), "another cipher"),
            (SCRYPT, "/version", json!(4), "another version"),
        ] {
            let refused = Keystore::parse(&changed(text, pointer, value.clone())).err().unwrap();
            assert!(refused.contains(problem), "{pointer} {value}: {refused}");
        }
        // No round at all, and blocks of no size: the libraries' own rules.
        for (pointer, text) in [
            ("/crypto/kdfparams/r", SCRYPT),
            ("/crypto/kdfparams/p", SCRYPT),
            ("/crypto/kdfparams/c", PBKDF2),
        ] {
            let opened = Keystore::parse(&changed(text, pointer, json!(0)))
                .and_then(|keystore| keystore.unlock("correct horse"));
            assert!(opened.is_err(), "{pointer}");
        }
    }
}
