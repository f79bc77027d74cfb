//! Stub.
use crate::domain::tenant::{KeyPair, Tenant};
use std::sync::Arc;
/// Stub.
pub(crate) struct CertificateTable;
impl CertificateTable {
    pub(crate) fn load(_pair: &KeyPair, _tenants: &[Arc<Tenant>]) -> Result<Self, Vec<String>> {
        Ok(Self)
    }
}
/// Stub.
#[derive(Debug)]
pub(crate) struct CertificateStore;
impl CertificateStore {
    pub(crate) fn new(_table: CertificateTable) -> Self {
        Self
    }
    pub(crate) fn replace(&self, _table: CertificateTable) {}
}

/// Stub.
#[derive(Clone, Copy)]
pub(crate) enum Protocols {
    Http1,
    Http1AndHttp2,
}
/// Stub.
pub(crate) fn server_config(
    _store: &Arc<CertificateStore>,
    _protocols: Protocols,
) -> Arc<rustls::ServerConfig> {
    unimplemented!()
}
