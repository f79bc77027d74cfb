//! What reads agents through the nodes, put together, and the task that keeps it in step with the chain.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::app::StartError;
use crate::app::nodes;
use crate::app::supervision::{PAUSE, Supervised};
use crate::chain::follower::Follower;
use crate::chain::reader::{ChainReader, Lifetimes, ReaderSettings};
use crate::chain::registries::Registries;
use crate::config::Settings;
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

/// Reads the configured registries through the configured nodes.
pub(crate) fn reader(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<ChainReader, StartError> {
    let (chain, nodes) = (&settings.chain, nodes::pool(settings, clock, metrics)?);
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
    Ok(ChainReader::new(Arc::new(nodes), settings, Arc::clone(clock), metrics))
}
