//! What the gateway believes of upstreams that speak TLS, and what it shows them, as the server framework takes it.

use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::utils::tls::CertKey;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::domain::UpstreamTls;
use crate::tls::loaded_files::FileLoader;

/// Certificates for connections to a tenant's upstreams. It has no `Debug`: there is a private key in it.
#[derive(Clone)]
pub(crate) struct UpstreamIdentity {
    /// The authorities that an upstream's certificate may stem from; nothing: the system's. For `PeerOptions::ca`.
    pub(crate) ca: Option<Arc<CaType>>,
    /// The certificate for upstreams that ask for one. For `HttpPeer::client_cert_key`.
    pub(crate) client: Option<Arc<CertKey>>,
    /// Differs between identities that differ, and is 0 without any certificates. For `HttpPeer::group_key`.
    ///
    /// The framework tells the connections in its pool apart by the serial number of the client's certificate, which is
    /// unique for one issuer only, and not at all by authorities. Without this, one tenant could be given a connection
    /// that was opened with another's certificate, or to a server that only the other one believes.
    pub(crate) pool: u64,
}

impl UpstreamIdentity {
    /// The certificates that a tenant's rules name, or the problems of the first file that can't be used.
    pub(crate) fn load(rules: &UpstreamTls, loader: &mut FileLoader<'_>) -> Result<Self, Vec<String>> {
        let ca = rules.ca.as_ref().map(|path| loader.authorities(path)).transpose()?;
        let client = rules.client.as_ref().map(|pair| loader.identity(pair)).transpose()?;
        let certificates = ca.as_ref().map(|ca| &*ca.certificates);
        let chain = client.as_ref().map(|identity| &*identity.certified.cert);
        Ok(Self {
            pool: pool(certificates, chain),
            ca: ca.map(|ca| ca.ca),
            client: client.map(|identity| Arc::new(identity.toward_upstreams())),
        })
    }
}

/// Not a secret: from certificates alone. A key of its own with the same certificate is the same identity.
fn pool(ca: Option<&[CertificateDer<'_>]>, client: Option<&[CertificateDer<'_>]>) -> u64 {
    if ca.is_none() && client.is_none() {
        return 0;
    }
    let mut hash = Sha256::new();
    for certificates in [ca, client] {
        let certificates = certificates.unwrap_or_default();
        hash.update(certificates.len().to_le_bytes());
        for certificate in certificates {
            hash.update(certificate.len().to_le_bytes());
            hash.update(certificate);
        }
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pingora::connectors::TransportConnector;
    use pingora::upstreams::peer::HttpPeer;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::UpstreamIdentity;
    use crate::domain::{KeyPair, UpstreamTls};
    use crate::tls::fixture::{Folder, SelfSigned, upstream};
    use crate::tls::loaded_files::{FileLoader, LoadedFiles};
    use crate::tls::pem::unsupported_signature;

    fn load(rules: &UpstreamTls) -> Result<UpstreamIdentity, Vec<String>> {
        UpstreamIdentity::load(rules, &mut FileLoader::new(&LoadedFiles::default()))
    }

    fn rules(ca: Option<PathBuf>, client: Option<KeyPair>) -> UpstreamTls {
        UpstreamTls { ca, client, server_name: None }
    }

    #[test]
    fn authorities_and_client_certificates_arrive_as_they_are_in_the_files() {
        let (folder, first, second, client) =
            (Folder::new(), SelfSigned::new("ca1"), SelfSigned::new("ca2"), SelfSigned::new("gateway"));
        let ca = folder.write("ca.crt", &format!("{}{}", first.cert_pem, second.cert_pem));
        let pair = folder.pair_of("client", &client.cert_pem, &client.key_pem);
        let identity = load(&rules(Some(ca), Some(pair))).unwrap();
        let authorities: Vec<&[u8]> =
            identity.ca.as_ref().unwrap().iter().map(|ca| ca.borrow_raw_cert().as_slice()).collect();
        assert_eq!(authorities, [first.cert_der.as_ref(), second.cert_der.as_ref()]);
        let shown = identity.client.as_ref().unwrap();
        assert_eq!(shown.leaf().borrow_raw_cert().as_slice(), client.cert_der.as_ref());
        assert!(shown.intermediates().is_empty());
    }

    /// True if the framework connects to an upstream that is `server`, and what that was shown.
    async fn connect(
        identity: &UpstreamIdentity,
        server: &SelfSigned,
        client: &SelfSigned,
    ) -> (bool, Option<CertificateDer<'static>>) {
        let (address, serving) = upstream(server, client);
        let mut peer = HttpPeer::new(address, true, "upstream.example".to_owned());
        peer.options.ca.clone_from(&identity.ca);
        peer.client_cert_key.clone_from(&identity.client);
        peer.group_key = identity.pool;
        let stream = TransportConnector::new(None).get_stream(&peer).await;
        let is_connected = stream.is_ok();
        drop(stream);
        // Whoever waits for a client that never came is freed by this one.
        drop(std::net::TcpStream::connect(address));
        (is_connected, serving.join().unwrap())
    }

    // threat: Impostor upstreams, shared connections
    #[tokio::test]
    async fn the_framework_believes_and_shows_what_was_loaded() {
        let (folder, server, stranger, client) = (
            Folder::new(),
            SelfSigned::new("upstream.example"),
            SelfSigned::new("upstream.example"),
            SelfSigned::new("gateway"),
        );
        let ca = folder.write("ca.crt", &server.cert_pem);
        let pair = folder.pair_of("client", &client.cert_pem, &client.key_pem);
        let identity = load(&rules(Some(ca.clone()), Some(pair.clone()))).unwrap();
        let without_client = load(&rules(Some(ca), None)).unwrap();
        let without_ca = load(&rules(None, Some(pair))).unwrap();

        assert_eq!(connect(&identity, &server, &client).await, (true, Some(client.cert_der.clone())));
        assert_eq!(connect(&identity, &stranger, &client).await, (false, None));
        assert_eq!(connect(&identity, &server, &stranger).await.1, None);
        assert_eq!(connect(&without_client, &server, &client).await.1, None);
        assert_eq!(connect(&without_ca, &server, &client).await, (false, None));
    }

    #[tokio::test]
    async fn a_signature_that_can_not_be_verified_is_named_by_a_sentence() {
        let pem = |name: &str| {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/p521");
            std::fs::read_to_string(folder.join(name)).unwrap()
        };
        let (folder, client) = (Folder::new(), SelfSigned::new("gateway"));
        let ca = folder.write("ca.crt", &pem("ca.pem"));
        let (cert_pem, key_pem) = (pem("leaf.pem"), pem("leaf.key"));
        let cert_der = CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap();
        let server = SelfSigned { cert_pem, cert_der, key_pem };
        let (address, serving) = upstream(&server, &client);
        let mut peer = HttpPeer::new(address, true, "upstream.example".to_owned());
        peer.options.ca = load(&rules(Some(ca), None)).unwrap().ca;
        let error = TransportConnector::new(None).get_stream(&peer).await.err().unwrap().to_string();
        assert!(unsupported_signature(&error).is_some(), "{error}");
        assert_eq!(unsupported_signature("TLS connect() failed: UnknownIssuer"), None);
        serving.join().unwrap();
    }

    #[test]
    fn without_rules_there_is_nothing() {
        let identity = load(&rules(None, None)).unwrap();
        assert!(identity.ca.is_none() && identity.client.is_none());
        assert_eq!(identity.pool, 0);
    }

    // threat: Impostor upstreams, shared connections
    #[test]
    fn connections_of_different_identities_are_told_apart() {
        let (folder, a, b) = (Folder::new(), SelfSigned::new("a"), SelfSigned::new("b"));
        let ca = |name: &str, own: &SelfSigned| Some(folder.write(name, &own.cert_pem));
        let client = |name: &str, own: &SelfSigned| Some(folder.pair_of(name, &own.cert_pem, &own.key_pem));
        let pool = |ca, client| load(&rules(ca, client)).unwrap().pool;
        let pools = [
            pool(ca("a.crt", &a), None),
            pool(ca("b.crt", &b), None),
            pool(None, client("a", &a)),
            pool(None, client("b", &b)),
            pool(ca("a.crt", &a), client("b", &b)),
            0,
        ];
        let distinct: std::collections::HashSet<u64> = pools.into_iter().collect();
        assert_eq!(distinct.len(), pools.len());
        assert_eq!(pool(ca("copy.crt", &a), None), pools[0]);
    }
}
