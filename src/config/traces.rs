//! `[traces]`: where traces of requests go.

use std::num::NonZeroU32;

use crate::config::console::open_url;
use crate::config::reader::Reader;
use crate::config::written::Shown;
use crate::domain::rpc_url::RpcUrl;

/// The collector of traces, and the share of requests that are traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// The collector, which takes OTLP over HTTP; nothing: no request is traced.
    pub endpoint: Option<RpcUrl>,
    /// Of the requests that come without a trace one in so many is traced; 0: none.
    pub one_in: u32,
    /// How many requests that come with a trace are traced a second.
    pub continued_per_second: NonZeroU32,
}

impl TraceSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        reader.mask(Shown::Host, &["traces.endpoint"]);
        let per_second = reader.integer("traces.continued_per_second", 100, &(1..=1_000_000));
        read_all!(Self {
            endpoint: Some(reader.optional_text("traces.endpoint", endpoint)),
            one_in: reader.integer("traces.one_in", 100, &(0..=1_000_000)),
            continued_per_second: per_second.and_then(NonZeroU32::new),
        })
    }
}

fn endpoint(text: &str) -> Result<RpcUrl, String> {
    let url = open_url(text, "which OTEL_EXPORTER_OTLP_HEADERS takes")?;
    // The address alone, as OTEL_EXPORTER_OTLP_ENDPOINT takes it. Collectors answer 404 to `/`.
    let is_base = url.reveal().path() == "/" && url.reveal().query().is_none();
    let whole = is_base.then(|| RpcUrl::parse(&format!("{}/v1/traces", url.origin())).ok());
    Ok(whole.flatten().unwrap_or(url))
}
