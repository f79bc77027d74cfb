//! What is true of agents, keys, signatures, tiers and limits, as the contract states it.
//!
//! Must not know async, IO, clocks, randomness, serde or HTTP: time and random bytes come in as arguments.

mod agent_id;
mod api_key;
pub mod bot;
pub mod chain;
pub mod client;
mod console;
mod denial;
mod eip712;
pub mod endpoint;
pub mod freshness;
pub mod held_key;
pub mod host;
pub mod host_map;
mod log_rules;
pub mod mcp;
mod nonce;
pub mod path;
pub mod profile;
pub mod redis_url;
pub mod routing;
pub mod rpc_url;
mod secret;
mod signature;
mod signed_message;
mod tenant;
pub mod tier;
pub mod tiers;
pub mod uint256;
pub mod window;

#[cfg(test)]
pub(crate) mod fixture;

pub use agent_id::AgentId;
pub use api_key::{ApiKey, ApiKeyFormat, KEY_HEX_DIGITS, KeyDigest};
pub use bot::{BotDomains, BotSignature, DIRECTORY_PATH, Reach};
pub use chain::{Binding, Lifetimes, OtherChain, PoolSettings, ReaderSettings, Registries, RegistrySet};
pub use client::{ClientNet, FORWARDED_FOR, FORWARDED_PREFIX, OF_PROXIES, RemoteSpan, TrustedHeaders};
pub use console::ConsoleSettings;
pub use denial::{About, Denial};
pub use eip712::{Eip712Domain, KeyOperation, OwnType, SigningDomain};
pub use endpoint::WebOrigin;
pub use freshness::{Freshness, UnixSeconds};
pub use held_key::{
    GRACE_SECS_MAX, HeldKey, KEYS_PER_AGENT_MAX, KeyDays, KeyName, KeyTerms, TenantList, VERSION_2,
};
pub use host::HostPattern;
pub use host_map::{DuplicateHost, HostMap};
pub use log_rules::LogRules;
pub use mcp::{Call, CallPatterns, LargeBodies, McpRules, NamePattern, TOOL_CALL};
pub use nonce::{Nonce, NonceClaim};
pub use path::{PathForm, PathPattern};
pub use profile::{
    Details, Holders, LatestValidation, Organization, Reputation, Texts, TrustProfile, Validation,
};
pub use redis_url::{NotARedisUrl, RedisHost, RedisLayout, RedisUrl};
pub use routing::{Decision, MCP_METHOD, NEVER_FORWARDED};
pub use rpc_url::{NotAHeaderValue, RpcHeader, RpcUrl};
pub use secret::{Secret, SecretSource};
pub use signature::{SignatureBytes, SignatureFormat};
pub use signed_message::{MessageRefusal, SignedMessage};
pub(crate) use signed_message::{SKEW_SECS, VALIDITY_SECS_MIN};
pub use tenant::{
    AcceptedCredentials, CorsRules, HealthRules, InFlight, KeyPair, ProxyRules, Route, RouteAccess, Tenant,
    Timeouts, Upstream, UpstreamLimits, UpstreamScheme, UpstreamTls,
};
pub use tier::{PASSING_TIERS, PerTier, TIERS, Tier};
pub use tiers::{AGENTS_MAX, AgentList, Agents, Feedback, Grade, Measure, Question, TierSources, Tiers};
pub use window::{
    Allowance, HOUR_MICROS, MINUTE_MICROS, Quota, RetryAfter, Verdict, WINDOW_MICROS_MAX, Window,
};
