//! `[traces]`: where traces of requests go.

use std::num::NonZeroU32;

use crate::config::{console::open_url, written::Shown};
use crate::domain::RpcUrl;

settings! {
    /// The collector of traces, and the share of requests that are traced.
    TraceSettings(reader) {
        /// Where spans of requests are sent, by OTLP over HTTP; without it none are made, and a client's traceparent passes
        /// untouched. Logins go into OTEL_EXPORTER_OTLP_HEADERS, and other variables of OpenTelemetry's exporter and batches work.
        /// A URL without a path means /v1/traces.
        /// Example: "http://127.0.0.1:4318/v1/traces"
        endpoint: Option<RpcUrl> = {
            reader.mask(Shown::Host, &["traces.endpoint"]);
            Some(reader.text("traces.endpoint", None, endpoint))
        },
        /// Of requests that come without a trace one in so many is traced, up to 1000000; 1: each, 0: none.
        one_in: u32 = reader.integer("traces.one_in", 100, &(0..=1_000_000)),
        /// Requests that come with a trace are traced if their client says so, but at most so many a second in this process, 1 to
        /// 1000000: any client may say so.
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
