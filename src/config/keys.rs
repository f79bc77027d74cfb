//! `[keys]`: what API keys look like and how often they may be managed.

use std::time::Duration;

use crate::config::choice::plain;
use crate::config::console::url_without_query;
use crate::domain::api_key::ApiKeyFormat;
use crate::domain::key_terms::KEYS_PER_AGENT_MAX;
use crate::domain::quota::Quota;
use crate::domain::rpc_url::RpcUrl;

/// The longest prefix, in characters.
const PREFIX_CHARS_MAX: usize = 64;

settings! {
    /// API keys and their management.
    KeySettings(reader) {
        /// What a key looks like; its prefix is 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`.
        format: ApiKeyFormat = reader.text("keys.prefix", "svc_live_v1_", |text| {
            plain(text, &(1..=PREFIX_CHARS_MAX), &['_', '-']).map(ApiKeyFormat::new)
        }),
        /// True if a key is good only while the account that signed for it may act for the agent; `None`: the registries
        /// decide.
        end_with_signer: Option<bool> = Some(reader.optional_boolean("keys.end_with_signer")),
        /// How many keys an agent may have.
        per_agent_max: u32 = reader.integer("keys.per_agent_max", 1, &(1..=i64::from(KEYS_PER_AGENT_MAX))),
        /// The longest life of a key that has an end.
        expires_max: Duration = reader.duration("keys.expires_max", "365days", ["1s", "3660days"]),
        /// How often one agent's keys may be managed from one client IP.
        requests_per_hour: Quota =
            reader.integer("keys.requests_per_hour", 10, &(1..=1_000_000)).map(Quota::per_hour),
        /// Where owners reach the endpoints for keys, without a query.
        public_url: Option<RpcUrl> = reader.text("keys.public_url", "", url_without_query),
    }
}
