//! PEM files to certificates, keys and authorities that are known to work, and certificates that work and are probably not the ones
//! that are meant.
//!
//! The server framework panics on a certificate that it can't parse, so what leaves this file has been parsed.

use std::{error::Error as StdError, io, path::Path, sync::Arc};

use pingora::protocols::tls::CaType;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use rustls::client::verify_server_name;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::domain::{HostPattern, KeyPair, UnixSeconds};
use crate::files::{self, PEM_BYTES_MAX};

/// The problem of a file that can't be decoded, without its content, which may be a key.
pub(super) const MALFORMED: &str = "is not well-formed PEM";

/// A certificate chain and the key that belongs to it.
pub(crate) struct Identity {
    /// The chain and a signer, as servers use them.
    pub(super) certified: Arc<CertifiedKey>,
    /// The same key, for those who make their own signer.
    key: PrivateKeyDer<'static>,
}

/// Authorities that an upstream's certificate may stem from.
#[derive(Clone)]
pub(crate) struct Authorities {
    pub(super) ca: Arc<CaType>,
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
}

impl Identity {
    /// Chain and key as the server framework shows them to upstreams.
    pub(super) fn toward_upstreams(&self) -> CertKey {
        let chain = self.certified.cert.iter().map(|certificate| certificate.to_vec()).collect();
        CertKey::new(chain, self.key.secret_der().to_vec())
    }

    /// The problem with the time of the certificate, as a phrase.
    pub(crate) fn untimely(&self, now: UnixSeconds) -> Option<&'static str> {
        time_problem(self.certified.cert.first()?, now)
    }

    /// True if clients of a host accept the name (RFC 9525). No certificate is for all hosts, and none need be.
    pub(crate) fn is_for(&self, host: &HostPattern) -> bool {
        let name = match host {
            HostPattern::Exact(name) => name.trim_matches(['[', ']']).to_owned(),
            HostPattern::Below(name) => format!("any.{name}"),
            HostPattern::Any => return true,
        };
        let name = ServerName::try_from(name);
        let parsed = self.certified.cert.first().map(ParsedCertificate::try_from);
        matches!((parsed, name), (Some(Ok(leaf)), Ok(name)) if verify_server_name(&leaf, &name).is_ok())
    }
}

/// Reads a certificate chain and its key, or says everything that is wrong with the files.
pub(super) fn identity(pair: &KeyPair) -> Result<Identity, Vec<String>> {
    let (chain, key) = match (certificates(&pair.cert), private_key(&pair.key)) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return Err([chain.err(), key.err()].into_iter().flatten().collect()),
    };
    // The framework tells the kind of a key from its bytes, and panics when it can't.
    let is_told = PrivateKeyDer::try_from(key.secret_der()).is_ok();
    let Some(signer) = any_supported_type(&key).ok().filter(|_| is_told) else {
        return Err(vec![with_path(&pair.key, "holds a key of a kind that is not supported")]);
    };
    let certified = Arc::new(CertifiedKey::new(chain, signer));
    Err(vec![match certified.keys_match() {
        Ok(()) => return Ok(Identity { certified, key }),
        Err(Error::InconsistentKeys(_)) => {
            let cert = files::shown(&pair.cert);
            with_path(&pair.key, &format!("does not belong to the certificate in {cert}"))
        }
        Err(error) => with_path(&pair.cert, &format!("holds an unusable certificate: {error}")),
    }])
}

/// Reads the authorities in a file.
pub(super) fn authorities(path: &Path) -> Result<Authorities, String> {
    let certificates = certificates(path)?;
    let mut roots = RootCertStore::empty();
    if !certificates.iter().all(|certificate| roots.add(certificate.clone()).is_ok()) {
        return Err(with_path(path, "holds a certificate that can't be an authority's"));
    }
    // It has been parsed before, so that this does not panic.
    let wrapped = |certificate: &CertificateDer<'_>| WrappedX509::new(certificate.to_vec(), parse_x509);
    let ca = certificates.iter().map(wrapped).collect();
    Ok(Authorities { ca, certificates: certificates.into() })
}

/// Reads all certificates of a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = files::bytes(path, PEM_BYTES_MAX).and_then(|text| parse_certificates(&text));
    read.map_err(|problem| with_path(path, &problem))
}

fn parse_certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|_| MALFORMED)?;
    if chain.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    if !chain.iter().all(|certificate| X509Certificate::from_der(certificate).is_ok()) {
        return Err("holds a certificate that can't be read".to_owned());
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let key = files::bytes(path, PEM_BYTES_MAX).and_then(|text| match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err("holds no private key, or only an encrypted one".to_owned()),
        Err(_) => Err(MALFORMED.to_owned()),
    });
    key.map_err(|problem| with_path(path, &problem))
}

fn with_path(path: &Path, problem: &str) -> String {
    format!("{}: {problem}", files::shown(path))
}

/// When the first certificate of a chain expires, in Unix seconds.
pub(super) fn expiry(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let parsed = chain.iter().filter_map(|certificate| X509Certificate::from_der(certificate).ok());
    parsed.map(|(_, certificate)| certificate.validity().not_after.timestamp()).min()
}

/// The problem with the time of a certificate, as a phrase.
fn time_problem(certificate: &[u8], now: UnixSeconds) -> Option<&'static str> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    if now > validity.not_after.timestamp() {
        return Some("has expired");
    }
    (now < validity.not_before.timestamp()).then_some("is not valid yet")
}

/// Why a handshake with a server failed, in plain words, if this error is about that.
pub(crate) fn handshake_failure(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    use CertificateError as Wrong;
    let Some(error) = error.downcast_ref::<Error>() else {
        return handshake_failure(error.downcast_ref::<io::Error>()?.get_ref()?);
    };
    let Error::InvalidCertificate(wrong) = error else {
        let speaks_none = matches!(error, Error::InvalidMessage(_));
        return Some(if speaks_none { "it does not speak TLS" } else { "the TLS handshake failed" });
    };
    let is_for_another = matches!(wrong, Wrong::NotValidForName | Wrong::NotValidForNameContext { .. });
    let is_untimely = matches!(
        wrong,
        Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet | Wrong::NotValidYetContext { .. }
    );
    Some(if is_for_another {
        "its certificate is for another name"
    } else if is_untimely {
        "its certificate has expired, or is not valid yet"
    } else if *wrong == Wrong::UnknownIssuer {
        "its certificate is of an authority that is not believed; --ca names a file with yours"
    } else {
        unsupported_signature(&format!("{wrong:?}")).unwrap_or("its certificate can't be verified")
    })
}

/// The same of an error's text, where the library has no more: it names kinds of signatures by their numbers.
pub(crate) fn unsupported_signature(text: &str) -> Option<&'static str> {
    text.contains("UnsupportedSignatureAlgorithm").then_some(
        "its certificate is signed with a P-521 key or by ecdsa-with-SHA512, which can't be verified here",
    )
}

#[cfg(test)]
mod tests {
    use super::{PEM_BYTES_MAX, identity, time_problem};
    use crate::domain::{HostPattern, UnixSeconds};
    use crate::tls::fixture::{Folder, NOT_AFTER, NOT_BEFORE, NOW, SelfSigned};

    #[test]
    fn a_chain_and_its_key_are_read_whatever_else_is_in_the_files() {
        let (folder, leaf, other) =
            (Folder::new(), SelfSigned::new("a.example"), SelfSigned::new("b.example"));
        let both = format!("{}{}{}", leaf.cert_pem, other.cert_pem, leaf.key_pem);
        let pair = folder.pair_of("both", &format!("A comment.\r\n{both}"), &both);
        let identity = identity(&pair).ok().unwrap();
        assert_eq!(identity.certified.cert, [leaf.cert_der, other.cert_der]);
    }

    #[test]
    fn every_problem_names_its_file() {
        let (folder, own, other) =
            (Folder::new(), SelfSigned::new("a.example"), SelfSigned::new("b.example"));
        let unparsable = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let encrypted = own.key_pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let long = " ".repeat(PEM_BYTES_MAX + 1);
        for (cert, key, expected) in [
            ("", "", &["x.crt: holds no certificate", "x.key: holds no private key"][..]),
            (unparsable, &own.key_pem, &["x.crt: holds a certificate that can't be read"]),
            ("-----BEGIN CERTIFICATE-----\nAAAA", &own.key_pem, &["x.crt: is not well-formed PEM"]),
            (&own.cert_pem, no_key, &["x.key: holds a key of a kind that is not supported"]),
            (&own.cert_pem, &encrypted, &["x.key: holds no private key, or only an encrypted one"]),
            (&own.cert_pem, &own.cert_pem, &["x.key: holds no private key"]),
            (&own.cert_pem, &other.key_pem, &["x.key: does not belong to the certificate in "]),
            (&long, &own.key_pem, &["x.crt: is longer than 4194304 bytes"]),
        ] {
            let pair = folder.pair_of("x", cert, key);
            let problems = identity(&pair).err().unwrap();
            assert_eq!(problems.len(), expected.len(), "{problems:?}");
            let root = format!("{}/", folder.path().display());
            for (problem, expected) in problems.iter().zip(expected) {
                assert!(problem.strip_prefix(&root).unwrap().starts_with(expected), "{problem}");
            }
        }
    }

    #[test]
    fn a_certificate_out_of_its_time_is_used_and_noticed() {
        let (folder, own) = (Folder::new(), SelfSigned::new("a.example"));
        let pair = folder.pair_of("x", &own.cert_pem, &own.key_pem);
        for (now, phrase) in [
            (NOT_BEFORE - 1, Some("is not valid yet")),
            (NOT_BEFORE, None),
            (NOT_AFTER, None),
            (NOT_AFTER + 1, Some("has expired")),
            (u64::MAX, Some("has expired")),
        ] {
            assert_eq!(time_problem(&own.cert_der, UnixSeconds(now)), phrase, "{now}");
            assert!(identity(&pair).is_ok());
        }
    }

    #[test]
    fn a_certificate_is_for_the_hosts_whose_clients_accept_its_name() {
        let folder = Folder::new();
        for (name, covered, others) in [
            ("a.example", "a.example *", "b.example x.a.example *.a.example 127.0.0.1"),
            ("*.a.example", "x.a.example *.a.example", "a.example x.y.a.example"),
        ] {
            let own = SelfSigned::new(name);
            let identity = identity(&folder.pair_of("x", &own.cert_pem, &own.key_pem)).ok().unwrap();
            for (hosts, is_for) in [(covered, true), (others, false)] {
                for host in hosts.split(' ') {
                    assert_eq!(identity.is_for(&HostPattern::parse(host).unwrap()), is_for, "{name} {host}");
                }
            }
            assert_eq!(identity.untimely(NOW), None);
            assert_eq!(identity.untimely(UnixSeconds(NOT_AFTER + 1)), Some("has expired"));
        }
    }
}
