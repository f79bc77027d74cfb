//! What is asked of a contract, as JSON-RPC writes it, and what came of it.

use alloy::primitives::{Address, B256, Bytes};
use alloy::rpc::json_rpc::ErrorPayload;
use serde_json::{Value, json};

use crate::chain::fault::ReadError;
use crate::chain::rpc::transport::{Node, NodeAnswer, read_json};

/// The most gas that one call may burn: geth's own default, so that nodes with that limit grant all of it. By estimate a
/// thousand organizations with names of 256 bytes take half of it (about eleven cold storage reads of 2,100 gas each).
/// Without a limit of ours, one absurd contract would occupy a node for as long as the node's own limit lets it.
const GAS_MAX: u64 = 50_000_000;

/// The code by which nodes report a revert.
const REVERT_CODE: i64 = 3;

/// The state that a read is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// That of the node's latest block.
    Latest,
    /// That after exactly this block (EIP-1898).
    Block(B256),
}

impl At {
    pub(super) fn param(self) -> Value {
        match self {
            Self::Latest => json!("latest"),
            Self::Block(hash) => json!({ "blockHash": hash }),
        }
    }
}

/// What a contract call came to.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It returned this.
    Returned(Bytes),
    /// It reverted with this; empty when the node does not say.
    Reverted(Bytes),
}

/// The parameters of `eth_call`. Without `to` the data is run as a contract's creation.
pub(super) fn call_params(at: At, to: Option<Address>, data: &Bytes) -> Value {
    let mut call = json!({ "input": data, "gas": format!("{GAS_MAX:#x}") });
    if let (Some(call), Some(to)) = (call.as_object_mut(), to) {
        call.insert("to".to_owned(), json!(to));
    }
    json!([call, at.param()])
}

/// What came of a call. A revert is an answer, every other error is none.
pub(super) fn outcome(node: &Node, answer: NodeAnswer) -> Result<CallOutcome, ReadError> {
    match answer {
        Ok(result) => read_json(result.get()).map(CallOutcome::Returned),
        Err(error) => revert_data(&error).map(CallOutcome::Reverted).ok_or_else(|| node.error(&error)),
    }
}

/// The data of a revert, empty when the node gives none; nothing when the error is no revert. Nodes agree neither on the
/// code nor on the place of the data.
fn revert_data(error: &ErrorPayload) -> Option<Bytes> {
    let is_revert = error.code == REVERT_CODE || error.message.to_ascii_lowercase().contains("revert");
    let data = || error.as_revert_data().or_else(|| error.try_data_as::<Bytes>()?.ok());
    is_revert.then(|| data().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, bytes};
    use serde_json::json;

    use super::{At, call_params};

    #[test]
    fn a_call_names_its_block_and_its_most_gas() {
        let hash = B256::repeat_byte(0xab);
        let to = Address::repeat_byte(1);
        assert_eq!(
            call_params(At::Block(hash), Some(to), &bytes!("0102")),
            json!([{"to": to, "input": "0x0102", "gas": "0x2faf080"}, {"blockHash": hash}])
        );
        assert_eq!(
            call_params(At::Latest, None, &bytes!("")),
            json!([{"input": "0x", "gas": "0x2faf080"}, "latest"]),
            "a creation has no address"
        );
    }
}
