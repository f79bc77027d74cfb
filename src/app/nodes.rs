//! The RPC nodes that the settings name, with the headers for them.

use std::sync::Arc;

use crate::app::error::StartError;
use crate::chain::pool::{Pool, PoolSettings};
use crate::config::Settings;
use crate::domain::rpc_header::{RpcHeader, value};
use crate::domain::secret::{Secret, SecretSource};
use crate::files;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// The configured nodes.
pub(super) fn pool(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Pool, StartError> {
    let unusable = |problems: Vec<String>| {
        StartError::Other(format!("headers for RPC nodes can't be used:\n  {}", problems.join("\n  ")))
    };
    let headers = headers(&settings.chain.rpc_headers).map_err(unusable)?;
    let pool = PoolSettings {
        urls: &settings.chain.rpc_urls,
        headers: &headers,
        request_timeout: settings.chain.request_timeout,
        calls_per_second: settings.chain.calls_per_second,
        proxy: settings.chain.http_proxy.as_ref(),
        chain_id: settings.chain.chain_id,
    };
    Ok(Pool::new(&pool, Arc::clone(clock), metrics.clone())?)
}

fn headers(configured: &[RpcHeader<SecretSource>]) -> Result<Vec<RpcHeader<Secret>>, Vec<String>> {
    let (mut headers, mut problems) = (Vec::new(), Vec::new());
    for RpcHeader { origin, name, value: source } in configured {
        let unfit = |why| format!("{name} for {origin} can't be sent: {why}");
        match files::secret(source).and_then(|text| value(text.reveal()).map_err(unfit)) {
            Ok(value) => headers.push(RpcHeader { origin: origin.clone(), name: name.clone(), value }),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(headers) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::headers;
    use crate::domain::rpc_header::RpcHeader;
    use crate::domain::secret::SecretSource;

    #[test]
    fn a_value_is_read_without_its_line_end_and_no_problem_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let header = RpcHeader {
            origin: "https://node.example".to_owned(),
            name: "x-key".to_owned(),
            value: SecretSource::File(path.clone()),
        };
        let read = || headers(std::slice::from_ref(&header));
        fs::write(&path, "Bearer SECRET\r\n").unwrap();
        assert_eq!(read().unwrap()[0].value.reveal(), "Bearer SECRET");
        for (bad, expected) in [
            ("", "key: holds no secret"),
            ("SECRET\nSECRET\n", "x-key for https://node.example can't be sent: "),
            (" SECRET\n", "x-key for https://node.example can't be sent: "),
            (&"SECRET".repeat(10_000), "key: is longer than "),
        ] {
            fs::write(&path, bad).unwrap();
            let problems = read().unwrap_err().concat();
            assert!(problems.contains(expected) && !problems.contains("SECRET"), "{problems}");
        }
    }
}
