//! The API key (contract, "API key"): a prefix and 64 lowercase hex characters, shown once, stored as a digest.

use std::fmt;

use alloy::primitives::hex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// How many hex characters follow the prefix.
pub const KEY_HEX_DIGITS: usize = 64;

/// What an API key looks like: the configured prefix, then [`KEY_HEX_DIGITS`] lowercase hex characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyFormat {
    prefix: String,
}

impl ApiKeyFormat {
    /// The format with this prefix, `svc_live_v1_` in the contract.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The prefix that every key of this service begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The digest of a key, without a copy of it; nothing when the text does not have the format.
    pub fn digest(&self, text: &[u8]) -> Option<KeyDigest> {
        let secret = text.strip_prefix(self.prefix.as_bytes())?;
        // Without branches, so that it is compiled to vector instructions.
        let is_hex = |is_hex, byte: &u8| is_hex & matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_key = secret.len() == KEY_HEX_DIGITS && secret.iter().fold(true, is_hex);
        is_key.then(|| KeyDigest(Sha256::digest(text).into()))
    }

    /// Makes the key that these random bytes stand for.
    pub fn mint(&self, random: [u8; 32]) -> ApiKey {
        let secret = Zeroizing::new(hex::encode(random));
        ApiKey(Zeroizing::new(format!("{}{}", self.prefix, secret.as_str())))
    }
}

/// A whole API key. It has no `Display` and its `Debug` shows nothing, so that it can't slip into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// What is stored and looked up instead of the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The key itself, for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ApiKey(…)")
    }
}

/// SHA-256 of a whole key. Equality takes the same time wherever two digests differ.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest's bytes, for stores.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The digest that [`Self::to_bytes`] wrote.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest as numbers, each of which is a hash of the key that nobody can choose.
    pub fn words(&self) -> [u64; 4] {
        let word = |place: usize| self.0.as_chunks().0.get(place).copied().map_or(0, u64::from_le_bytes);
        [word(0), word(1), word(2), word(3)]
    }
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.words(), other.words());
        let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
        differences.ct_eq(&0).into()
    }
}

impl Eq for KeyDigest {}

/// A digest is its own hash: nobody chooses it.
impl std::hash::Hash for KeyDigest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let [hash, ..] = self.words();
        state.write_u64(hash);
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeyDigest(…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{ApiKeyFormat, KeyDigest};

    fn format() -> ApiKeyFormat {
        ApiKeyFormat::new("svc_live_v1_")
    }

    // threat: Credentials upstream, in logs, metrics or traces
    #[test]
    fn neither_a_key_nor_its_digest_shows_itself_when_debugged() {
        let key = format().mint([0xab; 32]);
        assert_eq!(format!("{key:?} {:?}", key.digest()), "ApiKey(…) KeyDigest(…)");
    }

    #[test]
    fn the_digest_is_sha256_of_the_whole_key() {
        // printf 'svc_live_v1_00…00' | sha256sum
        let digest = format().mint([0; 32]).digest();
        assert_eq!(
            alloy::primitives::hex::encode(digest.to_bytes()),
            "294409f8680be717e4a4ec8665811ae513e32301fdbdfa3291fef11a4ac9a882"
        );
    }

    #[test]
    fn digests_that_differ_in_one_bit_differ_wherever_it_is() {
        let digest = KeyDigest::from_bytes([0xa5; 32]);
        for bit in 0..256 {
            let mut bytes = digest.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(KeyDigest::from_bytes(bytes), digest);
        }
        assert_eq!(KeyDigest::from_bytes([0xa5; 32]), digest);
    }

    proptest! {
        #[test]
        fn every_minted_key_has_the_format_and_keeps_its_digest(random in any::<[u8; 32]>()) {
            let minted = format().mint(random);
            prop_assert_eq!(format().digest(minted.reveal().as_bytes()), Some(minted.digest()));
        }
    }
}
