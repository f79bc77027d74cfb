//! Which rule a request falls under.

mod readings;

use super::{Decision, candidates, decide, decide_calls, is_mcp};
use crate::domain::mcp::{Call, CallPatterns, NamePattern};
use crate::domain::path::{DECODINGS_MAX, PATH_BYTES_MAX, PathForm, PathPattern};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::{fixture, tier::Tier};

fn tenant(min_tier: Tier, routes: Vec<Route>) -> Tenant {
    Tenant { min_tier, routes, ..fixture::tenant() }
}

fn route(path: &str, access: RouteAccess) -> Route {
    let path = PathPattern::parse(path).unwrap();
    Route {
        path,
        methods: Vec::new(),
        access,
        min_tier: None,
        requests_per_minute: None,
        bot_requests_per_minute: None,
        upstreams: Vec::new(),
        upgrades: false,
        mcp: false,
        calls: CallPatterns::default(),
    }
}

fn for_tier(path: &str, tier: Tier) -> Route {
    Route { min_tier: Some(tier), ..route(path, RouteAccess::Agents) }
}

fn for_method(method: &str, route: Route) -> Route {
    Route { methods: vec![method.into()], ..route }
}

fn with_upgrades(route: Route) -> Route {
    Route { upgrades: true, ..route }
}

fn agents(min_tier: Tier, route: Option<usize>) -> Decision {
    Decision { access: RouteAccess::Agents, min_tier, upgrades: false, route }
}

/// Public, denied, dearer and cheaper parts of a tenant whose agents must be of tier 2.
fn shop() -> Tenant {
    tenant(
        Tier::Silver,
        vec![
            route("/public/*", RouteAccess::Public),
            route("/admin", RouteAccess::Deny),
            for_tier("/gold", Tier::Gold),
            for_tier("/cheap", Tier::Bronze),
        ],
    )
}

/// The same without anything that is denied.
fn open_shop() -> Tenant {
    let mut tenant = shop();
    tenant.routes.remove(1);
    tenant
}

fn access(tenant: &Tenant, path: &str) -> RouteAccess {
    decide(tenant, "GET", path.as_bytes()).access
}

#[test]
fn the_first_route_that_takes_path_and_method_counts() {
    let tenant = tenant(
        Tier::Silver,
        vec![
            for_method("GET", route("/a/b", RouteAccess::Public)),
            with_upgrades(for_tier("/a", Tier::Bronze)),
            route("/a/b", RouteAccess::Deny),
        ],
    );
    let public = Decision { access: RouteAccess::Public, ..agents(Tier::Silver, Some(0)) };
    let upgradable = Decision { upgrades: true, ..agents(Tier::Bronze, Some(1)) };
    for (method, path, decision) in [
        ("GET", "/a/b", public),
        ("POST", "/a/b", upgradable),
        ("GET", "/a/c", upgradable),
        ("GET", "/c", agents(Tier::Silver, None)),
    ] {
        assert_eq!(decide(&tenant, method, path.as_bytes()), decision, "{method} {path}");
    }
}

#[test]
fn a_rule_for_get_takes_neither_head_nor_other_spellings() {
    let tenant = tenant(Tier::Bronze, vec![for_method("GET", route("/x", RouteAccess::Public))]);
    for method in ["HEAD", "get", "Get", "GET ", ""] {
        assert_eq!(decide(&tenant, method, b"/x"), agents(Tier::Bronze, None), "{method}");
    }
}

#[test]
fn a_plain_path_may_be_asked_less_than_the_tenant_asks() {
    assert_eq!(decide(&shop(), "GET", b"/cheap/x"), agents(Tier::Bronze, Some(3)));
    assert_eq!(decide(&shop(), "GET", b"/gold"), agents(Tier::Gold, Some(2)));
}

#[test]
fn honest_escapes_do_not_take_a_path_out_of_its_rule() {
    for path in [
        "/public/me%40example.com",
        "/public/did%3Aweb%3Ax",
        "/public/a%20b",
        "/public/J%C3%BCrgen",
        "/public/%7Eme",
        "/%70ublic/x",
        "/public/J\u{fc}rgen",
    ] {
        let expected = if path.starts_with("/public") { RouteAccess::Public } else { RouteAccess::Agents };
        assert_eq!(access(&shop(), path), expected, "{path}");
    }
}

/// Which readings a path has is in the tests of `path`, and that each is heeded in those of `readings`.
#[test]
fn a_path_that_may_lead_to_a_denied_one_or_is_none_is_denied() {
    for path in
        ["/public/../x", "/x/../admin", "//admin", "/%61dmin", "/admin;x/y", "/admin%2fx", "*", "", "/x%00"]
    {
        assert_eq!(access(&shop(), path), RouteAccess::Deny, "{path:?}");
    }
}

#[test]
fn an_ambiguous_path_asks_for_all_that_any_of_its_rules_asks_for() {
    for (path, tier, route) in [
        ("/cheap//x", Tier::Silver, Some(2)),
        ("/cheap;x/y", Tier::Silver, None),
        ("/gold//x", Tier::Gold, Some(1)),
        ("/%67old%2fx", Tier::Gold, None),
        ("/x//y", Tier::Silver, None),
        ("/public//x", Tier::Silver, Some(0)),
        ("/public/group%2Fproject", Tier::Silver, Some(0)),
        ("/cheap/100%25", Tier::Silver, Some(2)),
        ("/public/../x", Tier::Gold, Some(0)),
    ] {
        assert_eq!(decide(&open_shop(), "GET", path.as_bytes()), agents(tier, route), "{path}");
    }
}

// threat: An upgrade gets around the check
#[test]
fn an_ambiguous_path_is_never_upgraded() {
    let tenant = tenant(Tier::Bronze, vec![with_upgrades(route("/ws", RouteAccess::Agents))]);
    for (path, upgrades) in
        [("/ws/x", true), ("/ws/%78", true), ("/%77s", false), ("/ws//x", false), ("/ws/../ws", false)]
    {
        assert_eq!(decide(&tenant, "GET", path.as_bytes()).upgrades, upgrades, "{path}");
    }
}

#[test]
fn a_path_beyond_the_limits_is_denied() {
    let everything = tenant(Tier::Bronze, vec![route("/*", RouteAccess::Public)]);
    let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
    assert_eq!(access(&everything, &long), RouteAccess::Deny);
    assert_eq!(access(&everything, &long[..PATH_BYTES_MAX]), RouteAccess::Public);
    let deep = format!("/%{}41", "25".repeat(DECODINGS_MAX));
    assert_eq!(access(&everything, &deep), RouteAccess::Deny);
    assert_eq!(access(&everything, &format!("/{}", "%25".repeat(1_365))), RouteAccess::Agents);
}

#[test]
fn the_candidates_are_the_routes_that_have_a_say_in_the_decision() {
    let shop = shop();
    let of = |path: &str| {
        let (reading, routes) = candidates(&shop, "GET", path.as_bytes(), None);
        (reading, routes.into_iter().map(|route| route.path.as_str()).collect::<Vec<_>>())
    };
    assert_eq!(of("/gold/x"), (PathForm::Plain, vec!["/gold"]));
    assert_eq!(of("/g%6fld/x").1, ["/gold"]);
    assert_eq!(of("/public/%2fgold").1, ["/public/*"]);
    assert_eq!(of("/public/../x"), (PathForm::Anywhere, vec!["/public/*", "/admin", "/gold", "/cheap"]));
    assert_eq!(of("/x"), (PathForm::Plain, vec![]));
    assert_eq!(of("/gold/%00"), (PathForm::Invalid, vec![]));
}

/// Tools of tiers at one endpoint, whose other calls are for silver.
fn server() -> Tenant {
    let tools = |names: &str, route: Route| {
        let tools = names.split(' ').map(|name| NamePattern::parse(name).unwrap()).collect();
        Route { calls: CallPatterns { tools, ..CallPatterns::default() }, mcp: true, ..route }
    };
    tenant(
        Tier::Silver,
        vec![
            tools("help", route("/mcp", RouteAccess::Public)),
            tools("billing_*", for_tier("/mcp", Tier::Gold)),
            tools("drop", route("/mcp", RouteAccess::Deny)),
            for_method("POST", for_tier("/mcp", Tier::Bronze)),
        ],
    )
}

#[test]
fn a_call_falls_under_the_first_route_that_takes_it_and_any_other_under_that_of_its_endpoint() {
    let tenant = server();
    let of = |names: &[&str]| {
        let calls: Vec<_> = names.iter().map(|name| Call::new("tools/call", Some(name))).collect();
        decide_calls(&tenant, b"/mcp", &calls)
    };
    let [public, deny] = [RouteAccess::Public, RouteAccess::Deny];
    assert_eq!(of(&["help"]), Decision { access: public, ..agents(Tier::Silver, Some(0)) });
    assert_eq!(of(&["billing_pay"]), agents(Tier::Gold, Some(1)));
    assert_eq!(of(&["drop"]), Decision { access: deny, ..agents(Tier::Silver, Some(2)) });
    for other in ["search", "Help", "help ", "billing", ""] {
        assert_eq!(of(&[other]), agents(Tier::Bronze, Some(3)), "{other}");
    }
    assert_eq!(
        decide_calls(&tenant, b"/mcp", &[Call::new("tools/list", Some("help"))]),
        agents(Tier::Bronze, Some(3))
    );
    assert_eq!(decide_calls(&tenant, b"/mcp", &[]), agents(Tier::Bronze, Some(3)));
    // Several calls of one request: everything that is demanded for any.
    assert_eq!(of(&["help", "billing_pay"]), agents(Tier::Gold, Some(0)));
    assert_eq!(of(&["search", "drop"]).access, deny);
    // No call, no tool.
    assert_eq!(decide(&tenant, "GET", b"/mcp"), agents(Tier::Silver, None));
}

// threat: MCP: a tool by another path
#[test]
fn a_path_that_may_be_an_endpoints_is_one_and_loosens_nothing() {
    let tenant = server();
    for path in ["/mcp", "/mcp/", "/%6dcp", "/mcp/../mcp", "//mcp", "/x/..%2fmcp", "/mcp;a"] {
        assert!(is_mcp(&tenant, path.as_bytes()), "{path}");
        let billing = decide_calls(&tenant, path.as_bytes(), &[Call::new("tools/call", Some("billing_pay"))]);
        assert!(billing.min_tier == Tier::Gold || billing.access == RouteAccess::Deny, "{path}");
        let help = decide_calls(&tenant, path.as_bytes(), &[Call::new("tools/call", Some("help"))]);
        assert!(
            help.access != RouteAccess::Public
                || path.starts_with("/mcp/")
                || path == "/mcp"
                || path == "/%6dcp",
            "{path}"
        );
    }
    assert!(!is_mcp(&tenant, b"/files/a%20b") && !is_mcp(&tenant, b"/mcpx") && !is_mcp(&shop(), b"/mcp"));
    assert!(is_mcp(&Tenant { mcp: true, ..shop() }, b"/any"));
}
