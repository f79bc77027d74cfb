//! The examples that are shipped: the tenant in the file of all keys, and the files for common cases.

use std::{fs, path::Path};

use toml::Table;

use super::super::parse;
use super::super::shipped::TEXT;
use crate::config::Settings;
use crate::domain::{Call, HostPattern, RouteAccess, Tenant, Tier, routing::decide_calls};

/// The file of all keys, with what it shows in comments: with keys that do not go together.
fn uncommented() -> Table {
    let is_key = |line: &str| {
        let name = line.split_once(" = ").map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let lines = TEXT.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_key(rest) || (rest.starts_with('[') && rest.ends_with(']')) => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n").parse().unwrap()
}

#[test]
fn the_examples_of_a_tenant_and_of_a_rule_count_when_they_are_uncommented() {
    assert!(parse(TEXT, &[]).unwrap().live.tenants.is_empty());
    let mut file = uncommented();
    file["store"].as_table_mut().unwrap().remove("redis");
    let route = file["tenants"][0]["routes"][0].as_table_mut().unwrap();
    route.retain(|key, _| !key.ends_with("requests_per_minute") && key != "tools");
    let settings = parse(&file.to_string(), &[]).unwrap();
    assert_eq!((settings.live.tenants.len(), settings.live.tenants[0].routes.len()), (1, 1));
    assert_eq!(file["tenants_rules"].as_array().unwrap().len(), 1);
}

/// A shipped file as it is, and its text.
fn load(path: &str) -> Settings {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    super::super::load(&path).unwrap_or_else(|found| panic!("{}\n{found}", path.display()))
}

/// The settings of a shipped file with the lines that begin with `#-`.
fn with_marked(path: &str) -> Settings {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    parse(&text.replace("\n#-", "\n"), &[]).unwrap_or_else(|found| panic!("{path}\n{found}"))
}

/// The route that a path would take, and who may pass.
fn access(tenant: &Tenant, method: &str, path: &str) -> Option<RouteAccess> {
    let takes = |methods: &[Box<str>]| methods.is_empty() || methods.iter().any(|taken| &**taken == method);
    let mut routes = tenant.routes.iter();
    routes
        .find(|route| takes(&route.methods) && route.path.matches(path.as_bytes()))
        .map(|route| route.access)
}

#[test]
fn one_api_is_a_tenant_of_every_host() {
    let settings = load("conf/one-api.toml");
    let [tenant] = settings.live.tenants.as_slice() else { panic!("{:?}", settings.live.tenants) };
    assert!(!settings.fixed.listen.gateway.is_empty());
    assert_eq!(tenant.hosts, [HostPattern::Any]);
    assert_eq!(access(tenant, "GET", "/healthz"), Some(RouteAccess::Public));
    assert_eq!(access(tenant, "GET", "/v1/orders"), None, "the tenant's own policy");
}

#[test]
fn several_tenants_have_limits_and_routes_of_their_own() {
    let settings = load("conf/several-tenants.toml");
    let ids: Vec<&str> = settings.live.tenants.iter().map(|tenant| &*tenant.id).collect();
    assert_eq!(ids, ["weather", "trading", "archive"]);
    let [weather, trading, _] = settings.live.tenants.as_slice() else { panic!("{ids:?}") };
    assert_eq!(access(weather, "GET", "/docs/index.html"), Some(RouteAccess::Public));
    assert_eq!(access(weather, "POST", "/docs/index.html"), None);
    assert_eq!(access(trading, "GET", "/internal/x"), Some(RouteAccess::Deny));
    assert_eq!(access(trading, "POST", "/v1/orders"), Some(RouteAccess::Agents));
    assert!(
        trading.requests_per_minute.is_some() && trading.routes.iter().any(|route| route.min_tier.is_some())
    );
    assert!(!settings.fixed.listen.tls);
    let settings = with_marked("conf/several-tenants.toml");
    assert!(settings.fixed.listen.tls);
    assert_eq!(settings.live.tenants.iter().filter(|tenant| tenant.tls.is_some()).count(), 1);
}

#[test]
fn a_tenant_of_another_gateway_has_neither_hosts_nor_upstreams() {
    let settings = load("conf/behind/tiergate.toml");
    let [tenant] = settings.live.tenants.as_slice() else { panic!("{:?}", settings.live.tenants) };
    assert_eq!((&*tenant.id, tenant.hosts.len(), tenant.upstreams.len()), ("weather", 0, 0));
    assert!(settings.fixed.authz.secret_file.is_some() && settings.fixed.listen.gateway.is_empty());
    assert_eq!(access(tenant, "GET", "/public/x"), Some(RouteAccess::Public));
    assert!(with_marked("conf/behind/tiergate.toml").fixed.authz.client_ca.is_some());
}

#[test]
fn an_mcp_server_streams_for_agents_and_its_tools_have_tiers() {
    let settings = load("conf/mcp-server.toml");
    let [tenant] = settings.live.tenants.as_slice() else { panic!("{:?}", settings.live.tenants) };
    for path in ["/mcp", "/.well-known/oauth-protected-resource/mcp", "/.well-known/tiergate", "/sse"] {
        assert_eq!(access(tenant, "GET", path), Some(RouteAccess::Agents), "{path}");
    }
    let pay = Call::new("tools/call", Some("billing_pay"));
    assert_eq!(decide_calls(tenant, b"/mcp", &[pay]).min_tier, Tier::Silver);
    assert!(tenant.discovery && tenant.mcp);
    assert!(tenant.proxy.timeouts.read.as_secs() >= 3_600 && tenant.proxy.timeouts.total.is_none());
    assert!(tenant.proxy.timeouts.idle.as_secs() < 5, "the SDK's server for Python closes connections then");
    assert!(tenant.proxy.shows_own_host, "the SDKs' servers take local hosts alone");
    let settings = with_marked("conf/mcp-server.toml");
    let cors = settings.live.tenants[0].cors.as_ref().unwrap();
    for name in ["Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID"] {
        for list in [&cors.headers, &cors.exposed] {
            assert!(list.split(", ").any(|listed| listed == name), "{name}: {list}");
        }
    }
    for name in ["Authorization", "Content-Type", "X-API-Key", "Mcp-Method", "Mcp-Name"] {
        assert!(cors.headers.split(", ").any(|listed| listed == name), "{name}: {}", cors.headers);
    }
}
