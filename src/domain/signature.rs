//! Signatures: 65 bytes of a key, of which only the canonical form recovers a signer (contract, "Signed request"), or
//! longer ones that only a contract wallet understands.
//!
//! Libraries normalise and accept more forms than one; a second valid form of the same signature is a second request
//! for whoever compares signatures. So form is checked here, before the library sees it.

use std::{fmt, sync::Arc};

use alloy::primitives::{Address, B256, Signature, U256, hex, uint};

/// The length of a key's signature.
const KEY_SIGNATURE_BYTES: usize = 65;

/// The longest signature for a contract wallet: 63 owners with 65 bytes each, or several passkeys.
const CONTRACT_SIGNATURE_BYTES_MAX: usize = 4096;

/// The order of secp256k1's group (SEC 2, section 2.4.1).
const CURVE_ORDER: U256 = uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);

/// The largest s that counts as low (EIP-2): half the order.
const LOW_S_MAX: U256 = uint!(0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0_U256);

/// The end of a signature that says how to deploy its account (ERC-6492).
const DEPLOYS: [u8; 32] = hex!("6492649264926492649264926492649264926492649264926492649264926492");

/// The signatures that are well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFormat {
    /// 65 bytes.
    Keys,
    /// 65 to 4096 bytes, because contract wallets are asked too.
    Contracts,
}

impl SignatureFormat {
    /// Reads `0x` and two hex characters for each byte.
    /// Error: a phrase that says what the text should be.
    pub fn parse(self, text: &str) -> Result<SignatureBytes, &'static str> {
        let (bytes_max, problem) = match self {
            _ if text.len() == 130 => {
                (0, "is compact (ERC-2098); write 0x and 130 hex characters, v at the end")
            }
            Self::Keys => (KEY_SIGNATURE_BYTES, "is not 0x and 130 hex characters"),
            Self::Contracts => {
                (CONTRACT_SIGNATURE_BYTES_MAX, "is not 0x and 130 to 8192 hex characters, two for each byte")
            }
        };
        SignatureBytes::parse(text, bytes_max).ok_or(problem)
    }

    /// True if contract wallets are asked.
    pub const fn has_contracts(self) -> bool {
        matches!(self, Self::Contracts)
    }
}

/// Bytes that claim to be a signature.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureBytes(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    /// r, s and v.
    Key([u8; KEY_SIGNATURE_BYTES]),
    /// Any other: of a contract wallet; and true if it stood in a wrapper that says how to deploy the wallet (ERC-6492).
    Long(Arc<[u8]>, bool),
}

impl SignatureBytes {
    fn parse(text: &str, bytes_max: usize) -> Option<Self> {
        let digits = text.strip_prefix("0x")?;
        let mut bytes = [0; KEY_SIGNATURE_BYTES];
        if digits.len() == 2 * bytes.len() {
            hex::decode_to_slice(digits, &mut bytes).ok()?;
            return Some(Self(Form::Key(bytes)));
        }
        let bytes = hex::decode(Some(digits).filter(|digits| digits.len() <= 2 * bytes_max)?).ok()?;
        // The library would pass over a second 0x.
        Self::of_contract(&bytes).filter(|_| 2 * bytes.len() == digits.len())
    }

    /// One for a contract wallet, out of its wrapper. Shorter ones than a key's count nowhere: an empty one says that the wallet
    /// has approved the digest on the chain, where everybody sees it.
    fn of_contract(bytes: &[u8]) -> Option<Self> {
        let wrapper = bytes.strip_suffix(&DEPLOYS);
        let own = wrapper.map_or(Some(bytes), wrapped).filter(|own| own.len() >= KEY_SIGNATURE_BYTES)?;
        Some(Self(Form::Long(own.into(), wrapper.is_some())))
    }

    /// The signature made of these bytes.
    pub const fn from_bytes(bytes: [u8; KEY_SIGNATURE_BYTES]) -> Self {
        Self(Form::Key(bytes))
    }

    /// The signature of an HTTP message. A key's has v as 27 or 28.
    pub fn of_message(bytes: &[u8]) -> Option<Self> {
        match <[u8; KEY_SIGNATURE_BYTES]>::try_from(bytes) {
            Ok(key @ [.., 27 | 28]) => Some(Self(Form::Key(key))),
            Ok(_) | Err(_) => Self::of_contract(bytes),
        }
    }

    /// True if it says how to deploy its account, which may not be there yet.
    pub const fn deploys_account(&self) -> bool {
        matches!(self.0, Form::Long(_, true))
    }

    /// All of its bytes, without a wrapper.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Key(bytes) => bytes,
            Form::Long(bytes, _) => bytes,
        }
    }

    /// The key's address that signed `digest`; `None` when the form is not canonical or no signer exists.
    pub fn recover(&self, digest: &B256) -> Option<Address> {
        let Form::Key(bytes) = &self.0 else { return None };
        let [r @ .., _] = bytes;
        let (r, s) = r.split_at_checked(32)?;
        let (r, s) = (U256::try_from_be_slice(r)?, U256::try_from_be_slice(s)?);
        let [.., v] = *bytes;
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

/// The signature in a wrapper, the last of an address and two texts of bytes (ERC-6492; ABI).
fn wrapped(wrapper: &[u8]) -> Option<&[u8]> {
    let number = |bytes: &[u8]| usize::try_from(U256::try_from_be_slice(bytes.get(..32)?)?).ok();
    let signature = wrapper.get(number(wrapper.get(64..)?)?..)?;
    signature.get(32..)?.get(..number(signature)?)
}

impl fmt::Debug for SignatureBytes {
    /// An unused signature is a credential.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SignatureBytes(…)")
    }
}
