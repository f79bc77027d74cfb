//! HTTP messages that an account signed (ERC-8128): one signature to be proven, and why one is refused.

use alloy::primitives::{Address, B256};

use crate::domain::nonce::NonceClaim;
use crate::domain::signature::SignatureBytes;

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

/// Refusals by their names.
macro_rules! refusals {
    ($($(#[$doc:meta])* $id:ident $code:literal,)*) => {
        /// Why a signature over a request is refused (ERC-8128, section 6). `replayable_not_allowed` is lacking: it is for
        /// services that take signatures without a nonce somewhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MessageRefusal {
            $($(#[$doc])* $id,)*
        }

        impl MessageRefusal {
            /// Its stable name.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$id => $code,)*
                }
            }
        }
    };
}

refusals! {
    /// A signature field is absent.
    SignatureMissing "signature_missing",
    /// A signature field can't be read, or a signature has no bytes.
    SignatureInputInvalid "signature_input_invalid",
    /// A field, a signature or a list is too long.
    SignatureTooLarge "signature_too_large",
    /// No signature has the tag.
    NoAcceptableSignature "no_acceptable_signature",
    /// The account is not named as it has to be.
    InvalidKeyid "invalid_keyid",
    /// The account is on another chain.
    UnsupportedChain "unsupported_chain",
    /// The account is a contract, and contracts are not asked, or is not deployed yet.
    UnsupportedAccount "unsupported_account",
    /// The times are missing, no integers, or out of order.
    InvalidTime "invalid_time",
    /// The signature is of the future.
    RequestNotYetValid "request_not_yet_valid",
    /// The signature has expired.
    RequestExpired "request_expired",
    /// The signature is good for too long.
    RequestValidityTooLong "request_validity_too_long",
    /// The nonce is no text, or too long.
    InvalidNonce "invalid_nonce",
    /// A part that must be signed is not.
    InsufficientCoverage "insufficient_coverage",
    /// There is a body, and no digest of it.
    ContentDigestRequired "content_digest_required",
    /// The digest can't be read, or is not that of the body.
    BadContentDigest "bad_content_digest",
    /// There is no nonce.
    NonceRequired "nonce_required",
    /// The nonce was used before.
    NonceReused "nonce_reused",
    /// The signature names an algorithm, and the account alone decides that.
    UnsupportedAlgorithm "unsupported_algorithm",
    /// The account did not sign this request.
    BadSignature "bad_signature",
    /// The signature is a compact one, which is read nowhere.
    Compact "bad_signature",
    /// The chain can't be read, or used nonces may have been lost.
    VerificationUnavailable "signature_verification_unavailable",
    /// The account may not act for the agent.
    PrincipalNotAllowed "principal_not_allowed",
}
