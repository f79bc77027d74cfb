//! The settings of the owner's page, for its script.

use serde_json::json;

/// The settings of the page. All of them are public.
#[derive(Debug)]
pub(crate) struct ConsoleRules {
    pub(crate) title: String,
    /// The chain of the signatures, if wallets may be given it.
    pub(crate) chain: Option<WalletChain>,
    /// A first request, if the page offers one.
    pub(crate) sample: Option<SampleRequest>,
    /// A development node whose accounts the page offers as a wallet.
    pub(crate) development: Option<DevelopmentNode>,
}

/// A chain as wallets take it (EIP-3085).
#[derive(Debug)]
pub(crate) struct WalletChain {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) rpc_url: String,
    /// The symbol of its currency.
    pub(crate) currency: String,
}

/// A request to the gateway.
#[derive(Debug)]
pub(crate) struct SampleRequest {
    /// The origin of the gateway, which the page may connect to.
    pub(crate) origin: String,
    /// The gateway's address, without a slash at its end.
    pub(crate) url: String,
    pub(crate) path: String,
}

/// A node whose accounts sign for everybody.
#[derive(Debug)]
pub(crate) struct DevelopmentNode {
    /// Its origin, which the page may connect to.
    pub(crate) origin: String,
    pub(crate) url: String,
}

impl ConsoleRules {
    /// The text of `settings.json`. Its `chain` is the parameter of `wallet_addEthereumChain`.
    pub(crate) fn json(&self) -> Vec<u8> {
        let chain = self.chain.as_ref().map(|chain| {
            json!({
                "chainId": format!("{:#x}", chain.id),
                "chainName": chain.name,
                "rpcUrls": [chain.rpc_url],
                "nativeCurrency": { "name": chain.currency, "symbol": chain.currency, "decimals": 18 },
            })
        });
        let gateway = self.sample.as_ref().map(|sample| json!({ "url": sample.url, "path": sample.path }));
        let development = self.development.as_ref().map(|node| &node.url);
        let settings = json!({
            "title": self.title,
            "chain": chain,
            "gateway": gateway,
            "developmentRpcUrl": development,
        });
        settings.to_string().into_bytes()
    }
}
