//! A look at certificates that work and are probably not the ones that are meant.

use std::error::Error;
use std::io;

use rustls::CertificateError;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::domain::freshness::UnixSeconds;
use crate::domain::host::HostPattern;
use crate::domain::tenant::KeyPair;
use crate::files;
use crate::tls::pem;

/// The problem of a certificate's time. A file that can't be read has other problems.
pub(crate) fn untimely(pair: &KeyPair, now: UnixSeconds) -> Option<String> {
    let untimely = pem::untimely(&leaf(pair)?, now)?;
    Some(format!("{}: the certificate {untimely}", files::shown(&pair.cert)))
}

/// Each of these hosts that a certificate is not for.
pub(crate) fn other_hosts(pair: &KeyPair, hosts: &[HostPattern]) -> Vec<String> {
    let Some(leaf) = leaf(pair) else { return Vec::new() };
    let others = hosts.iter().filter(|host| !is_for(&leaf, host));
    others
        .map(|host| format!("{}: the certificate is not for the host {host}", files::shown(&pair.cert)))
        .collect()
}

/// Why a handshake with a server failed, in plain words, if this error is about that.
pub(crate) fn handshake_failure(error: &(dyn Error + 'static)) -> Option<&'static str> {
    use CertificateError as Wrong;
    let Some(error) = error.downcast_ref::<rustls::Error>() else {
        return handshake_failure(error.downcast_ref::<io::Error>()?.get_ref()?);
    };
    let rustls::Error::InvalidCertificate(wrong) = error else {
        let speaks_none = matches!(error, rustls::Error::InvalidMessage(_));
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

fn leaf(pair: &KeyPair) -> Option<CertificateDer<'static>> {
    pem::certificates(&pair.cert, &mut Vec::new())?.into_iter().next()
}

/// True if clients of a host accept the name (RFC 9525). No certificate is for all hosts, and none need be.
pub(super) fn is_for(leaf: &CertificateDer<'_>, host: &HostPattern) -> bool {
    let name = match host {
        HostPattern::Exact(name) => name.trim_matches(['[', ']']).to_owned(),
        HostPattern::Below(name) => format!("any.{name}"),
        HostPattern::Any => return true,
    };
    let name = ServerName::try_from(name);
    let parsed = ParsedCertificate::try_from(leaf);
    matches!((parsed, name), (Ok(leaf), Ok(name)) if verify_server_name(&leaf, &name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::{other_hosts, untimely};
    use crate::domain::freshness::UnixSeconds;
    use crate::domain::host::HostPattern;
    use crate::tls::fixture::{Folder, NOT_AFTER, NOW, SelfSigned};

    #[test]
    fn a_certificate_of_another_host_or_time_is_named_with_its_file() {
        let folder = Folder::new();
        for (name, covered, others) in [
            ("a.example", "a.example *", "b.example x.a.example *.a.example 127.0.0.1"),
            ("*.a.example", "x.a.example *.a.example", "a.example x.y.a.example"),
        ] {
            let own = SelfSigned::new(name);
            let pair = folder.pair_of(&name.replace('*', "any"), &own.cert_pem, &own.key_pem);
            let hosts = |list: &str| -> Vec<HostPattern> {
                list.split(' ').map(|host| HostPattern::parse(host).unwrap()).collect()
            };
            assert!(other_hosts(&pair, &hosts(covered)).is_empty());
            let expected = hosts(others)
                .into_iter()
                .map(|host| format!("{}: the certificate is not for the host {host}", pair.cert.display()));
            assert_eq!(other_hosts(&pair, &hosts(others)), expected.collect::<Vec<_>>());
            assert_eq!(untimely(&pair, NOW), None);
            let late = untimely(&pair, UnixSeconds(NOT_AFTER + 1)).unwrap();
            assert!(late.ends_with(".crt: the certificate has expired"), "{late}");
        }
    }
}
