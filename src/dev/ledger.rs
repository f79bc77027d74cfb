//! The blocks, and how a transaction becomes one: one transaction, one block. Without any there is an empty block a minute,
//! as soon as somebody asks.
//!
//! Must not know JSON, locks or the clock: time is an argument.

use std::collections::HashMap;

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256, Log, Signature, TxKind, U256, keccak256};
use revm::context::result::ExecutionResult;

use crate::dev::evm::{self, ExecutionError, Message, Outcome, Setting};
use crate::dev::state::{STATE_BLOCKS_KEPT, State};

/// How long there may be no block, in seconds. Well below what is taken for a node that stands still.
pub(super) const IDLE_SECS_MAX: u64 = 60;

/// The whole chain. Blocks, transactions and logs are kept for good, state for [`STATE_BLOCKS_KEPT`] blocks.
pub(super) struct Ledger {
    pub(super) chain_id: u64,
    pub(super) state: State,
    genesis: Block,
    /// Block 1 and on.
    later: Vec<Block>,
    /// Every block's hash, by number: what the EVM may ask for.
    hashes: Vec<B256>,
    number_of_block: HashMap<B256, u64>,
    block_of_transaction: HashMap<B256, u64>,
}

/// A block: empty, or with one transaction.
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) hash: B256,
    pub(super) parent_hash: B256,
    /// Seconds since the Unix epoch; never less than the parent's.
    pub(super) timestamp: u64,
    pub(super) transaction: Option<MinedTransaction>,
}

/// A transaction that is in a block, whether it succeeded or not.
pub(super) struct MinedTransaction {
    pub(super) envelope: TxEnvelope,
    pub(super) from: Address,
    pub(super) result: ExecutionResult,
}

impl MinedTransaction {
    pub(super) fn hash(&self) -> B256 {
        *self.envelope.tx_hash()
    }

    /// What it logged; nothing if it failed, whatever it had logged before.
    pub(super) fn logs(&self) -> &[Log] {
        if self.result.is_success() { self.result.logs() } else { &[] }
    }
}

/// Why there is no state to read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoState {
    /// No such block.
    #[error("unknown block")]
    UnknownBlock,
    /// The block is too old.
    #[error("the state of block {0} is gone: only that of the last {STATE_BLOCKS_KEPT} blocks is kept")]
    Gone(u64),
}

impl Ledger {
    /// A chain of one empty block.
    pub(super) fn new(chain_id: u64, timestamp: u64) -> Self {
        let genesis = Block {
            number: 0,
            hash: block_hash(B256::ZERO, 0, timestamp, B256::ZERO),
            parent_hash: B256::ZERO,
            timestamp,
            transaction: None,
        };
        Self {
            chain_id,
            state: State::default(),
            hashes: vec![genesis.hash],
            number_of_block: HashMap::from([(genesis.hash, 0)]),
            block_of_transaction: HashMap::new(),
            genesis,
            later: Vec::new(),
        }
    }

    pub(super) fn head(&self) -> &Block {
        self.later.last().unwrap_or(&self.genesis)
    }

    pub(super) fn block(&self, number: u64) -> Option<&Block> {
        match number.checked_sub(1) {
            None => Some(&self.genesis),
            Some(index) => self.later.get(usize::try_from(index).ok()?),
        }
    }

    pub(super) fn block_by_hash(&self, hash: B256) -> Option<&Block> {
        self.block(*self.number_of_block.get(&hash)?)
    }

    /// A tag's block number; a number stands for itself, whether or not there is such a block.
    pub(super) fn number_of(&self, block: BlockNumberOrTag) -> u64 {
        match block {
            BlockNumberOrTag::Number(number) => number,
            BlockNumberOrTag::Earliest => 0,
            BlockNumberOrTag::Latest
            | BlockNumberOrTag::Pending
            | BlockNumberOrTag::Safe
            | BlockNumberOrTag::Finalized => self.head().number,
        }
    }

    /// A transaction together with its block.
    pub(super) fn transaction(&self, hash: B256) -> Option<(&Block, &MinedTransaction)> {
        let block = self.block(*self.block_of_transaction.get(&hash)?)?;
        Some((block, block.transaction.as_ref()?))
    }

    /// Makes an empty block when there was none for a while. A chain without traffic goes on, too; one that does not looks
    /// like a node that stands still.
    pub(super) fn go_on(&mut self, now: u64) {
        if now.saturating_sub(self.head().timestamp) >= IDLE_SECS_MAX {
            self.mine_empty(now);
        }
    }

    /// The block whose state a request wants to read.
    pub(super) fn readable(&self, id: BlockId) -> Result<&Block, NoState> {
        let block = match id {
            BlockId::Hash(hash) => self.block_by_hash(hash.block_hash),
            BlockId::Number(number) => self.block(self.number_of(number)),
        };
        let block = block.ok_or(NoState::UnknownBlock)?;
        if self.head().number - block.number >= STATE_BLOCKS_KEPT {
            return Err(NoState::Gone(block.number));
        }
        Ok(block)
    }

    /// Runs a message on top of a block, as if it stood in that block, and forgets what it changed.
    pub(super) fn call(&self, block: &Block, message: &Message) -> Result<ExecutionResult, ExecutionError> {
        let Block { number, timestamp, .. } = *block;
        let setting = Setting { chain_id: self.chain_id, number, timestamp };
        let state = self.state.at(number, &self.hashes);
        evm::run(state, setting, message, true).map(|outcome| outcome.result)
    }

    /// Makes a block of a transaction, one that fails included: its hash, and how it ended. An error means that there is no
    /// new block.
    pub(super) fn mine(
        &mut self,
        now: u64,
        message: Message,
    ) -> Result<(B256, ExecutionResult), ExecutionError> {
        let head = self.head().number;
        let timestamp = self.head().timestamp.max(now);
        let nonce = message.nonce.unwrap_or(self.state.account(message.from, head).nonce);
        let message = Message { nonce: Some(nonce), ..message };
        let setting = Setting { chain_id: self.chain_id, number: head + 1, timestamp };
        let before = self.state.at(head, &self.hashes);
        let Outcome { result, state } = evm::run(before, setting, &message, false)?;
        self.state.commit(head + 1, state);

        let from = message.from;
        let envelope = envelope(self.chain_id, nonce, message);
        let hash = *envelope.tx_hash();
        self.append(timestamp, Some(MinedTransaction { envelope, from, result: result.clone() }));
        Ok((hash, result))
    }

    /// Makes an empty block.
    pub(super) fn mine_empty(&mut self, now: u64) {
        self.append(self.head().timestamp.max(now), None);
    }

    fn append(&mut self, timestamp: u64, transaction: Option<MinedTransaction>) {
        let (number, parent_hash) = (self.head().number + 1, self.head().hash);
        let transaction_hash = transaction.as_ref().map(MinedTransaction::hash);
        let hash = block_hash(parent_hash, number, timestamp, transaction_hash.unwrap_or_default());
        self.hashes.push(hash);
        self.number_of_block.insert(hash, number);
        if let Some(transaction) = transaction_hash {
            self.block_of_transaction.insert(transaction, number);
        }
        self.later.push(Block { number, hash, parent_hash, timestamp, transaction });
    }
}

fn block_hash(parent: B256, number: u64, timestamp: u64, transaction: B256) -> B256 {
    keccak256(
        [parent.as_slice(), &number.to_be_bytes(), &timestamp.to_be_bytes(), transaction.as_slice()].concat(),
    )
}

/// Nobody signs here: the sender stands in for `r`, which keeps the hashes of two senders apart.
fn envelope(chain_id: u64, nonce: u64, message: Message) -> TxEnvelope {
    let transaction = TxEip1559 {
        chain_id,
        nonce,
        gas_limit: message.gas_limit,
        to: message.to.map_or(TxKind::Create, TxKind::Call),
        value: message.value,
        input: message.data,
        ..TxEip1559::default()
    };
    let r = U256::from_be_bytes(message.from.into_word().0);
    transaction.into_signed(Signature::new(r, U256::ONE, false)).into()
}
