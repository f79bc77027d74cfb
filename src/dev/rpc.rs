//! JSON-RPC 2.0 around the development chain: bytes in, bytes out, whatever the bytes are.
//!
//! Knows the envelope alone: single and batch, ids, error codes. What a method does stands in `methods`.

use alloy::primitives::Bytes;
use alloy::sol_types::{Panic, Revert, SolError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::dev::chain::DevChain;
use crate::dev::evm::ExecutionError;
use crate::dev::ledger::NoState;
use crate::dev::methods;

impl DevChain {
    /// Answers one HTTP body's worth of JSON-RPC. Empty if nothing in it wants an answer.
    pub(crate) fn answer(&self, body: &[u8]) -> Vec<u8> {
        let Ok(body) = serde_json::from_slice::<&RawValue>(body) else {
            return failure(None, Fault { code: -32_700, message: "parse error".to_owned(), data: None });
        };
        if body.get().starts_with('[') { self.answer_batch(body) } else { self.answer_one(body) }
    }

    fn answer_batch(&self, body: &RawValue) -> Vec<u8> {
        let requests: Vec<&RawValue> = match serde_json::from_str(body.get()) {
            Ok(requests) => requests,
            Err(error) => return failure(None, Fault::invalid_request(error)),
        };
        if requests.is_empty() {
            return failure(None, Fault::invalid_request("an empty batch"));
        }
        let mut answers = Vec::new();
        for request in requests {
            let answer = self.answer_one(request);
            if !answer.is_empty() {
                answers.push(if answers.is_empty() { b'[' } else { b',' });
                answers.extend(answer);
            }
        }
        if !answers.is_empty() {
            answers.push(b']');
        }
        answers
    }

    fn answer_one(&self, body: &RawValue) -> Vec<u8> {
        let request: Request<'_> = match serde_json::from_str(body.get()) {
            Ok(request) => request,
            Err(error) => return failure(None, Fault::invalid_request(error)),
        };
        if request.jsonrpc != "2.0" {
            return failure(None, Fault::invalid_request("jsonrpc is not \"2.0\""));
        }
        if request.id.is_some_and(|id| id.get().starts_with(['{', '[', 't', 'f'])) {
            return failure(None, Fault::invalid_request("id is neither a string nor a number"));
        }
        let params = Params::parse(request.params);
        let result = params.and_then(|params| methods::call(self, &request.method, &params));
        match (request.id, result) {
            (None, _) => Vec::new(),
            (Some(id), Ok(result)) => success(id, &result),
            (Some(id), Err(fault)) => failure(Some(id), fault),
        }
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    jsonrpc: String,
    /// Absent in a notification, which gets no answer; `null` is an id like any other.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A request's parameters, by position.
pub(super) struct Params<'a>(Vec<&'a RawValue>);

impl<'a> Params<'a> {
    fn parse(params: Option<&'a RawValue>) -> Result<Self, Fault> {
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
}

/// A JSON-RPC error.
#[derive(Debug, Serialize)]
pub(super) struct Fault {
    code: i64,
    message: String,
    /// Revert data.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Bytes>,
}

impl Fault {
    fn invalid_request(why: impl ToString) -> Self {
        Self { code: -32_600, message: format!("invalid request: {}", why.to_string()), data: None }
    }

    pub(super) fn unknown_method(method: &str) -> Self {
        Self { code: -32_601, message: format!("the method {method} does not exist"), data: None }
    }

    pub(super) fn invalid_params(why: impl ToString) -> Self {
        Self { code: -32_602, message: format!("invalid params: {}", why.to_string()), data: None }
    }

    pub(super) fn refused(why: impl ToString) -> Self {
        Self { code: -32_000, message: why.to_string(), data: None }
    }
}

impl From<NoState> for Fault {
    fn from(error: NoState) -> Self {
        Self::refused(error)
    }
}

impl From<ExecutionError> for Fault {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::Reverted(data) => {
                let reason = revert_reason(&data).map(|reason| format!(": {reason}")).unwrap_or_default();
                Self { code: 3, message: format!("execution reverted{reason}"), data: Some(data) }
            }
            ExecutionError::Halted(_) | ExecutionError::Rejected(_) => Self::refused(error),
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self { code: -32_603, message: format!("internal error: {error}"), data: None }
    }
}

/// Why a contract reverted, if it said so in one of the two standard ways.
fn revert_reason(data: &[u8]) -> Option<String> {
    let reason = Revert::abi_decode(data).map(|revert| revert.reason);
    reason.or_else(|_| Panic::abi_decode(data).map(|panic| panic.to_string())).ok()
}

fn success(id: &RawValue, result: &RawValue) -> Vec<u8> {
    encode(&Answer { jsonrpc: "2.0", id: Some(id), result: Some(result), error: None })
}

fn failure(id: Option<&RawValue>, fault: Fault) -> Vec<u8> {
    encode(&Answer { jsonrpc: "2.0", id, result: None, error: Some(fault) })
}

fn encode(answer: &Answer<'_>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    /// `null` when the request's own could not be read.
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, Bytes, U256};
    use proptest::prelude::{any, prop_oneof};
    use proptest::strategy::{Just, Strategy};
    use proptest::{collection, proptest};
    use serde_json::{Value, json};

    use crate::dev::chain::DevChain;
    use crate::dev::fixture::chain;

    fn answer(body: impl AsRef<[u8]>) -> Value {
        serde_json::from_slice(&chain().0.answer(body.as_ref())).unwrap()
    }

    fn code(body: impl AsRef<[u8]>) -> i64 {
        answer(body)["error"]["code"].as_i64().unwrap()
    }

    #[test]
    fn an_answer_carries_the_id_as_it_came() {
        for id in ["7", "\"seven\"", "null", "123456789012345678901234567890", "1.50"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x7a69"}}"#);
            assert_eq!(String::from_utf8(chain().0.answer(body.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_not_json_is_a_parse_error() {
        for body in ["", "{", "nonsense", "{\"jsonrpc\":\"2.0\"", "[1,", "{} {}"] {
            assert_eq!(code(body), -32_700, "{body}");
        }
        assert_eq!(code(b"\"\xff\""), -32_700);
    }

    #[test]
    fn what_is_not_a_request_is_an_invalid_request() {
        let bodies = [
            "1",
            "null",
            "[]",
            "{}",
            r#"{"id":1,"method":"eth_chainId"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"eth_chainId"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"eth_chainId"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"eth_chainId"}"#,
        ];
        for body in bodies {
            assert_eq!(code(body), -32_600, "{body}");
        }
    }

    #[test]
    fn unknown_methods_and_bad_parameters_are_told_apart() {
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"eth_sign"}"#), -32_601);
        for params in [r#"{"a":1}"#, "[]", "[7]", r#"["0x"]"#, "7", r#"[{"to":"0x12"}]"#] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_call","params":{params}}}"#);
            assert_eq!(code(&body), -32_602, "{body}");
        }
    }

    #[test]
    fn a_batch_is_answered_in_order_and_each_request_for_itself() {
        let batch = json!([
            {"jsonrpc": "2.0", "id": 1, "method": "net_version"},
            {"jsonrpc": "2.0", "id": 2, "method": "eth_nothing"},
            {"jsonrpc": "2.0", "method": "evm_mine"},
            "nonsense",
            {"jsonrpc": "2.0", "id": 3, "method": "eth_blockNumber", "params": []},
        ]);
        let answers = answer(batch.to_string());
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len(), 4, "a notification gets no answer");
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": 1, "result": "31337"}));
        assert_eq!(answers[1]["error"]["code"], -32_601);
        assert_eq!((&answers[2]["id"], &answers[2]["error"]["code"]), (&Value::Null, &json!(-32_600)));
        assert_eq!(answers[3]["result"], "0x1", "a notification is run");
    }

    #[test]
    fn a_batch_may_want_no_answer_at_all() {
        assert_eq!(chain().0.answer(br#"[{"jsonrpc":"2.0","method":"eth_chainId"}]"#), b"");
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(answer(&deep)[0]["error"]["code"], -32_600);
        for method in ["eth_call", "eth_getLogs", "eth_getBlockByNumber", "eth_feeHistory"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{deep},{deep}]}}"#);
            assert_eq!(code(&body), -32_602, "{method}");
        }
    }

    /// Parameters that are nearly right, which random bytes never are.
    fn params() -> impl Strategy<Value = Value> {
        let param = prop_oneof![
            Just(json!("latest")),
            Just(json!(null)),
            Just(json!(true)),
            Just(json!("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")),
            Just(json!({"fromBlock": "0x0", "toBlock": "0xffffffffffffffff", "topics": [null, []]})),
            Just(json!([25.0, -1.0])),
            any::<u64>().prop_map(|number| json!(format!("{number:#x}"))),
            any::<u64>().prop_map(|number| json!(number)),
            any::<[u8; 32]>().prop_map(|hash| json!(B256::from(hash))),
            (any::<[u8; 24]>(), any::<u64>()).prop_map(|(code, gas)| json!({
                "from": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
                "data": Bytes::from(code.to_vec()),
                "gas": format!("{:#x}", gas % 100_000),
            })),
            (any::<[u8; 32]>(), 0..20_u8).prop_map(|(value, precompile)| json!({
                "from": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
                "to": Address::with_last_byte(precompile),
                "value": U256::from_be_bytes(value),
                "input": Bytes::from(value.to_vec()),
            })),
        ];
        collection::vec(param, 0..4).prop_map(Value::from)
    }

    fn well_formed(chain: &DevChain, body: &[u8]) {
        let answer: Value = serde_json::from_slice(&chain.answer(body)).unwrap();
        assert_ne!(answer.get("result").is_some(), answer.get("error").is_some(), "{answer}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_get_an_error_and_never_panic(body: Vec<u8>) {
            well_formed(&chain().0, &body);
        }

        #[test]
        fn arbitrary_parameters_get_an_answer_and_never_panic(params in params()) {
            let (chain, _) = chain();
            for method in [
                "eth_getBlockByNumber", "eth_getBlockByHash", "eth_getCode", "eth_getBalance", "eth_getStorageAt",
                "eth_getTransactionCount", "eth_getTransactionByHash", "eth_getTransactionReceipt", "eth_call",
                "eth_estimateGas", "eth_feeHistory", "eth_getLogs", "eth_sendTransaction", "anvil_setCode", "evm_mine",
            ] {
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
                well_formed(&chain, body.to_string().as_bytes());
            }
        }
    }
}
