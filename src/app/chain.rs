//! What reads agents through the nodes, put together, and the task that keeps it in step with the chain.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::app::supervision::{PAUSE, Supervised};
use crate::chain::follower::Follower;
use crate::chain::pool::Pool;
use crate::chain::reader::{ChainReader, Lifetimes, ReaderSettings};
use crate::chain::registries::Registries;
use crate::config::chain::ChainSettings;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// Follows the chain. A poll that is under way when the process ends is given up: it has changed nothing yet.
/// One that panics is begun anew with nothing cached, and what it said before does not stand.
pub(super) struct Follow {
    pub(super) follower: Arc<Follower>,
    pub(super) metrics: Metrics,
}

#[async_trait]
impl BackgroundService for Follow {
    async fn start(&self, shutdown: ShutdownWatch) {
        let begin = || {
            let follower = Arc::clone(&self.follower);
            async move { follower.follow().await }
        };
        let task = Supervised { name: "follower", pause: PAUSE, metrics: &self.metrics };
        task.run(begin, || self.follower.lose(), shutdown).await;
    }
}

/// Reads the configured registries.
pub(super) fn reader(
    chain: &ChainSettings,
    nodes: &Arc<Pool>,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> ChainReader {
    let registries = Registries {
        identity: chain.contracts.identity,
        stake_vault: chain.contracts.stake_vault,
        reputation: chain.contracts.reputation,
        validation: chain.contracts.validation,
        organization: chain.contracts.organization,
    };
    let lifetimes = Lifetimes {
        poll_interval: chain.poll_interval,
        max_staleness: chain.max_staleness,
        reread_after: chain.reread_after,
    };
    let settings = ReaderSettings {
        registries,
        multicall: chain.multicall,
        gas_cap: chain.gas_cap,
        max_head_age: chain.max_head_age,
        lifetimes,
    };
    ChainReader::new(Arc::clone(nodes), settings, Arc::clone(clock), metrics)
}
