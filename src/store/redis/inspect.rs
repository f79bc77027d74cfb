//! A look at Redis from outside of a store. It writes nothing: a store that is opened begins epochs.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tokio::runtime::Builder;

use crate::domain::{OtherChain, RedisLayout};
use crate::ports::Clock;
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::info::{Finding, Info};
use crate::store::redis::options::{Options, Shared};
use crate::store::redis::{OpenError, claims, servers, shared};
use crate::store::{redis::error::RedisError, redis::sentinels::Sentinels};
use crate::telemetry::Metrics;

/// Connects to every master that a store of these options would use. Returns what an operator should know of them.
///
/// # Errors
///
/// Why a store would not use one of them.
pub async fn inspect(
    options: Options,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> Result<BTreeSet<Finding>, String> {
    let shared = shared(options, clock, metrics).map_err(|error| error.to_string())?;
    see(&Arc::new(shared)).await.map_err(|error| error.to_string())
}

/// The chain that Redis is for, if that is another than the store's. A Redis that does not answer is waited for, and judged
/// when it does. Blocks; must not be called from a runtime.
///
/// # Errors
///
/// As opening the store.
pub fn other_chain(
    options: Options,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> Result<Option<OtherChain>, OpenError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(OpenError::NoThread)?;
    let shared = Arc::new(shared(options, clock, metrics)?);
    match runtime.block_on(see(&shared)) {
        Err(RedisError::OtherChain(other)) => Ok(Some(other)),
        Ok(_) | Err(_) => Ok(None),
    }
}

async fn see(shared: &Arc<Shared>) -> Result<BTreeSet<Finding>, RedisError> {
    let options = &shared.options;
    let inspected = in_time(options.connect_timeout(), async {
        let hosts = match options.url.layout.clone() {
            RedisLayout::Single(host) => HashSet::from([host]),
            RedisLayout::Sentinel { sentinels, service } => {
                HashSet::from([Sentinels::new(sentinels, service).master(shared).await?])
            }
            RedisLayout::Cluster { seeds } => servers::masters(shared, &seeds).await?,
        };
        let mut found = BTreeSet::new();
        for host in hosts {
            let mut connection = connect(shared, &host, Login::Server).await?;
            let info = Info::of(&mut connection).await?;
            info.check_usable(&info)?;
            claims::check(shared, &mut connection).await?;
            found.extend(info.findings(&mut connection, options.wait_replicas).await);
        }
        Ok(found)
    });
    inspected.await.map_err(|error| error.asked_as(&Login::Server.words(options)))
}
