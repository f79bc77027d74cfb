//! Accounts as CAIP-10 names them.

use alloy::primitives::Address;

use crate::domain::signed_message::MessageRefusal;
use crate::message_signature::profile::Profile;

/// The longest chain id, in digits (CAIP-2).
const CHAIN_DIGITS_MAX: usize = 32;

/// The address of an account on this chain: a namespace, a chain id and an address, each in the one form that it has.
pub(super) fn account(keyid: &str, profile: &Profile, chain_id: u64) -> Result<Address, MessageRefusal> {
    let parts = || {
        let (chain, address) = keyid.strip_prefix(profile.namespace)?.strip_prefix(':')?.split_once(':')?;
        let is_number = chain.bytes().all(|byte| byte.is_ascii_digit()) && !chain.starts_with('0');
        let is_chain = is_number && (1..=CHAIN_DIGITS_MAX).contains(&chain.len());
        let digits = address.strip_prefix("0x").filter(|digits| digits.len() == 40)?;
        let is_digit =
            |byte: u8| byte.is_ascii_hexdigit() && (profile.takes_capitals || !byte.is_ascii_uppercase());
        let is_address = digits.bytes().all(is_digit);
        Some((chain, address.parse::<Address>().ok()?)).filter(|_| is_chain && is_address)
    };
    let (chain, address) = parts().ok_or(MessageRefusal::InvalidKeyid)?;
    if chain.parse() != Ok(chain_id) {
        return Err(MessageRefusal::UnsupportedChain);
    }
    Ok(address)
}
