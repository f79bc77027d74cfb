//! The methods that run the EVM: calls, estimates and transactions.
//!
//! Must not know the envelope.

use alloy::primitives::{Address, Bytes, U64, U256};
use serde::Deserialize;

use crate::dev::accounts::SAMPLE_ACCOUNTS;
use crate::dev::evm::{self, GAS_MAX, Message};
use crate::dev::ledger::Ledger;
use crate::dev::params::{Answer, Fault, Params, json};

pub(super) fn eth_call(ledger: &Ledger, params: &Params<'_>) -> Answer {
    params.none_from(2)?;
    let message = params.required::<CallRequest>(0)?.into_message(ledger)?;
    json(&evm::output(ledger.call(params.block(1, ledger)?, &message)?)?)
}

/// What the call spent and a quarter more, which covers what inner calls must hold back; all there is if that fails.
pub(super) fn estimate_gas(ledger: &Ledger, params: &Params<'_>) -> Answer {
    params.none_from(2)?;
    let message = params.required::<CallRequest>(0)?.into_message(ledger)?;
    let block = params.block(1, ledger)?;
    let result = ledger.call(block, &message)?;
    let spent = result.gas().total_gas_spent().max(result.tx_gas_used());
    evm::output(result)?;
    let estimate = Message { gas_limit: (spent + spent / 4).min(message.gas_limit), ..message.clone() };
    let is_enough = ledger.call(block, &estimate).is_ok_and(|result| result.is_success());
    json(&U64::from(if is_enough { estimate.gas_limit } else { message.gas_limit }))
}

pub(super) fn send_transaction(ledger: &mut Ledger, now: u64, params: &Params<'_>) -> Answer {
    let request: CallRequest = params.required(0)?;
    let from = request.from.ok_or_else(|| Fault::invalid_params("from is missing"))?;
    if !SAMPLE_ACCOUNTS.iter().any(|account| account.address == from) {
        return Err(Fault::refused(format!("unknown account {from}: only the sample accounts can send")));
    }
    let message = request.into_message(ledger)?;
    json(&ledger.mine(now, message)?.0)
}

/// A call or a transaction to send, as a request states it. Fees are read by nobody.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallRequest {
    from: Option<Address>,
    to: Option<Address>,
    gas: Option<U64>,
    value: Option<U256>,
    nonce: Option<U64>,
    chain_id: Option<U64>,
    /// The older name of `input`.
    data: Option<Bytes>,
    input: Option<Bytes>,
}

impl CallRequest {
    fn into_message(self, ledger: &Ledger) -> Result<Message, Fault> {
        if self.chain_id.is_some_and(|chain_id| chain_id != U64::from(ledger.chain_id)) {
            return Err(Fault::invalid_params("chainId is another chain's"));
        }
        if self.data.is_some() && self.input.is_some() && self.data != self.input {
            return Err(Fault::invalid_params("data and input differ"));
        }
        Ok(Message {
            from: self.from.unwrap_or_default(),
            to: self.to,
            value: self.value.unwrap_or_default(),
            data: self.input.or(self.data).unwrap_or_default(),
            gas_limit: self.gas.map_or(GAS_MAX, |gas| gas.saturating_to::<u64>().min(GAS_MAX)),
            nonce: self.nonce.map(|nonce| nonce.saturating_to()),
        })
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, Bytes, U256};
    use alloy::sol_types::SolCall;
    use serde_json::{Value, json};

    use crate::dev::accounts::SAMPLE_ACCOUNTS;
    use crate::dev::fixture::{
        Identity, Registries, START_SECONDS, ask, chain, create, deployed, error, result, send,
    };

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
        assert!(quantity(&receipt["gasUsed"]) <= quantity(&gas) && quantity(&gas) < 200_000);
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
