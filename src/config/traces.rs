//! `[traces]`: where traces of requests go.

use std::num::NonZeroU32;

use crate::config::console::open_url;
use crate::config::written::Shown;
use crate::domain::rpc_url::RpcUrl;

settings! {
    /// The collector of traces, and the share of requests that are traced.
    TraceSettings(reader) {
        /// The collector, which takes OTLP over HTTP; nothing: no request is traced.
        endpoint: Option<RpcUrl> = {
            reader.mask(Shown::Host, &["traces.endpoint"]);
            Some(reader.optional_text("traces.endpoint", endpoint))
        },
        /// Of the requests that come without a trace one in so many is traced; 0: none.
        one_in: u32 = reader.integer("traces.one_in", 100, &(0..=1_000_000)),
        /// How many requests that come with a trace are traced a second.
        continued_per_second: NonZeroU32 =
            reader.integer("traces.continued_per_second", 100, &(1..=1_000_000)).and_then(NonZeroU32::new),
    }
}

fn endpoint(text: &str) -> Result<RpcUrl, String> {
    let url = open_url(text, "which OTEL_EXPORTER_OTLP_HEADERS takes")?;
    // The address alone, as OTEL_EXPORTER_OTLP_ENDPOINT takes it. Collectors answer 404 to `/`.
    let is_base = url.reveal().path() == "/" && url.reveal().query().is_none();
    let whole = is_base.then(|| RpcUrl::parse(&format!("{}/v1/traces", url.origin())));
    Ok(whole.flatten().unwrap_or(url))
}
