//! `[keys]`: what API keys look like and how often they may be managed.

use std::time::Duration;

use crate::config::{console::url_without_query, written::plain};
use crate::domain::{ApiKeyFormat, KEYS_PER_AGENT_MAX, Quota, RpcUrl};

/// The longest prefix, in characters.
const PREFIX_CHARS_MAX: usize = 64;

settings! {
    /// API keys and their management.
    KeySettings(reader) {
        /// The beginning of every API key: 1 to 64 characters of A-Z, a-z, 0-9, _ and -. Keys with another prefix are refused, so
        /// a change makes all keys invalid that were handed out before.
        format: ApiKeyFormat = reader.text("keys.prefix", "svc_live_v1_", |text| {
            plain(text, &(1..=PREFIX_CHARS_MAX), &['_', '-']).map(ApiKeyFormat::new)
        }),
        /// Optional. true: a key is refused once the account that signed for it may no longer sign for the agent. So is a key that a
        /// release made which did not keep that account, until it is replaced. false: a key outlives the sale of its agent. Without
        /// it false, but true for registries that have wallets.
        /// Example: false
        end_with_signer: Option<bool> = Some(reader.boolean("keys.end_with_signer", None)),
        /// How many keys an agent may have, 1 to 32. With 1 a second one is refused, and a rotation replaces it. Owners tell several by name.
        per_agent_max: u32 = reader.integer("keys.per_agent_max", 1, &(1..=i64::from(KEYS_PER_AGENT_MAX))),
        /// The longest life that an owner may ask for a key, at most 3660 days. Keys without an end stay allowed.
        expires_max: Duration = reader.duration("keys.expires_max", "365days", ["1s", "3660days"]),
        /// How often the owner may manage the keys of one agent from one client IP in any 60 minutes, 1 to 1000000. Revocations pass
        /// beyond that, as many again; requests that are not the owner's count apart.
        requests_per_hour: Quota =
            reader.integer("keys.requests_per_hour", 10, &(1..=1_000_000)).map(Quota::per_hour),
        /// Where owners reach the endpoints for keys from outside, as an http(s) URL: /.well-known/tiergate tells it, and where the
        /// owner's page is. Empty: it tells neither.
        public_url: Option<RpcUrl> = reader.text("keys.public_url", "", url_without_query),
    }
}
