//! The examples that are shipped: the tenant in the file of all keys, and the files for common cases.

use std::path::Path;

use toml::{Table, Value};

use super::super::shipped::{type_of, wrong_types};
use super::super::{keys_of, parse, problems, remove, set, shipped_file};
use super::read;
use crate::config::Settings;
use crate::config::tenants::known;
use crate::domain::host::HostPattern;
use crate::domain::tenant::{RouteAccess, Tenant};

/// Keys that the example shows with something else than their default.
const WITHOUT_DEFAULT: [&str; 9] = [
    "health.path",
    "hosts",
    "id",
    "tls.cert",
    "tls.key",
    "upstream_tls.ca",
    "upstream_tls.cert",
    "upstream_tls.key",
    "upstream_tls.server_name",
];

/// The same of a route.
const WITHOUT_DEFAULT_IN_ROUTE: [&str; 4] = ["methods", "min_tier", "path", "upstreams"];

/// The tenant that the file of all keys shows.
fn example() -> Table {
    let file = shipped_file();
    let [Value::Table(tenant)] = file["tenants"].as_array().unwrap().as_slice() else { panic!("{file}") };
    tenant.clone()
}

/// The one route of the example.
fn example_route() -> Table {
    let tenant = example();
    let [Value::Table(route)] = tenant["routes"].as_array().unwrap().as_slice() else { panic!("{tenant}") };
    route.clone()
}

/// The shipped file with another tenant.
fn with_tenant(tenant: Table) -> String {
    let mut file = shipped_file();
    file.insert("tenants".to_owned(), vec![tenant].into());
    file.to_string()
}

/// The shipped file with another route of its tenant.
fn with_route(route: Table) -> String {
    let mut tenant = example();
    tenant.insert("routes".to_owned(), vec![route].into());
    with_tenant(tenant)
}

fn paths(table: &Table) -> Vec<String> {
    keys_of(table).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn the_shipped_example_is_no_tenant_until_it_is_uncommented() {
    let commented = parse(super::super::shipped::TEXT, &[]).unwrap();
    assert!(commented.tenants.is_empty());
    let uncommented = parse(&shipped_file().to_string(), &[]).unwrap();
    assert_eq!(uncommented.tenants.len(), 1);
    assert_eq!(uncommented.tenants[0].routes.len(), 1);
}

#[test]
fn the_shipped_example_shows_every_key_and_no_other() {
    let [mut of_tenant, mut of_route] = known();
    of_tenant.sort_unstable();
    of_route.sort_unstable();
    assert_eq!(paths(&example()), of_tenant);
    assert_eq!(paths(&example_route()), of_route);
}

#[test]
fn the_shipped_example_says_what_an_absent_key_says_where_there_is_a_default() {
    let mut short = example();
    for path in paths(&short) {
        if !WITHOUT_DEFAULT.contains(&path.as_str()) && !["upstreams", "routes"].contains(&path.as_str()) {
            remove(&mut short, &path);
        }
    }
    let mut route = example_route();
    for path in paths(&route) {
        if !WITHOUT_DEFAULT_IN_ROUTE.contains(&path.as_str()) {
            remove(&mut route, &path);
        }
    }
    short.insert("routes".to_owned(), vec![route].into());
    assert_eq!(read(short), read(example()));
}

#[test]
fn every_key_of_a_tenant_and_a_route_is_refused_by_name_under_another_name() {
    let check = |table: Table, prefix: &str, file: fn(Table) -> String| {
        for (path, value) in keys_of(&table) {
            for renamed in [format!("{path}s"), format!("{path}_renamed")] {
                let mut table = table.clone();
                remove(&mut table, &path);
                set(&mut table, &renamed, value.clone());
                let found = problems(&file(table), &[]);
                let start = format!("{prefix}.{renamed}: is not a known key");
                assert!(found.iter().any(|line| line.starts_with(&start)), "{renamed}: {found:?}");
            }
        }
    };
    check(example(), "tenants[1]", with_tenant);
    check(example_route(), "tenants[1].routes[1]", with_route);
}

#[test]
fn every_section_of_a_tenant_is_refused_by_name_as_anything_but_a_section() {
    let sections = example().into_iter().filter(|(_, value)| value.is_table());
    let mut seen = 0;
    for (section, _) in sections {
        for wrong in wrong_types("a table") {
            let mut tenant = example();
            tenant.insert(section.clone(), wrong.clone());
            let found = problems(&with_tenant(tenant), &[]);
            let start = format!("tenants[1].{section}: is ");
            assert!(found.len() == 1 && found[0].starts_with(&start), "{section} = {wrong}: {found:?}");
        }
        seen += 1;
    }
    assert_eq!(seen, 4);
}

#[test]
fn every_key_of_a_tenant_and_a_route_is_refused_by_its_path_with_every_wrong_type() {
    let check = |table: Table, prefix: &str, file: fn(Table) -> String| {
        for (path, value) in keys_of(&table) {
            let first = value.as_array().and_then(|items| items.first());
            let wrong_items = wrong_types(first.map_or("", type_of)).into_iter().filter(|_| first.is_some());
            let wrong_lists = wrong_items.map(|item| Value::from(vec![item]));
            for wrong in wrong_types(type_of(&value)).into_iter().chain(wrong_lists) {
                let mut table = table.clone();
                set(&mut table, &path, wrong.clone());
                let found = problems(&file(table), &[]);
                let places = [format!("{prefix}.{path}: "), format!("{prefix}.{path}[1]")];
                assert!(!found.is_empty(), "{path} = {wrong} is accepted");
                let is_named = |line: &String| places.iter().any(|place| line.starts_with(place));
                assert!(found.iter().all(is_named), "{path} = {wrong}: {found:?}");
            }
        }
    };
    check(example(), "tenants[1]", with_tenant);
    check(example_route(), "tenants[1].routes[1]", with_route);
}

/// A shipped file as it is, and its text.
fn load(path: &str) -> Settings {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    Settings::load(&path, std::iter::empty()).unwrap_or_else(|found| panic!("{}\n{found}", path.display()))
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
    let [tenant] = settings.tenants.as_slice() else { panic!("{:?}", settings.tenants) };
    assert!(!settings.listen.gateway.is_empty());
    assert_eq!(tenant.hosts, [HostPattern::Any]);
    assert_eq!(access(tenant, "GET", "/healthz"), Some(RouteAccess::Public));
    assert_eq!(access(tenant, "GET", "/v1/orders"), None, "the tenant's own policy");
}

#[test]
fn several_tenants_have_limits_and_routes_of_their_own() {
    let settings = load("conf/several-tenants.toml");
    let ids: Vec<&str> = settings.tenants.iter().map(|tenant| &*tenant.id).collect();
    assert_eq!(ids, ["weather", "trading", "archive"]);
    let [weather, trading, _] = settings.tenants.as_slice() else { panic!("{ids:?}") };
    assert_eq!(access(weather, "GET", "/docs/index.html"), Some(RouteAccess::Public));
    assert_eq!(access(weather, "POST", "/docs/index.html"), None);
    assert_eq!(access(trading, "GET", "/internal/x"), Some(RouteAccess::Deny));
    assert_eq!(access(trading, "POST", "/v1/orders"), Some(RouteAccess::Agents));
    assert!(
        trading.requests_per_minute.is_some() && trading.routes.iter().any(|route| route.min_tier.is_some())
    );
    assert_eq!(settings.listen.tls, None);
}

#[test]
fn several_tenants_load_with_their_certificates_too() {
    let text = include_str!("../../../../conf/several-tenants.toml");
    let text: Vec<&str> = text.lines().map(|line| line.strip_prefix("#-").unwrap_or(line)).collect();
    let settings = parse(&text.join("\n"), &[]).unwrap();
    assert!(settings.listen.tls.is_some());
    assert_eq!(settings.tenants.iter().filter(|tenant| tenant.tls.is_some()).count(), 1);
}

#[test]
fn an_mcp_server_streams_for_agents_and_describes_itself_to_everybody() {
    let settings = load("conf/mcp-server.toml");
    let [tenant] = settings.tenants.as_slice() else { panic!("{:?}", settings.tenants) };
    for (method, path) in
        [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages")]
    {
        assert_eq!(access(tenant, method, path), Some(RouteAccess::Agents), "{method} {path}");
    }
    let described = "/.well-known/oauth-protected-resource";
    assert_eq!(access(tenant, "GET", described), Some(RouteAccess::Public));
    assert_eq!(access(tenant, "POST", described), Some(RouteAccess::Deny));
    assert_eq!(access(tenant, "GET", "/admin"), Some(RouteAccess::Deny));
    assert!(tenant.proxy.timeouts.read.as_secs() >= 3_600 && tenant.proxy.timeouts.total.is_none());
}
