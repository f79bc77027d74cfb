//! The 65-byte signature: only its canonical form recovers a signer (contract, "Signed request").
//!
//! Libraries normalise and accept more forms than one; a second valid form of the same signature is a second request
//! for whoever compares signatures. So form is checked here, before the library sees it.

use std::fmt;

use alloy::primitives::{Address, B256, Signature, U256, hex, uint};

/// How many hex characters follow `0x`.
pub const SIGNATURE_HEX_DIGITS: usize = 130;

/// The order of secp256k1's group (SEC 2, section 2.4.1).
const CURVE_ORDER: U256 = uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);

/// The largest s that counts as low (EIP-2): half the order.
const LOW_S_MAX: U256 = uint!(0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0_U256);

/// Sixty-five bytes that claim to be a signature: r, s and v.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SignatureBytes([u8; 65]);

impl SignatureBytes {
    /// Reads `0x` and 130 hex characters, or nothing when the text has another shape.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x")?;
        let mut bytes = [0; 65];
        if digits.len() != SIGNATURE_HEX_DIGITS {
            return None;
        }
        hex::decode_to_slice(digits, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The signature made of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 65]) -> Self {
        Self(bytes)
    }

    /// Who signed `digest`; nothing when the form is not canonical or no signer exists.
    #[must_use]
    pub fn recover(&self, digest: &B256) -> Option<Address> {
        let [r @ .., _] = &self.0;
        let (r, s) = r.split_at_checked(32)?;
        let (r, s) = (U256::try_from_be_slice(r)?, U256::try_from_be_slice(s)?);
        let [.., v] = self.0;
        let odd_y = match v {
            0 | 27 => false,
            1 | 28 => true,
            _ => return None,
        };
        let in_range = !r.is_zero() && r < CURVE_ORDER && !s.is_zero() && s <= LOW_S_MAX;
        if !in_range {
            return None;
        }
        Signature::new(r, s, odd_y).recover_address_from_prehash(digest).ok()
    }
}

impl fmt::Debug for SignatureBytes {
    /// An unused signature is a credential.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SignatureBytes(…)")
    }
}
