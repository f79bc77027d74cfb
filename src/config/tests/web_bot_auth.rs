//! `[web_bot_auth]`.

use super::authz::warnings;
use super::bounds::check;

#[test]
fn a_limit_of_bots_without_a_domain_is_warned_about() {
    let route = "{ path = '/x', access = 'public', requests_per_minute = 1, bot_requests_per_minute = 5 }";
    let tenant = |route: &str| {
        format!("[{{ id = 't', hosts = ['a.test'], upstreams = ['127.0.0.1:1'], routes = [{route}] }}]")
    };
    let (with, without) = (tenant(route), tenant("{ path = '/x', access = 'public' }"));
    let about = |tenants: &str, keys: &[(&str, &str)]| {
        let all = warnings(&[&[("tenants", tenants)], keys]);
        all.into_iter().filter(|line| line.contains("bot_requests_per_minute: is for nobody")).count()
    };
    assert_eq!(about(&with, &[]), 1);
    assert_eq!(about(&without, &[]), 0);
    for key in ["web_bot_auth.domains", "web_bot_auth.private_domains"] {
        assert_eq!(about(&with, &[(key, "['bots.example']")]), 0, "{key}");
    }
}

#[test]
fn a_limit_of_bots_where_strangers_have_none_is_warned_about() {
    let about = |limits: &str| {
        let route = format!("{{ path = '/x', access = 'public', {limits} }}");
        let tenants =
            format!("[{{ id = 't', hosts = ['a.test'], upstreams = ['127.0.0.1:1'], routes = [{route}] }}]");
        let all = warnings(&[&[("tenants", &tenants), ("web_bot_auth.domains", "['bots.example']")]]);
        all.into_iter().filter(|line| line.contains("bot_requests_per_minute")).collect::<Vec<_>>()
    };
    assert_eq!(
        about("bot_requests_per_minute = 5"),
        [
            "tenants[1].routes[1].bot_requests_per_minute: limits bots that prove a domain and nobody else; write \
             requests_per_minute too"
        ]
    );
    assert_eq!(about("bot_requests_per_minute = 5, requests_per_minute = 1"), [""; 0]);
    assert_eq!(about("requests_per_minute = 1"), [""; 0]);
}

#[test]
fn a_private_domain_is_a_name_in_its_normal_form() {
    check(
        "web_bot_auth.private_domains",
        "['bots.internal'], ['bots.internal:8443'], ['localhost:1']",
        "['Bots.internal'], ['bots.internal:443'], ['10.0.0.1'], ['[::1]'], ['*.internal'], ['https://bots.internal'],
         ['bots.internal/x'], ['user@bots.internal'], ['']",
    );
}
