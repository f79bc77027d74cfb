//! The settings of the owner's page, for its script.

use serde_json::json;

use crate::domain::console::ConsoleSettings;
use crate::domain::rpc_url::RpcUrl;

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
        "gateway": gateway.map(|gateway| json!({ "url": gateway.base(), "path": console.sample_path })),
        "images": console.images,
        "developmentRpcUrl": console.development_rpc_url.as_ref().map(url),
    });
    settings.to_string().into_bytes()
}
