//! HTML pages: their security headers, and the settings of the owner's page for its script.

use http::{HeaderValue, header};
use serde_json::json;

use crate::domain::{ConsoleSettings, RpcUrl};
use crate::wire::answers::Answer;

/// The answer with the headers that keep it to itself, and a policy for what it may run and load (CSP).
pub(crate) fn guarded(mut answer: Answer, policy: HeaderValue) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The text of `settings.json`. Its `chain` is the parameter of `wallet_addEthereumChain` (EIP-3085) for the chain of the
/// signatures, which has this id.
pub(crate) fn settings(console: &ConsoleSettings, chain_id: u64) -> Vec<u8> {
    let url = |url: &RpcUrl| url.reveal().as_str().to_owned();
    let chain = console.rpc_url.as_ref().map(|rpc_url| {
        json!({
            "chainId": format!("{chain_id:#x}"),
            "chainName": console.chain_name,
            "rpcUrls": [url(rpc_url)],
            "nativeCurrency": { "name": console.currency, "symbol": console.currency, "decimals": 18 },
        })
    });
    let gateway = console.gateway_url.as_ref();
    let settings = json!({
        "title": console.title,
        "chain": chain,
        "gateway": gateway.map(|gateway| json!({ "url": gateway.base(), "path": console.sample_path, "mcp": console.sample_mcp })),
        "images": console.images,
        "developmentRpcUrl": console.development_rpc_url.as_ref().map(url),
    });
    settings.to_string().into_bytes()
}
