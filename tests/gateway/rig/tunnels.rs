//! TLS around clients and upstreams that speak in the clear: a tunnel encrypts what a client says on its way to the
//! gateway, a terminator decrypts what the gateway says on its way to an upstream. Both write down what they were shown.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ALL_VERSIONS, ClientConfig, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use crate::rig::certificates::{Authority, Issued};
use crate::rig::{h2c, upstream::lock};
use crate::support::process::own_ip;

/// How a client greets a server, and whom it believes.
#[derive(Clone)]
pub(crate) struct Greeting {
    /// What stands in front of TLS.
    first: Vec<u8>,
    config: ClientConfig,
    name: ServerName<'static>,
}

impl Greeting {
    /// A client that asks for a name, offers these protocols, and believes one authority.
    pub(crate) fn new(believed: &Authority, name: &str, protocols: &[&str]) -> Self {
        Self::of_versions(believed, name, protocols, ALL_VERSIONS)
    }

    pub(crate) fn of_versions(
        believed: &Authority,
        name: &str,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(believed.roots()).with_no_client_auth();
        config.alpn_protocols = as_alpn(protocols);
        // Every handshake is a whole one, so that each shows a certificate.
        config.resumption = rustls::client::Resumption::disabled();
        Self { first: Vec::new(), config, name: ServerName::try_from(name.to_owned()).unwrap() }
    }

    /// Says this before it speaks TLS.
    pub(crate) fn after(self, first: &[u8]) -> Self {
        Self { first: first.to_vec(), ..self }
    }

    /// Shows a certificate of its own.
    pub(crate) fn showing(mut self, own: &Issued) -> Self {
        let own = CertifiedKey::from_der(vec![own.der.clone()], own.key(), &default_provider()).unwrap();
        self.config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        self
    }

    /// The name is expected in the certificate, and not said.
    pub(crate) fn without_saying_the_name(mut self) -> Self {
        self.config.enable_sni = false;
        self
    }

    /// A whole handshake on a connection of its own.
    pub(crate) fn meet(&self, server: SocketAddr) -> io::Result<Shown> {
        h2c::run(async { Ok(shown(&self.open(server).await?)) })
    }

    /// A whole handshake on a connection that nothing was said on.
    pub(crate) fn meet_on(&self, stream: std::net::TcpStream) -> io::Result<Shown> {
        stream.set_nonblocking(true)?;
        h2c::run(async { Ok(shown(&self.over(TcpStream::from_std(stream)?).await?)) })
    }

    async fn open(&self, server: SocketAddr) -> io::Result<client::TlsStream<TcpStream>> {
        self.over(TcpStream::connect(server).await?).await
    }

    async fn over(&self, mut stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        stream.set_nodelay(true)?;
        stream.write_all(&self.first).await?;
        TlsConnector::from(Arc::new(self.config.clone())).connect(self.name.clone(), stream).await
    }
}

/// What a server showed in a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) protocol: Option<String>,
}

fn shown(stream: &client::TlsStream<TcpStream>) -> Shown {
    let (_, tls) = stream.get_ref();
    let certificate = tls.peer_certificates().unwrap()[0].clone();
    Shown { certificate, protocol: tls.alpn_protocol().map(as_text) }
}

/// A listener in the clear whose connections lead to a server that speaks TLS.
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    shown: Arc<Mutex<Vec<Shown>>>,
    _runtime: Runtime,
}

impl Tunnel {
    pub(crate) fn to(server: SocketAddr, greeting: Greeting) -> Self {
        let (runtime, listener) = listen(own_ip());
        let address = listener.local_addr().unwrap();
        let all = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&all);
        runtime.spawn(async move {
            while let Ok((mut plain, _)) = listener.accept().await {
                let (greeting, written) = (greeting.clone(), Arc::clone(&written));
                tokio::spawn(async move {
                    let _ = plain.set_nodelay(true);
                    if let Ok(mut secure) = greeting.open(server).await {
                        lock(&written).push(shown(&secure));
                        let _ = copy_bidirectional(&mut plain, &mut secure).await;
                    }
                });
            }
        });
        Self { address, shown: all, _runtime: runtime }
    }

    /// What the server showed, connection by connection.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        lock(&self.shown).clone()
    }
}

/// What the gateway showed an upstream in a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) certificate: Option<CertificateDer<'static>>,
    pub(crate) name: Option<String>,
    pub(crate) protocol: Option<String>,
}

/// A listener that speaks TLS, in front of an upstream that does not.
pub(crate) struct Terminator {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    config: Mutex<Arc<ServerConfig>>,
    met: Mutex<Vec<Met>>,
}

impl Terminator {
    /// Shows `own`, speaks `protocols`, and lets those in who show a certificate of `clients`, if that is given.
    pub(crate) fn start(
        upstream: SocketAddr,
        own: &Issued,
        clients: Option<&Authority>,
        protocols: &[&str],
    ) -> Self {
        Self::start_at(own_ip(), upstream, own, clients, protocols)
    }

    pub(crate) fn start_at(
        ip: IpAddr,
        upstream: SocketAddr,
        own: &Issued,
        clients: Option<&Authority>,
        protocols: &[&str],
    ) -> Self {
        let (runtime, listener) = listen(ip);
        let address = listener.local_addr().unwrap();
        let config = Mutex::new(server_config(own, clients, protocols));
        let shared = Arc::new(Shared { config, met: Mutex::default() });
        let state = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(terminate(stream, upstream, Arc::clone(&state)));
            }
        });
        Self { address, shared, _runtime: runtime }
    }

    /// Shows another certificate from the next handshake on.
    pub(crate) fn show(&self, own: &Issued) {
        *lock(&self.shared.config) = server_config(own, None, &[]);
    }

    /// What it was shown in handshakes that succeeded.
    pub(crate) fn met(&self) -> Vec<Met> {
        lock(&self.shared.met).clone()
    }
}

async fn terminate(stream: TcpStream, upstream: SocketAddr, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let config = Arc::clone(&lock(&shared.config));
    let Ok(mut secure) = TlsAcceptor::from(config).accept(stream).await else { return };
    let (_, tls) = secure.get_ref();
    let met = Met {
        certificate: tls.peer_certificates().map(|chain| chain[0].clone()),
        name: tls.server_name().map(str::to_owned),
        protocol: tls.alpn_protocol().map(as_text),
    };
    lock(&shared.met).push(met);
    if let Ok(mut plain) = TcpStream::connect(upstream).await {
        let _ = plain.set_nodelay(true);
        let _ = copy_bidirectional(&mut secure, &mut plain).await;
    }
}

fn server_config(own: &Issued, clients: Option<&Authority>, protocols: &[&str]) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(authority.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let mut config = builder.with_single_cert(vec![own.der.clone()], own.key()).unwrap();
    config.alpn_protocols = as_alpn(protocols);
    Arc::new(config)
}

fn listen(ip: IpAddr) -> (Runtime, TcpListener) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind((ip, 0))).unwrap();
    (runtime, listener)
}

fn as_alpn(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect()
}

fn as_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
