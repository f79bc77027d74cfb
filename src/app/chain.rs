//! The reader of agents, put together, and the threads that it lives in.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::app::error::StartError;
use crate::app::nodes;
use crate::chain::reader::{ChainReader, Lifetimes, ReaderSettings};
use crate::config::Settings;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// The threads that reads of the chain, its follower and connections to nodes live in. They work for every runtime of
/// the process and outlive all of them: no worker that stands still or ends takes another one's reads along.
pub(crate) struct ChainThreads {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl ChainThreads {
    /// One for each two workers, which have the other half of a signature's work.
    pub(crate) fn start(workers: usize) -> Result<Self, StartError> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(workers.div_ceil(2)).thread_name("chain").enable_all();
        let runtime = runtime.build().map_err(StartError::ChainThreads)?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ChainThreads {
    /// Waits for nothing: a name may still be looked up, for longer than anybody waits.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads the configured registries through the configured nodes, on this runtime.
pub(crate) fn reader(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    runtime: &Handle,
) -> Result<ChainReader, StartError> {
    let (chain, nodes) = (&settings.chain, nodes::pool(settings, clock, metrics)?);
    let lifetimes = Lifetimes {
        poll_interval: chain.poll_interval,
        max_staleness: chain.max_staleness,
        reread_after: chain.reread_after,
    };
    let settings = ReaderSettings {
        registries: chain.contracts,
        multicall: chain.multicall,
        gas_cap: chain.gas_cap,
        max_head_age: chain.max_head_age,
        lifetimes,
    };
    Ok(ChainReader::new(Arc::new(nodes), settings, Arc::clone(clock), metrics, runtime))
}
