//! JSON-RPC 2.0 around the development chain: bytes in, bytes out, whatever the bytes are.
//!
//! Knows the envelope alone: single and batch, ids, versions. What a method does stands in `methods`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::dev::params::{Fault, Params};
use crate::dev::{chain::DevChain, methods};

impl DevChain {
    /// Answers one HTTP body's worth of JSON-RPC. Empty if nothing in it wants an answer.
    pub(crate) fn answer(&self, body: &[u8]) -> Vec<u8> {
        let Ok(body) = serde_json::from_slice::<&RawValue>(body) else {
            return encode(&Answer::failure(Fault::new(-32_700, "parse error")));
        };
        if !body.get().starts_with('[') {
            return self.answer_one(body).map(|answer| encode(&answer)).unwrap_or_default();
        }
        let requests: Vec<&RawValue> = match serde_json::from_str(body.get()) {
            Ok(requests) => requests,
            Err(error) => return encode(&Answer::failure(Fault::invalid_request(error))),
        };
        if requests.is_empty() {
            return encode(&Answer::failure(Fault::invalid_request("an empty batch")));
        }
        let answers: Vec<_> = requests.into_iter().filter_map(|request| self.answer_one(request)).collect();
        if answers.is_empty() { Vec::new() } else { encode(&answers) }
    }

    fn answer_one<'a>(&self, body: &'a RawValue) -> Option<Answer<'a>> {
        let request: Request<'_> = match serde_json::from_str(body.get()) {
            Ok(request) => request,
            Err(error) => return Some(Answer::failure(Fault::invalid_request(error))),
        };
        if request.jsonrpc != "2.0" {
            return Some(Answer::failure(Fault::invalid_request("jsonrpc is not \"2.0\"")));
        }
        if request.id.is_some_and(|id| id.get().starts_with(['{', '[', 't', 'f'])) {
            return Some(Answer::failure(Fault::invalid_request("id is neither a string nor a number")));
        }
        let params = Params::parse(request.params);
        let result = params.and_then(|params| methods::call(self, &request.method, &params));
        let (result, error) = match result {
            Ok(result) => (Some(result), None),
            Err(fault) => (None, Some(fault)),
        };
        Some(Answer { jsonrpc: "2.0", id: Some(request.id?), result, error })
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

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    /// `null` when the request's own could not be read.
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
}

impl Answer<'_> {
    /// The answer to what is no request.
    const fn failure(fault: Fault) -> Self {
        Self { jsonrpc: "2.0", id: None, result: None, error: Some(fault) }
    }
}

fn encode(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
}
