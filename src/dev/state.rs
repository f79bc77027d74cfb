//! What accounts, code and storage held at each of the last blocks.
//!
//! Every value keeps its own short history, so that a block costs what it changes and an old block costs nothing to
//! read. Must not know transactions or JSON.

use std::collections::HashMap;
use std::convert::Infallible;

use alloy::primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256};
use revm::Database;
use revm::bytecode::Bytecode;
use revm::state::{AccountInfo, EvmState};

/// The state of this many blocks can be read, the newest included.
pub(super) const STATE_BLOCKS_KEPT: u64 = 128;

/// The state of the last [`STATE_BLOCKS_KEPT`] blocks.
#[derive(Default)]
pub(super) struct State {
    accounts: HashMap<Address, History<AccountInfo>>,
    storage: HashMap<(Address, U256), History<U256>>,
    codes: HashMap<B256, Bytecode>,
}

impl State {
    /// The state as it was at the end of a block, with the hashes that the EVM may ask for, by block number.
    pub(super) fn at<'a>(&'a self, block: u64, hashes: &'a [B256]) -> StateAt<'a> {
        StateAt { state: self, block, hashes }
    }

    pub(super) fn account(&self, address: Address, block: u64) -> AccountInfo {
        self.accounts.get(&address).and_then(|history| history.at(block)).cloned().unwrap_or_default()
    }

    pub(super) fn slot(&self, address: Address, slot: U256, block: u64) -> U256 {
        self.storage.get(&(address, slot)).and_then(|history| history.at(block)).copied().unwrap_or_default()
    }

    pub(super) fn code(&self, address: Address, block: u64) -> Bytes {
        self.code_by_hash(self.account(address, block).code_hash).original_bytes()
    }

    /// Takes over what a transaction of `block` left behind.
    pub(super) fn commit(&mut self, block: u64, changes: EvmState) {
        for (address, account) in changes {
            if !account.is_touched() {
                continue;
            }
            // An account can only destroy itself in the transaction that made it: none of its storage is here yet.
            if account.is_selfdestructed() {
                self.set_account(address, block, AccountInfo::default());
                continue;
            }
            self.set_account(address, block, account.info);
            for (slot, value) in account.storage {
                if value.is_changed() {
                    self.storage.entry((address, slot)).or_default().set(block, value.present_value());
                }
            }
        }
    }

    pub(super) fn set_code(&mut self, address: Address, block: u64, code: Bytes) {
        let code = Bytecode::new_legacy(code);
        let code_hash = if code.is_empty() { KECCAK256_EMPTY } else { code.hash_slow() };
        let info = self.account(address, block);
        self.set_account(address, block, AccountInfo { code_hash, code: Some(code), ..info });
    }

    pub(super) fn set_balance(&mut self, address: Address, block: u64, balance: U256) {
        let info = self.account(address, block);
        self.set_account(address, block, AccountInfo { balance, ..info });
    }

    fn set_account(&mut self, address: Address, block: u64, mut info: AccountInfo) {
        if let Some(code) = info.code.take()
            && !code.is_empty()
        {
            self.codes.insert(info.code_hash, code);
        }
        self.accounts.entry(address).or_default().set(block, info);
    }

    fn code_by_hash(&self, hash: B256) -> Bytecode {
        self.codes.get(&hash).cloned().unwrap_or_default()
    }
}

/// The state at the end of one block, as the EVM reads it.
pub(super) struct StateAt<'a> {
    state: &'a State,
    block: u64,
    hashes: &'a [B256],
}

impl Database for StateAt<'_> {
    type Error = Infallible;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        Ok(Some(self.state.account(address, self.block)).filter(|info| !info.is_empty()))
    }

    fn code_by_hash(&mut self, hash: B256) -> Result<Bytecode, Infallible> {
        Ok(self.state.code_by_hash(hash))
    }

    fn storage(&mut self, address: Address, slot: U256) -> Result<U256, Infallible> {
        Ok(self.state.slot(address, slot, self.block))
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, Infallible> {
        let hash = usize::try_from(number).ok().and_then(|index| self.hashes.get(index));
        Ok(hash.copied().unwrap_or_default())
    }
}

/// What a value was, and since which block: oldest first.
#[derive(Default)]
struct History<T>(Vec<(u64, T)>);

impl<T> History<T> {
    fn at(&self, block: u64) -> Option<&T> {
        let later = self.0.partition_point(|(since, _)| *since <= block);
        self.0.get(later.checked_sub(1)?).map(|(_, value)| value)
    }

    /// Blocks come in order: `block` is never older than the newest entry.
    fn set(&mut self, block: u64, value: T) {
        if let Some((since, newest)) = self.0.last_mut()
            && *since == block
        {
            *newest = value;
            return;
        }
        let oldest_readable = block.saturating_sub(STATE_BLOCKS_KEPT - 1);
        let obsolete = self.0.partition_point(|(since, _)| *since <= oldest_readable).saturating_sub(1);
        self.0.drain(..obsolete);
        self.0.push((block, value));
    }
}

#[cfg(test)]
mod tests {
    use super::{History, STATE_BLOCKS_KEPT};

    #[test]
    fn a_history_is_exact_over_the_kept_blocks_and_no_longer_than_they_are() {
        let mut history = History::default();
        for block in 0..1_000 {
            history.set(block, block);
            for past in block.saturating_sub(STATE_BLOCKS_KEPT - 1)..=block {
                assert_eq!(history.at(past), Some(&past));
            }
            assert!(history.0.len() as u64 <= STATE_BLOCKS_KEPT);
        }
    }

    #[test]
    fn a_value_that_rarely_changes_is_kept_however_old() {
        let mut history = History::default();
        history.set(3, "old");
        history.set(1_000, "new");
        assert_eq!(history.at(2), None);
        assert_eq!(history.at(999), Some(&"old"));
        assert_eq!(history.at(1_000), Some(&"new"));
    }
}
