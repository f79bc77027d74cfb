//! `[traces]`: where traces of requests go.

use crate::config::reader::Reader;
use crate::domain::rpc_url::{RpcUrl, public_part};

/// Where traces go, and of which requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// The collector, which takes OTLP over HTTP; nothing: no request is traced.
    pub endpoint: Option<RpcUrl>,
    /// Of the requests that come without a trace one in so many is traced; 0: none.
    pub one_in: u32,
}

impl TraceSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(Self {
            endpoint: Some(reader.optional_text("traces.endpoint", endpoint)),
            one_in: reader.integer("traces.one_in", 100, &(0..=1_000_000)),
        })
    }
}

fn endpoint(text: &str) -> Result<RpcUrl, String> {
    let is_open = |url: &RpcUrl| url.reveal().username().is_empty() && url.reveal().password().is_none();
    RpcUrl::parse(text).ok().filter(is_open).ok_or_else(|| {
        let shown = public_part(text).unwrap_or_else(|| "not a URL".to_owned());
        format!("is {shown}; write an http:// or https:// URL without a login, which OTEL_EXPORTER_OTLP_HEADERS takes")
    })
}
