//! The JSON-RPC methods of the development chain, as `eth_*` is documented for execution clients.
//!
//! Must not know the envelope: a method gets its parameters and returns a value or a fault.

use alloy::dyn_abi::TypedData;
use alloy::eips::BlockNumberOrTag;
use alloy::primitives::{Address, Bytes, U64};
use alloy::rpc::types::{FeeHistory, Filter, FilterBlockOption, TransactionRequest};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use revm::context::TxEnv;

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::chain::{self, Block, DevChain, GAS_MAX, Ledger};
use crate::dev::params::{self, Answer, Fault, Params, json};

/// The most blocks in one fee history.
const FEE_HISTORY_BLOCKS_MAX: u64 = 1_024;

pub(super) fn call(dev: &DevChain, method: &str, params: &Params<'_>) -> Answer {
    let mut ledger = dev.ledger.lock();
    match method {
        "web3_clientVersion" => json(&concat!("tiergate-dev/", env!("CARGO_PKG_VERSION"))),
        "net_version" => json(&ledger.chain_id.to_string()),
        "eth_chainId" => json(&U64::from(ledger.chain_id)),
        "eth_accounts" | "eth_requestAccounts" => json(&SAMPLE_ACCOUNTS.map(|account| account.address)),
        "eth_blockNumber" => {
            ledger.go_on(dev.now());
            json(&U64::from(ledger.head().number))
        }
        "eth_getBlockByNumber" => {
            ledger.go_on(dev.now());
            let number = ledger.number_of(params.required(0)?);
            block(ledger.block(number), params)
        }
        "eth_getBlockByHash" => block(ledger.block_by_hash(params.required(0)?), params),
        "eth_getTransactionByHash" => {
            let found = ledger.transaction(params.required(0)?);
            json(&found.map(|(block, mined)| params::transaction(block, mined)))
        }
        "eth_getTransactionReceipt" => {
            let found = ledger.transaction(params.required(0)?);
            json(&found.map(|(block, mined)| params::receipt(block, mined)))
        }
        "eth_getLogs" => logs(&ledger, &params.required(0)?),
        "eth_getCode" => json(&chain::code(params.block(1, &ledger)?.1, params.required(0)?)),
        "eth_getBalance" => json(&chain::account(params.block(1, &ledger)?.1, params.required(0)?).balance),
        "eth_getTransactionCount" => {
            json(&U64::from(chain::account(params.block(1, &ledger)?.1, params.required(0)?).nonce))
        }
        "eth_call" => eth_call(&ledger, params, false),
        "eth_estimateGas" => eth_call(&ledger, params, true),
        "eth_gasPrice" | "eth_maxPriorityFeePerGas" => json(&U64::ZERO),
        "eth_feeHistory" => fee_history(&ledger, params),
        "eth_signTypedData_v4" => sign(params.required(0)?, &params.required(1)?),
        "eth_sendTransaction" => send_transaction(&mut ledger, dev.now(), params),
        "anvil_setCode" => {
            ledger.set_code(params.required(0)?, params.required(1)?);
            json(&())
        }
        "evm_mine" => {
            params.none_from(0)?;
            ledger.mine_empty(dev.now());
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
    json(&block.map(|block| params::block(block, is_full)))
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
        let logs = block.transaction.iter().flat_map(|mined| params::logs(block, mined));
        found.extend(logs.filter(|log| filter.matches(&log.inner)));
    }
    json(&found)
}

/// A history without fees: none is ever paid here.
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

/// Runs a call. The estimate is as much as it may use: gas costs nothing.
fn eth_call(ledger: &Ledger, params: &Params<'_>, is_estimate: bool) -> Answer {
    params.none_from(2)?;
    let message = message(params.required(0)?, ledger)?;
    let gas_limit = message.gas_limit;
    let output = chain::output(ledger.call(params.block(1, ledger)?, message)?)?;
    if is_estimate { json(&U64::from(gas_limit)) } else { json(&output) }
}

fn send_transaction(ledger: &mut Ledger, now: u64, params: &Params<'_>) -> Answer {
    let request: TransactionRequest = params.required(0)?;
    let from = request.from.ok_or_else(|| Fault::invalid_params("from is missing"))?;
    if !SAMPLE_ACCOUNTS.iter().any(|account| account.address == from) {
        return Err(Fault::refused(format!("unknown account {from}: only the sample accounts can send")));
    }
    let message = message(request, ledger)?;
    json(&ledger.mine(now, message)?.0)
}

/// A call or a transaction to send, as a request states it. Fees are read by nobody.
fn message(request: TransactionRequest, ledger: &Ledger) -> Result<TxEnv, Fault> {
    if request.chain_id.is_some_and(|chain_id| chain_id != ledger.chain_id) {
        return Err(Fault::invalid_params("chainId is another chain's"));
    }
    let data = request.input.try_into_unique_input().map_err(Fault::invalid_params)?.unwrap_or_default();
    let (from, to) = (request.from.unwrap_or_default(), request.to.unwrap_or_default());
    let message = ledger.message(from, to, data);
    Ok(TxEnv {
        value: request.value.unwrap_or_default(),
        gas_limit: request.gas.unwrap_or(GAS_MAX).min(GAS_MAX),
        nonce: request.nonce.unwrap_or(message.nonce),
        ..message
    })
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, Bytes, U256, keccak256};
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol;
    use alloy::sol_types::{SolCall, SolStruct, eip712_domain};
    use serde_json::{Value, json};

    use crate::dev::accounts::{SAMPLE_ACCOUNTS, SampleAccount};
    use crate::dev::chain::IDLE_SECS_MAX;
    use crate::dev::fixture::{
        Identity, Registries, START_SECONDS, ask, chain, create, deployed, error, result, send,
    };

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
    fn code_can_be_read_and_set() {
        let (chain, on) = deployed();
        assert_eq!(result(&chain, "anvil_setCode", json!([on.identity, "0x6001"])), Value::Null);
        assert_eq!(result(&chain, "eth_getCode", json!([on.identity, "latest"])), "0x6001");
        assert_eq!(
            result(&chain, "eth_getCode", json!([on.identity, "0x3"])).as_str().unwrap().get(..4),
            Some("0x60")
        );
        assert_eq!(result(&chain, "eth_getCode", json!([Address::ZERO, "latest"])), "0x");
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

    fn data(call: &impl SolCall) -> Value {
        json!(Bytes::from(call.abi_encode()))
    }

    fn get_stake(agent: u64) -> Value {
        data(&Registries::getStakeCall { agentId: U256::from(agent) })
    }

    fn stake(agent: u64) -> Registries::stakeCall {
        Registries::stakeCall { agentId: U256::from(agent), amount: U256::from(5) }
    }

    #[test]
    fn a_call_that_reverts_is_error_3_with_its_data() {
        let (chain, on) = deployed();
        let call = json!({"to": on.identity, "data": data(&Identity::ownerOfCall { id: U256::from(6) })});
        for method in ["eth_call", "eth_estimateGas"] {
            let error = error(&chain, method, json!([call, "latest"]));
            assert_eq!((&error["code"], &error["message"]), (&json!(3), &json!("execution reverted")));
            assert_eq!(error["data"], format!("0x7e273289{:064x}", 6));
        }
        let legacy = create(&chain, "LegacyIdentity");
        let call = json!({"to": legacy, "input": data(&Identity::ownerOfCall { id: U256::from(6) })});
        let error = error(&chain, "eth_call", json!([call]));
        assert_eq!(error["message"], "execution reverted: ERC721: invalid token ID");
        assert!(error["data"].as_str().unwrap().starts_with("0x08c379a0"));
    }

    #[test]
    fn a_call_without_a_receiver_returns_what_its_init_code_returns() {
        // PUSH1 7, PUSH0, MSTORE, PUSH1 32, PUSH0, RETURN
        let output = result(&chain().0, "eth_call", json!([{"data": "0x60075f5260205ff3"}, "latest"]));
        assert_eq!(output, format!("{:#066x}", 7));
    }

    #[test]
    fn a_call_that_halts_is_an_error_without_data() {
        // JUMPDEST, PUSH0, JUMP: around and around until the gas is gone
        let error = error(&chain().0, "eth_call", json!([{"data": "0x5b5f56", "gas": "0x100000"}]));
        assert_eq!((&error["code"], error.get("data")), (&json!(-32_000), None));
    }

    #[test]
    fn a_call_at_an_older_block_sees_the_older_state() {
        let (chain, on) = deployed();
        let before = result(&chain, "eth_getBlockByNumber", json!(["latest", false]));
        send(&chain, on.stake_vault, &stake(5));
        let amount_at = |block: Value| {
            let call = json!({"to": on.stake_vault, "data": get_stake(5)});
            result(&chain, "eth_call", json!([call, block])).as_str().unwrap()[..66].to_owned()
        };
        assert_eq!(amount_at(json!("latest")), format!("{:#066x}", 5));
        assert_eq!(amount_at(before["number"].clone()), format!("{:#066x}", 0));
        assert_eq!(amount_at(before["hash"].clone()), format!("{:#066x}", 0));
        assert_eq!(amount_at(json!({"blockHash": before["hash"]})), format!("{:#066x}", 0));
    }

    #[test]
    fn a_transaction_is_one_block_with_a_receipt() {
        let (chain, on) = deployed();
        let from = SAMPLE_ACCOUNTS[7].address;
        let request = json!({"from": from, "to": on.stake_vault, "data": data(&stake(5)), "gasPrice": "0x1"});
        let gas = result(&chain, "eth_estimateGas", json!([request]));
        let hash = result(&chain, "eth_sendTransaction", json!([request]));
        let receipt = result(&chain, "eth_getTransactionReceipt", json!([hash]));
        let head = result(&chain, "eth_getBlockByNumber", json!(["latest", false]));
        assert_eq!((&receipt["status"], &receipt["type"]), (&json!("0x1"), &json!("0x2")));
        assert_eq!(receipt["logs"][0]["transactionHash"], hash);
        assert_eq!((&receipt["from"], &receipt["contractAddress"]), (&json!(from), &Value::Null));
        assert_eq!((&receipt["blockHash"], &receipt["blockNumber"]), (&head["hash"], &head["number"]));
        assert_eq!((&head["transactions"], &head["gasUsed"]), (&json!([hash]), &receipt["gasUsed"]));
        assert_eq!(head["timestamp"], format!("{START_SECONDS:#x}"));
        assert!(quantity(&receipt["gasUsed"]) <= quantity(&gas));
        let transaction = result(&chain, "eth_getTransactionByHash", json!([hash]));
        assert_eq!((&transaction["input"], &transaction["nonce"]), (&request["data"], &json!("0x0")));
        assert_eq!(result(&chain, "eth_getTransactionCount", json!([from, "latest"])), "0x1");
        assert_eq!(result(&chain, "eth_getTransactionReceipt", json!([head["hash"]])), Value::Null);
    }

    #[test]
    fn a_reverted_transaction_is_in_a_block_with_status_0_and_changes_nothing() {
        let (chain, on) = deployed();
        let from = SAMPLE_ACCOUNTS[7].address;
        let burn = data(&Identity::burnCall { id: U256::from(1) });
        let hash =
            result(&chain, "eth_sendTransaction", json!([{"from": from, "to": on.identity, "input": burn}]));
        let receipt = result(&chain, "eth_getTransactionReceipt", json!([hash]));
        assert_eq!((&receipt["status"], &receipt["logs"]), (&json!("0x0"), &json!([])));
        assert_eq!(result(&chain, "eth_getTransactionCount", json!([from])), "0x1");
        let before = result(&chain, "eth_blockNumber", json!([]));
        assert!(
            chain
                .send(from, Some(on.identity), Identity::burnCall { id: U256::from(1) }.abi_encode().into())
                .is_err()
        );
        assert_eq!(quantity(&result(&chain, "eth_blockNumber", json!([]))), quantity(&before) + 1);
    }

    #[test]
    fn only_the_sample_accounts_can_send() {
        let (chain, _) = chain();
        let stranger = Address::repeat_byte(0x11);
        let request = json!({"from": stranger, "to": stranger});
        let refused = error(&chain, "eth_sendTransaction", json!([request]));
        assert!(refused["message"].as_str().unwrap().starts_with("unknown account"));
        assert_eq!(error(&chain, "eth_sendTransaction", json!([{"to": stranger}]))["code"], -32_602);
        let accounts = result(&chain, "eth_accounts", json!([]));
        assert_eq!(accounts.as_array().unwrap().len(), SAMPLE_ACCOUNTS.len());
        assert_eq!(result(&chain, "eth_blockNumber", json!([])), "0x0");
    }

    #[test]
    fn coins_move_and_nobody_spends_what_they_lack() {
        let (chain, _) = chain();
        let [rich, poor] = [SAMPLE_ACCOUNTS[0].address, Address::repeat_byte(0x22)];
        let pay = |value: &str, nonce: &str| {
            ask(
                &chain,
                "eth_sendTransaction",
                json!([{"from": rich, "to": poor, "value": value, "nonce": nonce}]),
            )
        };
        assert!(pay("0x5", "0x0").get("result").is_some());
        assert!(pay("0x5", "0x0")["error"]["message"].as_str().unwrap().contains("nonce"));
        assert!(pay("0xffffffffffffffffffffff", "0x1").get("error").is_some());
        assert_eq!(result(&chain, "eth_getBalance", json!([poor, "latest"])), "0x5");
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        let (chain, on) = deployed();
        let call = json!({"to": on.stake_vault, "data": get_stake(1)});
        assert_eq!(
            error(&chain, "eth_call", json!([call, "latest", {on.identity.to_string(): {}}]))["code"],
            -32_602
        );
        assert_eq!(error(&chain, "evm_mine", json!([1_800_000_000]))["code"], -32_602);
        let both = json!({"to": on.stake_vault, "data": get_stake(1), "input": get_stake(2)});
        assert_eq!(error(&chain, "eth_call", json!([both]))["code"], -32_602);
    }

    fn quantity(value: &Value) -> u64 {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }
}
