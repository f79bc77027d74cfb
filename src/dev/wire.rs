//! Blocks, transactions, receipts and logs as JSON-RPC shows them.
//!
//! The types are those that alloy's own clients read. Roots are those of empty tries: nothing here can be proven.

use alloy::consensus::transaction::Recovered;
use alloy::consensus::{Header as ConsensusHeader, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy::primitives::{U256, logs_bloom};
use alloy::rpc::types::{Block as RpcBlock, BlockTransactions, Header, Log, Transaction, TransactionReceipt};

use crate::dev::evm::GAS_MAX;
use crate::dev::ledger::{Block, MinedTransaction};

/// A block, with whole transactions or with their hashes alone.
pub(super) fn block(block: &Block, is_full: bool) -> RpcBlock {
    let transactions = if is_full {
        BlockTransactions::Full(block.transaction.iter().map(|mined| transaction(block, mined)).collect())
    } else {
        BlockTransactions::Hashes(block.transaction.iter().map(MinedTransaction::hash).collect())
    };
    RpcBlock { header: header(block), uncles: Vec::new(), transactions, withdrawals: None }
}

fn header(block: &Block) -> Header {
    let mined = block.transaction.as_ref();
    Header {
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
    }
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

/// What a transaction logged, each with where it stands.
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
