//! Authorities and certificates toward upstreams, read from their files and known to work.

use std::path::Path;
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::domain::freshness::UnixSeconds;
use crate::domain::tenant::KeyPair;
use crate::files;
use crate::tls::pem::{self, Identity};

/// A certificate that upstreams are shown.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) key: Arc<CertKey>,
    pub(super) chain: Arc<[CertificateDer<'static>]>,
}

/// Authorities that an upstream's certificate may stem from.
#[derive(Clone)]
pub(super) struct Authorities {
    pub(super) ca: Arc<CaType>,
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
}

/// Reads the authorities in a file.
pub(super) fn authorities(path: &Path, problems: &mut Vec<String>) -> Option<Authorities> {
    let authorities = pem::certificates(path, problems)?;
    if !is_usable(&authorities) {
        problems.push(format!("{}: holds a certificate that can't be an authority's", files::shown(path)));
        return None;
    }
    let ca = authorities.iter().cloned().map(wrapped).collect();
    Some(Authorities { ca, certificates: authorities.into() })
}

/// Reads a certificate and its key. One that is not valid at this time is a warning in the log.
pub(super) fn client(pair: &KeyPair, now: UnixSeconds, problems: &mut Vec<String>) -> Option<Client> {
    let identity = pem::identity(pair, now, problems)?;
    // The framework tells the kind of a key from its bytes, and panics when it can't.
    if PrivateKeyDer::try_from(identity.key.secret_der()).is_err() {
        problems.push(format!("{}: holds a key of a kind that is not supported", files::shown(&pair.key)));
        return None;
    }
    Some(Client { key: Arc::new(cert_key(&identity)), chain: identity.certified.cert.into() })
}

fn is_usable(authorities: &[CertificateDer<'_>]) -> bool {
    let mut roots = RootCertStore::empty();
    authorities.iter().all(|certificate| roots.add(certificate.clone().into_owned()).is_ok())
}

/// The certificate has been parsed before, so that this does not panic.
fn wrapped(certificate: CertificateDer<'_>) -> WrappedX509 {
    WrappedX509::new(certificate.to_vec(), parse_x509)
}

fn cert_key(identity: &Identity) -> CertKey {
    let chain = identity.certified.cert.iter().map(|certificate| certificate.to_vec()).collect();
    CertKey::new(chain, identity.key.secret_der().to_vec())
}
