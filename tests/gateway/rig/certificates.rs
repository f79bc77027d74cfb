//! Certificates that are made for a case, and the files that they are kept in.

use std::{fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use crate::support::secrets;

/// Somebody whose signature under certificates is believed.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for a name, from 2020 until 2100.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_within(name, 2020, 2100)
    }

    /// The same from the first day of one year to that of another.
    pub(crate) fn issue_within(&self, name: &str, from: i32, until: i32) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        let cert = params.signed_by(&key, &self.0).unwrap();
        let key_pem = key.serialize_pem();
        // Between the header and the line that all keys of a kind have in part.
        key_pem.lines().nth(2).map(secrets::keep);
        Issued { cert_pem: cert.pem(), key_pem, der: cert.der().clone() }
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// What somebody believes who believes this authority alone.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

impl Issued {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap()
    }
}

/// Where a case keeps its files, until it ends.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file in one step and gives its path.
    pub(crate) fn put(&self, name: &str, text: &str) -> String {
        let draft: PathBuf = self.0.path().join("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.path(name)).unwrap();
        self.path(name)
    }

    /// Writes `name.crt` and `name.key` and gives their paths.
    pub(crate) fn put_pair(&self, name: &str, issued: &Issued) -> [String; 2] {
        [
            self.put(&format!("{name}.crt"), &issued.cert_pem),
            self.put(&format!("{name}.key"), &issued.key_pem),
        ]
    }
}
