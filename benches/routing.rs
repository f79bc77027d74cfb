//! What finding a request's tenant and rule costs, by the number of tenants: host look-up, then the tenant's routes.
//!
//! The host that is looked for belongs to the last tenant and the path to its last route, which is the dearest case.
//! Compare the sizes with each other and with the baseline, of one run only.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![expect(clippy::expect_used, reason = "a benchmark that can't be set up has nothing to measure")]

use std::{collections::HashMap, hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use tiergate::domain::{
    AcceptedCredentials, CallPatterns, HealthRules, HostMap, HostPattern, InFlight, PathPattern, ProxyRules,
    Route, RouteAccess, Tenant, Tier, Timeouts, Upstream, UpstreamLimits, UpstreamTls, routing::decide,
};

const TENANTS: [usize; 4] = [10, 1_000, 10_000, 100_000];
const ROUTES: usize = 10;

fn routing(criterion: &mut Criterion) {
    for count in TENANTS {
        let tenants: Vec<Arc<Tenant>> = (0..count).map(tenant).collect();
        let last = count - 1;
        let exact = format!("api{last}.example");
        let below = format!("a.b.tenant{last}.example");
        let mut group = criterion.benchmark_group(format!("routing, {count} tenants"));

        let known: HashMap<String, Arc<Tenant>> =
            (0..count).zip(&tenants).map(|(n, tenant)| (format!("api{n}.example"), tenant.clone())).collect();
        group.bench_function("baseline: a host in a map", |bencher| {
            bencher.iter(|| black_box(known.get(black_box(&exact))));
        });
        drop(known);

        let map = host_map(&tenants);
        for (name, authority) in [
            ("host", exact.clone()),
            ("host with port and capitals", format!("API{last}.Example:8443")),
            ("host below a wildcard", below),
            ("host of nobody", "a.b.c.d.e.f.nobody.example".to_owned()),
        ] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| black_box(map.find(black_box(&authority))));
            });
        }
        for (name, path) in [
            ("host and route", "/v1/part9/items/17"),
            ("host and route, harmless escapes", "/v1/part9/items/a%40b%20c"),
            ("host and route, ambiguous path", "/v1/part9//items/a%2Fb"),
            ("host and no route", "/other/items/17"),
        ] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let tenant = map.find(black_box(&exact)).expect("the tenant is known");
                    black_box(decide(tenant, "GET", black_box(path.as_bytes())))
                });
            });
        }
        group.finish();
    }
}

fn host_map(tenants: &[Arc<Tenant>]) -> HostMap<Arc<Tenant>> {
    let hosts =
        tenants.iter().flat_map(|tenant| tenant.hosts.iter().map(|host| (host.clone(), tenant.clone())));
    HostMap::new(hosts).expect("no host stands twice")
}

/// A tenant with a host, a wildcard and [`ROUTES`] routes.
fn tenant(number: usize) -> Arc<Tenant> {
    let host = |text: String| HostPattern::parse(&text).expect("it is a host");
    Arc::new(Tenant {
        discovery: true,
        assertion: false,
        mcp: false,
        id: format!("tenant{number}").into(),
        hosts: vec![host(format!("api{number}.example")), host(format!("*.tenant{number}.example"))],
        signed_hosts: Vec::new(),
        upstreams: vec![Upstream::parse("127.0.0.1:9000").expect("it is an upstream")],
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
        routes: (0..ROUTES).map(route).collect(),
        tls: None,
        proxy: proxy_rules(),
        in_flight: InFlight {
            all: 1,
            public: 1,
            per_agent: 1,
            streams_per_agent: 1,
            queue_max: 0,
            queue_time: Duration::from_secs(1),
        },
        cors: None,
    })
}

fn route(number: usize) -> Route {
    Route {
        path: PathPattern::parse(&format!("/v1/part{number}/*")).expect("it is a pattern"),
        methods: vec!["GET".into(), "POST".into()],
        access: RouteAccess::Agents,
        min_tier: Some(Tier::Silver),
        upstreams: Vec::new(),
        requests_per_minute: None,
        bot_requests_per_minute: None,
        upgrades: false,
        mcp: false,
        calls: CallPatterns::default(),
    }
}

fn proxy_rules() -> ProxyRules {
    let second = Duration::from_secs(1);
    ProxyRules {
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
    }
}

criterion_group!(benches, routing);
criterion_main!(benches);
