//! The owner's page.

use crate::domain::rpc_url::RpcUrl;

/// The owner's page. Everything here is shown to everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// True if the page is served.
    pub enabled: bool,
    /// Its title.
    pub title: String,
    /// The JSON-RPC URL that wallets are given for the chain of the signatures.
    pub rpc_url: Option<RpcUrl>,
    /// The name of that chain; not empty if there is a URL.
    pub chain_name: String,
    /// The symbol of that chain's currency.
    pub currency: String,
    /// The gateway's address as clients see it, without a query.
    pub gateway_url: Option<RpcUrl>,
    /// The path of a first request there.
    pub sample_path: String,
    /// True if it is an endpoint of MCP.
    pub sample_mcp: bool,
    /// True if the page loads an agent's image from wherever its registration names it.
    pub images: bool,
    /// A development node whose accounts sign for everybody.
    pub development_rpc_url: Option<RpcUrl>,
}
