//! Certificates: which one a client of a host is shown, and what is shown and believed toward upstreams.
//!
//! Everything is read from PEM files when it is asked for, all problems are named at once, and nothing here watches files
//! or knows the listeners. Loading blocks on the disk. Private keys appear in no `Debug`.

pub mod certificates;
pub mod listener;
pub mod look;
pub mod shelf;
pub mod upstream;

mod pem;
mod toward;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::domain::tenant::{KeyPair, Tenant};

/// Every file whose change changes what is loaded here: certificates and keys of the listener and of tenants, and both
/// toward upstreams.
#[must_use]
pub fn files<'a>(
    default: Option<&'a KeyPair>,
    tenants: impl IntoIterator<Item = &'a Tenant>,
) -> BTreeSet<PathBuf> {
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    let mut add = |pair: Option<&KeyPair>| {
        files.extend(pair.into_iter().flat_map(|pair| [pair.cert.clone(), pair.key.clone()]));
    };
    add(default);
    let mut authorities = BTreeSet::new();
    for tenant in tenants {
        let upstream_tls = &tenant.proxy.upstream_tls;
        add(tenant.tls.as_ref());
        add(upstream_tls.client.as_ref());
        authorities.extend(upstream_tls.ca.clone());
    }
    files.extend(authorities);
    files
}

#[cfg(test)]
mod fixture;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::files;
    use super::fixture::{pair, tenant};
    use crate::domain::tenant::UpstreamTls;

    #[test]
    fn every_file_that_is_loaded_is_named_once() {
        let mut first = tenant("a.example", Some(pair("a.crt", "a.key")));
        first.proxy.upstream_tls = UpstreamTls {
            ca: Some("ca.crt".into()),
            client: Some(pair("c.crt", "c.key")),
            server_name: None,
        };
        let second = tenant("b.example", Some(pair("a.crt", "a.key")));
        let default = pair("d.crt", "d.key");
        let expected: BTreeSet<PathBuf> =
            ["a.crt", "a.key", "c.crt", "c.key", "ca.crt", "d.crt", "d.key"].map(PathBuf::from).into();
        assert_eq!(files(Some(&default), [&first, &second]), expected);
        assert_eq!(files(None, [&tenant("c.example", None)]), BTreeSet::new());
    }
}
