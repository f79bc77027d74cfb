//! The reader of agents, put together.

use std::sync::Arc;

use crate::app::error::StartError;
use crate::app::nodes;
use crate::chain::reader::{ChainReader, Lifetimes, ReaderSettings};
use crate::chain::registries::Registries;
use crate::config::Settings;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

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
