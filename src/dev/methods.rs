//! What each JSON-RPC method does, as `eth_*` is documented for execution clients.
//!
//! Must not know the envelope: a method gets its parameters and returns a value or a fault.

use alloy::dyn_abi::TypedData;
use alloy::eips::BlockNumberOrTag;
use alloy::primitives::{Address, B256, Bytes, U64};
use alloy::rpc::types::{FeeHistory, Filter, FilterBlockOption};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::calls;
use crate::dev::chain::DevChain;
use crate::dev::ledger::{Block, Ledger};
use crate::dev::params::{Answer, Fault, Params, json};
use crate::dev::wire;

/// The most blocks in one fee history.
const FEE_HISTORY_BLOCKS_MAX: u64 = 1_024;

pub(super) fn call(chain: &DevChain, method: &str, params: &Params<'_>) -> Answer {
    let mut ledger = chain.ledger.lock();
    match method {
        "web3_clientVersion" => json(&concat!("tiergate-dev/", env!("CARGO_PKG_VERSION"))),
        "net_version" => json(&ledger.chain_id.to_string()),
        "eth_chainId" => json(&U64::from(ledger.chain_id)),
        "eth_accounts" | "eth_requestAccounts" => json(&SAMPLE_ACCOUNTS.map(|account| account.address)),
        "eth_blockNumber" => {
            ledger.go_on(chain.now());
            json(&U64::from(ledger.head().number))
        }
        "eth_getBlockByNumber" => {
            ledger.go_on(chain.now());
            let number = ledger.number_of(params.required(0)?);
            block(ledger.block(number), params)
        }
        "eth_getBlockByHash" => block(ledger.block_by_hash(params.required(0)?), params),
        "eth_getTransactionByHash" => {
            let found = ledger.transaction(params.required(0)?);
            json(&found.map(|(block, mined)| wire::transaction(block, mined)))
        }
        "eth_getTransactionReceipt" => {
            let found = ledger.transaction(params.required(0)?);
            json(&found.map(|(block, mined)| wire::receipt(block, mined)))
        }
        "eth_getLogs" => logs(&ledger, &params.required(0)?),
        "eth_getCode" => {
            let block = params.block(1, &ledger)?.number;
            json(&ledger.state.code(params.required(0)?, block))
        }
        "eth_getBalance" => {
            let block = params.block(1, &ledger)?.number;
            json(&ledger.state.account(params.required(0)?, block).balance)
        }
        "eth_getTransactionCount" => {
            let block = params.block(1, &ledger)?.number;
            json(&U64::from(ledger.state.account(params.required(0)?, block).nonce))
        }
        "eth_getStorageAt" => {
            let block = params.block(2, &ledger)?.number;
            json(&B256::from(ledger.state.slot(params.required(0)?, params.required(1)?, block)))
        }
        "eth_call" => calls::eth_call(&ledger, params),
        "eth_estimateGas" => calls::estimate_gas(&ledger, params),
        "eth_gasPrice" | "eth_maxPriorityFeePerGas" => json(&U64::ZERO),
        "eth_feeHistory" => fee_history(&ledger, params),
        "eth_signTypedData_v4" => sign(params.required(0)?, &params.required(1)?),
        "eth_sendTransaction" => calls::send_transaction(&mut ledger, chain.now(), params),
        "anvil_setCode" => {
            let head = ledger.head().number;
            ledger.state.set_code(params.required(0)?, head, params.required(1)?);
            json(&())
        }
        "evm_mine" => {
            params.none_from(0)?;
            ledger.mine_empty(chain.now());
            json(&U64::ZERO)
        }
        _ => Err(Fault::new(-32_601, format!("the method {method} does not exist"))),
    }
}

/// Signs typed data (EIP-712), given as an object or as its JSON text, with the key of a sample account.
fn sign(address: Address, data: &TypedData) -> Answer {
    let account = SAMPLE_ACCOUNTS.iter().find(|account| account.address == address);
    let key = account.ok_or_else(|| Fault::refused("the key of this account is not known here"))?.key;
    let signer: PrivateKeySigner = key.parse().map_err(Fault::refused)?;
    let hash = data.eip712_signing_hash().map_err(Fault::invalid_params)?;
    let signature = signer.sign_hash_sync(&hash).map_err(Fault::refused)?;
    json(&Bytes::from(signature.as_bytes()))
}

fn block(block: Option<&Block>, params: &Params<'_>) -> Answer {
    let is_full = params.optional(1)?.unwrap_or(false);
    json(&block.map(|block| wire::block(block, is_full)))
}

fn logs(ledger: &Ledger, filter: &Filter) -> Answer {
    let head = ledger.head().number;
    let (from, to) = match filter.block_option {
        FilterBlockOption::AtBlockHash(hash) => {
            let block = ledger.block_by_hash(hash).ok_or_else(|| Fault::refused("unknown block"))?;
            (block.number, block.number)
        }
        FilterBlockOption::Range { from_block, to_block } => {
            if let (Some(BlockNumberOrTag::Number(from)), Some(BlockNumberOrTag::Number(to))) =
                (from_block, to_block)
                && from > to
            {
                return Err(Fault::invalid_params("the range of blocks ends before it begins"));
            }
            let number = |block: Option<BlockNumberOrTag>| ledger.number_of(block.unwrap_or_default());
            (number(from_block), number(to_block))
        }
    };
    let mut found = Vec::new();
    for block in (from..=to.min(head)).filter_map(|number| ledger.block(number)) {
        let logs = block.transaction.iter().flat_map(|mined| wire::logs(block, mined));
        found.extend(logs.filter(|log| filter.matches(&log.inner)));
    }
    json(&found)
}

/// Nobody pays a fee here, nobody ever paid one.
fn fee_history(ledger: &Ledger, params: &Params<'_>) -> Answer {
    let wanted = params.required::<U64>(0)?.saturating_to::<u64>().min(FEE_HISTORY_BLOCKS_MAX);
    let newest = ledger.number_of(params.required(1)?);
    let percentiles: Option<Vec<f64>> = params.optional(2)?;
    if newest > ledger.head().number {
        return Err(Fault::refused("unknown block"));
    }
    let columns = percentiles.map(|percentiles| percentiles.len());
    let oldest = newest + 1 - wanted.min(newest + 1);
    json(&FeeHistory {
        oldest_block: oldest,
        base_fee_per_gas: (oldest..=newest + 1).map(|_| 0).collect(),
        gas_used_ratio: (oldest..=newest).map(|_| 0.0).collect(),
        reward: columns.map(|columns| (oldest..=newest).map(|_| vec![0; columns]).collect()),
        ..FeeHistory::default()
    })
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, Bytes, U256, keccak256};
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol;
    use alloy::sol_types::{SolStruct, eip712_domain};
    use serde_json::{Value, json};

    use crate::dev::accounts::{SAMPLE_ACCOUNTS, SampleAccount};
    use crate::dev::fixture::{START_SECONDS, ask, chain, deployed, error, result};
    use crate::dev::ledger::IDLE_SECS_MAX;

    #[test]
    fn a_chain_without_traffic_goes_on_by_an_empty_block_a_minute() {
        let (chain, clock) = chain();
        let head = || result(&chain, "eth_getBlockByNumber", json!(["latest", false]));
        let first = head();
        clock.set(START_SECONDS + IDLE_SECS_MAX - 1);
        assert_eq!(head(), first);
        clock.set(START_SECONDS + IDLE_SECS_MAX);
        assert_eq!(result(&chain, "eth_blockNumber", json!([])), "0x1");
        let second = head();
        assert_eq!((&second["parentHash"], &second["transactions"]), (&first["hash"], &json!([])));
        assert_eq!(second["timestamp"], format!("{:#x}", START_SECONDS + IDLE_SECS_MAX));
    }

    #[test]
    fn the_state_of_128_blocks_can_be_read_and_no_other() {
        let (chain, _) = chain();
        for _ in 0..200 {
            assert_eq!(result(&chain, "evm_mine", json!([])), "0x0");
        }
        let balance = |block: u64| {
            ask(&chain, "eth_getBalance", json!([SAMPLE_ACCOUNTS[0].address, format!("{block:#x}")]))
        };
        assert_eq!(balance(73)["result"], "0x21e19e0c9bab2400000");
        assert!(
            balance(72)["error"]["message"].as_str().unwrap().contains("only that of the last 128 blocks")
        );
        assert_eq!(balance(201)["error"]["message"], "unknown block");
        assert_eq!(result(&chain, "eth_getBlockByNumber", json!(["0xc9", false])), Value::Null);
    }

    #[test]
    fn logs_are_found_by_block_address_and_topic() {
        let (chain, on) = deployed();
        let count = |filter: Value| result(&chain, "eth_getLogs", json!([filter])).as_array().unwrap().len();
        let staked = keccak256("Staked(uint256,address,uint256)");
        let id = |id: u64| format!("{id:#066x}");
        assert_eq!(count(json!({"fromBlock": "earliest", "address": on.stake_vault})), 4);
        assert_eq!(count(json!({"fromBlock": "0x0", "address": [on.stake_vault, on.identity]})), 9);
        assert_eq!(count(json!({"fromBlock": "0x0", "topics": [staked]})), 4);
        assert_eq!(count(json!({"fromBlock": "0x0", "topics": [staked, id(3)]})), 1);
        assert_eq!(
            count(json!({"fromBlock": "0x0", "topics": [null, [id(3), id(4)]], "address": on.stake_vault})),
            2
        );
        assert_eq!(count(json!({"fromBlock": "0x0", "topics": [[], [], [], id(2)]})), 1);
        assert_eq!(
            count(json!({"fromBlock": "0x0", "topics": [], "address": []})),
            4 + 5 + 9 + 2 + 2 + 1 + 3
        );
        assert_eq!(count(json!({"fromBlock": "0xffff", "toBlock": "0xffffffffffffffff"})), 0);
        assert_eq!(count(json!({})), 1, "the newest block is the default");
        assert_eq!(count(json!({"fromBlock": "0xffff", "toBlock": "latest"})), 0, "there is nothing yet");

        let log = &result(&chain, "eth_getLogs", json!([{"fromBlock": "0x0", "topics": [staked, id(3)]}]))[0];
        assert_eq!(count(json!({"blockHash": log["blockHash"]})), 1);
        let block = result(&chain, "eth_getBlockByHash", json!([log["blockHash"], true]));
        assert_eq!((&block["number"], &block["hash"]), (&log["blockNumber"], &log["blockHash"]));
        assert_eq!(block["transactions"][0]["hash"], log["transactionHash"]);
        assert_eq!((&log["logIndex"], &log["removed"]), (&json!("0x0"), &json!(false)));

        assert_eq!(error(&chain, "eth_getLogs", json!([{"blockHash": id(1)}]))["code"], -32_000);
        assert_eq!(
            error(&chain, "eth_getLogs", json!([{"fromBlock": "0x2", "toBlock": "0x1"}]))["code"],
            -32_602
        );
    }

    #[test]
    fn code_and_storage_can_be_read_and_code_can_be_set() {
        let (chain, on) = deployed();
        assert_eq!(result(&chain, "anvil_setCode", json!([on.identity, "0x6001"])), Value::Null);
        assert_eq!(result(&chain, "eth_getCode", json!([on.identity, "latest"])), "0x6001");
        assert_eq!(
            result(&chain, "eth_getCode", json!([on.identity, "0x3"])).as_str().unwrap().get(..4),
            Some("0x60")
        );
        assert_eq!(result(&chain, "eth_getCode", json!([Address::ZERO, "latest"])), "0x");
        // The vault's only variable is a mapping from the agent to the amount at the first slot.
        let slot = keccak256([U256::from(1).to_be_bytes::<32>(), [0; 32]].concat());
        let stored = result(&chain, "eth_getStorageAt", json!([on.stake_vault, slot, "latest"]));
        assert_eq!(stored, format!("{:#066x}", 1_000 * 10_u128.pow(18)));
    }

    #[test]
    fn sample_accounts_sign_typed_data_as_an_object_or_a_text_and_no_other_account_does() {
        let (chain, _) = chain();
        let SampleAccount { address, key } = SAMPLE_ACCOUNTS[4];
        let field = |name: &str| json!({ "name": name, "type": "uint256" });
        let data = json!({
            "types": {
                "EIP712Domain": [{ "name": "name", "type": "string" }, field("chainId")],
                "Note": [field("agentId"), field("timestamp")],
            },
            "primaryType": "Note",
            "domain": { "name": "Sample", "chainId": 8004 },
            "message": { "agentId": "4", "timestamp": 1_700_000_000 },
        });
        sol! { struct Note { uint256 agentId; uint256 timestamp; } }
        let note = Note { agentId: U256::from(4), timestamp: U256::from(1_700_000_000) };
        let domain = eip712_domain! { name: "Sample", chain_id: 8004, };
        let signer: PrivateKeySigner = key.parse().unwrap();
        let expected = signer.sign_hash_sync(&note.eip712_signing_hash(&domain)).unwrap();
        let expected = json!(Bytes::from(expected.as_bytes()));
        assert_eq!(result(&chain, "eth_signTypedData_v4", json!([address, data])), expected);
        assert_eq!(result(&chain, "eth_signTypedData_v4", json!([address, data.to_string()])), expected);
        let stranger = error(&chain, "eth_signTypedData_v4", json!([Address::ZERO, data]));
        assert_eq!(stranger["code"], -32_000);
        let shapeless = error(&chain, "eth_signTypedData_v4", json!([address, { "primaryType": "Note" }]));
        assert_eq!(shapeless["code"], -32_602);
    }

    #[test]
    fn nobody_pays_a_fee() {
        let (chain, _) = deployed();
        for method in ["eth_gasPrice", "eth_maxPriorityFeePerGas"] {
            assert_eq!(result(&chain, method, json!([])), "0x0");
        }
        let history = result(&chain, "eth_feeHistory", json!(["0x3", "latest", [25.0, 75.0]]));
        assert_eq!(history["baseFeePerGas"], json!(["0x0", "0x0", "0x0", "0x0"]));
        assert_eq!(history["reward"], json!([["0x0", "0x0"], ["0x0", "0x0"], ["0x0", "0x0"]]));
    }
}
