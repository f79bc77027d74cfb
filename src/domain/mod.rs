//! What is true of agents, keys, signatures, tiers and limits, as the contract states it.
//!
//! Must not know async, IO, clocks, randomness, serde or HTTP: time and random bytes come in as arguments.

pub mod agent_id;
pub mod agent_list;
pub mod api_key;
pub mod binding;
pub mod bot;
pub mod chain_settings;
pub mod chains;
pub mod client;
pub mod console;
pub mod cors;
pub mod denial;
pub mod eip712;
pub mod endpoint;
pub mod freshness;
pub mod held_key;
pub mod holders;
pub mod host;
pub mod host_map;
pub mod log_rules;
pub mod mcp;
pub mod measure;
pub mod nonce;
pub mod path;
pub mod profile;
pub mod quota;
pub mod redis_url;
pub mod registries;
pub mod routing;
pub mod rpc_header;
pub mod rpc_url;
pub mod secret;
pub mod signature;
pub mod signed_message;
pub mod tenant;
pub mod tier;
pub mod tiers;
pub mod trace;
pub mod trusted_headers;
pub mod uint256;
pub mod upstream;
pub mod window;

#[cfg(test)]
pub(crate) mod fixture;
