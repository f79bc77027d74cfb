//! Lets the rig of ERC-8004's registries drive a chain over JSON-RPC.

use alloy::primitives::{Address, Bytes, Log, U64};
use serde_json::{Value, json};

use crate::support::erc8004::{Node, Sent};
use crate::support::{chain::Chain, time::unix_seconds};

impl Node for Chain {
    fn transact(&self, from: Address, to: Option<Address>, data: Bytes) -> Sent {
        let receipt = self.receipt(json!({ "from": from, "to": to, "data": data }));
        let log = |log: &Value| -> Log { serde_json::from_value(log.clone()).unwrap() };
        Sent {
            created: serde_json::from_value(receipt["contractAddress"].clone()).unwrap(),
            logs: receipt["logs"].as_array().unwrap().iter().map(log).collect(),
        }
    }

    fn seconds(&self) -> u64 {
        let head = self.rpc("eth_getBlockByNumber", json!(["latest", false]));
        let head: U64 = serde_json::from_value(head["timestamp"].clone()).unwrap();
        head.to::<u64>().max(unix_seconds())
    }

    fn chain_id(&self) -> u64 {
        self.contracts.chain_id.try_into().unwrap()
    }
}
