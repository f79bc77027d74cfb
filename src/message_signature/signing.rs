//! A signature that is to be made: what an account signs for a request of its own.

use alloy::primitives::{Address, B256, eip191_hash_message};
use sfv::{Dictionary, ListEntry, Parser};

use crate::http1::Fields;
use crate::message_signature::{ERC_8128, Message, candidates::Components};

/// For how long a signature is good, in seconds: each service has to take that.
const VALIDITY_SECS: u64 = 60;

/// The member of both signature fields.
const LABEL: &str = "request";

/// A signature by ERC-8128 that is to be made.
#[derive(Debug)]
pub(crate) struct Unsigned {
    /// The value of `Signature-Input`.
    pub(crate) input: String,
    /// The hash that the account has to sign.
    pub(crate) digest: B256,
}

impl Unsigned {
    /// Over a request, with a nonce of digits and letters, made at `created` in Unix seconds. `None` if it lacks a component.
    pub(crate) fn over<F: Fields>(
        message: &Message<'_, F>,
        (chain_id, account): (u64, Address),
        nonce: &str,
        created: u64,
    ) -> Option<Self> {
        let covered = ERC_8128.components(message).join("\" \"");
        let expires = created.checked_add(VALIDITY_SECS)?;
        let input = format!(
            "{LABEL}=(\"{covered}\");created={created};expires={expires};nonce=\"{nonce}\";\
             keyid=\"eip155:{chain_id}:{account:#x}\";tag=\"erc8128\""
        );
        let members: Dictionary = Parser::new(&input).parse().ok()?;
        let ListEntry::InnerList(covered) = members.get(LABEL)? else { return None };
        let base = Components::of(message).base(covered)?;
        Some(Self { digest: eip191_hash_message(base), input })
    }

    /// The value of `Signature`, of a signature in base64.
    pub(crate) fn signature(&self, base64: &str) -> String {
        format!("{LABEL}=:{base64}:")
    }
}
