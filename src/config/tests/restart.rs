//! A restart is needed for what counts at the start alone, and for nothing else.

use super::{minimal_with, parse};

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
        assert_eq!(settings(first).sections_that_differ(&settings(then)), sections, "{first:?} {then:?}");
    }
}
