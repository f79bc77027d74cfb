//! The tenants in force, and their certificates: loaded, checked and built beside those in force, then put in their
//! place in one step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::addresses::AddressRules;
use crate::app::source::{Fingerprint, Source};
use crate::config::problem::{Problem, Problems};
use crate::config::tenants::has_folder;
use crate::config::{Loaded, Settings};
use crate::domain::freshness::UnixSeconds;
use crate::domain::tenant::Tenant;
use crate::gateway::site::Workshop;
use crate::gateway::table::{LiveTable, Table};
use crate::gateway::watch::resolve_new_names;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::{Metrics, NO_TENANT};
use crate::tls::certificates::{CertificateStore, Table as CertificateTable};
use crate::tls::files;
use crate::tls::upstream::UpstreamIdentity;

/// Everything that is replaced when the configuration is read again.
pub(crate) struct Tenants {
    source: Source,
    /// As they were at the start, without tenants. Everything but tenants and certificates counts as it stands there.
    at_start: Settings,
    /// How many tenants in force stand in `tenants.d`.
    folder_tenants: AtomicUsize,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    table: Arc<LiveTable>,
    certificates: Option<Arc<CertificateStore>>,
    /// Every file with a certificate or key that the last configuration names.
    certificate_files: Mutex<Vec<PathBuf>>,
    first_certificates: Fingerprint,
}

/// A reload that is in force.
pub(super) struct Applied {
    pub(super) loaded: Loaded,
    /// Each tenant that was added, removed or changed, and which of these.
    pub(super) tenants: Vec<(Arc<str>, &'static str)>,
    /// The sections that have changed since the start, and count from the next one on.
    pub(super) sections_that_wait: Vec<&'static str>,
}

/// What was built of a configuration and is not in force yet.
struct Built {
    table: Table,
    certificates: Option<CertificateTable>,
    expiries: Vec<Expiry>,
}

/// A certificate's use, its tenant, and when it expires, in Unix seconds.
type Expiry = (&'static str, Arc<str>, i64);

/// Why a gateway must not start with these tenants: nobody is served, or a folder holds none, as one that is not mounted. What
/// was served before the start is not known.
pub(crate) fn emptiness(settings: &Settings, config: &Path) -> Option<Problem> {
    let is_empty = settings.tenants.is_empty() || (settings.folder_tenants == 0 && has_folder(config));
    let matters = is_empty && !settings.listen.gateway.is_empty() && !settings.allow_empty;
    let place = if has_folder(config) { "tenants.d" } else { "tenants" };
    let phrase = "there is no tenant; mount the folder, or set gateway.allow_empty to true if that is meant";
    matters.then(|| Problem::new(place, phrase))
}

impl Tenants {
    /// Puts the tenants of these settings, which were read from `source`, in force.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with their certificates.
    pub(crate) fn new(
        source: Source,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, Vec<String>> {
        let listener_tls = settings.listen.tls.as_ref();
        let addresses = settings.addresses();
        let workshop =
            Workshop { quotas: settings.tiers.requests_per_minute, metrics, addresses: &addresses };
        let now = UnixSeconds(clock.unix_seconds());
        let tenants = settings.tenants.iter().map(|tenant| &**tenant);
        let certificate_files: Vec<PathBuf> = files(listener_tls, tenants).into_iter().collect();
        let first_certificates = Fingerprint::of(&certificate_files);
        let built = build(settings, now, &workshop, &Table::default())?;
        show(metrics, &built.expiries);
        Ok(Self {
            source,
            at_start: Settings { tenants: Vec::new(), ..settings.clone() },
            folder_tenants: AtomicUsize::new(settings.folder_tenants),
            clock: Arc::clone(clock),
            metrics: metrics.clone(),
            table: Arc::new(LiveTable::from_pointee(built.table)),
            certificates: built.certificates.map(|table| Arc::new(CertificateStore::new(table))),
            certificate_files: Mutex::new(certificate_files),
            first_certificates,
        })
    }

    /// What requests are routed by.
    pub(crate) fn table(&self) -> &Arc<LiveTable> {
        &self.table
    }

    /// What clients are shown; nothing when no listener speaks TLS.
    pub(crate) fn certificates(&self) -> Option<&Arc<CertificateStore>> {
        self.certificates.as_ref()
    }

    /// Reads everything again and puts it in force, or says everything that is wrong: then nothing has changed. Says, too,
    /// how the files were before they were read. Blocks.
    pub(super) fn load_and_replace(&self) -> (Result<Applied, Vec<String>>, [Fingerprint; 2]) {
        let configuration = self.source.now();
        let loaded = self.source.load();
        if let Ok(Loaded { settings, .. }) = &loaded {
            // Also those of a configuration that is refused: it may be a file of theirs that is missing.
            let tenants = settings.tenants.iter().map(|tenant| &**tenant);
            *self.certificate_files.lock() =
                files(settings.listen.tls.as_ref(), tenants).into_iter().collect();
        }
        let read = [configuration, self.certificates_now()];
        let errors = |problem: &&Problem| !problem.is_warning();
        let problems = |problems: Problems| {
            problems.as_slice().iter().filter(errors).map(Problem::on_one_line).collect()
        };
        (loaded.map_err(problems).and_then(|loaded| self.replace(loaded)), read)
    }

    fn replace(&self, loaded: Loaded) -> Result<Applied, Vec<String>> {
        let (settings, former) = (&loaded.settings, self.table.load_full());
        self.refuse_other_chain(settings)?;
        self.refuse_emptiness(settings, former.tenants().count())?;
        // The listeners are those of the start, whatever is written now.
        let addresses =
            AddressRules { allow_link_local: settings.allow_link_local, ..self.at_start.addresses() };
        let quotas = self.at_start.tiers.requests_per_minute;
        let workshop = Workshop { quotas, metrics: &self.metrics, addresses: &addresses };
        let built = build(settings, self.now(), &workshop, &former)?;
        Handle::current().block_on(resolve_new_names(&built.table));
        if let (Some(store), Some(table)) = (&self.certificates, built.certificates) {
            store.replace(table);
        }
        self.table.store(Arc::new(built.table));
        self.folder_tenants.store(settings.folder_tenants, Ordering::Relaxed);
        self.table.load().end_series_of(&former);
        show(&self.metrics, &built.expiries);
        let tenants = changes(&former, &self.table.load());
        let sections_that_wait = self.at_start.sections_that_differ(settings);
        Ok(Applied { tenants, sections_that_wait, loaded })
    }

    /// Refuses a chain that the next start would refuse. Another one counts from the next start on.
    fn refuse_other_chain(&self, settings: &Settings) -> Result<(), Vec<String>> {
        if !self.at_start.store.is_same(&settings.store) {
            return Ok(());
        }
        let checked = settings.binding().check(self.at_start.binding().as_str(), "another place in [store]");
        checked.map_err(|other| vec![format!("chain: the store {other}")])
    }

    /// Refuses to lose all tenants, or all those of `tenants.d`, unless that is meant: a volume that is not mounted looks like
    /// an empty folder.
    fn refuse_emptiness(&self, settings: &Settings, tenants: usize) -> Result<(), Vec<String>> {
        let in_folder = self.folder_tenants.load(Ordering::Relaxed);
        let [place, before] = match (settings.folder_tenants, settings.tenants.len()) {
            _ if settings.allow_empty => return Ok(()),
            (0, _) if in_folder > 0 => ["tenants.d", &in_folder.to_string()],
            (_, 0) if tenants > 0 => ["tenants", &tenants.to_string()],
            _ => return Ok(()),
        };
        let meant = "set gateway.allow_empty to true if that is meant";
        Err(vec![format!("{place}: there is no tenant, and there were {before} before; {meant}")])
    }

    /// The time.
    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds(self.clock.unix_seconds())
    }

    /// How the files were when what is in force at the start was read.
    pub(super) fn first_fingerprint(&self) -> [Fingerprint; 2] {
        [self.source.first(), self.first_certificates]
    }

    /// How the files are. Blocks.
    pub(super) fn fingerprint(&self) -> [Fingerprint; 2] {
        [self.source.now(), self.certificates_now()]
    }

    fn certificates_now(&self) -> Fingerprint {
        let files = self.certificate_files.lock().clone();
        Fingerprint::of(&files)
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

/// Certificates and keys, read and checked.
struct Equipment {
    certificates: Option<CertificateTable>,
    tenants: Vec<(Arc<Tenant>, UpstreamIdentity)>,
}

impl Equipment {
    fn load(settings: &Settings, now: UnixSeconds) -> Result<Self, Vec<String>> {
        let tenants = &settings.tenants;
        let mut problems = Vec::new();
        let shown = |pair| CertificateTable::load(pair, tenants.iter().map(|tenant| &**tenant), now);
        let certificates = settings.listen.tls.as_ref().map(shown).transpose().unwrap_or_else(|mut found| {
            problems.append(&mut found);
            None
        });
        let mut equipped = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            match UpstreamIdentity::load(&tenant.proxy.upstream_tls, now) {
                Ok(identity) => equipped.push((Arc::clone(tenant), identity)),
                Err(found) => {
                    problems.extend(found.iter().map(|problem| format!("tenant {}: {problem}", tenant.id)));
                }
            }
        }
        if problems.is_empty() { Ok(Self { certificates, tenants: equipped }) } else { Err(problems) }
    }

    fn expiries(&self) -> Vec<Expiry> {
        let no_tenant: Arc<str> = NO_TENANT.into();
        let shown = self.certificates.iter().flat_map(CertificateTable::expiries);
        let shown =
            shown.map(|(tenant, expiry)| ("listener", Arc::clone(tenant.unwrap_or(&no_tenant)), expiry));
        let of_tenants = self.tenants.iter();
        let upstream = of_tenants
            .filter_map(|(tenant, identity)| Some(("upstream", Arc::clone(&tenant.id), identity.expiry?)));
        shown.chain(upstream).collect()
    }
}

/// Shows when the certificates in force expire.
fn show(metrics: &Metrics, expiries: &[Expiry]) {
    metrics.change(|families| {
        families.certificate_expiry.reset();
        for (kind, tenant, expiry) in expiries {
            families.certificate_expiry.with_label_values(&[kind, &**tenant]).set(*expiry);
        }
    });
}

/// Builds everything before anything is replaced.
fn build(
    settings: &Settings,
    now: UnixSeconds,
    workshop: &Workshop<'_>,
    former: &Table,
) -> Result<Built, Vec<String>> {
    let equipment = Equipment::load(settings, now)?;
    let expiries = equipment.expiries();
    let table = Table::new(equipment.tenants, workshop, former).map_err(|twice| vec![twice.to_string()])?;
    Ok(Built { table, certificates: equipment.certificates, expiries })
}
