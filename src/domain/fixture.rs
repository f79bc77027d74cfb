//! A tenant for tests of those that use a part of one.

use std::time::Duration;

use alloy::primitives::{Address, Bytes};
use alloy::sol_types::SolValue;

use crate::domain::tenant::{
    AcceptedCredentials, HealthRules, InFlight, ProxyRules, Tenant, Timeouts, UpstreamLimits, UpstreamTls,
};
use crate::domain::tier::Tier;

/// A signature in a wrapper that says how to deploy its account (ERC-6492).
pub(crate) fn wrapped(signature: &[u8]) -> Vec<u8> {
    let texts = (Address::repeat_byte(7), Bytes::from_static(b"deploys"), Bytes::copy_from_slice(signature));
    [texts.abi_encode_params(), [0x64, 0x92].repeat(16)].concat()
}

/// No hosts, no upstreams, no routes; every agent passes.
pub(crate) fn tenant() -> Tenant {
    let second = Duration::from_secs(1);
    Tenant {
        id: "acme".into(),
        hosts: Vec::new(),
        signed_hosts: Vec::new(),
        upstreams: Vec::new(),
        networks: None,
        min_tier: Tier::Bronze,
        credentials: AcceptedCredentials {
            api_key: true,
            signature: true,
            erc8128: false,
            erc8128_untagged: false,
        },
        holds_bodies: false,
        requests_per_minute: None,
        denies_endpoint_mismatch: false,
        routes: Vec::new(),
        tls: None,
        proxy: ProxyRules {
            shows_own_host: false,
            connect_retries: 0,
            body_bytes_max: None,
            timeouts: Timeouts { connect: second, read: second, write: second, idle: second, total: None },
            by_load: false,
            upstream_limits: UpstreamLimits { in_flight_max: 1, pending_max: 0 },
            health: HealthRules {
                path: None,
                interval: None,
                timeout: second,
                eject_after: 0,
                eject_for: second,
            },
            upstream_tls: UpstreamTls::default(),
        },
        cors: None,
        in_flight: InFlight {
            all: 100,
            public: 100,
            per_agent: 100,
            streams_per_agent: 100,
            queue_max: 0,
            queue_time: second,
        },
        discovery: true,
        assertion: false,
        mcp: false,
    }
}
