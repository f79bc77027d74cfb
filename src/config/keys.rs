//! `[keys]`: what API keys look like and how often they may be managed.

use crate::config::choice::plain;
use crate::config::console::url_without_query;
use crate::config::reader::Reader;
use crate::domain::api_key::ApiKeyFormat;
use crate::domain::quota::Quota;
use crate::domain::rpc_url::RpcUrl;

/// The longest prefix, in characters.
const PREFIX_CHARS_MAX: usize = 64;

/// API keys and their management.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySettings {
    /// What a key looks like; its prefix is 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`.
    pub format: ApiKeyFormat,
    /// How often one agent's keys may be managed from one client IP.
    pub requests_per_hour: Quota,
    /// Where owners reach the endpoints for keys, without a query.
    pub public_url: Option<RpcUrl>,
}

impl KeySettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(Self {
            format: reader.text("keys.prefix", "svc_live_v1_", |text| {
                plain(text, &(1..=PREFIX_CHARS_MAX), &['_', '-']).map(ApiKeyFormat::new)
            }),
            requests_per_hour: reader
                .integer("keys.requests_per_hour", 10, &(1..=1_000_000))
                .map(Quota::per_hour),
            public_url: reader.text("keys.public_url", "", url_without_query),
        })
    }
}
