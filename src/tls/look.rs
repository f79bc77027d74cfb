//! A look at certificates that work and are probably not the ones that are meant.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::domain::freshness::UnixSeconds;
use crate::domain::host::HostPattern;
use crate::domain::tenant::KeyPair;
use crate::tls::pem;

/// What clients that are shown this certificate will complain of: its time, and each of these hosts that it is not for. A
/// file that can't be read has other problems.
#[must_use]
pub fn warnings(pair: &KeyPair, hosts: &[HostPattern], now: UnixSeconds) -> Vec<String> {
    let chain = pem::certificates(&pair.cert, &mut Vec::new()).unwrap_or_default();
    let (Some(leaf), shown) = (chain.first(), pair.cert.display()) else { return Vec::new() };
    let untimely = pem::untimely(leaf, now).map(|untimely| format!("{shown}: the certificate {untimely}"));
    let others = hosts.iter().filter(|host| !is_for(leaf, host));
    let others = others.map(|host| format!("{shown}: the certificate is not for the host {host}"));
    untimely.into_iter().chain(others).collect()
}

/// True if clients of a host accept the name (RFC 9525). No certificate is for all hosts, and none need be.
fn is_for(leaf: &CertificateDer<'_>, host: &HostPattern) -> bool {
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
    use super::warnings;
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
            assert_eq!(warnings(&pair, &hosts(covered), NOW), Vec::<String>::new());
            let expected = hosts(others)
                .into_iter()
                .map(|host| format!("{}: the certificate is not for the host {host}", pair.cert.display()));
            assert_eq!(warnings(&pair, &hosts(others), NOW), expected.collect::<Vec<_>>());
            let late = warnings(&pair, &[], UnixSeconds(NOT_AFTER + 1));
            assert!(late.len() == 1 && late[0].ends_with("the certificate has expired"), "{late:?}");
        }
    }
}
