//! File descriptors: the process's limit, divided among listeners, upstreams and a reserve.
//!
//! Every descriptor that a client can cause is under a cap. Caps and reserve together never exceed the limit, so that
//! accepting, store, nodes, checks and files always have theirs.

use std::{fmt, net::SocketAddr};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::bots::READS_MAX;
use crate::chain::{IDLE_MAX, PLACES_MAX};
use crate::config::{Settings, store::StoreSettings};
use crate::domain::BotDomains;
use crate::gateway::watch;

/// Connections of the admin listener.
pub(super) const ADMIN_CONNECTIONS: usize = 64;

/// Standard streams, certificates, a reload, `/proc`, and files that libraries open for a moment.
const FILES: usize = 64;

/// Descriptors of one thread's runtime.
const OF_A_RUNTIME: usize = 8;

/// Runtimes beside those of workers: of the admin listener, background tasks, chain and store.
const BACKGROUND_RUNTIMES: usize = 8;

/// The store's file and its lock.
const EMBEDDED_STORE: usize = 8;

/// Sentinels, and connections to Redis that are being replaced.
const REDIS: usize = 64;

/// Servers of a Redis store that each thread of ours may be connected to.
const REDIS_SERVERS: usize = 16;

/// Look-ups of names and checks of upstreams under way, those of a reload included. A look-up asks two servers: half of
/// this is for the background.
const CHECKS: usize = 4 * watch::TASKS_MAX;

/// Reads of bots' directories under way. Each asks for a name, and then connects.
const BOTS: usize = 4 * READS_MAX;

/// The least for clients and upstreams.
const CLIENTS_MIN: usize = 64;

/// The least for clients and upstreams of one worker of the gateway. Each of its pools can then keep a connection.
const OF_A_GATEWAY_WORKER: usize = 16;

/// The most unused connections to upstreams in a pool.
const POOL_MAX: usize = 1_024;

/// The pools: the relay's, and the library's two, for HTTP/1 and HTTP/2.
const POOLS: usize = 3;

/// The limit of a process that has none.
const UNLIMITED: u64 = 1 << 20;

/// The caps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors {
    limit: usize,
    reserved: usize,
    /// Connections of each listener.
    pub(super) api: usize,
    pub(super) owners: usize,
    pub(super) authz: usize,
    pub(super) gateway: usize,
    /// Requests to upstreams under way. Each may hold a connection.
    pub(super) requests: u32,
    /// Unused connections to upstreams in one of the pools.
    pub(super) idle: usize,
}

const fn clients_min(settings: &Settings, workers: usize) -> usize {
    let of_gateway = if settings.fixed.listen.gateway.is_empty() { 0 } else { workers };
    CLIENTS_MIN + OF_A_GATEWAY_WORKER * of_gateway
}

/// Descriptors that no client may take, of a process that was handed so many sockets.
fn reserve(settings: &Settings, workers: usize, handed_over: usize) -> usize {
    let runtimes = workers + BACKGROUND_RUNTIMES;
    let listen = &settings.fixed.listen;
    let listeners = 1 + listen.gateway.len() + listen.owners.len() + listen.authz.len();
    // One for the worker, and one for a successor. A predecessor may have had more workers.
    let sockets = 2 * (handed_over.max(workers * listeners) + 1);
    let store = match settings.fixed.store {
        StoreSettings::Redis(_) => REDIS + REDIS_SERVERS * runtimes,
        StoreSettings::Embedded { .. } => EMBEDDED_STORE,
    };
    let nodes = PLACES_MAX + IDLE_MAX * settings.fixed.chain.pool.urls.len();
    let BotDomains { public, private } = &settings.fixed.web_bot_auth;
    let bots = if public.is_empty() && private.is_empty() { 0 } else { BOTS };
    FILES + OF_A_RUNTIME * runtimes + sockets + ADMIN_CONNECTIONS + store + nodes + CHECKS + bots
}

impl Descriptors {
    /// Raises the process's limit as far as it may, and divides it for these settings and so many sockets that were handed over. Says
    /// if it is too low to serve anybody.
    pub(crate) fn planned(settings: &Settings, handed_over: usize) -> Result<Self, String> {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // A limit that can't be raised stays as it is.
        let _ = setrlimit(Resource::Nofile, limit);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self::of(limit, settings, workers(settings), handed_over)
    }

    /// The caps under this limit of the process.
    fn of(limit: usize, settings: &Settings, workers: usize, handed_over: usize) -> Result<Self, String> {
        let (reserved, least) = (reserve(settings, workers, handed_over), clients_min(settings, workers));
        let rest = limit.saturating_sub(reserved);
        if rest < least {
            let needed = reserved + least;
            return Err(format!(
                "the process may open {limit} files and sockets, and needs {needed} at least: raise its limit (LimitNOFILE, ulimit -n)"
            ));
        }
        let most = settings.fixed.listen.max_connections as usize;
        let eighth = |addresses: &[SocketAddr]| if addresses.is_empty() { 0 } else { most.min(rest / 8) };
        let (owners, authz) = (eighth(&settings.fixed.listen.owners), eighth(&settings.fixed.listen.authz));
        if settings.fixed.listen.gateway.is_empty() {
            let api = most.min(rest - owners - authz);
            return Ok(Self { limit, reserved, api, owners, authz, gateway: 0, requests: 0, idle: 0 });
        }
        let (api, gateway) = (most.min(rest / 8), most.min(rest / 2 - authz));
        let upstreams = rest - api - owners - authz - gateway;
        let idle = POOL_MAX.min(upstreams / 10).max(workers);
        let requests = u32::try_from(upstreams - POOLS * idle).unwrap_or(u32::MAX);
        let requests =
            settings.fixed.gateway.in_flight_max.map_or(requests, |configured| configured.min(requests));
        Ok(Self { limit, reserved, api, owners, authz, gateway, requests, idle })
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, reserved, api, owners, authz, gateway, requests, idle } = self;
        write!(out, "file descriptors limit={limit} reserved={reserved} ")?;
        write!(
            out,
            "api={api} owners={owners} authz={authz} gateway={gateway} requests={requests} idle={idle}"
        )
    }
}

/// How many workers API and gateway have: by default one for each processor that the process may use. The standard library
/// looks at its affinity and at the CPU quota of its control groups.
pub(super) fn workers(settings: &Settings) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.fixed.listen.workers.map_or_else(processors, |workers| workers as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BOTS, Descriptors, POOLS, clients_min, reserve};
    use crate::config::{ConfigReport, Settings};

    /// A configuration with so many listeners of each kind, and so many nodes.
    fn settings(gateways: usize, [owners, authz]: [usize; 2], nodes: usize, uses_redis: bool) -> Settings {
        let store = if uses_redis { "kind = \"redis\"\nredis.url = \"redis://localhost\"" } else { "" };
        let text = format!(
            "[chain]\ndevelopment = true\nchain_id = 8004\n[chain.contracts]\n\
             identity = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n\
             stake_vault = \"0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512\"\n[store]\n{store}"
        );
        let report = ConfigReport::of_text(&text, std::iter::empty(), 0);
        let mut settings = report.whole().unwrap().settings;
        settings.fixed.listen.gateway = vec![settings.fixed.listen.api; gateways];
        settings.fixed.listen.owners = vec![settings.fixed.listen.api; owners];
        settings.fixed.listen.authz = vec![settings.fixed.listen.api; authz];
        settings.fixed.chain.pool.urls = vec![settings.fixed.chain.pool.urls[0].clone(); nodes];
        settings
    }

    proptest! {
        // threat: All connections or descriptors taken
        #[test]
        fn caps_and_reserve_never_exceed_the_limit_and_nobody_has_none(
            (gateways, owners, authz) in (0..=16_usize, 0..=16_usize, 0..=16_usize),
            (nodes, uses_redis) in (1..=16_usize, any::<bool>()),
            workers in 1..=128_usize,
            connections_max in 1..=1_000_000_u32,
            in_flight_max in proptest::option::of(1..=1_000_000_u32),
            limit in 0..=2_000_000_usize,
            handed_over in 0..=1_000_usize,
        ) {
            let mut settings = settings(gateways, [owners, authz], nodes, uses_redis);
            settings.fixed.listen.max_connections = connections_max;
            settings.fixed.gateway.in_flight_max = in_flight_max;
            let (reserve, least) = (reserve(&settings, workers, handed_over), clients_min(&settings, workers));
            let connections_max = connections_max as usize;
            let Ok(caps) = Descriptors::of(limit, &settings, workers, handed_over) else {
                prop_assert!(limit < reserve + least);
                return Ok(());
            };
            let Descriptors { api, owners: of_owners, authz: of_authz, gateway, requests, idle, .. } = caps;
            let clients = api + of_owners + of_authz + gateway;
            prop_assert!(reserve + clients + requests as usize + POOLS * idle <= limit);
            prop_assert_eq!((of_owners > 0, of_authz > 0), (owners > 0, authz > 0));
            prop_assert!(of_owners <= connections_max);
            prop_assert!((1..=connections_max).contains(&api));
            prop_assert_eq!([gateway > 0, requests > 0, idle / workers > 0], [gateways > 0; 3]);
            prop_assert!(gateway <= connections_max);
            prop_assert!(in_flight_max.is_none_or(|max| requests <= max));
        }
    }

    #[test]
    fn the_least_that_the_page_for_operators_names_is_the_least() {
        let page = include_str!("../../docs/operations.md");
        for (workers, uses_redis, least) in [(2, false, "738 for two"), (64, true, "3,682 for 64")] {
            let settings = settings(1, [0, 0], 1, uses_redis);
            let number = reserve(&settings, workers, 0) + clients_min(&settings, workers);
            assert!(least.replace(',', "").starts_with(&format!("{number} for ")), "{number}");
            assert!(page.contains(least), "{least}");
        }
    }

    // threat: All connections or descriptors taken
    #[test]
    fn with_enough_descriptors_no_cap_is_cut() {
        let mut settings = settings(1, [1, 0], 2, true);
        settings.fixed.listen.max_connections = 4_096;
        let caps = Descriptors::of(65_536, &settings, 4, 0).unwrap();
        assert_eq!((caps.api, caps.owners, caps.gateway, caps.idle), (4_096, 4_096, 4_096, 1_024));
    }

    #[test]
    fn directories_of_bots_and_sockets_of_a_predecessor_with_more_workers_have_descriptors_of_their_own() {
        let mut settings = settings(1, [0, 0], 1, false);
        let plain = reserve(&settings, 2, 0);
        // As many as this process would open, and then four more, each once more for a successor.
        assert_eq!([reserve(&settings, 2, 4), reserve(&settings, 2, 8)], [plain, plain + 8]);
        settings.fixed.web_bot_auth.private = vec!["bot.example".into()];
        assert_eq!(reserve(&settings, 2, 0), plain + BOTS);
    }
}
