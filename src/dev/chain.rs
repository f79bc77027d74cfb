//! The development chain: blocks, how a transaction becomes one, and revm, which runs it. One transaction is one block; without
//! any there is an empty block a minute, as soon as somebody asks. Gas is counted and limited but costs nothing.
//!
//! Must not know JSON.

use std::collections::{HashMap, VecDeque};
use std::{convert::Infallible, sync::Arc};

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256, Bytes, Log, Signature, TxKind, U256, keccak256};
use parking_lot::Mutex;
use revm::bytecode::Bytecode;
use revm::context::result::{EVMError, ExecResultAndState, ExecutionResult, HaltReason};
use revm::context::{BlockEnv, CfgEnv, Context, TxEnv};
use revm::database::{InMemoryDB, WrapDatabaseRef};
use revm::primitives::hardfork::SpecId;
use revm::state::{AccountInfo, EvmState};
use revm::{DatabaseCommit, DatabaseRef, ExecuteEvm, MainBuilder, MainContext};

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::ports::Clock;

/// The coins of each sample account at the start: 10,000 of 18 decimals.
const SAMPLE_BALANCE: u128 = 10_000 * 10_u128.pow(18);

/// An EVM chain in memory. One transaction is one block; gas costs nothing.
pub(crate) struct DevChain {
    clock: Arc<dyn Clock>,
    pub(super) ledger: Mutex<Ledger>,
}

impl DevChain {
    /// A chain with one empty block, where the sample accounts own some coins.
    pub(crate) fn new(chain_id: u64, clock: Arc<dyn Clock>) -> Self {
        let mut ledger = Ledger::new(chain_id, clock.unix_seconds());
        for account in *SAMPLE_ACCOUNTS {
            ledger.change_account(account.address, |info| info.balance = U256::from(SAMPLE_BALANCE));
        }
        Self { clock, ledger: Mutex::new(ledger) }
    }

    /// Sends a transaction; without `to` it creates a contract. Anybody can be the sender. Returns how it succeeded.
    /// [`ExecutionError::Rejected`] says that there is no new block. The others say that the transaction failed: it is in a
    /// block all the same, and its receipt has status 0.
    pub(crate) fn send(
        &self,
        from: Address,
        to: Option<Address>,
        data: Bytes,
    ) -> Result<ExecutionResult, ExecutionError> {
        let mut ledger = self.ledger.lock();
        let message = ledger.message(from, to.map_or(TxKind::Create, TxKind::Call), data);
        let (_, result) = ledger.mine(self.now(), message)?;
        output(result.clone()).map(|_| result)
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        self.clock.unix_seconds()
    }
}

/// How long there may be no block, in seconds. Well below what is taken for a node that stands still.
pub(super) const IDLE_SECS_MAX: u64 = 60;

/// The state of this many blocks can be read, the newest included.
const STATE_BLOCKS_KEPT: usize = 128;

/// How many blocks back the EVM may ask for a hash.
const HASHES_KEPT: u64 = 256;

/// The whole chain. Blocks, transactions and logs are kept for good, state for [`STATE_BLOCKS_KEPT`] blocks.
pub(super) struct Ledger {
    pub(super) chain_id: u64,
    /// The state at the newest block, and at those before it, the oldest first.
    state: InMemoryDB,
    earlier: VecDeque<InMemoryDB>,
    genesis: Block,
    /// Block 1 and on.
    later: Vec<Block>,
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

    /// The logs; none if the transaction failed, whatever it had logged before.
    pub(super) fn logs(&self) -> &[Log] {
        if self.result.is_success() { self.result.logs() } else { &[] }
    }
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
        let mut state = InMemoryDB::default();
        state.cache.block_hashes.insert(U256::ZERO, genesis.hash);
        Self {
            chain_id,
            state,
            earlier: VecDeque::new(),
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

    /// The block whose state a request wants to read, and that state, or why there is none.
    pub(super) fn readable(&self, id: BlockId) -> Result<(&Block, &InMemoryDB), String> {
        let block = match id {
            BlockId::Hash(hash) => self.block_by_hash(hash.block_hash),
            BlockId::Number(number) => self.block(self.number_of(number)),
        };
        let block = block.ok_or("unknown block")?;
        let age = usize::try_from(self.head().number - block.number).unwrap_or(usize::MAX);
        let state = match age.checked_sub(1) {
            None => Some(&self.state),
            Some(before) => self.earlier.iter().rev().nth(before),
        };
        let gone = || {
            let number = block.number;
            format!(
                "the state of block {number} is gone: only that of the last {STATE_BLOCKS_KEPT} blocks is kept"
            )
        };
        Ok((block, state.ok_or_else(gone)?))
    }

    /// Puts code at an address, as of the newest block. There is no new block.
    pub(super) fn set_code(&mut self, address: Address, code: Bytes) {
        let code = Bytecode::new_legacy(code);
        self.change_account(address, |info| (info.code_hash, info.code) = (code.hash_slow(), Some(code)));
    }

    fn change_account(&mut self, address: Address, change: impl FnOnce(&mut AccountInfo)) {
        let mut info = account(&self.state, address);
        change(&mut info);
        self.state.insert_account_info(address, info);
    }

    /// A call, or the next transaction of its sender.
    pub(super) fn message(&self, from: Address, to: TxKind, data: Bytes) -> TxEnv {
        TxEnv {
            caller: from,
            kind: to,
            data,
            gas_limit: GAS_MAX,
            gas_price: 0,
            nonce: account(&self.state, from).nonce,
            chain_id: Some(self.chain_id),
            ..TxEnv::default()
        }
    }

    /// Runs a message on top of a block, as if it stood in that block, and forgets what it changed.
    pub(super) fn call(
        &self,
        (block, state): (&Block, &InMemoryDB),
        message: TxEnv,
    ) -> Result<ExecutionResult, ExecutionError> {
        run(state, (block.number, block.timestamp), message, true).map(|outcome| outcome.result)
    }

    /// Makes a block of a transaction, one that fails included: its hash, and how it ended. An error means that there is no
    /// new block.
    pub(super) fn mine(
        &mut self,
        now: u64,
        message: TxEnv,
    ) -> Result<(B256, ExecutionResult), ExecutionError> {
        let timestamp = self.head().timestamp.max(now);
        let block = (self.head().number + 1, timestamp);
        let ExecResultAndState { result, state } = run(&self.state, block, message.clone(), false)?;
        let (from, envelope) = (message.caller, envelope(message));
        let hash = *envelope.tx_hash();
        self.append(timestamp, Some((MinedTransaction { envelope, from, result: result.clone() }, state)));
        Ok((hash, result))
    }

    /// Makes an empty block.
    pub(super) fn mine_empty(&mut self, now: u64) {
        self.append(self.head().timestamp.max(now), None);
    }

    fn append(&mut self, timestamp: u64, mined: Option<(MinedTransaction, EvmState)>) {
        let (transaction, changes) = mined.unzip();
        let (number, parent_hash) = (self.head().number + 1, self.head().hash);
        let transaction_hash = transaction.as_ref().map(MinedTransaction::hash);
        let hash = block_hash(parent_hash, number, timestamp, transaction_hash.unwrap_or_default());
        self.earlier.push_back(self.state.clone());
        if self.earlier.len() == STATE_BLOCKS_KEPT {
            self.earlier.pop_front();
        }
        self.state.commit(changes.unwrap_or_default());
        let hashes = &mut self.state.cache.block_hashes;
        hashes.insert(U256::from(number), hash);
        hashes.remove(&U256::from(number.saturating_sub(HASHES_KEPT)));
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

/// An unsigned transaction: the sender stands in for `r`, which keeps the hashes of two senders apart.
fn envelope(message: TxEnv) -> TxEnvelope {
    let transaction = TxEip1559 {
        chain_id: message.chain_id.unwrap_or_default(),
        nonce: message.nonce,
        gas_limit: message.gas_limit,
        to: message.kind,
        value: message.value,
        input: message.data,
        ..TxEip1559::default()
    };
    let r = U256::from_be_bytes(message.caller.into_word().0);
    transaction.into_signed(Signature::new(r, U256::ONE, false)).into()
}

/// The most gas that one transaction, call or block may use.
pub(super) const GAS_MAX: u64 = 30_000_000;

/// Why a message came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutionError {
    /// The contract refused, with these revert data.
    #[error("execution reverted")]
    Reverted(Bytes),
    /// The EVM stopped: out of gas, an invalid instruction and the like.
    #[error("execution halted: {0:?}")]
    Halted(HaltReason),
    /// The message never ran.
    #[error("transaction rejected: {0}")]
    Rejected(#[from] EVMError<Infallible>),
}

/// An account, which holds nothing where it was never seen.
pub(super) fn account(state: &InMemoryDB, address: Address) -> AccountInfo {
    let Ok(info) = state.basic_ref(address);
    info.unwrap_or_default()
}

pub(super) fn code(state: &InMemoryDB, address: Address) -> Bytes {
    let Ok(code) = state.code_by_hash_ref(account(state, address).code_hash);
    code.original_bytes()
}

/// The output of a success; anything else is an error.
pub(super) fn output(result: ExecutionResult) -> Result<Bytes, ExecutionError> {
    match result {
        ExecutionResult::Success { output, .. } => Ok(output.into_data()),
        ExecutionResult::Revert { output, .. } => Err(ExecutionError::Reverted(output)),
        ExecutionResult::Halt { reason, .. } => Err(ExecutionError::Halted(reason)),
    }
}

/// Runs a message in the block of this number and timestamp. The sender of a transaction must have the value, and its nonce be
/// the next; anybody can send a call, a contract or someone poor included.
fn run(
    state: &InMemoryDB,
    (number, timestamp): (u64, u64),
    message: TxEnv,
    is_call: bool,
) -> Result<ExecResultAndState<ExecutionResult, EvmState>, ExecutionError> {
    let mut cfg = CfgEnv::new_with_spec(SpecId::OSAKA).with_chain_id(message.chain_id.unwrap_or_default());
    cfg.tx_gas_limit_cap = Some(GAS_MAX);
    cfg.disable_base_fee = true;
    cfg.disable_nonce_check = is_call;
    cfg.disable_balance_check = is_call;
    cfg.disable_eip3607 = true;
    let block = BlockEnv {
        number: U256::from(number),
        timestamp: U256::from(timestamp),
        gas_limit: GAS_MAX,
        basefee: 0,
        ..BlockEnv::default()
    };
    let mut evm =
        Context::mainnet().with_db(WrapDatabaseRef(state)).with_cfg(cfg).with_block(block).build_mainnet();
    Ok(evm.transact(message)?)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, Bytes, U256};
    use alloy::sol_types::SolCall;

    use crate::dev::accounts::SAMPLE_ACCOUNTS;
    use crate::dev::chain::{DevChain, ExecutionError};
    use crate::dev::fixture::{Identity, Multicall, START_SECONDS, chain, create, deployed, read, send};

    /// The revert data of a call that must revert.
    fn reverted(chain: &DevChain, to: Address, call: &impl SolCall) -> Bytes {
        match chain.call(to, call.abi_encode().into()) {
            Err(ExecutionError::Reverted(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    fn owner_of(id: u64) -> Identity::ownerOfCall {
        Identity::ownerOfCall { id: U256::from(id) }
    }

    #[test]
    fn a_token_can_be_minted_moved_and_burnt() {
        let (chain, on) = deployed();
        let [alice, bob] = [SAMPLE_ACCOUNTS[0].address, SAMPLE_ACCOUNTS[9].address];
        send(
            &chain,
            on.identity,
            &Identity::mintWithIdCall { to: alice, id: U256::from(6), uri: "u".into() },
        );
        send(&chain, on.identity, &Identity::mintCall { to: alice, uri: "v".into() });
        assert_eq!(read(&chain, on.identity, &owner_of(7)), alice, "mint passes over an id that is taken");
        assert_eq!(read(&chain, on.identity, &Identity::balanceOfCall { owner: alice }), U256::from(2));

        let theft = Identity::transferFromCall { from: alice, to: bob, id: U256::from(6) };
        assert!(chain.send(bob, Some(on.identity), theft.abi_encode().into()).is_err());
        send(&chain, on.identity, &Identity::approveCall { to: bob, id: U256::from(6) });
        chain.send(bob, Some(on.identity), theft.abi_encode().into()).unwrap();
        assert_eq!(read(&chain, on.identity, &owner_of(6)), bob);
        let approved = read(&chain, on.identity, &Identity::getApprovedCall { id: U256::from(6) });
        assert_eq!(approved, Address::ZERO, "a transfer ends the approval");

        let into_contract =
            Identity::safeTransferFromCall { from: alice, to: on.stake_vault, id: U256::from(7) };
        assert!(chain.send(alice, Some(on.identity), into_contract.abi_encode().into()).is_err());
        send(
            &chain,
            on.identity,
            &Identity::safeTransferFromCall { from: alice, to: bob, id: U256::from(7) },
        );
        assert_eq!(read(&chain, on.identity, &Identity::balanceOfCall { owner: bob }), U256::from(2));

        let burn = Identity::burnCall { id: U256::from(6) };
        assert!(chain.send(alice, Some(on.identity), burn.abi_encode().into()).is_err());
        chain.send(bob, Some(on.identity), burn.abi_encode().into()).unwrap();
        assert!(reverted(&chain, on.identity, &owner_of(6)).starts_with(&[0x7e, 0x27, 0x32, 0x89]));
        let erc721 = Identity::supportsInterfaceCall { interfaceId: [0x80, 0xac, 0x58, 0xcd].into() };
        assert!(read(&chain, on.identity, &erc721));
    }

    #[test]
    fn what_is_sent_is_in_the_next_block_and_its_logs_and_output_come_back() {
        let (chain, on) = deployed();
        let from = SAMPLE_ACCOUNTS[0].address;
        let mint = Identity::mintCall { to: from, uri: String::new() }.abi_encode();
        let hash = || chain.ledger.lock().head().transaction.as_ref().unwrap().hash();
        chain.send(from, Some(on.identity), mint.clone().into()).unwrap();
        let (first, number) = (hash(), chain.ledger.lock().head().number);
        let second = chain.send(from, Some(on.identity), mint.into()).unwrap();
        assert_eq!(chain.ledger.lock().head().number, number + 1);
        assert_ne!(hash(), first);
        assert_eq!(second.created_address(), None);
        assert_eq!(Identity::mintCall::abi_decode_returns(second.output().unwrap()).unwrap(), U256::from(7));
        assert_eq!(second.logs()[0].topics()[3], B256::with_last_byte(7));
    }

    #[test]
    fn a_block_is_never_older_than_its_parent() {
        let (chain, clock) = chain();
        let multicall = create(&chain, "Multicall3");
        clock.set(START_SECONDS - 1_000);
        create(&chain, "LoneStake");
        let number = read(&chain, multicall, &Multicall::getBlockNumberCall {});
        let timestamp = read(&chain, multicall, &Multicall::getCurrentBlockTimestampCall {});
        assert_eq!((number, timestamp), (U256::from(2), U256::from(START_SECONDS)));
        clock.set(START_SECONDS + 1_000);
        create(&chain, "LoneStake");
        let timestamp = read(&chain, multicall, &Multicall::getCurrentBlockTimestampCall {});
        assert_eq!(timestamp, U256::from(START_SECONDS + 1_000));
    }
}
