//! The RPC nodes that the settings name, with the headers for them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::app::StartError;
use crate::chain::pool::{Pool, PoolSettings};
use crate::config::Settings;
use crate::domain::rpc_header::{HeaderSource, RpcHeader, VALUE_BYTES_MAX, value};
use crate::domain::secret::Secret;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// The configured nodes.
pub(super) fn pool(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Pool, StartError> {
    let headers = headers(&settings.chain.rpc_headers).map_err(StartError::Headers)?;
    let pool = PoolSettings {
        urls: &settings.chain.rpc_urls,
        headers: &headers,
        request_timeout: settings.chain.request_timeout,
        calls_per_second: settings.chain.calls_per_second,
        proxy: settings.chain.http_proxy.as_ref(),
        chain_id: settings.chain.chain_id,
        signature_chain_id: settings.signature.chain_id,
    };
    Ok(Pool::new(&pool, Arc::clone(clock), metrics.clone())?)
}

fn headers(configured: &[RpcHeader<HeaderSource>]) -> Result<Vec<RpcHeader<Secret>>, Vec<String>> {
    let (mut headers, mut problems) = (Vec::new(), Vec::new());
    for RpcHeader { origin, name, value } in configured {
        let value = match value {
            HeaderSource::Text(value) => Ok(value.clone()),
            HeaderSource::File(path) => value_in(path),
        };
        match value {
            Ok(value) => headers.push(RpcHeader { origin: origin.clone(), name: name.clone(), value }),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(headers) } else { Err(problems) }
}

/// What a file holds, without the line end behind it.
pub(super) fn value_in(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let mut text = String::new();
    let file = File::open(path).map_err(|cause| format!("{shown}: cannot be read: {cause}"))?;
    // Two more for the line end, one to see that there is too much.
    let read = file.take(VALUE_BYTES_MAX as u64 + 3).read_to_string(&mut text);
    read.map_err(|cause| format!("{shown}: cannot be read: {cause}"))?;
    value(text.trim_end_matches(['\r', '\n'])).map_err(|why| format!("{shown}: can't be sent: {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::value_in;

    #[test]
    fn a_value_is_read_without_its_line_end_and_no_problem_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "Bearer SECRET\r\n").unwrap();
        assert_eq!(value_in(&path).unwrap().reveal(), "Bearer SECRET");
        for bad in ["", "\n", "SECRET\nSECRET\n", " SECRET\n", &"SECRET".repeat(10_000)] {
            fs::write(&path, bad).unwrap();
            let problem = value_in(&path).unwrap_err();
            assert!(problem.contains("key: can't be sent") && !problem.contains("SECRET"), "{problem}");
        }
        let missing = value_in(&folder.path().join("missing")).unwrap_err();
        assert!(missing.contains("missing: cannot be read"), "{missing}");
    }
}
