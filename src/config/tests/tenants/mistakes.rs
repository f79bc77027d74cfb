//! What is wrong with tenants is said at once, each problem with its exact place.

use proptest::prelude::{Just, ProptestConfig as Config, Strategy, any, prop, prop_oneof, proptest};
use toml::{Table, Value};

use super::super::{MINIMAL, TENANT, minimal_with, parse, problems};
use super::{file_of, route_with, tenant_with};
use crate::config::schema::declared;

/// What is wrong with one tenant, where listeners speak TLS.
fn mistakes(keys: &[(&str, &str)]) -> Vec<String> {
    problems(&file_of(vec![tenant_with(keys)]), &[])
}

// threat: A gateway forwards to itself
#[test]
fn no_listener_of_ours_is_an_upstream() {
    let route =
        [("tenants[1].routes[1].path", "\"/v1\""), ("tenants[1].routes[1].upstreams", "[\"[::1]:8443\"]")];
    let keys = [
        ("listen.gateway", "[\"127.0.0.1:8000\", \"[::]:8443\"]"),
        ("tenants[1].id", "\"acme\""),
        ("tenants[1].hosts", "[\"api.acme.example\"]"),
        (
            "tenants[1].upstreams",
            "[\"127.0.0.1:8081\", \"localhost:8000 weight=2\", \"api.acme.example:8000\", \"127.0.0.1:8080\", \"localhost:8082\"]",
        ),
    ];
    let of =
        |listener| format!("where this gateway itself listens ({listener}); write the service behind it");
    assert_eq!(
        problems(&minimal_with(&[&keys[..], &route].concat()), &[]),
        [
            format!(
                "tenants[1].upstreams: item 2 is http://localhost:8000 weight=2, {}",
                of("127.0.0.1:8000")
            ),
            format!("tenants[1].upstreams: item 4 is http://127.0.0.1:8080, {}", of("127.0.0.1:8080")),
            format!("tenants[1].upstreams: item 5 is http://localhost:8082, {}", of("127.0.0.1:8082")),
            format!("tenants[1].routes[1].upstreams: item 1 is http://[::1]:8443, {}", of("[::]:8443")),
        ]
    );
}

#[test]
fn tenants_routes_and_sections_that_are_something_else_are_refused() {
    let tables = "write tables, each of which begins with";
    for (base, path, literal, expected) in [
        (&[][..], "tenants", "{ id = 'acme' }", format!("tenants: is a table; {tables} [[tenants]]")),
        (
            &[],
            "tenants",
            "['acme']",
            "tenants[1]: is a string; write a table that begins with [[tenants]]".to_owned(),
        ),
        (
            &TENANT,
            "tenants[1].routes",
            "'/v1'",
            format!("tenants[1].routes: is a string; {tables} [[tenants.routes]]"),
        ),
        (
            &TENANT,
            "tenants[1].routes",
            "['/v1']",
            "tenants[1].routes[1]: is a string; write a table that begins with [[tenants.routes]]".to_owned(),
        ),
        (
            &TENANT,
            "tenants[1].timeouts",
            "'5s'",
            "tenants[1].timeouts: is a string; write a section that begins with [tenants.timeouts]"
                .to_owned(),
        ),
    ] {
        assert_eq!(problems(&minimal_with(&[base, &[(path, literal)]].concat()), &[]), [expected]);
    }
}

#[test]
fn a_declared_endpoint_is_asked_for_only_where_keys_are_taken() {
    let with = |credentials| mistakes(&[("on_endpoint_mismatch", "\"deny\""), ("credentials", credentials)]);
    let phrase = "has no meaning for signatures, which declare no endpoint; remove it, or accept \"api_key\"";
    assert_eq!(with("[\"signature\"]"), [format!("tenants[1].on_endpoint_mismatch: {phrase}")]);
    assert_eq!((with("[\"api_key\"]"), with("[\"api_key\", \"signature\"]")), (vec![], vec![]));
}

#[test]
fn an_upstream_stands_in_its_list_once_whatever_its_weight() {
    let list = r#"["a.example:80", "http://A.example weight=3", "https://a.example", "a.example:81"]"#;
    let problem = r#"item 2 is "http://a.example:80 weight=3", the same upstream as "http://a.example:80"; write each once, with its weight"#;
    assert_eq!(mistakes(&[("upstreams", list)]), [format!("tenants[1].upstreams: {problem}")]);
    let of_route = problems(&file_of(vec![route_with(&[("upstreams", list)])]), &[]);
    assert_eq!(of_route, [format!("tenants[1].routes[1].upstreams: {problem}")]);
}

#[test]
fn no_two_tenants_share_an_id_or_a_host() {
    let hosts = ("hosts", r#"["a.example", "*.b.example", "b.example"]"#);
    let others = ("hosts", r#"["A.EXAMPLE", "c.example", "*.B.example", "C.example"]"#);
    let text = file_of(vec![tenant_with(&[hosts]), tenant_with(&[others])]);
    assert_eq!(
        problems(&text, &[]),
        [
            "tenants[2].id: is \"acme\", the id of tenants[1]; write another",
            "tenants[2].hosts: item 1 is \"a.example\", a host of tenants[1]; write each host once",
            "tenants[2].hosts: item 3 is \"*.b.example\", a host of tenants[1]; write each host once",
            "tenants[2].hosts: item 4 is \"c.example\", a host of tenants[2]; write each host once",
        ]
    );
    let text = file_of(vec![
        tenant_with(&[("hosts", r#"["a.example", "*.a.example", "*"]"#)]),
        tenant_with(&[("id", "\"Acme\""), ("hosts", r#"["*.b.a.example", "x.a.example"]"#)]),
    ]);
    assert!(parse(&text, &[]).is_ok(), "patterns that overlap are not the same");
}

#[test]
fn a_certificate_of_a_tenant_needs_a_listener_with_tls() {
    let mut file: Table =
        file_of(vec![tenant_with(&[("tls", "{ cert = \"a\", key = \"b\" }")])]).parse().unwrap();
    assert_eq!(problems(&file.to_string(), &[]), [""; 0]);
    file["listen"]["tls"]["cert"] = Value::from(7);
    let found = problems(&file.to_string(), &[]);
    assert_eq!(found, ["listen.tls.cert: is an integer; write a string in quotes"], "and no more");
    file.remove("listen");
    let found = problems(&file.to_string(), &[]);
    assert_eq!(
        found,
        [
            "tenants[1].tls.cert: needs listen.tls; without it the gateway speaks no TLS and shows no certificate"
        ]
    );
}

#[test]
fn what_has_no_meaning_for_a_route_is_refused() {
    let denied = "has no meaning with access \"deny\", which forwards nothing; remove it";
    let agents = "has no meaning without agents; remove it, or write access \"agents\"";
    let public =
        "has no meaning where agents have limits of their own; remove it, or write access \"public\"";
    for (access, path, literal, phrase) in [
        ("agents", "requests_per_minute", "2", public),
        ("deny", "requests_per_minute", "2", public),
        ("agents", "bot_requests_per_minute", "2", public),
        ("deny", "bot_requests_per_minute", "2", public),
        ("public", "min_tier", "2", agents),
        ("deny", "min_tier", "2", agents),
        ("deny", "upstreams", "[\"127.0.0.1:1\"]", denied),
        ("deny", "upgrades", "true", denied),
    ] {
        let access = format!("{access:?}");
        let text = file_of(vec![route_with(&[("access", &access), (path, literal)])]);
        assert_eq!(problems(&text, &[]), [format!("tenants[1].routes[1].{path}: {phrase}")]);
    }
    let text = file_of(vec![route_with(&[
        ("access", "\"public\""),
        ("upgrades", "true"),
        ("upstreams", "[\"127.0.0.1:1\"]"),
    ])]);
    assert_eq!(problems(&text, &[]), [""; 0]);
    let text = file_of(vec![route_with(&[("access", "\"deny\""), ("upgrades", "false")])]);
    assert_eq!(problems(&text, &[]), [""; 0]);
    let text = file_of(vec![route_with(&[("access", "\"x\""), ("min_tier", "2"), ("upgrades", "true")])]);
    assert_eq!(problems(&text, &[]).len(), 1, "nothing follows from an access that is wrong itself");
}

/// Names that mean something, and some that do not.
fn names() -> Vec<String> {
    let paths =
        declared().into_iter().filter_map(|key| Some(key.path.strip_prefix("tenants[].")?.to_owned()));
    let paths: Vec<String> = paths.collect();
    let names = paths.iter().flat_map(|path| path.split(['.', '[', ']'])).chain(["", "a.b", "\n"]);
    names.map(str::to_owned).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "(https?|h2c)://[a-z.:@/\\[\\]0-9]{0,12}",
        "[*./a-z0-9:\\[\\]-]{0,12}",
        "[0-9]{1,20}(ns|s|h|d|y)?",
        Just("0s".to_owned()),
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1_i64..=5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(names()), inner, 0..12)
                .prop_map(|keys| { Value::from(Table::from_iter(keys)) }),
        ]
    })
}

proptest! {
    #![proptest_config(Config { cases: Config::default().cases / 4, ..Config::default() })]

    #[test]
    fn no_value_panics(values in prop::collection::btree_map(prop::sample::select(names()), any_value(), 0..12)) {
        let keys = Table::from_iter(values);
        let mut tenant = tenant_with(&[]);
        tenant.extend(keys.clone());
        let mut route = keys;
        route.entry("path").or_insert(Value::from("/"));
        let mut with_route = tenant_with(&[]);
        with_route.insert("routes".to_owned(), vec![route.clone(), route].into());
        let _ = parse(&file_of(vec![tenant.clone(), tenant, with_route]), &[]);
    }

    #[test]
    fn no_tenants_panic(tenants in any_value()) {
        let mut file: Table = MINIMAL.parse().unwrap();
        file.insert("tenants".to_owned(), tenants);
        let _ = parse(&file.to_string(), &[]);
    }
}

// threat: What is signed for another service is sent on to us
#[test]
fn signatures_need_a_host_that_is_named() {
    const NONE: &str = "tenants[1].signed_hosts: has to name those that agents and bots call who sign their requests; \"*\" \
                        names none";
    let (any, signed) = (("hosts", "['*']"), ("credentials", "['api_key', 'erc8128_untagged']"));
    let route = "[{ path = '/x', access = 'public', requests_per_minute = 1, bot_requests_per_minute = 5 }]";
    let bots = ("routes", route);
    let named = ("signed_hosts", "['api.example']");
    assert_eq!(mistakes(&[any]), [""; 0]);
    assert_eq!(mistakes(&[any, bots]), [""; 0], "no domain is listed");
    assert_eq!(mistakes(&[any, signed]), [NONE]);
    assert_eq!(mistakes(&[any, signed, named]), [""; 0]);
    assert_eq!(mistakes(&[("hosts", "['*', 'api.example']"), signed]), [""; 0]);
    let with_bots = |keys: &[(&str, &str)]| {
        let text =
            format!("{}\n[web_bot_auth]\ndomains = ['bots.example']\n", file_of(vec![tenant_with(keys)]));
        problems(&text, &[])
    };
    assert_eq!(with_bots(&[any, bots]), [NONE]);
    assert_eq!(with_bots(&[any, bots, named]), [""; 0]);
    assert_eq!(mistakes(&[signed, ("signed_hosts", "['*']")]), [NONE]);
}

#[test]
fn bodies_are_held_up_to_a_size_and_for_signed_requests_alone() {
    const SIZE: &str = "tenants[1].digest: holds bodies: write max_body_bytes of 1 to 8388608, or \"stream\"";
    let held = |more: &[(&str, &str)]| mistakes(&[&[("digest", "\"before\"")], more].concat());
    let signed = ("credentials", "[\"erc8128\"]");
    assert_eq!(held(&[signed]), [SIZE]);
    assert_eq!(held(&[signed, ("max_body_bytes", "8388609")]), [SIZE]);
    assert!(held(&[signed, ("max_body_bytes", "1")]).is_empty());
    let unsigned =
        "tenants[1].digest: has no meaning without signed requests; remove it, or accept \"erc8128\"";
    assert_eq!(held(&[("max_body_bytes", "1")]), [unsigned]);
}
