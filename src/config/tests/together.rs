//! Keys that go together, or do not: what is said of a file in which each is right by itself.

use super::{minimal_with, parse, says};

#[test]
fn a_port_that_is_too_large_is_named() {
    says(
        "",
        r#"
        listen.api = '127.0.0.1:99999'
        ! listen.api: is "127.0.0.1:99999"; write an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080"
        listen.api = '[::1]:65536'
        ! listen.api: is "[::1]:65536"; write an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080"
        "#,
    );
}

#[test]
fn every_two_listeners_that_overlap_are_named() {
    says(
        "",
        "listen.gateway = ['127.0.0.1:8080', '0.0.0.0:8082', '127.0.0.1:8082']
         listen.owners = ['127.0.0.1:8081', '[::]:8080']
         listen.authz = ['127.0.0.1:8081']
         ! listen.gateway: api is 127.0.0.1:8080 and gateway item 1 is 127.0.0.1:8080; write two addresses that do not overlap
         ! listen.gateway: gateway item 2 is 0.0.0.0:8082 and gateway item 3 is 127.0.0.1:8082; …
         ! listen.owners: api is 127.0.0.1:8080 and owners item 2 is [::]:8080; …
         ! listen.owners: gateway item 1 is 127.0.0.1:8080 and owners item 2 is [::]:8080; …
         ! listen.authz: owners item 1 is 127.0.0.1:8081 and authz item 1 is 127.0.0.1:8081; …
         ! listen.admin: gateway item 2 is 0.0.0.0:8082 and admin is 127.0.0.1:8082; …
         ! listen.admin: gateway item 3 is 127.0.0.1:8082 and admin is 127.0.0.1:8082; …",
    );
}

#[test]
fn a_listener_has_both_a_certificate_and_its_key_or_neither() {
    for section in ["listen.tls", "authz.tls", "tenants[1].tls", "tenants[1].upstream_tls"] {
        says(
            "",
            &format!(
                "{section}.cert = 'x'
                 ! {section}.key: cert and key go together; write both or neither
                 {section}.key = 'x'
                 ! {section}.cert: cert and key go together; write both or neither
                 {section} = {{ cert = '', key = \"a\\u0000b\" }}
                 ! {section}.cert: is \"\"; write the path of a file
                 ! {section}.key: is \"a\\0b\"; write the path of a file"
            ),
        );
    }
    says(
        "",
        "$TIERGATE__LISTEN__TLS__CERT = x
         ! TIERGATE__LISTEN__TLS__CERT: cert and key go together; write both or neither",
    );
}

// threat: Forged PROXY headers
#[test]
fn the_proxy_protocol_is_spoken_by_proxies_that_are_trusted() {
    says(
        "listen.proxy_protocol = ['gateway', 'api']",
        "listen.trusted_proxies = []
         ! listen.proxy_protocol: is spoken by listen.trusted_proxies alone, and there are none; write both or neither
         listen.trusted_proxies = ['10.0.0.0/8']
         ok",
    );
}

#[test]
fn the_chain_is_asked_twice_at_least_before_it_is_taken_for_silent() {
    says(
        "",
        "chain.poll_interval = '2501ms'
         ! chain.max_staleness: is shorter than two of chain.poll_interval; write a duration that is at least twice as long
         chain.poll_interval = '2500ms'
         ok",
    );
}

#[test]
fn nonces_are_remembered_for_the_whole_window_at_least() {
    says(
        "signature.max_age = '100s'
         signature.max_ahead = '20s'",
        "signature.nonce_retention = '120s'
         ok
         signature.nonce_retention = '119s 999ms'
         ! signature.nonce_retention: nonce_retention is 1m 59s 999ms, shorter than max_age and max_ahead together; write at least 2m",
    );
}

#[test]
fn contracts_alone_sign_for_longer_and_nonces_are_kept_for_as_long() {
    says(
        "signature.contract_max_age = '24h'",
        r#"
        signature.contracts = true
        signature.key_operations = 'own_types'
        signature.service_name = 'Hafen'
        signature.nonce_retention = '24h 1m'
        ok
        signature.contracts = true
        signature.key_operations = 'own_types'
        signature.service_name = 'Hafen'
        signature.nonce_retention = '24h 59s'
        ! signature.nonce_retention: nonce_retention is 1day 59s, shorter than contract_max_age and max_ahead together; write at least 1day 1m
        signature.contracts = true
        signature.nonce_retention = '25h'
        ? signature.contract_max_age: is for changes of keys that contracts sign as types of their own; …
        signature.key_operations = 'own_types'
        signature.service_name = 'Hafen'
        signature.nonce_retention = '25h'
        ? signature.contract_max_age: is for changes of keys that contracts sign as types of their own; …
        "#,
    );
}

#[test]
fn types_of_their_own_need_a_name_of_the_service_and_a_name_that_is_not_signed_is_warned_of() {
    says(
        "",
        r#"
        signature.key_operations = 'own_types'
        ! signature.service_name: is empty, and so is keys.public_url; signature.key_operations = "own_types" needs a name of this service's own
        signature.service_name = 'Hafen'
        ? signature.service_name: is not signed; signature.key_operations = "own_types" has it signed
        "#,
    );
    let own = ("signature.key_operations", "'own_types'");
    let (name, url) =
        (("signature.service_name", "'Hafen 東京'"), ("keys.public_url", "'https://verify.example/x/'"));
    for (keys, named) in [
        (&[own, url][..], Some("https://verify.example/x")),
        (&[own, url, name], Some("Hafen 東京")),
        (&[url, name], None),
    ] {
        assert_eq!(parse(&minimal_with(keys), &[]).unwrap().key_service(), named, "{keys:?}");
    }
}

#[test]
fn what_works_and_is_probably_not_meant_is_a_warning() {
    says(
        "",
        r#"
        chain.development = false
        ? signature.domain_name: is every service's default: a signature that one of them receives and does not spend is good at all that trust the same registry; write a name of this service's own
        chain.contracts.stake_vault = '0x5FbDB2315678afecb367f032d93F642f64180aa3'
        ? chain.contracts.stake_vault: is the address of chain.contracts.identity; registries are contracts of their own
        listen.max_connections_per_network = 1
        ? listen.max_connections_per_network: is 1: a client that opens its next connection while its last one is being closed is turned away; write more
        listen.max_connections_per_network = 2
        ok
        tenants[1].min_tier = 1
        listen.gateway = []
        ? listen.gateway: is empty, and nobody reaches the tenants, 1 in all; write an address
        "#,
    );
}

#[test]
fn agents_have_places_that_no_stranger_takes() {
    says(
        "tenants[1].routes = [{ path = '/a', access = 'public' }]",
        "tenants[1].limits.max_in_flight = 512
         ? tenants[1].limits.max_in_flight_public: is 512 and limits.max_in_flight 512: strangers on public routes may hold every place; write less
         tenants[1].limits.max_in_flight = 513
         ok
         tenants[1].limits.max_in_flight = 1
         ok
         tenants[1].limits.max_in_flight = 2
         tenants[1].routes = []
         ok",
    );
}

#[test]
fn what_other_sections_make_impossible_is_refused() {
    says(
        "",
        r#"
        signature.agent_wallet = true
        ! signature.agent_wallet: is true, and agents of these registries have no wallets; leave it out
        log.audit_required = true
        ! log.audit_required: is true, and log.audit names no place
        console.rpc_url = 'https://rpc.example'
        ! console.chain_name: is empty; wallets ask for the name of the chain at console.rpc_url
        tenants[1].on_endpoint_mismatch = 'deny'
        tenants[1].credentials = ['signature']
        ! tenants[1].on_endpoint_mismatch: has no meaning for signatures, which declare no endpoint; remove it, or accept "api_key"
        tenants[1].on_endpoint_mismatch = 'deny'
        tenants[1].credentials = ['api_key', 'signature']
        ok
        "#,
    );
}

// threat: Pages of other origins
#[test]
fn pages_of_every_origin_have_no_credentials() {
    says(
        "tenants[1].cors.credentials = true",
        "tenants[1].cors.origins = ['*']
         ! tenants[1].cors.credentials: can't be true for every origin; name the origins",
    );
}

#[test]
fn a_tenant_has_neither_hosts_nor_upstreams_only_where_other_gateways_ask() {
    says(
        "",
        "tenants = [{ id = 'acme' }]
         ! tenants[1].hosts: is required
         ! tenants[1].upstreams: is required
         listen.gateway = ['127.0.0.1:9001']
         tenants = [{ id = 'acme' }]
         ! tenants[1].hosts: is required
         ! tenants[1].upstreams: is required",
    );
    says(
        "listen.authz = ['127.0.0.1:9000']",
        "tenants = [{ id = 'acme' }]
         ok
         tenants = [{ id = 'acme', hosts = ['a.example'] }]
         ! tenants[1].upstreams: is required
         tenants = [{ id = 'acme', upstreams = ['127.0.0.1:1'] }]
         ! tenants[1].hosts: is required
         tenants = [{ id = 'acme', hosts = [], upstreams = ['127.0.0.1:1'] }]
         ! tenants[1].hosts: has 0 items; write 1 to 256",
    );
}

// threat: A stranger asks in a gateway's name
#[test]
fn a_listener_that_anybody_may_ask_who_reaches_it_is_warned_of() {
    says(
        "",
        "authz.tls.client_ca = 'ca.pem'
         ! authz.tls.client_ca: needs authz.tls.cert and authz.tls.key; write them too
         listen.authz = ['127.0.0.1:9009', '10.0.0.1:9000']
         ? listen.authz: is no loopback address, and anybody who reaches it may ask, and write who the client is; …
         listen.authz = ['[::]:9000']
         authz.tls = { cert = 'c', key = 'k' }
         ? listen.authz: is no loopback address, and anybody who reaches it may ask, and write who the client is; …
         listen.authz = ['0.0.0.0:9000']
         authz.tls = { cert = 'c', key = 'k', client_ca = 'ca' }
         ok
         listen.authz = ['192.0.2.1:9000']
         authz.secret_file = 'secret'
         ok
         listen.authz = ['[::1]:9000', '127.9.9.9:9000']
         ok",
    );
}

// threat: What is signed for another service is sent on to us
#[test]
fn signatures_need_a_host_that_is_named_and_hosts_below_another_are_warned_of_unless_they_are_listed() {
    says(
        "tenants[1].hosts = ['*']",
        r#"
        tenants[1].credentials = ['api_key']
        ok
        tenants[1].credentials = ['api_key', 'erc8128_untagged']
        ! tenants[1].signed_hosts: has to name those that agents and bots call who sign their requests; "*" names none
        tenants[1].credentials = ['erc8128']
        tenants[1].signed_hosts = ['*']
        ! tenants[1].signed_hosts: has to name those that agents and bots call who sign their requests; "*" names none
        tenants[1].credentials = ['erc8128']
        tenants[1].signed_hosts = ['*.example']
        ok
        tenants[1].credentials = ['erc8128']
        tenants[1].hosts = ['*', 'api.example']
        ok
        tenants[1].credentials = ['erc8128']
        tenants[1].hosts = ['api.example', '*.example']
        ? tenants[1].hosts: let what is signed for any host below a "*." count here; …
        tenants[1].hosts = ['api.example', '*.example']
        ok
        "#,
    );
    says(
        "web_bot_auth.domains = ['bots.example']
         tenants[1].routes = [{ path = '/x', access = 'public', requests_per_minute = 1, bot_requests_per_minute = 5 }]",
        r#"
        tenants[1].hosts = ['*']
        ! tenants[1].signed_hosts: has to name those that agents and bots call who sign their requests; "*" names none
        tenants[1].hosts = ['*']
        web_bot_auth.domains = []
        ? tenants[1].routes[1].bot_requests_per_minute: is for nobody: web_bot_auth.domains and private_domains are empty
        tenants[1].hosts = ['*']
        tenants[1].signed_hosts = ['api.example']
        ok
        "#,
    );
}

#[test]
fn a_limit_of_bots_without_a_domain_or_where_strangers_have_none_is_warned_about() {
    says(
        "tenants[1].routes[1].access = 'public'",
        "tenants[1].routes[1].bot_requests_per_minute = 5
         web_bot_auth.private_domains = ['bots.example']
         ? tenants[1].routes[1].bot_requests_per_minute: limits bots that prove a domain and nobody else; write requests_per_minute too
         tenants[1].routes[1].bot_requests_per_minute = 5
         tenants[1].routes[1].requests_per_minute = 1
         web_bot_auth.private_domains = ['bots.example']
         ok
         tenants[1].routes[1].requests_per_minute = 1
         ok",
    );
}

#[test]
fn a_tenant_with_signed_requests_is_warned_where_nonces_are_kept_for_less_than_these_may_be_good() {
    says(
        "signature.max_age = '60s'",
        "signature.nonce_retention = '149s'
         tenants[1].credentials = ['erc8128']
         ? tenants[1].credentials: take requests that are signed for a minute, which are refused: write at least max_ahead and 90s for signature.nonce_retention
         signature.nonce_retention = '150s'
         tenants[1].credentials = ['api_key', 'erc8128_untagged']
         ok
         signature.nonce_retention = '149s'
         tenants[1].credentials = ['api_key', 'signature']
         ok",
    );
}

#[test]
fn bodies_are_held_up_to_a_size_and_for_signed_requests_alone() {
    says(
        "tenants[1].digest = 'before'",
        r#"
        tenants[1].credentials = ['erc8128']
        ! tenants[1].digest: holds bodies: write max_body_bytes of 1 to 8388608, or "stream"
        tenants[1].credentials = ['erc8128']
        tenants[1].max_body_bytes = 8388609
        ! tenants[1].digest: holds bodies: write max_body_bytes of 1 to 8388608, or "stream"
        tenants[1].credentials = ['erc8128']
        tenants[1].max_body_bytes = 8388608
        ok
        tenants[1].max_body_bytes = 1
        ! tenants[1].digest: has no meaning without signed requests; remove it, or accept "erc8128"
        "#,
    );
}

// threat: A key of assertions is exchanged, broken or written down
#[test]
fn upstreams_get_assertions_where_somebody_signs() {
    says(
        "tenants[1].assertion = true",
        "assertion.issuer = 'gate'
         assertion.key_file = 'k.pem'
         ok
         assertion.issuer = 'gate'
         ! assertion.key_file: issuer and key_file go together; write both or neither
         assertion.key_file = 'k.pem'
         ! assertion.issuer: issuer and key_file go together; write both or neither
         tenants[1].assertion = true
         ! tenants[1].assertion: needs [assertion] with issuer and key_file; without them nobody signs",
    );
}

// threat: A gateway forwards to itself
#[test]
fn no_listener_of_ours_is_an_upstream() {
    says(
        "listen.gateway = ['127.0.0.1:8000', '[::]:8443']",
        "tenants[1].upstreams = ['127.0.0.1:8081', 'localhost:8000 weight=2', 'api.acme.example:8000', '127.0.0.1:8080', 'localhost:8082']
         tenants[1].routes[1].upstreams = ['[::1]:8443']
         ! tenants[1].upstreams: item 2 is http://localhost:8000 weight=2, where this gateway itself listens (127.0.0.1:8000); write the service behind it
         ! tenants[1].upstreams: item 4 is http://127.0.0.1:8080, where this gateway itself listens (127.0.0.1:8080); write the service behind it
         ! tenants[1].upstreams: item 5 is http://localhost:8082, where this gateway itself listens (127.0.0.1:8082); write the service behind it
         ! tenants[1].routes[1].upstreams: item 1 is http://[::1]:8443, where this gateway itself listens ([::]:8443); write the service behind it",
    );
}

#[test]
fn an_upstream_stands_in_its_list_once_whatever_its_weight() {
    says(
        "",
        r#"
        tenants[1].upstreams = ['a.example:80', 'http://A.example weight=3', 'https://a.example', 'a.example:81']
        tenants[1].routes[1].upstreams = ['b:1', 'b:1']
        ! tenants[1].upstreams: item 2 is "http://a.example:80 weight=3", the same upstream as "http://a.example:80"; write each once, with its weight
        ! tenants[1].routes[1].upstreams: item 2 is "http://b:1", the same upstream as "http://b:1"; write each once, with its weight
        "#,
    );
}

#[test]
fn a_certificate_of_a_tenant_needs_a_listener_with_tls() {
    says(
        "tenants[1].tls = { cert = 'a', key = 'b' }",
        "tenants[1].min_tier = 1
         ok
         listen = { gateway = ['127.0.0.1:8000'], tls = { cert = 7, key = 'b' } }
         ! listen.tls.cert: is an integer; write a string in quotes
         listen = { gateway = ['127.0.0.1:8000'] }
         ! tenants[1].tls.cert: needs listen.tls; without it the gateway speaks no TLS and shows no certificate",
    );
}

#[test]
fn what_has_no_meaning_for_a_route_is_refused() {
    let (agents, denied, public) = (
        r#"without agents; remove it, or write access "agents""#,
        r#"with access "deny", which forwards nothing; remove it"#,
        r#"where agents have limits of their own; remove it, or write access "public""#,
    );
    for (access, key, value, phrase) in [
        ("agents", "requests_per_minute", "2", public),
        ("deny", "requests_per_minute", "2", public),
        ("agents", "bot_requests_per_minute", "2", public),
        ("public", "min_tier", "2", agents),
        ("deny", "min_tier", "2", agents),
        ("deny", "upstreams", "['127.0.0.1:1']", denied),
        ("deny", "upgrades", "true", denied),
    ] {
        let keys =
            format!("tenants[1].routes[1].access = '{access}'\ntenants[1].routes[1].{key} = {value}\n");
        says("", &format!("{keys}! tenants[1].routes[1].{key}: has no meaning {phrase}"));
    }
    says(
        "",
        "tenants[1].routes = [{ path = '/', access = 'public', upgrades = true, upstreams = ['127.0.0.1:1'] }]
         ok
         tenants[1].routes = [{ path = '/', access = 'deny', upgrades = false }]
         ok
         tenants[1].routes = [{ path = '/', access = 'x', min_tier = 2, upgrades = true }]
         ! tenants[1].routes[1].access: …",
    );
}

#[test]
fn tables_that_are_something_else_are_refused() {
    says(
        "",
        "tenants = { id = 'acme' }
         ! tenants: is a table; write tables, each of which begins with [[tenants]]
         tenants = ['acme']
         ! tenants[1]: is a string; write a table that begins with [[tenants]]
         tenants[1].routes = '/v1'
         ! tenants[1].routes: is a string; write tables, each of which begins with [[tenants.routes]]
         tenants[1].routes = ['/v1']
         ! tenants[1].routes[1]: is a string; write a table that begins with [[tenants.routes]]
         tenants[1].timeouts = '5s'
         ! tenants[1].timeouts: is a string; write a section that begins with [tenants.timeouts]",
    );
}

#[test]
fn no_two_tenants_share_an_id_or_a_host() {
    says(
        "listen.gateway = ['127.0.0.1:8000']",
        r#"
        tenants = [{ id = 'acme', hosts = ['a.example', '*.b.example', 'b.example'], upstreams = ['u:1'] }, { id = 'acme', hosts = ['A.EXAMPLE', 'c.example', '*.B.example', 'C.example'], upstreams = ['u:1'] }]
        ! tenants[2].id: is "acme", the id of tenants[1]; write another
        ! tenants[2].hosts: item 1 is "a.example", a host of tenants[1]; write each host once
        ! tenants[2].hosts: item 3 is "*.b.example", a host of tenants[1]; write each host once
        ! tenants[2].hosts: item 4 is "c.example", a host of tenants[2]; write each host once
        tenants = [{ id = 'acme', hosts = ['a.example', '*.a.example', '*'], upstreams = ['u:1'] }, { id = 'Acme', hosts = ['*.b.a.example', 'x.a.example'], upstreams = ['u:1'] }]
        ok
        "#,
    );
}

#[test]
fn a_route_that_is_never_reached_says_which_routes_shadow_it() {
    says(
        "",
        "tenants[1].routes = [{ path = '/b', methods = ['PUT'] }, { path = '/a/*', methods = ['GET'] }, { path = '/a/x', methods = ['GET'] }]
         ! tenants[1].routes[3]: is never reached; routes[2] before it take all of its paths and methods
         tenants[1].routes = [{ path = '/a', methods = ['GET'] }, { path = '/a/*', methods = ['PUT'] }, { path = '/a/x', methods = ['PUT', 'GET'] }]
         ! tenants[1].routes[3]: is never reached; routes[1] and routes[2] before it take all of its paths and methods",
    );
}

#[test]
fn erc8004_on_an_unknown_chain_or_without_a_source_of_tiers_or_with_organizations_is_refused() {
    let vault = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512";
    says(
        "chain.registries = 'erc8004'",
        &format!(
            "chain.chain_id = 31337
             chain.contracts = {{ stake_vault = '{vault}' }}
             ! chain.contracts.identity: is required; no ERC-8004 registry is known on this chain
             chain.chain_id = 1
             chain.contracts = {{}}
             ! chain.contracts.stake_vault: is required; ERC-8004 has no stake: write the contract …
             chain.chain_id = 1
             chain.contracts.organization = '{vault}'
             ! chain.contracts.organization: is given, and ERC-8004 has no registry of organizations; remove it"
        ),
    );
}

#[test]
fn each_mistake_in_a_rule_is_reported() {
    says(
        "",
        r#"
        tenants_rules = [{ tenants = 'a/*', hosts = [], upstreams = ['http://x', 'x:0', 'x:y', 'a b'], networks = ['10.0.0.0/33'], files = ['relative'], host = 1 }, { tenants = '*a' }]
        ! tenants_rules[1].tenants: is "a/*"; write the name of a file …
        ! tenants_rules[1].hosts: has 0 items; …
        ! tenants_rules[1].upstreams: item 1 is http://x; …
        ! tenants_rules[1].upstreams: item 2 is "x:0"; …
        ! tenants_rules[1].upstreams: item 3 is "x:y"; …
        ! tenants_rules[1].upstreams: item 4 is "a b"; …
        ! tenants_rules[1].networks: item 1 is "10.0.0.0/33"; …
        ! tenants_rules[1].files: item 1 is "relative"; write the absolute path of a folder
        ! tenants_rules[1].host: is not a known key; did you mean hosts?
        ! tenants_rules[2].tenants: is "*a"; …
        ! tenants_rules[2].hosts: is required
        ! tenants_rules[2].upstreams: is required
        "#,
    );
}
