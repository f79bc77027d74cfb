//! The TLS that listeners speak: versions, certificates by host, and what is offered over it (ALPN, RFC 7301).

use std::{path::Path, sync::Arc};

use rustls::crypto::ring::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use crate::tls::{certificates::Shown, pem};

/// The protocols that a listener offers over TLS, the preferred one first.
pub(crate) type Protocols = &'static [&'static [u8]];

/// The TLS of a listener.
pub(crate) type ServerTls = Arc<ServerConfig>;

/// A listener's TLS, with these certificates. With `client_ca` clients must show a certificate of these authorities.
pub(crate) fn server_config(
    certificates: Shown,
    protocols: Protocols,
    client_ca: Option<&Path>,
) -> Result<ServerTls, String> {
    pingora::tls::install_default_crypto_provider();
    let builder = ServerConfig::builder_with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = match client_ca {
        Some(ca) => builder.with_client_cert_verifier(client_verifier(ca)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Sessions are kept by clients, in tickets that this process alone can read, and for the host of the ticket alone.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if let Ok(ticketer) = Ticketer::new() {
        config.ticketer = ticketer;
    }
    Ok(Arc::new(config))
}

fn client_verifier(ca: &Path) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(pem::authorities(ca)?.certificates.iter().cloned());
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
    verifier.map_err(|error| format!("{}: {error}", ca.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::{
        ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
    };
    use rustls::pki_types::ServerName;
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, HandshakeKind, NamedGroup, ServerConfig, SupportedProtocolVersion};

    use super::server_config;
    use crate::tls::certificates::{Certificates, found_by};
    use crate::tls::fixture::{Folder, SelfSigned, client, handshake, tenant};
    use crate::tls::loaded_files::{FileLoader, LoadedFiles};

    /// A client that shows its last session to every server, whatever the name.
    #[derive(Debug)]
    struct OneSession(ClientSessionMemoryCache);

    fn any_name() -> ServerName<'static> {
        ServerName::try_from("any.example").unwrap()
    }

    impl ClientSessionStore for OneSession {
        fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
            self.0.set_kx_hint(any_name(), group);
        }

        fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
            self.0.kx_hint(&any_name())
        }

        fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
            self.0.set_tls12_session(any_name(), value);
        }

        fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
            self.0.tls12_session(&any_name())
        }

        fn remove_tls12_session(&self, _: &ServerName<'static>) {
            self.0.remove_tls12_session(&any_name());
        }

        fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
            self.0.insert_tls13_ticket(any_name(), value);
        }

        fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
            self.0.take_tls13_ticket(&any_name())
        }
    }

    fn new_client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        client(Arc::new(OneSession(ClientSessionMemoryCache::new(32))), version)
    }

    fn server() -> (Folder, Arc<ServerConfig>) {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let pair = folder.pair_of("a", &own.cert_pem, &own.key_pem);
        let tenants = ["a.example", "b.example"].map(|host| tenant(host, Some(pair.clone())));
        let files = LoadedFiles::default();
        let table = Certificates::load(&pair, &tenants, &[], &mut FileLoader::new(&files)).unwrap();
        let shown = found_by(move |name| Some(table.find(name)));
        (folder, server_config(shown, &[b"http/1.1"], None).unwrap())
    }

    const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

    #[test]
    fn a_client_resumes_however_many_others_came_between() {
        for version in VERSIONS {
            let (_folder, server) = server();
            let first = new_client(version);
            let resumed = |client: &Arc<ClientConfig>| {
                handshake(&server, client, "a.example") == HandshakeKind::Resumed
            };
            assert!(!resumed(&first));
            for _ in 0..300 {
                assert!(!resumed(&new_client(version)));
            }
            assert!(resumed(&first), "{version:?}");
        }
    }

    #[test]
    fn a_session_of_one_host_or_listener_is_none_at_another() {
        for version in VERSIONS {
            let ((_folder, one), (_other_folder, other)) = (server(), server());
            let client = new_client(version);
            let resumed = |server: &Arc<ServerConfig>, host: &str| {
                handshake(server, &client, host) == HandshakeKind::Resumed
            };
            assert!(!resumed(&one, "a.example"));
            assert!(!resumed(&one, "b.example"), "{version:?}");
            assert!(resumed(&one, "b.example"), "{version:?}");
            assert!(!resumed(&other, "b.example"), "{version:?}");
        }
    }
}
