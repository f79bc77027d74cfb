//! Runs one message against the state of one block: the only file that drives revm.
//!
//! Gas is counted and limited but costs nothing. Must not know blocks beyond their number and time, nor JSON.

use std::convert::Infallible;

use alloy::primitives::{Address, Bytes, TxKind, U256};
use revm::context::result::{EVMError, ExecResultAndState, ExecutionResult, HaltReason};
use revm::context::{BlockEnv, CfgEnv, Context, TxEnv};
use revm::primitives::hardfork::SpecId;
use revm::state::EvmState;
use revm::{ExecuteEvm, MainBuilder, MainContext};

use crate::dev::state::StateAt;

/// The most gas that one transaction, call or block may use.
pub(super) const GAS_MAX: u64 = 30_000_000;

/// A call or a transaction.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) from: Address,
    /// Nobody: `data` is the init code of a new contract.
    pub(super) to: Option<Address>,
    pub(super) value: U256,
    pub(super) data: Bytes,
    pub(super) gas_limit: u64,
    /// Checked against the sender's account when given; never for a call.
    pub(super) nonce: Option<u64>,
}

/// The block a message runs in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) chain_id: u64,
    pub(super) number: u64,
    /// Seconds since the Unix epoch.
    pub(super) timestamp: u64,
}

/// What a message came to, whether it succeeded, and what it changed.
pub(super) type Outcome = ExecResultAndState<ExecutionResult, EvmState>;

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

/// The output of a success; anything else is an error.
pub(super) fn output(result: ExecutionResult) -> Result<Bytes, ExecutionError> {
    match result {
        ExecutionResult::Success { output, .. } => Ok(output.into_data()),
        ExecutionResult::Revert { output, .. } => Err(ExecutionError::Reverted(output)),
        ExecutionResult::Halt { reason, .. } => Err(ExecutionError::Halted(reason)),
    }
}

/// Runs a message. The sender of a transaction must have the value, and the right nonce if the message names one; anybody
/// can send a call, a contract or someone poor included.
pub(super) fn run(
    state: StateAt<'_>,
    setting: Setting,
    message: &Message,
    is_call: bool,
) -> Result<Outcome, ExecutionError> {
    let mut cfg = CfgEnv::new_with_spec(SpecId::OSAKA).with_chain_id(setting.chain_id);
    cfg.tx_gas_limit_cap = Some(GAS_MAX);
    cfg.disable_base_fee = true;
    cfg.disable_nonce_check = is_call || message.nonce.is_none();
    cfg.disable_balance_check = is_call;
    cfg.disable_eip3607 = true;
    let block = BlockEnv {
        number: U256::from(setting.number),
        timestamp: U256::from(setting.timestamp),
        gas_limit: GAS_MAX,
        basefee: 0,
        ..BlockEnv::default()
    };
    let tx = TxEnv {
        caller: message.from,
        kind: message.to.map_or(TxKind::Create, TxKind::Call),
        value: message.value,
        data: message.data.clone(),
        gas_limit: message.gas_limit.min(GAS_MAX),
        gas_price: 0,
        nonce: message.nonce.unwrap_or_default(),
        chain_id: Some(setting.chain_id),
        ..TxEnv::default()
    };
    let mut evm = Context::mainnet().with_db(state).with_cfg(cfg).with_block(block).build_mainnet();
    Ok(evm.transact(tx)?)
}
