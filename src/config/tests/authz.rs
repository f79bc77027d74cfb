//! The listener for other gateways: who may ask, and for which tenants.

use super::{minimal_with, parse, problems};
use crate::config::{ConfigReport, Settings, no_probe};

const AUTHZ: (&str, &str) = ("listen.authz", "[\"127.0.0.1:9000\"]");
const TENANT: [(&str, &str); 1] = [("tenants[1].id", "\"acme\"")];
const TLS: [(&str, &str); 2] = [("authz.tls.cert", "\"c.pem\""), ("authz.tls.key", "\"k.pem\"")];

fn found(keys: &[&[(&str, &str)]]) -> Vec<String> {
    problems(&minimal_with(&keys.concat()), &[])
}

fn settings(keys: &[&[(&str, &str)]]) -> Settings {
    parse(&minimal_with(&keys.concat()), &[]).unwrap()
}

pub(super) fn warnings(keys: &[&[(&str, &str)]]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiergate.toml");
    std::fs::write(&path, minimal_with(&[&[("chain.development", "true")], &keys.concat()[..]].concat()))
        .unwrap();
    let survey = ConfigReport::over(&path, std::iter::empty(), 0, None, &mut no_probe);
    assert!(survey.loaded.is_some(), "{}", survey.problems);
    survey.problems.0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_tenant_has_neither_hosts_nor_upstreams_only_where_other_gateways_ask() {
    let missing = ["tenants[1].hosts: is required", "tenants[1].upstreams: is required"];
    assert_eq!(found(&[&TENANT]), missing);
    assert_eq!(found(&[&TENANT, &[("listen.gateway", "[\"127.0.0.1:9001\"]")]]), missing);
    assert_eq!(warnings(&[&TENANT, &[AUTHZ]]), Vec::<String>::new(), "it is reached");
    let tenant = &settings(&[&TENANT, &[AUTHZ]]).live.tenants[0];
    assert!(tenant.hosts.is_empty() && tenant.upstreams.is_empty());
    let hosts = ("tenants[1].hosts", "[\"a.example\"]");
    let upstreams = ("tenants[1].upstreams", "[\"127.0.0.1:1\"]");
    assert_eq!(found(&[&TENANT, &[AUTHZ, hosts]]), missing[1..]);
    assert_eq!(found(&[&TENANT, &[AUTHZ, upstreams]]), missing[..1]);
    assert_eq!(found(&[&TENANT, &[AUTHZ, ("tenants[1].hosts", "[]"), upstreams]]).len(), 1);
    assert_eq!(found(&[&TENANT, &[AUTHZ, hosts, upstreams]]), Vec::<String>::new());
}

#[test]
fn an_authority_needs_a_certificate() {
    let ca = ("authz.tls.client_ca", "\"ca.pem\"");
    assert_eq!(found(&[&[AUTHZ, ca], &TLS]), Vec::<String>::new());
    let alone = "authz.tls.client_ca: needs authz.tls.cert and authz.tls.key; write them too";
    assert_eq!(found(&[&[AUTHZ, ca]]), [alone]);
}

// threat: A stranger asks in a gateway's name
#[test]
fn a_listener_that_anybody_may_ask_who_reaches_it_is_warned_of() {
    let warns = |keys: &[&[(&str, &str)]]| {
        warnings(keys).iter().any(|warning| warning.starts_with("listen.authz: is no loopback address"))
    };
    let secret = ("authz.secret_file", "\"secret\"");
    let ca = ("authz.tls.client_ca", "\"ca.pem\"");
    for open in ["0.0.0.0:9000", "[::]:9000", "192.0.2.1:9000", "10.0.0.1:9000"] {
        let listed = format!("[\"127.0.0.1:9000\", \"{open}\"]").replace("127.0.0.1:9000", "127.0.0.1:9009");
        let open = ("listen.authz", listed.as_str());
        assert!(warns(&[&[open]]), "{open:?}");
        assert!(warns(&[&[open], &TLS]), "TLS alone knows no client");
        assert!(!warns(&[&[open, secret]]) && !warns(&[&[open, ca], &TLS]), "{open:?}");
    }
    assert!(!warns(&[&[("listen.authz", "[\"[::1]:9000\", \"127.9.9.9:9000\"]")]]));
}
