//! A restart is needed for what counts at the start alone, and for nothing else.

use super::{MINIMAL, minimal_with, parse};
use crate::config::Settings;

#[test]
fn a_restart_is_needed_for_what_counts_at_the_start_alone() {
    let of_listeners = [("listen.tls.cert", "'a'"), ("listen.tls.key", "'b'")];
    let of_authz = [("authz.tls.cert", "'a'"), ("authz.tls.key", "'b'")];
    let issuer = [("assertion.issuer", "'a'"), ("assertion.key_file", "'b'")];
    for (first, then, sections) in [
        (&[][..], &[][..], &[][..]),
        // Certificates are read again, but not that there are some.
        (&of_listeners, &[("listen.tls.cert", "'c'"), ("listen.tls.key", "'d'")], &[]),
        (&of_listeners, &[], &["listen"]),
        (&[], &of_listeners, &["listen"]),
        (&of_listeners, &[&of_listeners[..], &[("listen.workers", "3")]].concat(), &["listen"]),
        (&of_authz, &[("authz.tls.cert", "'c'"), ("authz.tls.key", "'d'")], &[]),
        (&of_authz, &[], &["authz"]),
        (&of_authz, &[&of_authz[..], &[("authz.timeout", "'2s'")]].concat(), &["authz"]),
        // Rules for tenants are read again.
        (&[], &[("gateway.strict_tenants", "true"), ("gateway.allow_empty", "true")], &[]),
        (&[], &[("gateway.allow_link_local", "true")], &[]),
        (&[], &[("gateway.allow_empty", "true"), ("gateway.via", "'a'")], &["gateway"]),
        (&[], &[("tenants_rules", "[{ tenants = 'a', hosts = ['a.example'], upstreams = ['*'] }]")], &[]),
        (&[], &issuer, &[]),
        (&[], &[("log.level", "'debug'"), ("log.access", "true")], &[]),
        (&[], &[("log.access", "true"), ("log.format", "'json'")], &["log"]),
        (&[], &[("log.audit", "'stdout'"), ("shutdown.delay", "'1s'")], &["shutdown", "log"]),
        // A first start is over.
        (&[("store.embedded.create", "true")], &[], &[]),
        (&[], &[("store.embedded.path", "'other'")], &["store"]),
        (&[], &[("store.kind", "'redis'")], &["store"]),
    ] {
        let settings = |keys| parse(&minimal_with(keys), &[]).unwrap();
        assert_eq!(
            settings(first).fixed.sections_that_differ(&settings(then).fixed),
            sections,
            "{first:?} {then:?}"
        );
    }
}

// threat: A change that waits for a restart
#[test]
fn a_listener_that_speaks_tls_keeps_its_pair_where_the_file_has_none_and_one_that_does_not_gets_none() {
    let pairs = |names: [&str; 2]| {
        let keys = ["listen.tls.cert", "listen.tls.key", "authz.tls.cert", "authz.tls.key"];
        let values = names.iter().flat_map(|name| [format!("'{name}'"), format!("'{name}.key'")]);
        let keys: Vec<(&str, String)> = keys
            .into_iter()
            .zip(values)
            .filter(|(_, value)| !value.starts_with("''") && value != "'.key'")
            .collect();
        let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (*key, &**value)).collect();
        parse(&minimal_with(&keys), &[]).unwrap()
    };
    for (first, then, shown) in [
        (["a", "b"], ["", ""], ["a", "b"]),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        (["a", ""], ["", "d"], ["a", ""]),
        (["", "b"], ["c", ""], ["", "b"]),
    ] {
        let (first, then) = (pairs(first), pairs(then));
        let now = then.over(&first.fixed, &first.live).live;
        let found = [now.tls, now.authz_tls].map(|pair| pair.map(|pair| pair.cert));
        let shown = shown.map(|name| (!name.is_empty()).then(|| name.into()));
        assert_eq!(found, shown);
    }
}

// threat: A change that waits for a restart
#[test]
fn a_tenant_keeps_its_pair_through_every_reload_of_a_file_without_tls() {
    let with = |tls: &str, tenant: &str| {
        let text = format!(
            "{MINIMAL}\n[listen]\ngateway = ['127.0.0.1:1']\n{tls}\n[[tenants]]\nid = 'a'\nhosts = ['a.test']\n\
             upstreams = ['127.0.0.1:2']\n{tenant}\n"
        );
        parse(&text, &[]).unwrap()
    };
    let pair = |name: &str| format!("tls = {{ cert = '{name}', key = '{name}.key' }}");
    let first = with(&pair("listener"), &pair("own"));
    let without = with("", "");
    let now = without.clone().over(&first.fixed, &first.live);
    // Where the main file can't be used it is the former one that counts, with the pairs in force.
    let mut later = Settings { fixed: without.fixed, ..now.clone() };
    later.live.tenants = without.live.tenants;
    let now = later.over(&first.fixed, &now.live);
    let shown = now.live.tenants[0].tls.as_ref().map(|pair| &*pair.cert);
    assert_eq!(shown, Some("own".as_ref()));
}
