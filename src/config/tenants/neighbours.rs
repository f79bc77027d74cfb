//! What a tenant must fit in with: the listener, and all tenants that were read before it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::listen::{Listen, reaches};
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::host::HostPattern;
use crate::domain::tenant::KeyPair;
use crate::domain::upstream::Upstream;

/// The listener and the tenants so far.
pub(super) struct Neighbours {
    listener_tls: Option<KeyPair>,
    /// False if that is not known.
    listener_lacks_tls: bool,
    /// The addresses of the gateway's listener.
    gateway: Vec<SocketAddr>,
    /// Whose each id is, as the place of its tenant.
    ids: HashMap<Arc<str>, Arc<str>>,
    /// Whose each host is.
    hosts: HashMap<HostPattern, Arc<str>>,
}

impl Neighbours {
    /// A listener that is wrong itself makes no upstream wrong.
    pub(super) fn new(listen: Option<&Listen>) -> Self {
        Self {
            listener_tls: listen.and_then(|listen| listen.tls.clone()),
            listener_lacks_tls: listen.is_some_and(|listen| listen.tls.is_none()),
            gateway: listen.map(|listen| listen.gateway.clone()).unwrap_or_default(),
            ids: HashMap::new(),
            hosts: HashMap::new(),
        }
    }

    /// Ids are unique.
    pub(super) fn check_id(&mut self, reader: &mut Reader, id: &Arc<str>) {
        let place = Arc::from(reader.location().of_table());
        if let Some(other) = self.ids.get(id) {
            let phrase = format!("is {}, the id of {other}; write another", quoted(id));
            reader.report(&["id"], phrase);
        } else {
            self.ids.insert(Arc::clone(id), place);
        }
    }

    /// A host has one tenant, and stands there once.
    pub(super) fn check_hosts(&mut self, reader: &mut Reader, hosts: &[HostPattern]) {
        let place: Arc<str> = Arc::from(reader.location().of_table());
        let checked = hosts.iter().map(|host| match self.hosts.get(host) {
            Some(other) => {
                Err(format!("is {}, a host of {other}; write each host once", quoted(&host.to_string())))
            }
            None => {
                self.hosts.insert(host.clone(), Arc::clone(&place));
                Ok(())
            }
        });
        reader.check_items("hosts", checked);
    }

    /// The gateway does not forward to itself.
    pub(super) fn check_upstream(&self, upstream: &Upstream) -> Result<(), String> {
        let Some(listener) = self.gateway.iter().find(|listener| reaches(upstream, **listener)) else {
            return Ok(());
        };
        Err(format!(
            "is {upstream}, where this gateway itself listens ({listener}); write the service behind it"
        ))
    }

    /// The host that a client asks for while it opens a TLS connection chooses the certificate.
    pub(super) fn check_tls(&self, reader: &mut Reader, tls: Option<&KeyPair>, hosts: &[HostPattern]) {
        if let Some(pair) = tls.or(self.listener_tls.as_ref()) {
            let path = if tls.is_some() { "tls.cert" } else { "hosts" };
            reader.note_file(&[path], || Content::Shown(pair.clone(), hosts.to_vec()));
        }
        if tls.is_some() && self.listener_lacks_tls {
            let phrase = "needs listen.tls; without it the gateway speaks no TLS and shows no certificate";
            reader.report(&["tls.cert"], phrase);
        }
    }
}
