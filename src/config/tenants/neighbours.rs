//! What a tenant must fit in with: the listener, and all tenants that were read before it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::host::HostPattern;
use crate::domain::tenant::KeyPair;

/// The listener and the tenants so far.
pub(super) struct Neighbours {
    listener_has_tls: bool,
    /// Whose each id is, as the place of its tenant.
    ids: HashMap<Arc<str>, Arc<str>>,
    /// Whose each host is.
    hosts: HashMap<HostPattern, Arc<str>>,
}

impl Neighbours {
    pub(super) fn new(listener_has_tls: bool) -> Self {
        Self { listener_has_tls, ids: HashMap::new(), hosts: HashMap::new() }
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

    /// Which certificate is shown depends on the host that a client asks for while it opens a TLS connection.
    pub(super) fn check_tls(&self, reader: &mut Reader, tls: Option<&KeyPair>) {
        if tls.is_some() && !self.listener_has_tls {
            let phrase = "needs listen.tls; without it the gateway speaks no TLS and shows no certificate";
            reader.report(&["tls.cert"], phrase);
        }
    }
}
