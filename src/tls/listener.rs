//! The TLS that listeners speak: versions, certificates by host, and what is offered over it (ALPN, RFC 7301).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};

use crate::tls::certificates::CertificateStore;

/// What a listener offers over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2, or HTTP/1.1 for those who don't speak it.
    Http1AndHttp2,
}

/// A listener's TLS, with the certificates of this store.
#[must_use]
pub fn server_config(store: &Arc<CertificateStore>, protocols: Protocols) -> Arc<ServerConfig> {
    pingora::tls::install_default_crypto_provider();
    let builder = ServerConfig::builder_with_protocol_versions(&[&TLS13, &TLS12]);
    let certificates: Arc<CertificateStore> = Arc::clone(store);
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificates);
    let offered: &[&[u8]] = match protocols {
        Protocols::Http1 => &[b"http/1.1"],
        Protocols::Http1AndHttp2 => &[b"h2", b"http/1.1"],
    };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}
