//! Credentials as headers of a request.

use alloy::primitives::hex;

use crate::support::signing::Draft;

/// The four headers of an owner's signature.
pub(crate) const SIGNATURE_HEADERS: [(&str, &str); 4] = [
    ("X-Agent-Id", "agentId"),
    ("X-Agent-Signature", "signature"),
    ("X-Agent-Nonce", "nonce"),
    ("X-Agent-Timestamp", "timestamp"),
];

/// What an owner signed, as headers.
pub(crate) fn signed(draft: &Draft) -> Vec<(String, String)> {
    signed_with(draft, &hex::encode_prefixed(draft.signature()))
}

/// The same with another signature.
pub(crate) fn signed_with(draft: &Draft, signature: &str) -> Vec<(String, String)> {
    let values =
        [draft.agent.to_string(), signature.to_owned(), draft.nonce.to_string(), draft.timestamp.to_string()];
    SIGNATURE_HEADERS.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}
