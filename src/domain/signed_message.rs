//! HTTP messages that an account signed (ERC-8128): one signature to be proven, and why one is refused.

use alloy::primitives::{Address, B256};

use crate::domain::{nonce::NonceClaim, signature::SignatureBytes};

/// How far clocks may differ, in seconds.
pub(crate) const SKEW_SECS: u64 = 30;

/// How long each service has to let a signature be good for, in seconds.
pub(crate) const VALIDITY_SECS_MIN: u64 = 60;

/// One signature over a request that is right but for its account and its cryptography, which only the chain can tell.
#[derive(Debug, Clone)]
pub struct SignedMessage {
    /// The account that the signature names.
    pub account: Address,
    /// The hash that the account has to have signed.
    pub digest: B256,
    /// The signature.
    pub signature: SignatureBytes,
    /// Its nonce, and when it was made.
    pub claim: NonceClaim,
}

/// Why a signature over a request is refused (ERC-8128, section 6). `replayable_not_allowed` is lacking: it is for
/// services that take signatures without a nonce somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MessageRefusal {
    /// A signature field is absent.
    SignatureMissing,
    /// A signature field can't be read, or a signature has no bytes.
    SignatureInputInvalid,
    /// A field, a signature or a list is too long.
    SignatureTooLarge,
    /// No signature has the tag.
    NoAcceptableSignature,
    /// The account is not named as it has to be.
    InvalidKeyid,
    /// The account is on another chain.
    UnsupportedChain,
    /// The account is a contract, and contracts are not asked, or is not deployed yet.
    UnsupportedAccount,
    /// The times are missing, no integers, or out of order.
    InvalidTime,
    /// The signature is of the future.
    RequestNotYetValid,
    /// The signature has expired.
    RequestExpired,
    /// The signature is good for too long.
    RequestValidityTooLong,
    /// The nonce is no text, or too long.
    InvalidNonce,
    /// A part that must be signed is not.
    InsufficientCoverage,
    /// There is a body, and no digest of it.
    ContentDigestRequired,
    /// The digest can't be read, or is not that of the body.
    BadContentDigest,
    /// There is no nonce.
    NonceRequired,
    /// The nonce was used before.
    NonceReused,
    /// The signature names an algorithm, and the account alone decides that.
    UnsupportedAlgorithm,
    /// The account did not sign this request.
    BadSignature,
    /// The signature is a compact one, which is read nowhere.
    #[strum(serialize = "bad_signature")]
    Compact,
    /// The chain can't be read, or used nonces may have been lost.
    #[strum(serialize = "signature_verification_unavailable")]
    VerificationUnavailable,
    /// The account may not act for the agent.
    PrincipalNotAllowed,
}

impl MessageRefusal {
    /// Its stable name.
    pub fn code(self) -> &'static str {
        self.into()
    }
}
