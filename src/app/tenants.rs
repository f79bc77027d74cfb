//! The tenants in force, and their certificates: loaded, checked and built beside those in force, then put in their
//! place in one step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::addresses::AddressRules;
use crate::app::error::StartError;
use crate::app::source::{Fingerprint, Source};
use crate::assertion::{Facts, Issuer, LiveIssuer};
use crate::config::problem::Problem;
use crate::config::tenants::has_folder;
use crate::config::{Beside, Loaded, Refused, Settings};
use crate::domain::agent_list::AgentList;
use crate::domain::freshness::UnixSeconds;
use crate::domain::tenant::Tenant;
use crate::files::Seen;
use crate::gateway::site::SiteBuilder;
use crate::gateway::table::{LiveTable, Table};
use crate::gateway::watch::resolve_new_names;
use crate::ports::clock::{Clock, Entropy};
use crate::telemetry::metrics::{Metrics, NO_TENANT};
use crate::tls::certificates::{CertificateStore, Table as CertificateTable};
use crate::tls::shelf::{Reading, Shelf};
use crate::tls::upstream::UpstreamIdentity;

/// Everything that is replaced when the configuration is read again.
pub(crate) struct Tenants {
    source: Source,
    /// As they were at the start, without tenants. Everything but tenants and certificates counts as it stands there.
    at_start: Settings,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    /// Routes requests.
    pub(super) table: Arc<LiveTable>,
    /// The certificates that clients are shown; `None` when no listener speaks TLS.
    pub(super) certificates: Option<Arc<CertificateStore>>,
    /// The certificates of the listener for other gateways; `None` in the clear.
    pub(super) authz_certificates: Option<Arc<CertificateStore>>,
    facts: Facts,
    /// The issuer of assertions, if there is one.
    pub(super) issuer: Arc<LiveIssuer>,
    /// The agents that the operator lists.
    pub(super) agents: AgentList,
    in_force: Mutex<InForce>,
    /// Every file with a certificate, a key or agents that was named by what was last read.
    certificate_files: Mutex<Vec<PathBuf>>,
    /// How the files were when what is in force at the start was read.
    pub(super) first_fingerprint: [Fingerprint; 2],
}

/// The versions of files that stay in force where newer ones can't be used.
struct InForce {
    settings: Settings,
    shelf: Shelf,
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
    let holds_none = settings.tenant_files.is_empty() && !refused.iter().any(Refused::is_in_folder);
    let is_empty = settings.tenants.is_empty() || (holds_none && has_folder(config));
    let matters = is_empty && settings.listen.reaches_tenants() && !settings.gateway.allow_empty;
    let place = if has_folder(config) { "tenants.d" } else { "tenants" };
    let phrase = "there is no tenant; mount the folder, or set gateway.allow_empty to true if that is meant";
    matters.then(|| Problem::new(place, phrase))
}

/// Looks into the files with certificates that a configuration names.
pub(crate) struct Look<'a> {
    reading: Reading<'a>,
    /// The configuration of the start; nothing while that is read, when problems of the configuration file are found
    /// otherwise.
    at_start: Option<&'a Settings>,
    has_tls: bool,
}

impl<'a> Look<'a> {
    /// At a start.
    pub(crate) fn first(shelf: &'a Shelf, now: UnixSeconds) -> Self {
        Self { reading: Reading::new(shelf, now), at_start: None, has_tls: false }
    }
}

impl Beside for Look<'_> {
    fn of_file(&mut self, settings: &Settings) -> Vec<Problem> {
        self.has_tls = settings.listen.tls.is_some();
        let Some(at_start) = self.at_start else { return Vec::new() };
        let pairs = [("listen.tls", &settings.listen.tls), ("authz.tls", &settings.authz.tls)];
        let certificates = pairs.into_iter().flat_map(|(key, pair)| {
            let problems = pair.as_ref().map(|pair| self.reading.problems_of(pair)).unwrap_or_default();
            problems.into_iter().map(move |problem| Problem::new(key, problem))
        });
        let certificates: Vec<Problem> = certificates.collect();
        let issuer = settings.assertion.issuer.as_ref();
        let keys = issuer.and_then(|issuer| self.reading.signing_keys(&issuer.key_file).err());
        let keys = keys.into_iter().flatten().map(|problem| Problem::new("assertion.key_file", problem));
        other_chain(at_start, settings).into_iter().chain(certificates).chain(keys).collect()
    }

    fn of_tenant(&mut self, tenant: &Tenant) -> Vec<Problem> {
        let own = tenant.tls.as_ref().filter(|_| self.has_tls);
        let shown = own.map(|pair| self.reading.problems_of(pair)).unwrap_or_default();
        let upstream = UpstreamIdentity::load(&tenant.proxy.upstream_tls, &mut self.reading);
        let problems = shown.into_iter().chain(upstream.err().unwrap_or_default());
        problems.map(|problem| Problem::new(format!("tenant {}", tenant.id), problem)).collect()
    }
}

impl Tenants {
    /// Puts the tenants of these settings, which were read from `source`, in force, or says everything that is
    /// wrong with their certificates.
    pub(crate) fn new(
        source: Source,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let addresses = settings.addresses();
        let empty = Shelf::default();
        let mut reading = Reading::new(&empty, UnixSeconds(clock.unix_seconds()));
        let unusable = |problems: Vec<String>| {
            format!("certificates, keys or lists of agents can't be used:\n  {}", problems.join("\n  "))
        };
        let (chain_id, registry) = (settings.chain.pool.chain_id, settings.chain.reading.registries.identity);
        let facts = Facts { chain_id, registry, clock: Arc::clone(clock), entropy };
        let issuer = issuer(settings, &mut reading, &facts, None).map_err(unusable)?;
        let agents = AgentList::default();
        if let Some(file) = &settings.tiers.sources.list {
            agents.replace(reading.agents(file).map_err(unusable)?);
        }
        let quotas = settings.tiers.requests_per_minute;
        let builder = SiteBuilder { quotas, metrics, addresses: &addresses, issuer: issuer.clone() };
        let built = build(settings, &mut reading, &builder, &Table::default());
        let (table, [certificates, authz_certificates]) = built.map_err(unusable)?;
        let (shelf, seen) = reading.finish();
        show(metrics, &certificates_of(settings, &shelf));
        let at_start = Settings { tenants: Vec::new(), ..settings.clone() };
        Ok(Self {
            first_fingerprint: [source.first, Fingerprint::of(&seen)],
            source,
            at_start,
            clock: Arc::clone(clock),
            metrics: metrics.clone(),
            table: Arc::new(LiveTable::from_pointee(table)),
            certificates: certificates.map(|table| Arc::new(CertificateStore::new(table))),
            authz_certificates: authz_certificates.map(|table| Arc::new(CertificateStore::new(table))),
            facts,
            issuer: Arc::new(LiveIssuer::new(issuer)),
            agents,
            in_force: Mutex::new(InForce { settings: settings.clone(), shelf }),
            certificate_files: Mutex::new(seen.into_files()),
        })
    }

    /// Reads everything again and puts in force what can be used. Or says why nothing has changed, and in each
    /// case how the files were before they were read. Blocks.
    pub(super) fn load_and_replace(&self) -> (Result<Applied, String>, [Fingerprint; 2]) {
        let configuration = self.source.now();
        let mut in_force = self.in_force.lock();
        let InForce { settings: former, shelf } = &mut *in_force;
        let mut look = Look {
            reading: Reading::new(shelf, self.now()),
            at_start: Some(&self.at_start),
            has_tls: former.listen.tls.is_some(),
        };
        let survey = self.source.over(Some(former), &mut look);
        survey.problems.log_warnings();
        let mut reading = look.reading;
        let loaded = survey.loaded.ok_or_else(|| survey.problems.to_string());
        let applied = loaded.and_then(|loaded| self.replace(loaded, &mut reading));
        let (new, seen) = reading.finish();
        let read = [configuration, Fingerprint::of(&seen)];
        *self.certificate_files.lock() = seen.into_files();
        let applied = applied.map(|mut applied| {
            show(&self.metrics, &certificates_of(&applied.loaded.settings, &new));
            applied.has_other_certificates = new.replaces(shelf);
            *shelf = new;
            *former = applied.loaded.settings.clone();
            applied
        });
        (applied, read)
    }

    fn replace(&self, mut loaded: Loaded, reading: &mut Reading<'_>) -> Result<Applied, String> {
        let (settings, former) = (&loaded.settings, self.table.load_full());
        // The listeners are those of the start, whatever is written now.
        let addresses =
            AddressRules { allow_link_local: settings.gateway.allow_link_local, ..self.at_start.addresses() };
        let quotas = self.at_start.tiers.requests_per_minute;
        let told = |problems: Vec<String>| problems.join("; ");
        let issuer = issuer(settings, reading, &self.facts, self.issuer.load_full()).map_err(told)?;
        // Which file it is counts from the start.
        let list = self.at_start.tiers.sources.list.as_ref();
        let agents = list.map(|file| reading.agents(file)).transpose().map_err(told)?;
        let metrics = &self.metrics;
        let builder = SiteBuilder { quotas, metrics, addresses: &addresses, issuer: issuer.clone() };
        let (table, certificates) = build(settings, reading, &builder, &former).map_err(told)?;
        Handle::current().block_on(resolve_new_names(&table));
        for (store, table) in [&self.certificates, &self.authz_certificates].into_iter().zip(certificates) {
            if let (Some(store), Some(table)) = (store, table) {
                store.table.store(Arc::new(table));
            }
        }
        self.issuer.store(issuer);
        if let Some(agents) = agents {
            self.agents.replace(agents);
        }
        self.table.store(Arc::new(table));
        self.table.load().end_series_of(&former);
        let tenants = changes(&former, &self.table.load());
        let sections_that_wait = self.at_start.sections_that_differ(settings);
        let kept = reading.kept.iter().map(|(file, problems)| Refused::new(&**file, problems, true));
        loaded.refused.extend(kept);
        Ok(Applied { tenants, sections_that_wait, loaded, has_other_certificates: false })
    }

    /// The certificates in force.
    pub(super) fn certificates_in_force(&self) -> Vec<Certificate> {
        let InForce { settings, shelf } = &*self.in_force.lock();
        certificates_of(settings, shelf)
    }

    /// The time.
    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds(self.clock.unix_seconds())
    }

    /// How the files are. Blocks.
    pub(super) fn fingerprint(&self) -> [Fingerprint; 2] {
        let files = self.certificate_files.lock().clone();
        [self.source.now(), Fingerprint::of(&Seen::now(&files))]
    }
}

/// Refuses a chain that the next start would refuse. Another one counts from the next start on.
fn other_chain(at_start: &Settings, settings: &Settings) -> Option<Problem> {
    if !at_start.store.is_same(&settings.store) {
        return None;
    }
    let checked = settings.binding().check(at_start.binding().as_str(), "another place in [store]");
    Some(Problem::new("chain", format!("the store {}", checked.err()?)))
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

/// Each certificate that these settings name and this shelf holds.
fn certificates_of(settings: &Settings, shelf: &Shelf) -> Vec<Certificate> {
    let listeners = [("listener", &settings.listen.tls), ("authz", &settings.authz.tls)];
    let listeners =
        listeners.into_iter().flat_map(|(kind, pair)| pair.as_ref().map(|pair| (pair, kind, None)));
    let tenants = settings.tenants.iter().flat_map(|tenant| {
        let shown =
            tenant.tls.iter().filter(|_| settings.listen.tls.is_some()).map(|pair| (pair, "listener"));
        let all = shown.chain(tenant.proxy.upstream_tls.client.iter().map(|pair| (pair, "upstream")));
        all.map(|(pair, kind)| (pair, kind, Some(Arc::clone(&tenant.id))))
    });
    let all = listeners.chain(tenants).filter_map(|(pair, kind, tenant)| {
        let (file, expiry) = (pair.cert.clone(), shelf.expiry(pair)?);
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

/// The issuer of assertions under these settings: the former one if its name and keys are the same.
fn issuer(
    settings: &Settings,
    reading: &mut Reading<'_>,
    facts: &Facts,
    former: Option<Arc<Issuer>>,
) -> Result<Option<Arc<Issuer>>, Vec<String>> {
    let Some(rules) = &settings.assertion.issuer else {
        // A tenant whose file is refused now stays as it was, and so do its assertions.
        return Ok(former.filter(|_| settings.tenants.iter().any(|tenant| tenant.assertion)));
    };
    let keys = reading.signing_keys(&rules.key_file)?;
    let same = former.filter(|former| former.is(&rules.name, &keys));
    Ok(Some(same.unwrap_or_else(|| Arc::new(Issuer::new(&rules.name, keys, facts.clone())))))
}

/// Reads certificates and keys and builds everything before anything is replaced.
fn build(
    settings: &Settings,
    reading: &mut Reading<'_>,
    builder: &SiteBuilder<'_>,
    former: &Table,
) -> Result<(Table, [Option<CertificateTable>; 2]), Vec<String>> {
    let Settings { tenants, unserved_hosts, .. } = settings;
    let shown = settings.listen.tls.as_ref().map(|pair| {
        let tenants = tenants.iter().map(|tenant| &**tenant);
        CertificateTable::load(pair, tenants, unserved_hosts, reading)
    });
    let to_gateways = settings.authz.tls.as_ref().map(|pair| CertificateTable::load(pair, [], &[], reading));
    let mut problems = Vec::new();
    let certificates = [shown, to_gateways]
        .map(|loaded| loaded.and_then(|loaded| loaded.map_err(|found| problems.extend(found)).ok()));
    let mut equipped = Vec::with_capacity(tenants.len());
    for tenant in tenants {
        if tenant.assertion && builder.issuer.is_none() {
            problems.push(format!("tenant {}: nobody signs its assertions", tenant.id));
        }
        match UpstreamIdentity::load(&tenant.proxy.upstream_tls, reading) {
            Ok(identity) => equipped.push((Arc::clone(tenant), identity)),
            Err(found) => {
                problems.extend(found.iter().map(|problem| format!("tenant {}: {problem}", tenant.id)));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let table = Table::new(equipped, unserved_hosts, builder, former);
    Ok((table.map_err(|twice| vec![twice.to_string()])?, certificates))
}
