//! Checks a tenant against the listener, its rule, and all tenants that were read before it from the same file.

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;

use crate::addresses::{AddressRefused, AddressRules};
use crate::config::tenants::rules::{Rule, Rules};
use crate::config::{listen::Listen, notes::Content, reader::Reader, written::quoted};
use crate::domain::{HostPattern, KeyPair, Upstream, UpstreamTls};

/// What the service lacks that tenants may ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::config) struct Missing {
    /// Somebody who signs assertions.
    pub(in crate::config) signer: bool,
    /// Nonces that are kept for as long as each request may be signed for.
    pub(in crate::config) kept_nonces: bool,
    /// Domains whose bots are known.
    pub(in crate::config) bots: bool,
}

/// The listener, the rules and the tenants so far.
pub(super) struct Neighbours {
    rules: Rules,
    /// The rule that the tenant is under that is being read.
    rule: Option<Arc<Rule>>,
    /// True if that tenant names an id or a host that it may not have: then it claims nothing, and all that it names is free for
    /// whose it is.
    pub(super) is_outside: bool,
    listener_tls: Option<KeyPair>,
    /// False if that is not known.
    listener_lacks_tls: bool,
    /// True if other gateways may ask for tenants.
    pub(super) has_authz: bool,
    pub(super) lacks: Missing,
    /// The addresses that upstreams may have.
    addresses: AddressRules,
    /// Whose each id is, as the place of its tenant.
    ids: HashMap<Arc<str>, Arc<str>>,
    /// Whose each host is.
    hosts: HashMap<HostPattern, Arc<str>>,
}

impl Neighbours {
    /// A listener that is wrong itself makes no upstream wrong.
    pub(super) fn new(
        listen: Option<(&Listen, Option<&KeyPair>)>,
        allow_link_local: bool,
        lacks: Missing,
        rules: Rules,
    ) -> Self {
        let (listen, listener_tls) =
            listen.map_or((None, None), |(listen, tls)| (Some(listen), tls.cloned()));
        let listeners = listen.into_iter().flat_map(Listen::all).collect();
        Self {
            rules,
            rule: None,
            is_outside: false,
            listener_tls,
            listener_lacks_tls: listen.is_some_and(|listen| !listen.tls),
            has_authz: listen.is_some_and(|listen| !listen.authz.is_empty()),
            lacks,
            addresses: AddressRules { listeners, allow_link_local, networks: None },
            ids: HashMap::new(),
            hosts: HashMap::new(),
        }
    }

    /// Another file begins, with this name without `.toml`. If there are rules it has to be under one. What it has in common with
    /// other files is found once all are read.
    pub(super) fn begin_file(&mut self, reader: &mut Reader, name: Option<&str>) {
        self.ids.clear();
        self.hosts.clear();
        self.rule = name.and_then(|name| self.rules.of(name)).cloned();
        self.is_outside = !self.rules.0.is_empty() && self.rule.is_none();
        if self.is_outside {
            reader
                .report_table("is a file that no table of [[tenants_rules]] takes; rename it, or add a rule");
        }
    }

    /// The networks of the tenant's upstreams.
    pub(super) fn networks(&self) -> Option<Arc<[IpNet]>> {
        self.rule.as_ref()?.networks.clone()
    }

    /// Ids are unique, and under the same rule as the tenant's file: nobody takes another's.
    pub(super) fn check_id(&mut self, reader: &mut Reader, id: &Arc<str>) {
        let place = Arc::from(reader.scope.location.of_table());
        let is_own = |rule| self.rules.of(id).is_some_and(|of_id| Arc::ptr_eq(of_id, rule));
        if self.rule.as_ref().is_some_and(|rule| !is_own(rule)) {
            self.is_outside = true;
            let phrase = "is {}, and the table of [[tenants_rules]] that takes this file takes no such name";
            return reader.report(&["id"], phrase.replace("{}", &quoted(id)));
        }
        if let Some(other) = self.ids.get(id) {
            let phrase = format!("is {}, the id of {other}; write another", quoted(id));
            reader.report(&["id"], phrase);
        } else {
            self.ids.insert(Arc::clone(id), place);
        }
    }

    /// A host has one tenant, and stands there once.
    pub(super) fn check_hosts(&mut self, reader: &mut Reader, hosts: &[HostPattern]) {
        let place: Arc<str> = Arc::from(reader.scope.location.of_table());
        let Self { rule, hosts: taken, is_outside, .. } = self;
        let checked = hosts.iter().map(|host| {
            let allowed = rule.as_ref().map_or(Ok(()), |rule| rule.check_host(host));
            *is_outside |= allowed.is_err();
            allowed?;
            match taken.get(host) {
                Some(other) => {
                    Err(format!("is {}, a host of {other}; write each host once", quoted(&host.to_string())))
                }
                None => {
                    taken.insert(host.clone(), Arc::clone(&place));
                    Ok(())
                }
            }
        });
        reader.check_items("hosts", checked);
    }

    /// Signatures count for hosts under the tenant's rule.
    pub(super) fn check_signed_host(&self, host: HostPattern) -> Result<HostPattern, String> {
        self.rule.as_ref().map_or(Ok(()), |rule| rule.check_host(&host)).map(|()| host)
    }

    /// The gateway does not forward to itself, nor to link-local addresses, nor outside of the tenant's rule.
    pub(super) fn check_upstream(&self, upstream: &Upstream) -> Result<(), String> {
        self.rule.as_ref().map_or(Ok(()), |rule| rule.check_upstream(upstream))?;
        let addresses = AddressRules { networks: self.networks(), ..self.addresses.clone() };
        addresses.check_host(&upstream.host, upstream.port).map_err(|refused| match refused {
            AddressRefused::Own(_) => format!("is {upstream}, {refused}; write the service behind it"),
            AddressRefused::LinkLocal | AddressRefused::Outside => format!("is {upstream}, {refused}"),
        })
    }

    /// The host that a client asks for while it opens a TLS connection chooses the certificate.
    pub(super) fn check_tls(&self, reader: &mut Reader, tls: Option<&KeyPair>, hosts: &[HostPattern]) {
        if let Some(pair) = tls.or(self.listener_tls.as_ref()) {
            let path = if tls.is_some() { "tls.cert" } else { "hosts" };
            reader.note_file(&[path], Content::Shown(pair.clone(), hosts.to_vec()));
        }
        if tls.is_some() && self.listener_lacks_tls {
            let phrase = "needs listen.tls; without it the gateway speaks no TLS and shows no certificate";
            reader.report(&["tls.cert"], phrase);
        }
    }

    /// A tenant under a rule names files of its own alone.
    pub(super) fn check_files(
        &self,
        reader: &mut Reader,
        shown: Option<&KeyPair>,
        upstream: Option<&UpstreamTls>,
    ) {
        let Some(rule) = &self.rule else { return };
        let ca = upstream.and_then(|tls| tls.ca.as_ref());
        let client = upstream.and_then(|tls| tls.client.as_ref());
        let files = [
            ("tls.cert", shown.map(|pair| &pair.cert)),
            ("tls.key", shown.map(|pair| &pair.key)),
            ("upstream_tls.ca", ca),
            ("upstream_tls.cert", client.map(|pair| &pair.cert)),
            ("upstream_tls.key", client.map(|pair| &pair.key)),
        ];
        for (key, path) in files {
            if let Some(Err(phrase)) = path.map(|path| rule.check_file(path)) {
                reader.report(&[key], phrase);
            }
        }
    }
}
