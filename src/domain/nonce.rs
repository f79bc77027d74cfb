//! The nonce of a signed request: usable once per agent (contract, "Authentication", rule 2).

use std::fmt;

use alloy::primitives::{Keccak256, U256};

use crate::domain::freshness::UnixSeconds;
use crate::domain::uint256::{self, NotUint256};

/// A nonce as the number that was signed. Two texts that stand for one number are one nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(U256);

impl Nonce {
    /// Parses a decimal string.
    pub fn parse(text: &str) -> Result<Self, NotUint256> {
        uint256::parse_decimal(text).map(Self)
    }

    /// The nonce with this value.
    pub const fn new(value: U256) -> Self {
        Self(value)
    }

    /// The nonce of a signed HTTP message, by the account that it names: a nonce is that account's own.
    pub fn of_message(keyid: &str, nonce: &str) -> Self {
        let mut hasher = Keccak256::new();
        // No name holds a zero byte.
        [keyid.as_bytes(), b"\0", nonce.as_bytes()].into_iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }

    /// The number that is signed.
    pub const fn value(self) -> U256 {
        self.0
    }

    /// The nonce as 32 bytes, most significant first: how stores write it.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Nonce {
    /// The canonical decimal form, without zeros in front.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// The right to use a nonce, to be spent in the same atomic step as what it was signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonceClaim {
    /// The nonce to spend.
    pub nonce: Nonce,
    /// The signature's own timestamp. A store that has forgotten nonces refuses signatures that may be older than
    /// what it forgot.
    pub signed_at: UnixSeconds,
}
