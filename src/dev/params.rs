//! Parameters and results of the methods of the development chain: blocks, transactions, receipts and logs as JSON-RPC shows them.
//!
//! The types are those that alloy's own clients read. Roots are those of empty tries: nothing here can be proven. Must not know
//! the envelope, nor what any method does.

use alloy::consensus::transaction::Recovered;
use alloy::consensus::{Header as ConsensusHeader, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy::eips::BlockId;
use alloy::primitives::{Bytes, U256, logs_bloom};
use alloy::rpc::types::{Block as RpcBlock, BlockTransactions, Header, Log, Transaction, TransactionReceipt};
use alloy::sol_types::{Panic, Revert, SolError};
use revm::database::InMemoryDB;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::dev::chain::{Block, ExecutionError, GAS_MAX, Ledger, MinedTransaction};

/// A method's result, as JSON.
pub(super) type Answer = Result<Box<RawValue>, Fault>;

pub(super) fn json(value: &impl Serialize) -> Answer {
    Ok(to_raw_value(value)?)
}

/// A request's parameters, by position.
pub(super) struct Params<'a>(Vec<&'a RawValue>);

impl<'a> Params<'a> {
    pub(super) fn parse(params: Option<&'a RawValue>) -> Result<Self, Fault> {
        let Some(params) = params else { return Ok(Self(Vec::new())) };
        serde_json::from_str(params.get()).map(Self).map_err(Fault::invalid_params)
    }

    /// The parameter at a position; it must be there.
    pub(super) fn required<T: DeserializeOwned>(&self, index: usize) -> Result<T, Fault> {
        self.optional(index)?.ok_or_else(|| Fault::invalid_params(format!("parameter {index} is missing")))
    }

    /// The parameter at a position, unless it is absent or `null`.
    pub(super) fn optional<T: DeserializeOwned>(&self, index: usize) -> Result<Option<T>, Fault> {
        let Some(param) = self.0.get(index) else { return Ok(None) };
        serde_json::from_str(param.get())
            .map_err(|error| Fault::invalid_params(format!("parameter {index}: {error}")))
    }

    /// Refuses what a caller would otherwise believe to have had an effect.
    pub(super) fn none_from(&self, index: usize) -> Result<(), Fault> {
        if self.0.iter().skip(index).all(|param| param.get() == "null") {
            return Ok(());
        }
        Err(Fault::invalid_params(format!("parameter {index} is not supported")))
    }

    /// The block that a parameter names, the newest by default, and its state, if that can still be read.
    pub(super) fn block<'l>(
        &self,
        index: usize,
        ledger: &'l Ledger,
    ) -> Result<(&'l Block, &'l InMemoryDB), Fault> {
        ledger.readable(self.optional(index)?.unwrap_or(BlockId::latest())).map_err(Fault::refused)
    }
}

/// A JSON-RPC error.
#[derive(Debug, Serialize)]
pub(super) struct Fault {
    code: i64,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Bytes>,
}

impl Fault {
    pub(super) fn new(code: i64, why: impl ToString) -> Self {
        Self { code, message: why.to_string(), data: None }
    }

    pub(super) fn invalid_request(why: impl ToString) -> Self {
        Self::new(-32_600, format!("invalid request: {}", why.to_string()))
    }

    pub(super) fn invalid_params(why: impl ToString) -> Self {
        Self::new(-32_602, format!("invalid params: {}", why.to_string()))
    }

    pub(super) fn refused(why: impl ToString) -> Self {
        Self::new(-32_000, why)
    }
}

impl From<ExecutionError> for Fault {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::Reverted(data) => {
                // In one of the two standard ways.
                let reason = Revert::abi_decode(&data).map(|revert| format!(": {}", revert.reason));
                let reason = reason.or_else(|_| Panic::abi_decode(&data).map(|panic| format!(": {panic}")));
                let reason = reason.unwrap_or_default();
                Self { code: 3, message: format!("execution reverted{reason}"), data: Some(data) }
            }
            ExecutionError::Halted(_) | ExecutionError::Rejected(_) => Self::refused(error),
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::new(-32_603, format!("internal error: {error}"))
    }
}

/// A block, with whole transactions or with their hashes alone.
pub(super) fn block(block: &Block, is_full: bool) -> RpcBlock {
    let transactions = if is_full {
        BlockTransactions::Full(block.transaction.iter().map(|mined| transaction(block, mined)).collect())
    } else {
        BlockTransactions::Hashes(block.transaction.iter().map(MinedTransaction::hash).collect())
    };
    let mined = block.transaction.as_ref();
    let header = Header {
        hash: block.hash,
        inner: ConsensusHeader {
            parent_hash: block.parent_hash,
            number: block.number,
            timestamp: block.timestamp,
            gas_limit: GAS_MAX,
            gas_used: mined.map(|mined| mined.result.tx_gas_used()).unwrap_or_default(),
            base_fee_per_gas: Some(0),
            logs_bloom: logs_bloom(mined.map(MinedTransaction::logs).unwrap_or_default()),
            ..ConsensusHeader::default()
        },
        total_difficulty: Some(U256::ZERO),
        size: None,
    };
    RpcBlock { header, uncles: Vec::new(), transactions, withdrawals: None }
}

/// A transaction and where it stands.
pub(super) fn transaction(block: &Block, mined: &MinedTransaction) -> Transaction {
    Transaction {
        inner: Recovered::new_unchecked(mined.envelope.clone(), mined.from),
        block_hash: Some(block.hash),
        block_number: Some(block.number),
        transaction_index: Some(0),
        effective_gas_price: Some(0),
        block_timestamp: Some(block.timestamp),
    }
}

pub(super) fn receipt(block: &Block, mined: &MinedTransaction) -> TransactionReceipt {
    let gas_used = mined.result.tx_gas_used();
    let receipt = Receipt {
        status: mined.result.is_success().into(),
        cumulative_gas_used: gas_used,
        logs: logs(block, mined).collect(),
    };
    TransactionReceipt {
        inner: ReceiptEnvelope::Eip1559(ReceiptWithBloom::new(receipt, logs_bloom(mined.logs()))),
        transaction_hash: mined.hash(),
        transaction_index: Some(0),
        block_hash: Some(block.hash),
        block_number: Some(block.number),
        gas_used,
        effective_gas_price: 0,
        blob_gas_used: None,
        blob_gas_price: None,
        from: mined.from,
        to: alloy::consensus::Transaction::to(&mined.envelope),
        contract_address: mined.result.created_address(),
    }
}

/// The logs of a transaction, each with where it stands.
pub(super) fn logs<'a>(block: &'a Block, mined: &'a MinedTransaction) -> impl Iterator<Item = Log> + 'a {
    mined.logs().iter().zip(0..).map(|(log, index)| Log {
        inner: log.clone(),
        block_hash: Some(block.hash),
        block_number: Some(block.number),
        block_timestamp: Some(block.timestamp),
        transaction_hash: Some(mined.hash()),
        transaction_index: Some(0),
        log_index: Some(index),
        removed: false,
    })
}
