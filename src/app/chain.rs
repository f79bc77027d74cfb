//! The reader of agents and the nodes that it asks, put together, and the threads that they live in.

use std::{error::Error, iter::successors, sync::Arc};

use tokio::runtime::{Builder, Handle};

use crate::app::StartError;
use crate::bots::Bots;
use crate::chain::{ChainReader, Pool};
use crate::config::Settings;
use crate::domain::{RpcHeader, Secret, SecretSource, rpc_url::header_value};
use crate::files;
use crate::ports::Clock;
use crate::telemetry::Metrics;

/// Starts the threads that reads of the chain, its follower and connections to nodes live in, one for each two workers, which
/// have the other half of a signature's work. They work for every runtime of the process and end with it: no worker that
/// stands still or ends takes another one's reads along.
pub(crate) fn start_threads(workers: usize) -> Result<Handle, StartError> {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(workers.div_ceil(2)).thread_name("chain").enable_all();
    let runtime = runtime.build().map_err(|cause| format!("cannot start threads for the chain: {cause}"))?;
    let handle = runtime.handle().clone();
    // A drop would wait for look-ups of names, for longer than anybody waits.
    std::mem::forget(runtime);
    Ok(handle)
}

/// Reads the configured registries through the configured nodes, on this runtime.
pub(crate) fn reader(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    runtime: &Handle,
) -> Result<ChainReader, StartError> {
    let chain = &settings.fixed.chain;
    let headers = headers(&chain.rpc_headers)
        .map_err(|problems| format!("headers for RPC nodes can't be used:\n  {}", problems.join("\n  ")))?;
    let nodes = Pool::new(&chain.pool, &headers, Arc::clone(clock), metrics.clone())
        .map_err(|why| format!("cannot make an HTTP client for the chain: {}", with_causes(&why)))?;
    let settings = (chain.reading, settings.fixed.tiers.sources.measures.clone());
    Ok(ChainReader::new(Arc::new(nodes), settings, Arc::clone(clock), metrics, runtime))
}

/// The bots whose domains are listed, whose keys are read on this runtime.
pub(crate) fn bots(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    runtime: &Handle,
) -> Result<Option<Arc<Bots>>, StartError> {
    let domains = &settings.fixed.web_bot_auth;
    if domains.public.is_empty() && domains.private.is_empty() {
        return Ok(None);
    }
    let bots = Bots::new(domains.clone(), runtime.clone(), Arc::clone(clock), metrics.clone());
    let bots =
        bots.map_err(|why| format!("cannot make an HTTP client for key directories: {}", with_causes(&why)))?;
    Ok(Some(Arc::new(bots)))
}

/// An error with what it came from: that a machine has no certificates of authorities, say.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn headers(configured: &[RpcHeader<SecretSource>]) -> Result<Vec<RpcHeader<Secret>>, Vec<String>> {
    let (mut headers, mut problems) = (Vec::new(), Vec::new());
    for RpcHeader { origin, name, value: source } in configured {
        let unfit = |why| format!("{name} for {origin} can't be sent: {why}");
        match files::secret(source).and_then(|text| header_value(text.reveal()).map_err(unfit)) {
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
    use crate::domain::{RpcHeader, SecretSource};

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
