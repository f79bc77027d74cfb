//! What the keys of tenants and routes say.

use std::{path::PathBuf, time::Duration};

use toml::{Table, Value};

use super::{file_of, problems, read, route_with, tenant_with};
use crate::domain::{
    Call, CallPatterns, CorsRules, HealthRules, InFlight, KeyPair, PathPattern, PerTier, ProxyRules, Quota,
    Route, RouteAccess, Tier, Timeouts, Upstream, UpstreamLimits, UpstreamTls,
};

/// The headers of answers that pages may read everywhere.
const OURS_AND_MCPS: &str = "Last-Event-ID, Link, MCP-Protocol-Version, Mcp-Session-Id, RateLimit, \
    RateLimit-Policy, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-Request-Id";

#[test]
fn every_key_of_a_tenant_ends_up_in_its_place() {
    let tenant = read(tenant_with(&[
        ("hosts", r#"["API.acme.example", "*.acme.dev", "*", "[::1]"]"#),
        ("upstreams", r#"["https://a.example", "h2c://b.example:81 weight=3"]"#),
        ("min_tier", "3"),
        ("credentials", r#"["api_key", "erc8128", "erc8128_untagged"]"#),
        ("requests_per_minute", "[2, 2, 3, 4]"),
        ("on_endpoint_mismatch", "\"deny\""),
        ("host_header", "\"upstream\""),
        ("connect_retries", "0"),
        ("max_body_bytes", "9_223_372_036_854_775_807"),
        ("timeouts.connect", "\"1s\""),
        ("timeouts.read", "\"2s\""),
        ("timeouts.write", "\"3s\""),
        ("timeouts.idle", "\"4s\""),
        ("timeouts.total", "\"0s\""),
        ("balance", "\"least_request\""),
        ("upstream_limits.max_in_flight", "9"),
        ("upstream_limits.max_pending", "0"),
        ("health.path", "\"/healthz?deep=1\""),
        ("health.interval", "\"0s\""),
        ("health.timeout", "\"5s\""),
        ("health.eject_after", "0"),
        ("health.eject_for", "\"6s\""),
        ("cors.origins", r#"["https://a.example", "http://localhost:3000"]"#),
        ("cors.methods", r#"["GET", "PUT"]"#),
        ("cors.headers", r#"["X-API-Key", "X-A"]"#),
        ("cors.exposed_headers", r#"["X-B"]"#),
        ("cors.credentials", "true"),
        ("cors.max_age", "\"7s\""),
        ("limits.max_in_flight", "7"),
        ("limits.max_in_flight_public", "6"),
        ("limits.max_in_flight_per_agent", "5"),
        ("limits.max_streams_per_agent", "4"),
        ("limits.max_queued", "3"),
        ("limits.queue_timeout", "\"2ms\""),
        ("tls.cert", "\"a.crt\""),
        ("tls.key", "\"../a.key\""),
        ("upstream_tls.ca", "\"ca.crt\""),
        ("upstream_tls.cert", "\"c.crt\""),
        ("upstream_tls.key", "\"c.key\""),
        ("upstream_tls.server_name", "\"Internal.example\""),
        ("discovery", "false"),
    ]));
    assert!(!tenant.discovery && read(tenant_with(&[])).discovery);
    let hosts: Vec<String> = tenant.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.acme.example", "*.acme.dev", "*", "[::1]"]);
    let upstreams: Vec<String> = tenant.upstreams.iter().map(ToString::to_string).collect();
    assert_eq!(upstreams, ["https://a.example:443", "h2c://b.example:81 weight=3"]);
    assert_eq!(tenant.min_tier, Tier::Gold);
    assert!(tenant.credentials.erc8128_untagged && !tenant.credentials.signature);
    assert_eq!(tenant.requests_per_minute, Some(PerTier([2, 2, 3, 4].map(Quota::per_minute))));
    assert!(tenant.denies_endpoint_mismatch);
    assert_eq!(tenant.tls, Some(pair("a.crt", "../a.key")));
    let [connect, read, write, idle, timeout, eject_for] = [1, 2, 3, 4, 5, 6].map(Duration::from_secs);
    let proxy = ProxyRules {
        shows_own_host: true,
        connect_retries: 0,
        body_bytes_max: Some(i64::MAX as u64),
        timeouts: Timeouts { connect, read, write, idle, total: None },
        by_load: true,
        upstream_limits: UpstreamLimits { in_flight_max: 9, pending_max: 0 },
        health: HealthRules {
            path: Some("/healthz?deep=1".into()),
            interval: None,
            timeout,
            eject_after: 0,
            eject_for,
        },
        upstream_tls: UpstreamTls {
            ca: Some("ca.crt".into()),
            client: Some(pair("c.crt", "c.key")),
            server_name: Some("internal.example".into()),
        },
    };
    assert_eq!(tenant.proxy, proxy);
    let queue_time = Duration::from_millis(2);
    let in_flight =
        InFlight { all: 7, public: 6, per_agent: 5, streams_per_agent: 4, queue_max: 3, queue_time };
    assert_eq!(tenant.in_flight, in_flight);
    let cors = CorsRules {
        origins: Some(vec!["https://a.example".into(), "http://localhost:3000".into()]),
        methods: "GET, PUT".into(),
        headers: "X-API-Key, X-A".into(),
        exposed: format!("{OURS_AND_MCPS}, Accept-Signature, X-B").into(),
        credentials: true,
        max_age: Duration::from_secs(7),
    };
    assert_eq!(tenant.cors, Some(cors));
}

#[test]
fn pages_may_send_and_read_what_signed_requests_need_where_a_tenant_takes_them() {
    let rules = |credentials: &str| {
        let origins = ("cors.origins", r#"["https://a.example"]"#);
        read(tenant_with(&[origins, ("credentials", credentials)])).cors.clone().unwrap()
    };
    let (signed, usual) = (rules(r#"["erc8128"]"#), rules(r#"["api_key", "signature"]"#));
    assert!(signed.headers.ends_with("X-Agent-Timestamp, Content-Digest, Signature, Signature-Input"));
    assert!(signed.exposed.ends_with("X-Request-Id, Accept-Signature"));
    assert!(usual.headers.ends_with("X-Agent-Timestamp") && usual.exposed.ends_with("X-Request-Id"));
}

#[test]
fn without_origins_there_are_no_rules_for_pages_and_a_star_stands_for_all() {
    let cors = |origins: &str| read(tenant_with(&[("cors.origins", origins)])).cors.clone();
    assert_eq!(cors("[]"), None);
    let all = cors("['*']").unwrap();
    assert!(all.origins.is_none() && all.allows(b"https://any.example"));
    let some = cors("['https://a.example']").unwrap();
    assert!(some.allows(b"https://a.example") && !some.allows(b"https://a.example:444"));
    assert!(!some.allows(b"null") && !some.allows(b"https://a.example.org"));
}

fn pair(cert: &str, key: &str) -> KeyPair {
    KeyPair { cert: PathBuf::from(cert), key: PathBuf::from(key) }
}

// threat: Huge or costly heads and bodies
#[test]
fn all_routes_of_a_tenant_name_1024_tools_and_methods_of_mcp_at_most() {
    let tools: Vec<Value> = (0..256).map(|number| format!("tool{number}").into()).collect();
    let route = |path: &str| format!("path = '{path}'\ntools = {}", Value::from(tools.clone()));
    let mut routes = ["/a", "/b", "/c", "/d"].map(|path| route(path).parse::<Table>().unwrap()).to_vec();
    let file = |routes: &[Table]| {
        let mut tenant = tenant_with(&[]);
        tenant.insert("routes".to_owned(), Value::from(routes.to_vec()));
        file_of(vec![tenant])
    };
    assert_eq!(problems(&file(&routes), &[]), [""; 0]);
    routes.push("path = '/e'\nmethods = ['ping']".parse().unwrap());
    let found = problems(&file(&routes), &[]);
    assert!(
        found.len() == 1 && found[0].contains("tenants[1]: has routes with more than 1024 "),
        "{found:?}"
    );
}

#[test]
fn every_key_of_a_route_ends_up_in_its_place() {
    let tenant = read(route_with(&[
        ("path", "\"/a/*\""),
        ("methods", r#"["GET", "M-SEARCH"]"#),
        ("min_tier", "4"),
        ("upstreams", "[\"https://b.example\"]"),
        ("upgrades", "true"),
    ]));
    let expected = Route {
        path: PathPattern::parse("/a/*").unwrap(),
        methods: vec!["GET".into(), "M-SEARCH".into()],
        access: RouteAccess::Agents,
        min_tier: Some(Tier::Diamond),
        requests_per_minute: None,
        bot_requests_per_minute: None,
        upstreams: vec![Upstream::parse("https://b.example").unwrap()],
        upgrades: true,
        mcp: false,
        calls: CallPatterns::default(),
    };
    assert_eq!(tenant.routes, [expected]);
    for (word, access) in [("public", RouteAccess::Public), ("deny", RouteAccess::Deny)] {
        let tenant = read(route_with(&[("access", &format!("{word:?}"))]));
        assert_eq!(tenant.routes[0].access, access);
    }
    for limit in [1, 1_000_000] {
        let text = limit.to_string();
        let tenant = read(route_with(&[("access", "\"public\""), ("requests_per_minute", &text)]));
        assert_eq!(tenant.routes[0].requests_per_minute, Some(Quota::per_minute(limit)));
    }
}

#[test]
fn tools_and_methods_of_mcp_select_calls_and_make_the_path_an_endpoint() {
    let tenant = read(route_with(&[
        ("methods", r#"["resources/*", "ping"]"#),
        ("tools", r#"["search", "billing_*"]"#),
    ]));
    let route = &tenant.routes[0];
    assert!(route.mcp && route.methods.is_empty() && !tenant.mcp);
    let takes = |method, name| route.calls.take(&Call::new(method, name));
    assert!(
        takes("tools/call", Some("billing_pay")) && takes("resources/read", Some("x")) && takes("ping", None)
    );
    assert!(!takes("tools/call", Some("other")) && !takes("tools/list", None));
    for (keys, mcp) in
        [(&[("mcp", "true")][..], true), (&[("methods", "['tools/call']")], true), (&[], false)]
    {
        assert_eq!(read(route_with(keys)).routes[0].mcp, mcp);
    }
    assert!(read(tenant_with(&[("mcp", "true")])).mcp);
}

#[test]
fn signatures_count_for_hosts_that_are_listed_or_those_of_the_tenant_that_are_named() {
    let counting = |keys: &[(&str, &str)]| {
        let tenant = read(tenant_with(keys));
        tenant.signed_hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let hosts = ("hosts", "['A.example', '*', '*.b.example']");
    assert_eq!(counting(&[hosts]), "a.example *.b.example");
    assert_eq!(
        counting(&[hosts, ("signed_hosts", "['C.example', '*', '*.d.example']")]),
        "c.example *.d.example"
    );
}

#[test]
fn signed_requests_are_taken_by_those_who_ask_for_them_and_their_bodies_streamed_unless_told_otherwise() {
    let usual = read(tenant_with(&[]));
    assert!(!usual.credentials.has_messages() && !usual.holds_bodies);
    let keys = [("credentials", "[\"erc8128\"]"), ("max_body_bytes", "8388608"), ("digest", "\"before\"")];
    let held = read(tenant_with(&keys));
    assert!(held.credentials.erc8128 && !held.credentials.erc8128_untagged && !held.credentials.signature);
    assert!(held.holds_bodies);
}
