//! The tenants in force, and their certificates: loaded, checked and built beside those in force, then put in their
//! place in one step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::addresses::AddressRules;
use crate::app::source::{Fingerprint, Seen, Source};
use crate::config::problem::Problem;
use crate::config::tenants::has_folder;
use crate::config::{Beside, Loaded, Refused, Settings};
use crate::domain::freshness::UnixSeconds;
use crate::domain::tenant::{KeyPair, Tenant};
use crate::gateway::site::Workshop;
use crate::gateway::table::{LiveTable, Table};
use crate::gateway::watch::resolve_new_names;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::{Metrics, NO_TENANT};
use crate::tls::certificates::{CertificateStore, Table as CertificateTable};
use crate::tls::files;
use crate::tls::shelf::{Reading, Shelf};
use crate::tls::upstream::UpstreamIdentity;

/// Everything that is replaced when the configuration is read again.
pub(crate) struct Tenants {
    source: Source,
    /// As they were at the start, without tenants. Everything but tenants and certificates counts as it stands there.
    at_start: Settings,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    table: Arc<LiveTable>,
    certificates: Option<Arc<CertificateStore>>,
    in_force: Mutex<InForce>,
    /// Every file with a certificate or key that was named by what was last read.
    certificate_files: Mutex<Vec<PathBuf>>,
    first_certificates: Fingerprint,
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
}

/// What was built of a configuration and is not in force yet.
struct Built {
    table: Table,
    certificates: Option<CertificateTable>,
    expiries: Vec<Expiry>,
}

/// A certificate's use, its tenant, and when it expires, in Unix seconds.
type Expiry = (&'static str, Arc<str>, i64);

/// Why a gateway must not start with these tenants: nobody is served, or a folder holds no file, as one that is not mounted. What
/// was served before the start is not known.
pub(crate) fn emptiness(settings: &Settings, refused: &[Refused], config: &Path) -> Option<Problem> {
    let holds_none = settings.folder_tenants == 0 && !refused.iter().any(Refused::is_in_folder);
    let is_empty = settings.tenants.is_empty() || (holds_none && has_folder(config));
    let matters = is_empty && !settings.listen.gateway.is_empty() && !settings.gateway.allow_empty;
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
    /// How everything looked that was looked into.
    seen: Seen,
}

impl<'a> Look<'a> {
    /// At a start.
    pub(crate) fn first(shelf: &'a Shelf, now: UnixSeconds) -> Self {
        Self { reading: Reading::new(shelf, now), at_start: None, has_tls: false, seen: Seen::default() }
    }

    fn see<'t>(&mut self, default: Option<&'t KeyPair>, tenants: impl IntoIterator<Item = &'t Tenant>) {
        files(default, tenants).into_iter().for_each(|file| self.seen.look(file));
    }
}

impl Beside for Look<'_> {
    fn of_file(&mut self, settings: &Settings) -> Vec<Problem> {
        let tls = settings.listen.tls.as_ref();
        self.has_tls = tls.is_some();
        let Some(at_start) = self.at_start else { return Vec::new() };
        self.see(tls, []);
        let certificates = tls.map(|pair| self.reading.problems_of_shown(pair)).unwrap_or_default();
        let certificates = certificates.into_iter().map(|problem| Problem::new("listen.tls", problem));
        other_chain(at_start, settings).into_iter().chain(certificates).collect()
    }

    fn of_tenant(&mut self, tenant: &Tenant) -> Vec<Problem> {
        self.see(None, [tenant]);
        let own = tenant.tls.as_ref().filter(|_| self.has_tls);
        let shown = own.map(|pair| self.reading.problems_of_shown(pair)).unwrap_or_default();
        let upstream = UpstreamIdentity::load(&tenant.proxy.upstream_tls, &mut self.reading);
        let problems = shown.into_iter().chain(upstream.err().unwrap_or_default());
        problems.map(|problem| Problem::new(format!("tenant {}", tenant.id), problem)).collect()
    }
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
        let addresses = settings.addresses();
        let workshop =
            Workshop { quotas: settings.tiers.requests_per_minute, metrics, addresses: &addresses };
        let tenants = settings.tenants.iter().map(|tenant| &**tenant);
        let certificate_files: Vec<PathBuf> =
            files(settings.listen.tls.as_ref(), tenants).into_iter().collect();
        let first_certificates = Fingerprint::of(certificate_files.iter().cloned());
        let empty = Shelf::default();
        let mut reading = Reading::new(&empty, UnixSeconds(clock.unix_seconds()));
        let built = build(settings, &mut reading, &workshop, &Table::default())?;
        show(metrics, &built.expiries);
        let at_start = Settings { tenants: Vec::new(), ..settings.clone() };
        let in_force = InForce { settings: settings.clone(), shelf: reading.finish() };
        Ok(Self {
            source,
            at_start,
            clock: Arc::clone(clock),
            metrics: metrics.clone(),
            table: Arc::new(LiveTable::from_pointee(built.table)),
            certificates: built.certificates.map(|table| Arc::new(CertificateStore::new(table))),
            in_force: Mutex::new(in_force),
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

    /// Reads everything again and puts in force what can be used. Says how the files were before they were read. Blocks.
    ///
    /// # Errors
    ///
    /// The reason why nothing has changed.
    pub(super) fn load_and_replace(&self) -> (Result<Applied, String>, [Fingerprint; 2]) {
        let configuration = self.source.now();
        let mut in_force = self.in_force.lock();
        let InForce { settings: former, shelf } = &mut *in_force;
        let mut look = Look {
            reading: Reading::new(shelf, self.now()),
            at_start: Some(&self.at_start),
            has_tls: former.listen.tls.is_some(),
            seen: Seen::default(),
        };
        let survey = self.source.over(Some(former), &mut look);
        survey.problems.log_warnings();
        let loaded = survey.partly().map_err(|problems| problems.to_string());
        if let Ok(Loaded { settings, .. }) = &loaded {
            // Those of versions that stay in force, too.
            look.see(settings.listen.tls.as_ref(), settings.tenants.iter().map(|tenant| &**tenant));
        }
        let Look { reading, seen, .. } = look;
        let read = [configuration, seen.fingerprint()];
        *self.certificate_files.lock() = seen.into_files();
        let replaced = loaded.and_then(|loaded| self.replace(loaded, reading));
        let applied = replaced.map(|(applied, new)| {
            *shelf = new;
            *former = applied.loaded.settings.clone();
            applied
        });
        (applied, read)
    }

    fn replace(&self, mut loaded: Loaded, mut reading: Reading<'_>) -> Result<(Applied, Shelf), String> {
        let (settings, former) = (&loaded.settings, self.table.load_full());
        // The listeners are those of the start, whatever is written now.
        let addresses =
            AddressRules { allow_link_local: settings.gateway.allow_link_local, ..self.at_start.addresses() };
        let quotas = self.at_start.tiers.requests_per_minute;
        let workshop = Workshop { quotas, metrics: &self.metrics, addresses: &addresses };
        let built =
            build(settings, &mut reading, &workshop, &former).map_err(|problems| problems.join("; "))?;
        Handle::current().block_on(resolve_new_names(&built.table));
        if let (Some(store), Some(table)) = (&self.certificates, built.certificates) {
            store.replace(table);
        }
        self.table.store(Arc::new(built.table));
        self.table.load().end_series_of(&former);
        show(&self.metrics, &built.expiries);
        let tenants = changes(&former, &self.table.load());
        let sections_that_wait = self.at_start.sections_that_differ(settings);
        let kept = reading.kept().iter().map(|(file, problems)| Refused::new(&**file, problems, true));
        loaded.refused.extend(kept);
        Ok((Applied { tenants, sections_that_wait, loaded }, reading.finish()))
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
        Fingerprint::of(files)
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

/// Certificates and keys, read and checked.
struct Equipment {
    certificates: Option<CertificateTable>,
    tenants: Vec<(Arc<Tenant>, UpstreamIdentity)>,
}

impl Equipment {
    fn load(settings: &Settings, reading: &mut Reading<'_>) -> Result<Self, Vec<String>> {
        let Settings { tenants, unserved_hosts, .. } = settings;
        let mut problems = Vec::new();
        let shown = settings.listen.tls.as_ref().map(|pair| {
            let tenants = tenants.iter().map(|tenant| &**tenant);
            CertificateTable::load(pair, tenants, unserved_hosts, reading)
        });
        let certificates = shown.transpose().unwrap_or_else(|mut found| {
            problems.append(&mut found);
            None
        });
        let mut equipped = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            match UpstreamIdentity::load(&tenant.proxy.upstream_tls, reading) {
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
    reading: &mut Reading<'_>,
    workshop: &Workshop<'_>,
    former: &Table,
) -> Result<Built, Vec<String>> {
    let equipment = Equipment::load(settings, reading)?;
    let expiries = equipment.expiries();
    let table = Table::new(equipment.tenants, &settings.unserved_hosts, workshop, former)
        .map_err(|twice| vec![twice.to_string()])?;
    Ok(Built { table, certificates: equipment.certificates, expiries })
}
