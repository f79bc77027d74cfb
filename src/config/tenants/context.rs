//! Checks a tenant against the other sections, and against the rule of its file; and the values that tenants and routes both have.

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;

use crate::addresses::{AddressRefused, AddressRules};
use crate::config::notes::{Claim, Content};
use crate::config::tenants::rules::{Rule, Rules};
use crate::config::written::{quoted, valid};
use crate::config::{FixedParts, LiveParts, listen::Listen, owners::SignatureSettings, reader::Reader};
use crate::domain::{BotDomains, HostPattern, KeyPair, Upstream};

/// What the other sections say that tenants depend on.
pub(in crate::config) struct Context {
    rules: Rules,
    /// The rule that the tenant is under that is being read.
    rule: Option<Arc<Rule>>,
    /// True if it has to be under one, and is under none.
    lacks_rule: bool,
    listener_tls: Option<KeyPair>,
    /// False if that is not known.
    listener_lacks_tls: bool,
    /// True if other gateways may ask for tenants.
    pub(super) has_authz: bool,
    /// True if nobody signs assertions.
    pub(super) lacks_signer: bool,
    /// True if nonces are forgotten while a request may still be signed for.
    pub(super) lacks_kept_nonces: bool,
    /// True if no bots are known.
    pub(super) lacks_bots: bool,
    /// The addresses that upstreams may have.
    addresses: AddressRules,
}

impl Context {
    /// A section that is wrong itself makes nothing of a tenant wrong.
    pub(in crate::config) fn new(fixed: &FixedParts, live: &LiveParts) -> Self {
        let listen = fixed.listen.as_ref();
        let allow_link_local = live.allow_link_local.unwrap_or(true);
        let listeners = listen.into_iter().flat_map(Listen::all).collect();
        Self {
            rules: live.tenants_rules.clone().unwrap_or_default(),
            rule: None,
            lacks_rule: false,
            listener_tls: live.tls.clone().flatten(),
            listener_lacks_tls: listen.is_some_and(|listen| !listen.tls),
            has_authz: listen.is_some_and(|listen| !listen.authz.is_empty()),
            lacks_signer: live.issuer == Some(None),
            lacks_kept_nonces: fixed.signature.as_ref().is_some_and(SignatureSettings::forgets_early),
            lacks_bots: fixed.web_bot_auth.as_ref().is_some_and(|domains| *domains == BotDomains::default()),
            addresses: AddressRules { listeners, allow_link_local, networks: None },
        }
    }

    /// Another file of `tenants.d` begins, with this name without `.toml`. If there are rules it has to be under one.
    pub(super) fn begin_file(&mut self, reader: &mut Reader, name: Option<&str>) {
        self.rule = name.and_then(|name| self.rules.of(name)).cloned();
        self.lacks_rule = !self.rules.0.is_empty() && self.rule.is_none();
        if self.lacks_rule {
            reader
                .report_table("is a file that no table of [[tenants_rules]] takes; rename it, or add a rule");
        }
    }

    /// The networks of the tenant's upstreams.
    pub(super) fn networks(&self) -> Option<Arc<[IpNet]>> {
        self.rule.as_ref()?.networks.clone()
    }

    /// Notes what the tenant claims. One that names an id or a host outside of its rule claims nothing: all that it names is free
    /// for whose it is.
    pub(super) fn claim(&self, reader: &mut Reader, id: Option<&Arc<str>>, hosts: &[HostPattern]) {
        let is_own = |id, rule| self.rules.of(id).is_some_and(|of_id| Arc::ptr_eq(of_id, rule));
        let foreign = id.filter(|id| self.rule.as_ref().is_some_and(|rule| !is_own(id, rule)));
        if let Some(id) = foreign {
            let phrase = "is {}, and the table of [[tenants_rules]] that takes this file takes no such name";
            reader.report(&["id"], phrase.replace("{}", &quoted(id)));
        }
        let allowed = reader.check_items("hosts", hosts.iter().map(|host| self.check_host(host)));
        if foreign.is_some() || allowed.is_none() || self.lacks_rule {
            return;
        }
        id.into_iter().for_each(|id| reader.claim("id", 1, Claim::Id(Arc::clone(id))));
        hosts.iter().zip(1..).for_each(|(host, at)| reader.claim("hosts", at, Claim::Host(host.clone())));
    }

    /// Hosts, and those that signatures count for, are under the tenant's rule.
    pub(super) fn check_host(&self, host: &HostPattern) -> Result<(), String> {
        self.rule.as_ref().map_or(Ok(()), |rule| rule.check_host(host))
    }

    /// The gateway does not forward to itself, nor to link-local addresses, nor outside of the tenant's rule.
    fn check_upstream(&self, upstream: &Upstream) -> Result<(), String> {
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

    /// A tenant under a rule names files of its own alone. The first `others` that are noted are not its.
    pub(super) fn check_files(&self, reader: &mut Reader, others: usize) {
        let Some(rule) = &self.rule else { return };
        let mut problems = Vec::new();
        for named in reader.notes.files.iter().skip(others) {
            let paths = match &named.content {
                Content::Pair(pair) => vec![&pair.cert, &pair.key],
                Content::Shown(..) => Vec::new(),
                Content::Authorities(path)
                | Content::Secret(path)
                | Content::SigningKeys(path)
                | Content::HeaderValue(path)
                | Content::Agents(path) => vec![path],
            };
            let checked = paths.into_iter().map(|path| rule.check_file(path)).enumerate();
            problems.extend(checked.filter_map(|(number, checked)| named.problem(number, &checked.err()?)));
        }
        reader.notes.problems.extend(problems);
    }
}

/// How many upstreams a tenant or a route may have.
const UPSTREAMS_MAX: usize = 64;

/// The upstreams of a tenant, or those that a route may have instead.
pub(super) fn upstreams(reader: &mut Reader, context: &Context, are_required: bool) -> Option<Vec<Upstream>> {
    let upstreams = if are_required {
        reader.required_texts("upstreams", UPSTREAMS_MAX, upstream)
    } else {
        reader.optional_texts("upstreams", UPSTREAMS_MAX, upstream)
    };
    let mut seen: HashMap<Upstream, Upstream> = HashMap::new();
    let checked = upstreams?.into_iter().map(|item| {
        context.check_upstream(&item)?;
        match seen.insert(item.alone(), item.clone()) {
            Some(first) => Err(format!(
                "is \"{item}\", the same upstream as \"{first}\"; write each once, with its weight"
            )),
            None => Ok(item),
        }
    });
    reader.check_items("upstreams", checked)
}

fn upstream(text: &str) -> Result<Upstream, String> {
    let wanted = "a host and a port, such as \"127.0.0.1:9000\", or http://, https:// or h2c:// and a host";
    valid(text, Upstream::parse(text), wanted)
}
