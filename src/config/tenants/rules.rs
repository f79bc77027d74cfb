//! `[[tenants_rules]]`: what tenants in files of their own may name, by the names of their files.
//!
//! For operators whose tenants write these files. Without a rule there are no rules. With one each file is under the first
//! rule that takes its name, and a file under none is refused. Tenants of the main file are the operator's own.
//!
//! Without rules such a tenant reaches what it likes (`upstream_addresses::a_tenant_under_a_rule_reaches_nothing_outside_of_it`) and takes
//! hosts, ids and certificates of others (`tests::tenants::rules`).

use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

use ipnet::IpNet;

use crate::config::written::{file, host, quoted, valid};
use crate::config::{listen::network, reader::Reader};
use crate::domain::{HostPattern, NamePattern, Upstream};

/// How many rules there may be.
const RULES_MAX: usize = 10_000;

/// How many items each of their lists may have.
const ITEMS_MAX: usize = 256;

/// The longest pattern of names, in bytes.
const PATTERN_BYTES_MAX: usize = 65;

/// All rules, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(pub(super) Arc<[Arc<Rule>]>);

/// One rule.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Rule {
    tenants: NamePattern,
    hosts: Vec<HostPattern>,
    upstreams: Vec<UpstreamPattern>,
    /// Where the addresses of upstreams lie; `None`: anywhere.
    pub(super) networks: Option<Arc<[IpNet]>>,
    folders: Vec<PathBuf>,
}

/// Some hosts, at one port or at all.
#[derive(Debug, PartialEq, Eq)]
struct UpstreamPattern {
    host: HostPattern,
    port: Option<u16>,
}

impl Rules {
    /// Reads all rules.
    pub(in crate::config) fn read(reader: &mut Reader) -> Option<Self> {
        Some(Self(reader.tables("tenants_rules", RULES_MAX, Rule::read)?.into()))
    }

    /// The rule for a file with this name, without `.toml`, or for a tenant with this id.
    pub(super) fn of(&self, name: &str) -> Option<&Arc<Rule>> {
        self.0.iter().find(|rule| rule.tenants.matches(name))
    }
}

impl Rule {
    /// Reads one rule.
    pub(in crate::config) fn read(reader: &mut Reader) -> Option<Arc<Self>> {
        let rule = read_all!(reader: Self {
            /// The files: their name without .toml, or its beginning and *. The tenant's id must be such a name too.
            /// Example: "acme-*"
            tenants: reader.required_text("tenants", |text| {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte);
                let is_plain = text.len() <= PATTERN_BYTES_MAX && text.bytes().all(plain);
                let wanted = "the name of a file without .toml, or its beginning and *, such as \"acme-*\"";
                valid(text, NamePattern::parse(text).filter(|_| is_plain), wanted)
            }),
            /// Up to 256 hosts that they may have, and may name in signed_hosts; "*.acme.example" allows every name and wildcard below it.
            /// Example: ["api.acme.example", "*.acme.dev"]
            hosts: reader.required_texts("hosts", ITEMS_MAX, host),
            /// Up to 256 upstreams: a host, "*.acme.internal" for every name below it, or "*"; with a port that port alone.
            /// Example: ["*.acme.internal:8080", "10.1.0.9"]
            upstreams: reader.required_texts("upstreams", ITEMS_MAX, UpstreamPattern::parse),
            /// Up to 256 networks or addresses in which the addresses of these upstreams must lie, also those that their names lead
            /// to. Without them a name may lead anywhere: leave them out only if nobody but you writes these names' DNS.
            /// Example: ["10.1.0.0/16"]
            networks: reader
                .optional_texts("networks", ITEMS_MAX, network)
                .map(|networks| (!networks.is_empty()).then(|| networks.into())),
            /// Up to 256 folders, as absolute paths, below which certificates, keys and authorities of theirs must lie, links followed.
            /// Without them they may name none.
            /// Example: ["/etc/tiergate/acme"]
            folders: reader.optional_texts("files", ITEMS_MAX, |text| {
                let path = file(text)?;
                valid(text, path.is_absolute().then_some(path), "the absolute path of a folder")
            }),
        });
        rule.map(Arc::new)
    }

    /// Tenants have hosts that it lists, or that lie below those.
    pub(super) fn check_host(&self, host: &HostPattern) -> Result<(), String> {
        let is_allowed = self.hosts.iter().any(|allowed| allowed.covers(host));
        is_allowed.then_some(()).ok_or_else(|| format!("is {}, {OUTSIDE}", quoted(&host.to_string())))
    }

    /// Upstreams are hosts that it lists. Their addresses are another matter.
    pub(super) fn check_upstream(&self, upstream: &Upstream) -> Result<(), String> {
        let is_allowed = self.upstreams.iter().any(|allowed| allowed.takes(upstream));
        is_allowed.then_some(()).ok_or_else(|| format!("is {upstream}, {OUTSIDE}"))
    }

    /// Files lie below folders that it lists, also when links are followed.
    pub(super) fn check_file(&self, path: &Path) -> Result<(), String> {
        let real = fs::canonicalize(path);
        let is_below = |folder: &PathBuf| {
            let folder = fs::canonicalize(folder);
            real.as_ref().is_ok_and(|real| folder.is_ok_and(|folder| real.starts_with(folder)))
        };
        if self.folders.iter().any(is_below) {
            return Ok(());
        }
        let path = quoted(&path.to_string_lossy());
        // A tenant learns nothing of files outside, not even if they are there.
        Err(format!("is {path}, which is missing, or {OUTSIDE}"))
    }
}

/// The end of each problem.
const OUTSIDE: &str = "outside of what [[tenants_rules]] allow this file";

impl UpstreamPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().unwrap_or(0))),
            Some(_) | None => (text, None),
        };
        let host = HostPattern::parse(host).filter(|_| port != Some(0));
        let wanted = "a host, \"*.example\" for those below it, or \"*\", with or without a port: \
                      \"*.acme.internal:8080\"";
        valid(text, host.map(|host| Self { host, port }), wanted)
    }

    fn takes(&self, upstream: &Upstream) -> bool {
        let name = &upstream.host;
        let host = if name.contains(':') { format!("[{name}]").into() } else { name.clone() };
        self.host.covers(&HostPattern::Exact(host)) && self.port.is_none_or(|port| port == upstream.port)
    }
}
