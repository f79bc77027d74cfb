//! The tenants in force, and their certificates: loaded, checked and built beside those in force, then put in their
//! place in one step.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::app::{StartError, named_files};
use crate::assertion::{Facts, Issuer};
use crate::config::{
    ConfigSource, Fixed, Live, Loaded, NamedFile, Problem, RefusedFile, Settings, VALUES_SHOWN_MAX,
    tenants::has_folder, tiers::TierSettings,
};
use crate::domain::{AgentId, AgentList, Agents, Tenant, Tier, Tiers, UnixSeconds};
use crate::files::{Fingerprints, fingerprint_of};
use crate::gateway::{LiveTable, SiteBuilder, Table, watch::resolve_new_names};
use crate::os::Os;
use crate::ports::Clock;
use crate::telemetry::{Metrics, NO_TENANT};
use crate::tls::{Certificates, FileLoader, LoadedFiles, Shown, UpstreamIdentity, certificates::found_by};

/// Everything that is replaced when the configuration is read again.
pub(crate) struct Tenants {
    source: ConfigSource,
    /// Everything that counts as it was at the start.
    at_start: Fixed,
    pub(super) metrics: Metrics,
    /// Everything that requests, handshakes and assertions ask for. A reload replaces it in one step.
    pub(crate) table: Arc<LiveTable>,
    pub(super) facts: Facts,
    in_force: Mutex<InForce>,
    /// Every file with a certificate, a key or agents that was named by what was last read.
    certificate_files: Mutex<Vec<PathBuf>>,
    /// The fingerprint of all files when what is in force at the start was read.
    pub(super) first_fingerprint: u64,
}

/// The versions of files that stay in force where newer ones can't be used.
struct InForce {
    settings: Settings,
    files: LoadedFiles,
}

/// A reload that is in force.
pub(super) struct Applied {
    pub(super) loaded: Loaded,
    /// Each tenant that was added, removed or changed, and which of these.
    pub(super) tenants: Vec<(Arc<str>, &'static str)>,
    /// The sections that have changed since the start, and count from the next one on.
    pub(super) sections_that_wait: Vec<&'static str>,
    /// True if a file that was used before holds other certificates now.
    pub(super) has_other_certificates: bool,
}

/// A certificate in force.
pub(super) struct Certificate {
    pub(super) file: PathBuf,
    /// The label of the metric: "listener" is shown to clients, "authz" to other gateways, "upstream" to upstreams.
    pub(super) kind: &'static str,
    /// `None` for the listeners' own.
    pub(super) tenant: Option<Arc<str>>,
    /// In Unix seconds.
    pub(super) expiry: i64,
}

/// Why a gateway must not start with these tenants: nobody is served, or a folder holds no file, as one that is not mounted. What
/// was served before the start is not known.
pub(crate) fn emptiness(loaded: &Loaded, config: &Path) -> Option<Problem> {
    let Loaded { settings, refused, .. } = loaded;
    let holds_none = settings.live.tenant_files.is_empty()
        && !refused.iter().any(|file| file.place.starts_with("tenants.d/"));
    let is_empty = settings.live.tenants.is_empty() || (holds_none && has_folder(config));
    let matters = is_empty && settings.fixed.listen.reaches_tenants() && !settings.live.allow_empty;
    let place = if has_folder(config) { "tenants.d" } else { "tenants" };
    let phrase = "there is no tenant; mount the folder, or set gateway.allow_empty to true if that is meant";
    matters.then(|| Problem::new(place, phrase))
}

impl Tenants {
    /// Puts the tenants of these settings, which were read from `source`, in force.
    pub(crate) fn new(
        source: ConfigSource,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let empty = LoadedFiles::default();
        let mut loader = FileLoader::new(&empty);
        let Settings { fixed, live } = settings;
        let (chain_id, registry) = (fixed.chain.pool.chain_id, fixed.chain.reading.registries.identity);
        let (clock, entropy) = (Arc::clone(clock), Arc::new(Os::new()));
        let facts = Facts { chain_id, registry, clock, entropy };
        let built = build(fixed, live, &mut loader, &facts, metrics, &Table::default());
        let table = built.map_err(|problems| {
            format!("certificates, keys or lists of agents can't be used:\n  {}", problems.join("\n  "))
        })?;
        let (files, seen) = loader.finish();
        show(metrics, &certificates_of(live, &files));
        Ok(Self {
            first_fingerprint: fingerprint_of(&(source.first, &seen)),
            source,
            at_start: fixed.clone(),
            metrics: metrics.clone(),
            table: Arc::new(LiveTable::from_pointee(table)),
            facts,
            in_force: Mutex::new(InForce { settings: settings.clone(), files }),
            certificate_files: Mutex::new(seen.into_files()),
        })
    }

    /// The certificates of a listener that speaks TLS, as each handshake finds them.
    pub(super) fn certificates(&self, of: fn(&Table) -> Option<&Certificates>) -> Option<Shown> {
        of(&self.table.load())?;
        let table = Arc::clone(&self.table);
        Some(found_by(move |name| Some(of(&table.load())?.find(name))))
    }

    /// The sources of tiers, with the list that is in force whenever an agent is graded.
    pub(super) fn tiers(&self) -> Tiers {
        Tiers::new(self.at_start.tiers.sources.clone(), Arc::new(ListInForce(Arc::clone(&self.table))))
    }

    pub(super) fn issuer(&self) -> Box<dyn Fn() -> Option<Arc<Issuer>> + Send + Sync> {
        let table = Arc::clone(&self.table);
        Box::new(move || table.load().issuer.clone())
    }

    /// Reads everything again and puts in force what can be used. Or says why nothing has changed, and in each
    /// case how the files were before they were read. Blocks.
    pub(super) fn load_and_replace(&self) -> (Result<Applied, String>, u64) {
        let configuration = self.source.fingerprint();
        let mut in_force = self.in_force.lock();
        let InForce { settings: former, files } = &mut *in_force;
        let mut loader = FileLoader::new(files);
        let mut probe = |named: &NamedFile| named_files::errors(named, &mut loader);
        let former_and_start = Some((&*former, &self.at_start));
        let mut report = self.source.read(VALUES_SHOWN_MAX, former_and_start, &mut probe);
        let of_files =
            report.files.iter().flat_map(|named| named_files::warnings(named, self.now(), &loader));
        report.problems.0.extend(of_files);
        if report.is_read {
            self.source.log_warnings(&report.problems);
        }
        let loaded = report.loaded.ok_or_else(|| report.problems.to_string());
        let applied = loaded.and_then(|loaded| self.replace(loaded, &former.live, &mut loader));
        let (new, seen) = loader.finish();
        let read = fingerprint_of(&(configuration, &seen));
        *self.certificate_files.lock() = seen.into_files();
        let applied = applied.map(|mut applied| {
            show(&self.metrics, &certificates_of(&applied.loaded.settings.live, &new));
            applied.has_other_certificates = new.replaces(files);
            *files = new;
            *former = applied.loaded.settings.clone();
            applied
        });
        (applied, read)
    }

    /// Builds everything beside what is in force, and replaces it in one step.
    fn replace(
        &self,
        mut loaded: Loaded,
        in_force: &Live,
        loader: &mut FileLoader<'_>,
    ) -> Result<Applied, String> {
        let sections_that_wait = self.at_start.sections_that_differ(&loaded.settings.fixed);
        loaded.settings = loaded.settings.over(&self.at_start, in_force);
        let (live, former) = (&loaded.settings.live, self.table.load_full());
        let built = build(&self.at_start, live, loader, &self.facts, &self.metrics, &former);
        let table = built.map_err(|problems| problems.join("; "))?;
        Handle::current().block_on(resolve_new_names(&table));
        self.table.store(Arc::new(table));
        self.table.load().end_series_of(&former);
        let tenants = changes(&former, &self.table.load());
        let kept = loader.kept.iter().map(|(file, problems)| RefusedFile::new(&**file, problems, true));
        loaded.refused.extend(kept);
        Ok(Applied { tenants, sections_that_wait, loaded, has_other_certificates: false })
    }

    pub(super) fn certificates_in_force(&self) -> Vec<Certificate> {
        let InForce { settings, files } = &*self.in_force.lock();
        certificates_of(&settings.live, files)
    }

    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds(self.facts.clock.unix_seconds())
    }

    /// The fingerprint of all files. Blocks.
    pub(super) fn fingerprint(&self) -> u64 {
        let files = self.certificate_files.lock().clone();
        fingerprint_of(&(self.source.fingerprint(), &Fingerprints::now(&files)))
    }
}

/// The tenants that are not as they were.
fn changes(former: &Table, now: &Table) -> Vec<(Arc<str>, &'static str)> {
    let mut gone: BTreeMap<&str, &Tenant> = former.tenants().map(|tenant| (&*tenant.id, tenant)).collect();
    let mut changes = Vec::new();
    for tenant in now.tenants() {
        let change = match gone.remove(&*tenant.id) {
            None => "added",
            Some(former) if former != tenant => "changed",
            Some(_) => continue,
        };
        changes.push((Arc::clone(&tenant.id), change));
    }
    changes.extend(gone.into_values().map(|tenant| (Arc::clone(&tenant.id), "removed")));
    changes
}

/// Each certificate that these settings name and these files hold.
fn certificates_of(live: &Live, files: &LoadedFiles) -> Vec<Certificate> {
    let listeners = [("listener", &live.tls), ("authz", &live.authz_tls)];
    let listeners =
        listeners.into_iter().flat_map(|(kind, pair)| pair.as_ref().map(|pair| (pair, kind, None)));
    let tenants = live.tenants.iter().flat_map(|tenant| {
        let shown = tenant.tls.iter().filter(|_| live.tls.is_some()).map(|pair| (pair, "listener"));
        let all = shown.chain(tenant.proxy.upstream_tls.client.iter().map(|pair| (pair, "upstream")));
        all.map(|(pair, kind)| (pair, kind, Some(Arc::clone(&tenant.id))))
    });
    let all = listeners.chain(tenants).filter_map(|(pair, kind, tenant)| {
        let (file, expiry) = (pair.cert.clone(), files.expiry(pair)?);
        Some(Certificate { file, kind, tenant, expiry })
    });
    all.collect()
}

/// Shows when the certificates in force expire.
fn show(metrics: &Metrics, certificates: &[Certificate]) {
    metrics.change(|families| {
        families.certificate_expiry.reset();
        for Certificate { kind, tenant, expiry, .. } in certificates {
            let tenant = tenant.as_deref().unwrap_or(NO_TENANT);
            families.certificate_expiry.with_label_values(&[kind, tenant]).set(*expiry);
        }
    });
}

/// Reads certificates, keys and lists, and builds everything that these settings put in force. Of those of the start it has
/// what counts until the end of the process. Whoever read the settings has looked into every file of a new version: one that
/// can't be used is refused there, with all its problems, so that this stops at the first.
fn build(
    fixed: &Fixed,
    live: &Live,
    loader: &mut FileLoader<'_>,
    facts: &Facts,
    metrics: &Metrics,
    former: &Table,
) -> Result<Table, Vec<String>> {
    let Live { tenants, unserved_hosts, .. } = live;
    let issuer = match &live.issuer {
        Some(rules) => {
            let keys = loader.signing_keys(&rules.key_file)?;
            let same = former.issuer.clone().filter(|former| former.is(&rules.name, &keys));
            Some(same.unwrap_or_else(|| Arc::new(Issuer::new(&rules.name, keys, facts.clone()))))
        }
        None => None,
    };
    let TierSettings { sources, requests_per_minute: quotas, .. } = &fixed.tiers;
    let agents = sources.list.as_ref().map(|file| loader.agents(file)).transpose()?.unwrap_or_default();
    let shown = tenants.iter().map(|tenant| &**tenant);
    let shown = live.tls.as_ref().map(|pair| Certificates::load(pair, shown, unserved_hosts, loader));
    let to_gateways = live.authz_tls.as_ref().map(|pair| Certificates::load(pair, [], &[], loader));
    let (certificates, authz_certificates) = (shown.transpose()?, to_gateways.transpose()?);
    let mut equipped = Vec::with_capacity(tenants.len());
    for tenant in tenants {
        if tenant.assertion && issuer.is_none() {
            return Err(vec![format!("tenant {}: nobody signs its assertions", tenant.id)]);
        }
        equipped.push((Arc::clone(tenant), UpstreamIdentity::load(&tenant.proxy.upstream_tls, loader)?));
    }
    let addresses = &fixed.addresses(live.allow_link_local);
    let tiers = &Tiers::new(sources.clone(), Arc::<Agents>::clone(&agents));
    let builder = SiteBuilder { quotas: *quotas, tiers, metrics, addresses, issuer };
    let table = Table::new(equipped, unserved_hosts, &builder, former);
    let mut table = table.map_err(|twice| vec![twice.to_string()])?;
    (table.agents, table.certificates, table.authz_certificates) = (agents, certificates, authz_certificates);
    Ok(table)
}

/// The list of agents in force.
struct ListInForce(Arc<LiveTable>);

impl fmt::Debug for ListInForce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ListInForce")
    }
}

impl AgentList for ListInForce {
    fn tier_of(&self, agent: AgentId) -> Tier {
        self.0.load().agents.tier_of(agent)
    }
}

#[cfg(test)]
mod tests;
