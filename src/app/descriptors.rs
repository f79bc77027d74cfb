//! File descriptors: how many the process may open, and who may hold how many of them.
//!
//! Every descriptor that a client can cause is under a cap. Caps and reserve together never exceed the process's limit,
//! so that accepting, store, nodes, checks and files always have theirs.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::chain::pool::places::{IDLE_MAX, PLACES_MAX};
use crate::config::Settings;
use crate::config::store::StoreSettings;
use crate::gateway::watch;

/// Connections of the admin listener.
pub(super) const ADMIN_CONNECTIONS: usize = 64;

/// Standard streams, certificates, a reload, `/proc`, and whatever libraries open for a moment.
const FILES: usize = 64;

/// What the runtime of a thread holds.
const OF_A_RUNTIME: usize = 8;

/// Services with a thread of their own beside the workers of listeners.
const BACKGROUND_RUNTIMES: usize = 8;

/// The store's file and its lock.
const EMBEDDED_STORE: usize = 8;

/// Sentinels, and connections to Redis that are being replaced.
const REDIS: usize = 64;

/// Servers of a Redis store that each thread of ours may be connected to.
const REDIS_SERVERS: usize = 16;

/// Look-ups of names and checks of upstreams under way, those of a reload included. A look-up asks two servers.
const CHECKS: usize = 4 * watch::TASKS_MAX;

/// The least that clients need, connections to upstreams included.
const CLIENTS_MIN: usize = 64;

/// The most unused connections to upstreams in a pool.
const POOL_MAX: usize = 1_024;

/// The pools: the relay's, and the library's two, for HTTP/1 and HTTP/2.
const POOLS: usize = 3;

/// What stands for no limit.
const UNLIMITED: u64 = 1 << 20;

/// What the process is to do, as far as it needs descriptors.
#[derive(Debug, Clone)]
pub(super) struct Needs {
    workers: usize,
    /// Addresses that the gateway listens on.
    gateways: usize,
    nodes: usize,
    uses_redis: bool,
    connections_max: usize,
}

/// The caps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptors {
    limit: usize,
    reserved: usize,
    /// Connections of the API's listener.
    pub(super) api: usize,
    /// Connections of the gateway's listener.
    pub(super) gateway: usize,
    /// Requests to upstreams under way. Each may hold a connection.
    pub(super) requests: usize,
    /// Unused connections to upstreams in one of the pools.
    pub(super) idle: usize,
}

/// The limit is too low to serve anybody.
#[derive(Debug, thiserror::Error)]
#[error(
    "the process may open {limit} files and sockets, and needs {needed} at least: raise its limit (LimitNOFILE, ulimit -n)"
)]
pub(crate) struct TooFew {
    limit: usize,
    needed: usize,
}

impl Needs {
    /// What these settings need with so many workers for each listener.
    pub(super) fn of(settings: &Settings, workers: usize) -> Self {
        Self {
            workers,
            gateways: settings.listen.gateway.len(),
            nodes: settings.chain.rpc_urls.len(),
            uses_redis: matches!(settings.store, StoreSettings::Redis(_)),
            connections_max: settings.listen.max_connections as usize,
        }
    }

    /// What no client may take.
    fn reserve(&self) -> usize {
        let gateway_workers = if self.gateways == 0 { 0 } else { self.workers };
        let runtimes = self.workers + gateway_workers + BACKGROUND_RUNTIMES;
        let sockets = self.workers * (1 + self.gateways) + 1;
        let store = if self.uses_redis { REDIS + REDIS_SERVERS * runtimes } else { EMBEDDED_STORE };
        let nodes = PLACES_MAX + IDLE_MAX * self.nodes;
        FILES + OF_A_RUNTIME * runtimes + sockets + ADMIN_CONNECTIONS + store + nodes + CHECKS
    }
}

impl Descriptors {
    /// The caps under this limit of the process.
    pub(super) fn of(limit: usize, needs: &Needs) -> Result<Self, TooFew> {
        let reserved = needs.reserve();
        let rest = limit.saturating_sub(reserved);
        if rest < CLIENTS_MIN {
            return Err(TooFew { limit, needed: reserved + CLIENTS_MIN });
        }
        if needs.gateways == 0 {
            let api = needs.connections_max.min(rest);
            return Ok(Self { limit, reserved, api, gateway: 0, requests: 0, idle: 0 });
        }
        let api = needs.connections_max.min(rest / 8);
        let gateway = needs.connections_max.min(rest / 2);
        let upstreams = rest - api - gateway;
        let idle = POOL_MAX.min(upstreams / 10);
        Ok(Self { limit, reserved, api, gateway, requests: upstreams - POOLS * idle, idle })
    }

    /// How many requests may be under way: as many as there are descriptors for, or fewer where the settings say so.
    pub(super) fn requests_max(&self, configured: Option<u32>) -> u32 {
        let requests = u32::try_from(self.requests).unwrap_or(u32::MAX);
        configured.map_or(requests, |configured| configured.min(requests))
    }

    /// Says the figures.
    pub(super) fn announce(&self) {
        let Self { limit, reserved, api, gateway, requests, idle } = self;
        tracing::info!(limit, reserved, api, gateway, requests, idle, "file descriptors");
    }
}

/// Raises the process's limit as far as it may, and tells it.
pub(super) fn raised_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it can't be raised, the limit stays what it is.
    let _ = setrlimit(Resource::Nofile, limit);
    let current = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
    usize::try_from(current).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CLIENTS_MIN, Descriptors, Needs, POOLS};

    fn needs() -> impl Strategy<Value = Needs> {
        let counts = (1..=128_usize, 0..=16_usize, 1..=16_usize, any::<bool>(), 1..=1_000_000_usize);
        counts.prop_map(|(workers, gateways, nodes, uses_redis, connections_max)| Needs {
            workers,
            gateways,
            nodes,
            uses_redis,
            connections_max,
        })
    }

    proptest! {
        #[test]
        fn caps_and_reserve_never_exceed_the_limit_and_nobody_has_none(
            needs in needs(),
            limit in 0..=2_000_000_usize,
        ) {
            let Ok(caps) = Descriptors::of(limit, &needs) else {
                prop_assert!(limit < needs.reserve() + CLIENTS_MIN);
                return Ok(());
            };
            let Descriptors { api, gateway, requests, idle, .. } = caps;
            prop_assert!(needs.reserve() + api + gateway + requests + POOLS * idle <= limit);
            prop_assert!((1..=needs.connections_max).contains(&api));
            let has_gateway = needs.gateways > 0;
            prop_assert_eq!([gateway > 0, requests > 0, idle > 0], [has_gateway; 3]);
            prop_assert!(gateway <= needs.connections_max);
        }
    }

    #[test]
    fn with_enough_descriptors_no_cap_is_cut() {
        let needs = Needs { workers: 4, gateways: 1, nodes: 2, uses_redis: true, connections_max: 4_096 };
        let caps = Descriptors::of(65_536, &needs).unwrap();
        assert_eq!((caps.api, caps.gateway, caps.idle), (4_096, 4_096, 1_024));
    }
}
