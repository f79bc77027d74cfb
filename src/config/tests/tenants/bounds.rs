//! Each bound of a tenant's and a route's keys at, below and above.

use toml::{Table, Value};

use super::super::bounds::check;
use super::{file_of, problems, read, tenant_with};

/// An array of so many texts, each made of its number.
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    let items: Vec<String> = (0..count).map(|number| format!("'{}'", item(number))).collect();
    format!("[{}]", items.join(","))
}

#[test]
fn a_tenant_has_a_plain_id_and_1_to_256_patterns_of_hosts() {
    let (longest, too_long) = ("x".repeat(64), "x".repeat(65));
    check(
        "tenants[1].id",
        &format!("'x', '{longest}', 'Az09-_.'"),
        &format!("'', '{too_long}', 'a b', 'a/b', 'é', 7"),
    );
    let many = |count: usize| list(count, |number| format!("h{number}.example"));
    for (place, any) in [("tenants[1].hosts", "['*', '*.example'], "), ("tenants[1].signed_hosts", "")] {
        check(
            place,
            &format!("{}, {}, {any}['*.example', '192.0.2.1', '[2001:db8::1]']", many(1), many(256)),
            &format!("[], {}, 'api.example', [''], ['api.example:80'], ['a b'], ['api.*'], [7]", many(257)),
        );
    }
}

#[test]
fn upstreams_are_1_to_64_of_a_tenant_and_of_a_route() {
    let many = |count: usize| list(count, |number| format!("127.0.0.1:{}", number + 1));
    for place in ["tenants[1].upstreams", "tenants[1].routes[1].upstreams"] {
        check(
            place,
            &format!("{}, {}, ['h2c://a.example', 'https://[::1]:8443 weight=100']", many(1), many(64)),
            &format!(
                "[], {}, 'a.example:80', ['a.example'], ['ftp://a.example'], ['a:1 weight=101']",
                many(65)
            ),
        );
    }
}

#[test]
fn credentials_are_one_or_more_kinds_and_each_once() {
    check(
        "tenants[1].credentials",
        "['api_key'], ['signature'], ['signature', 'api_key'], ['erc8128'], ['erc8128_untagged', 'erc8128', 'api_key', 'signature']",
        "[], ['api_key', 'api_key'], ['api_key', 'signature', 'api_key'], ['password'], 'api_key'",
    );
}

#[test]
fn own_limits_are_none_or_four_from_1_to_a_million_and_do_not_fall() {
    check(
        "tenants[1].requests_per_minute",
        "[], [1, 1, 1, 1], [1, 2, 3, 1_000_000]",
        "[1], [1, 2, 3], [1, 2, 3, 4, 5], [0, 1, 2, 3], [1, 2, 3, 1_000_001], [1, 3, 2, 4], 16",
    );
}

#[test]
fn a_health_path_can_stand_in_a_request_line_and_the_path_of_a_route_is_a_pattern() {
    let (longest, too_long) = ("x".repeat(1_023), "x".repeat(1_024));
    check(
        "tenants[1].health.path",
        &format!("'/', '/health?x=1&y=%20', '/{longest}'"),
        &format!(r#"'', 'health', '/a b', "/a\nb", '/a#b', '/é', "/a\u007f", '/{too_long}'"#),
    );
    check(
        "tenants[1].routes[1].path",
        &format!("'/', '/*', '/a/*/b', '/{longest}'"),
        &format!("'', 'a', '/a//b', '/a/../b', '/a?b', '/%61', '/a b', '/{too_long}', 7"),
    );
}

// threat: Pages of other origins
#[test]
fn origins_are_as_browsers_write_them_or_a_star_alone() {
    let many = |count: usize| list(count, |number| format!("https://h{number}.example"));
    check(
        "tenants[1].cors.origins",
        &format!("[], ['*'], {}, ['http://localhost:3000', 'https://[::1]']", many(64)),
        &format!(
            "{}, ['null'], ['https://a.example/'], ['https://A.example'], ['https://a.example:443'], \
             ['a.example'], ['*', 'https://a.example'], ['https://*.example'], '*'",
            many(65)
        ),
    );
    check("tenants[1].cors.methods", "[], ['GET', 'PUT']", "['get'], ['GET,PUT'], 'GET'");
    check("tenants[1].cors.headers", "[], ['x-a', 'X-B']", "[''], ['x a'], ['x:a'], ['X, Y']");
    check("tenants[1].cors.exposed_headers", "[], ['x-a']", "['x a']");
    let both = tenant_with(&[("cors.origins", "['*']"), ("cors.credentials", "true")]);
    let expected = "tenants[1].cors.credentials: can't be true for every origin; name the origins";
    assert_eq!(problems(&file_of(vec![both]), &[]), [expected]);
}

#[test]
fn a_server_name_is_one_host() {
    check(
        "tenants[1].upstream_tls.server_name",
        "'api.example', '192.0.2.1', '[::1]'",
        "'', '*', '*.example', 'api.example:443', 'https://api.example', '::1'",
    );
    let tenant = read(tenant_with(&[("upstream_tls.server_name", "'[::1]'")]));
    assert_eq!(tenant.proxy.upstream_tls.server_name.as_deref(), Some("::1"));
}

#[test]
fn methods_are_1_to_32_tokens_in_upper_case_that_are_forwarded_and_each_once() {
    let many = |count: usize| list(count, |number| format!("X{number}"));
    let (longest, too_long) = ("X".repeat(32), "X".repeat(33));
    check(
        "tenants[1].routes[1].methods",
        &format!("{}, ['{longest}'], ['GET', 'VERSION-CONTROL']", many(32)),
        &format!(
            "[], {}, ['{too_long}'], 'GET', ['get'], [''], ['GET POST'], ['GET', 'PUT', 'GET'], ['CONNECT'], ['GET', 'TRACE']",
            many(33)
        ),
    );
}

#[test]
fn tools_are_1_to_256_names_without_blanks_beside_no_method_of_http() {
    let many = |count: usize| list(count, |number| format!("t{number}"));
    check(
        "tenants[1].routes[1].tools",
        &format!("{}, ['search', 'a.b-c', 'billing_*', '*']", many(256)),
        &format!("[], {}, 'a', [''], ['a b'], ['*a'], ['a', 'a'], [1]", many(257)),
    );
    check(
        "tenants[1].routes[1].methods",
        "['tools/call'], ['resources/*', 'ping']",
        "['GET', 'tools/call'], ['a/ b']",
    );
}

#[test]
fn a_tenant_has_up_to_1000_routes() {
    for (count, accepted) in [(1_000, true), (1_001, false)] {
        let route =
            |number: usize| Table::from_iter([("path".to_owned(), Value::from(format!("/{number}")))]);
        let mut tenant = tenant_with(&[]);
        tenant.insert("routes".to_owned(), (0..count).map(route).collect::<Vec<_>>().into());
        let found = problems(&file_of(vec![tenant]), &[]);
        let expected = "tenants[1].routes: has 1001 items; write 0 to 1000".to_owned();
        assert_eq!(found, if accepted { vec![] } else { vec![expected] });
    }
}
