//! How many tokens somebody has: ERC-20, and ERC-721, whose function is the same.

use alloy::primitives::{Address, B256, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolEvent};

use crate::chain::answer::{Call3, Result3};
use crate::chain::block::Log;
use crate::chain::fault::ReadError;
use crate::chain::measures::CONTRACT;
use crate::chain::registries::logs::{Drops, add};
use crate::chain::registries::results::{self, decode};

sol! {
    function balanceOf(address account) external view returns (uint256);
    /// Of an ERC-721 token the last one is indexed too.
    event Transfer(address indexed from, address indexed to, uint256 value);
}

/// The event of both.
pub(in crate::chain) const TRANSFER: B256 = Transfer::SIGNATURE_HASH;

pub(super) fn call(token: Address, account: Address) -> Call3 {
    results::call(token, balanceOfCall { account }.abi_encode())
}

pub(super) fn number(result: Result3) -> Result<U256, ReadError> {
    decode::<balanceOfCall>(CONTRACT, &mut std::iter::once(result))
}

/// A transfer concerns those between whom it is. One of nothing, or to oneself, changes no balance: anybody can make a thousand of
/// these, each from an owner who agreed to nothing.
pub(super) fn add_drops(log: &Log, drops: &mut Drops) {
    match log.topics.as_slice() {
        [TRANSFER, from, to, ..] if from == to => {}
        [TRANSFER, _, _] if log.first_word == Some(B256::ZERO) => {}
        [TRANSFER, from, to, ..] => {
            for holder in [from, to] {
                add(&mut drops.holders, Address::from_word(*holder), log.block_number);
            }
        }
        // It names nobody in a topic.
        [TRANSFER, ..] => drops.add_everybody(log),
        _ => {}
    }
}
