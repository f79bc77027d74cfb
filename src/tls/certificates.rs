//! Which certificate a client is shown: that of the tenant whose host it names (SNI, RFC 6066, section 3), or the
//! listener's own.
//!
//! Each handshake asks for those in force once, and keeps them.

use std::{fmt, sync::Arc};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::domain::{HostMap, HostPattern, KeyPair, Tenant};
use crate::tls::loaded_files::FileLoader;

/// Certificates by host, loaded and checked. It has no `Debug`: there are private keys in it.
pub(crate) struct Certificates {
    default: Arc<CertifiedKey>,
    by_host: HostMap<Arc<CertifiedKey>>,
}

impl Certificates {
    /// The listener's certificate and those of all tenants. `unserved` are hosts of tenants that are not among them: their
    /// clients are shown the listener's. Or the problems of the first file that can't be used.
    pub(crate) fn load<'a>(
        default: &KeyPair,
        tenants: impl IntoIterator<Item = &'a Tenant>,
        unserved: &[HostPattern],
        loader: &mut FileLoader<'_>,
    ) -> Result<Self, Vec<String>> {
        let listeners = Arc::clone(&loader.identity(default)?.certified);
        let unserved = unserved.iter().map(|host| (host.clone(), Arc::clone(&listeners)));
        let mut hosts: Vec<_> = unserved.collect();
        for tenant in tenants {
            // A tenant without a certificate stands in the table too: another one's wildcard must not take its hosts.
            let identity = loader.identity(tenant.tls.as_ref().unwrap_or(default))?;
            hosts.extend(tenant.hosts.iter().map(|host| (host.clone(), Arc::clone(&identity.certified))));
        }
        let by_host = HostMap::new(hosts).map_err(|twice| vec![twice.to_string()])?;
        Ok(Self { default: listeners, by_host })
    }

    /// The certificate for a client that names this host, or none.
    pub(crate) fn find(&self, server_name: Option<&str>) -> Arc<CertifiedKey> {
        server_name.and_then(|name| self.by_host.find(name)).unwrap_or(&self.default).clone()
    }
}

/// The certificates of a listener, whichever are in force.
pub(crate) type Shown = Arc<dyn ResolvesServerCert>;

/// Certificates that are found anew for each handshake, by the name that the client sends.
pub(crate) fn found_by(
    find: impl Fn(Option<&str>) -> Option<Arc<CertifiedKey>> + Send + Sync + 'static,
) -> Shown {
    Arc::new(InForce(find))
}

struct InForce<F>(F);

impl<F> fmt::Debug for InForce<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InForce").finish_non_exhaustive()
    }
}

impl<F> ResolvesServerCert for InForce<F>
where
    F: Fn(Option<&str>) -> Option<Arc<CertifiedKey>> + Send + Sync,
{
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (self.0)(hello.server_name())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;

    use super::{Certificates, found_by};
    use crate::domain::{KeyPair, Tenant};
    use crate::tls::fixture::{Folder, SelfSigned, shown, tenant};
    use crate::tls::loaded_files::{FileLoader, LoadedFiles};

    fn load<'a>(
        default: &KeyPair,
        tenants: impl IntoIterator<Item = &'a Tenant>,
    ) -> Result<Certificates, Vec<String>> {
        Certificates::load(default, tenants, &[], &mut FileLoader::new(&LoadedFiles::default()))
    }

    /// The certificate that a client gets which asks for a name, or for none.
    fn certificate(table: &Arc<Certificates>, name: Option<&str>) -> CertificateDer<'static> {
        let table = Arc::clone(table);
        shown(found_by(move |name| Some(table.find(name))), name)
    }

    #[test]
    fn the_name_that_a_client_asks_for_chooses_the_certificate() {
        let folder = Folder::new();
        let [default, exact, wide, deep] = ["d.example", "a.example", "*.b.example", "*.c.b.example"]
            .map(|name| (SelfSigned::new(name), name.replace('*', "any")));
        let pair = |(own, name): &(SelfSigned, String)| folder.pair_of(name, &own.cert_pem, &own.key_pem);
        let tenants = [
            tenant("a.example", Some(pair(&exact))),
            tenant("*.b.example", Some(pair(&wide))),
            tenant("*.c.b.example", Some(pair(&deep))),
            tenant("own.b.example", None),
        ];
        let store = Arc::new(load(&pair(&default), &tenants).unwrap());
        for (name, expected) in [
            (Some("a.example"), &exact),
            (Some("A.Example"), &exact),
            (Some("x.b.example"), &wide),
            (Some("x.y.b.example"), &wide),
            (Some("x.c.b.example"), &deep),
            (Some("b.example"), &default),
            (Some("x.a.example"), &default),
            (Some("own.b.example"), &default),
            (Some("stranger.example"), &default),
            (None, &default),
        ] {
            assert_eq!(certificate(&store, name), expected.0.cert_der, "{name:?}");
        }
    }

    #[test]
    fn a_pair_that_cant_be_used_is_named() {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let (absent, default) = (folder.pair("absent"), folder.pair_of("d", &own.cert_pem, &own.key_pem));
        let tenants = [tenant("a.example", Some(absent.clone()))];
        for problems in [load(&default, &tenants), load(&absent, [])] {
            let problems = problems.err().unwrap();
            assert!(problems.len() == 2 && problems[1].contains("absent.key: can't be read"), "{problems:?}");
        }
    }

    #[test]
    fn a_host_of_two_tenants_is_a_problem() {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let default = folder.pair_of("d", &own.cert_pem, &own.key_pem);
        let tenants = [tenant("a.example", None), tenant("a.example", None)];
        assert_eq!(load(&default, &tenants).err().unwrap(), ["the host a.example stands twice"]);
    }

    #[test]
    fn two_tenants_with_one_pair_of_files_share_what_was_loaded() {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let pair = folder.pair_of("a", &own.cert_pem, &own.key_pem);
        let tenants = [tenant("a.example", Some(pair.clone())), tenant("b.example", None)];
        let table = load(&pair, &tenants).unwrap();
        assert!(Arc::ptr_eq(&table.find(Some("a.example")), &table.find(Some("b.example"))));
    }

    // threat: Credentials upstream, in logs, metrics or traces
    #[test]
    fn nothing_secret_is_shown_when_debugged() {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let table = load(&folder.pair_of("a", &own.cert_pem, &own.key_pem), []).unwrap();
        let in_force = found_by(move |name| Some(table.find(name)));
        assert_eq!(format!("{in_force:?}"), "InForce { .. }");
    }
}
