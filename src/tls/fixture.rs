//! Certificates that are made for a test, files to keep them in, and a handshake that tells what a server shows.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{os::unix::net::UnixStream, sync::Arc, thread::JoinHandle, time::Duration};

use rcgen::{CertificateParams, KeyPair as GeneratedKey, date_time_ymd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};

use crate::domain::{HostPattern, KeyPair, Tenant, UnixSeconds, fixture};

/// The first and the last second of a test's certificates: the years 2020 to 2039.
pub(crate) const NOT_BEFORE: u64 = 1_577_836_800;
pub(crate) const NOT_AFTER: u64 = 2_208_988_800;
pub(crate) const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// How long a peer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A certificate that vouches for itself, with its key.
pub(crate) struct SelfSigned {
    pub(crate) cert_pem: String,
    pub(crate) cert_der: CertificateDer<'static>,
    pub(crate) key_pem: String,
}

impl SelfSigned {
    pub(crate) fn new(name: &str) -> Self {
        let key = GeneratedKey::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2040, 1, 1));
        let cert = params.self_signed(&key).unwrap();
        Self { cert_pem: cert.pem(), cert_der: cert.der().clone(), key_pem: key.serialize_pem() }
    }
}

/// Where a test keeps its files, until it ends.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The paths of `name.crt` and `name.key`.
    pub(crate) fn pair(&self, name: &str) -> KeyPair {
        KeyPair {
            cert: self.path().join(format!("{name}.crt")),
            key: self.path().join(format!("{name}.key")),
        }
    }

    /// The same, with something in them.
    pub(crate) fn pair_of(&self, name: &str, cert: &str, key: &str) -> KeyPair {
        self.write(&format!("{name}.crt"), cert);
        self.write(&format!("{name}.key"), key);
        self.pair(name)
    }
}

pub(crate) fn tenant(host: &str, tls: Option<KeyPair>) -> Tenant {
    let hosts = vec![HostPattern::parse(host).unwrap()];
    Tenant { id: host.into(), hosts, tls, ..fixture::tenant() }
}

/// The certificate that a server shows in a whole handshake over a pair of sockets; without a name the client sends none.
pub(crate) fn shown(
    certificates: Arc<dyn ResolvesServerCert>,
    name: Option<&str>,
) -> CertificateDer<'static> {
    let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName))
        .with_no_client_auth();
    client.enable_sni = name.is_some();
    let name = ServerName::try_from(name.unwrap_or("unsent.example").to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();

    let (mut near, mut far) = UnixStream::pair().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let serving = std::thread::spawn(move || {
        while server.is_handshaking() {
            server.complete_io(&mut far).unwrap();
        }
    });
    while client.is_handshaking() {
        client.complete_io(&mut near).unwrap();
    }
    serving.join().unwrap();
    client.peer_certificates().unwrap()[0].clone()
}

/// A client that believes everybody, with this version and these sessions.
pub(crate) fn client(
    sessions: Arc<dyn ClientSessionStore>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName))
        .with_no_client_auth();
    client.resumption = Resumption::store(sessions);
    Arc::new(client)
}

/// Shakes hands, and says in which way that was.
pub(crate) fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, name: &str) -> HandshakeKind {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.wants_write() || server.wants_write() {
        let (mut sent, mut answered) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let mut sent = sent.as_slice();
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets().unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut answered).unwrap();
        }
        let mut answered = answered.as_slice();
        while !answered.is_empty() {
            client.read_tls(&mut answered).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    server.handshake_kind().unwrap()
}

/// Waits for one client that must show a certificate, and says which it was; nothing when the handshake fails.
pub(crate) fn upstream(
    own: &SelfSigned,
    believed: &SelfSigned,
) -> (SocketAddr, JoinHandle<Option<CertificateDer<'static>>>) {
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(believed.cert_der.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.cert_der.clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        while server.is_handshaking() {
            server.complete_io(&mut stream).ok()?;
        }
        server.peer_certificates().map(|chain| chain[0].clone())
    });
    (address, serving)
}

/// Believes every name, but lets nobody show a certificate without its key.
#[derive(Debug)]
struct AnyName;

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &default_provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &default_provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
