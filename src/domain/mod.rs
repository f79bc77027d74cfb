//! What is true of agents, keys, signatures, tiers and limits, as the contract states it.
//!
//! Must not know async, IO, clocks, randomness, serde or HTTP: time and random bytes come in as arguments.

mod agent_id;
pub mod agent_list;
mod api_key;
mod binding;
pub mod bot;
mod chain_settings;
pub mod chains;
pub mod client;
mod console;
mod cors;
mod denial;
mod eip712;
pub mod endpoint;
pub mod freshness;
pub mod held_key;
mod holders;
pub mod host;
pub mod host_map;
mod log_rules;
pub mod mcp;
mod measure;
mod nonce;
pub mod path;
pub mod profile;
mod quota;
pub mod redis_url;
mod registries;
pub mod routing;
pub mod rpc_header;
pub mod rpc_url;
mod secret;
mod signature;
mod signed_message;
mod tenant;
pub mod tier;
mod tiers;
mod trace;
mod trusted_headers;
pub mod uint256;
pub mod upstream;
pub mod window;

#[cfg(test)]
pub(crate) mod fixture;

pub use agent_id::AgentId;
pub use agent_list::{AGENTS_MAX, AgentList, Agents};
pub use api_key::{ApiKey, ApiKeyFormat, KEY_HEX_DIGITS, KeyDigest};
pub use binding::{Binding, OtherChain};
pub use bot::{BotDomains, BotSignature, DIRECTORY_PATH, Reach};
pub use chain_settings::{Lifetimes, PoolSettings, ReaderSettings};
pub use client::ClientNet;
pub use console::ConsoleSettings;
pub use cors::CorsRules;
pub use denial::{About, Denial};
pub use eip712::{Eip712Domain, KeyOperation, OwnType, SigningDomain};
pub use endpoint::WebOrigin;
pub use freshness::{Freshness, UnixSeconds};
pub use held_key::{
    GRACE_SECS_MAX, HeldKey, KEYS_PER_AGENT_MAX, KeyDays, KeyName, KeyTerms, TenantList, VERSION_2,
};
pub use holders::Holders;
pub use host::HostPattern;
pub use host_map::{DuplicateHost, HostMap};
pub use log_rules::LogRules;
pub use mcp::{Call, CallPatterns, LargeBodies, McpRules, NamePattern, TOOL_CALL};
pub use measure::{Feedback, Measure, Question};
pub use nonce::{Nonce, NonceClaim};
pub use path::{PathForm, PathPattern};
pub use profile::{Details, LatestValidation, Organization, Reputation, Texts, TrustProfile, Validation};
pub use quota::{Allowance, HOUR_MICROS, MINUTE_MICROS, Quota, RetryAfter, WINDOW_MICROS_MAX};
pub use redis_url::{NotARedisUrl, RedisHost, RedisLayout, RedisUrl};
pub use registries::{Registries, RegistrySet};
pub use routing::{Decision, MCP_METHOD, NEVER_FORWARDED};
pub use rpc_header::{NotAHeaderValue, RpcHeader};
pub use rpc_url::RpcUrl;
pub use secret::{Secret, SecretSource};
pub use signature::{SignatureBytes, SignatureFormat};
pub use signed_message::{MessageRefusal, SignedMessage};
pub(crate) use signed_message::{SKEW_SECS, VALIDITY_SECS_MIN};
pub use tenant::{
    AcceptedCredentials, Balance, DigestCheck, HealthRules, HostHeader, InFlight, KeyPair, OnMismatch,
    ProxyRules, Route, RouteAccess, Tenant, Timeouts, UpstreamLimits, UpstreamTls,
};
pub use tier::{PASSING_TIERS, PerTier, TIERS, Tier};
pub use tiers::{Grade, TierSources, Tiers};
pub use trace::RemoteSpan;
pub use trusted_headers::{FORWARDED_FOR, FORWARDED_PREFIX, OF_PROXIES, TrustedHeaders};
pub use upstream::{Upstream, UpstreamScheme};
pub use window::{Verdict, Window};
