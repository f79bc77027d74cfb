//! The parts that a configuration names, asked once and all at the same time: nodes, contracts, store and upstreams.
//!
//! Writes nothing.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{B256, U256};
use futures_util::future::join_all;
use tokio::runtime::Handle;

use crate::app::error::StartError;
use crate::app::source::Source;
use crate::app::tenants::Tenants;
use crate::app::{chain, store};
use crate::chain::reader::{ChainReader, Sight};
use crate::config::Settings;
use crate::config::store::StoreSettings;
use crate::domain::agent_id::AgentId;
use crate::gateway::watch::check_all;
use crate::os::Os;
use crate::ports::chain::Chain;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::within::within;

/// How long one part is waited for: a little longer than a read of the chain may take.
const TIME_MAX: Duration = Duration::from_secs(7);

/// A part, and its state or what is wrong with it.
pub(crate) type Finding = (String, Result<String, String>);

/// Asks every part that these settings, which were read from `source`, name.
pub(crate) async fn ask(settings: &Settings, source: Source) -> Result<Vec<Finding>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(Os::new());
    let metrics = Metrics::new()?;
    let tenants = Tenants::new(source, settings, &clock, &metrics).map_err(StartError::Certificates)?;
    let table = tenants.table().load_full();
    let mut readers = Vec::new();
    for url in &settings.chain.rpc_urls {
        let mut alone = settings.clone();
        alone.chain.rpc_urls = vec![url.clone()];
        readers.push(chain::reader(&alone, &clock, &metrics, &Handle::current())?);
    }
    let asks_contracts = settings.signature.format.has_contracts();
    let look = async |reader: &ChainReader| {
        let sight = reader.look().await.map_err(|fault| fault.cause.to_string())?;
        if asks_contracts {
            let asked = reader.ask_owner(AgentId::new(U256::ONE), B256::ZERO, &[]).await;
            asked.map_err(|fault| {
                format!("signature.contracts needs eth_call without `to`: {}", fault.cause)
            })?;
        }
        Ok(sight)
    };
    let (nodes, store, upstreams) = tokio::join!(
        join_all(readers.iter().map(|reader| in_time(look(reader)))),
        in_time(store::look(settings, &clock, &metrics)),
        check_all(&table, TIME_MAX)
    );
    let mut findings = of_chain(settings, &nodes, clock.unix_seconds());
    let part = match &settings.store {
        StoreSettings::Embedded { path, .. } => format!("store {}", path.display()),
        StoreSettings::Redis(redis) => format!("store {}", redis.url),
    };
    findings.push((part, store));
    findings.extend(upstreams);
    Ok(findings)
}

/// The nodes, and the contracts as the first one that answers sees them.
fn of_chain(settings: &Settings, nodes: &[Result<Sight, String>], now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (url, seen) in settings.chain.rpc_urls.iter().zip(nodes) {
        let state = seen.as_ref().map_err(String::clone).map(|Sight { chain, block, timestamp, .. }| {
            format!("chain {chain}, block {block}, {} s old", now.saturating_sub(*timestamp))
        });
        findings.push((format!("node {}", url.origin()), state));
    }
    for (key, address, has_code) in nodes.iter().flatten().take(1).flat_map(|seen| &seen.contracts) {
        let state = if *has_code { Ok("there is code") } else { Err("there is no contract") };
        findings.push((format!("{key} {address}"), state.map(str::to_owned).map_err(str::to_owned)));
    }
    findings
}

async fn in_time<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = || Err(format!("no answer within {} s", TIME_MAX.as_secs()));
    within(TIME_MAX, asked).await.unwrap_or_else(late)
}
