//! The tenants in force, and their certificates: loaded, checked and built beside those in force, then put in their
//! place in one step.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::app::source::{Fingerprint, Source};
use crate::config::Settings;
use crate::config::problem::Problems;
use crate::domain::freshness::UnixSeconds;
use crate::domain::quota::Quota;
use crate::domain::tenant::{KeyPair, Tenant};
use crate::domain::tier::PerTier;
use crate::gateway::site::Workshop;
use crate::gateway::table::{LiveTable, Table};
use crate::gateway::watch::resolve_new_names;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::tls::certificates::{CertificateStore, Table as CertificateTable};
use crate::tls::files;
use crate::tls::upstream::UpstreamIdentity;

/// Everything that is replaced when the configuration is read again.
pub(crate) struct Tenants {
    source: Source,
    listener_tls: Option<KeyPair>,
    quotas: PerTier<Quota>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    table: Arc<LiveTable>,
    certificates: Option<Arc<CertificateStore>>,
    /// Every file with a certificate or key that the last configuration names.
    certificate_files: Mutex<Vec<PathBuf>>,
    first_certificates: Fingerprint,
}

/// What was built of a configuration and is not in force yet.
struct Built {
    table: Table,
    certificates: Option<CertificateTable>,
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
        let quotas = settings.tiers.requests_per_minute;
        let listener_tls = settings.listen.tls.clone();
        let workshop = Workshop { quotas, metrics };
        let now = UnixSeconds(clock.unix_seconds());
        let tenants = settings.tenants.iter().map(|tenant| &**tenant);
        let certificate_files: Vec<PathBuf> = files(listener_tls.as_ref(), tenants).into_iter().collect();
        let first_certificates = Fingerprint::of(&certificate_files);
        let built = build(&settings.tenants, listener_tls.as_ref(), now, &workshop, &Table::default())?;
        Ok(Self {
            source,
            listener_tls,
            quotas,
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

    /// Reads everything again and puts it in force; says how many tenants there are, or everything that is wrong: then
    /// nothing has changed. Says, too, how the files were before they were read. Blocks.
    pub(super) fn load_and_replace(&self) -> (Result<usize, Vec<String>>, [Fingerprint; 2]) {
        let configuration = self.source.now();
        let loaded = self.source.load();
        if let Ok(settings) = &loaded {
            // Also those of a configuration that is refused: it may be a file of theirs that is missing.
            let tenants = settings.tenants.iter().map(|tenant| &**tenant);
            *self.certificate_files.lock() = files(self.listener_tls.as_ref(), tenants).into_iter().collect();
        }
        let read = [configuration, self.certificates_now()];
        let problems = |problems: Problems| problems.as_slice().iter().map(ToString::to_string).collect();
        (loaded.map_err(problems).and_then(|settings| self.replace(&settings)), read)
    }

    fn replace(&self, settings: &Settings) -> Result<usize, Vec<String>> {
        let former = self.table.load_full();
        let workshop = Workshop { quotas: self.quotas, metrics: &self.metrics };
        let now = UnixSeconds(self.clock.unix_seconds());
        let built = build(&settings.tenants, self.listener_tls.as_ref(), now, &workshop, &former)?;
        Handle::current().block_on(resolve_new_names(&built.table));
        if let (Some(store), Some(table)) = (&self.certificates, built.certificates) {
            store.replace(table);
        }
        self.table.store(Arc::new(built.table));
        self.forget_series_of_the_gone(&former);
        Ok(settings.tenants.len())
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

    fn forget_series_of_the_gone(&self, former: &Table) {
        let table = self.table.load();
        let ids: std::collections::HashSet<&str> = table.tenants().map(|tenant| &*tenant.id).collect();
        for gone in former.tenants().filter(|tenant| !ids.contains(&*tenant.id)) {
            self.metrics.forget_tenant(&gone.id);
        }
    }
}

/// What is wrong with the certificates of these settings. Blocks.
pub(crate) fn certificate_problems(settings: &Settings, now: UnixSeconds) -> Vec<String> {
    Equipment::load(&settings.tenants, settings.listen.tls.as_ref(), now).err().unwrap_or_default()
}

/// Certificates and keys, read and checked.
struct Equipment {
    certificates: Option<CertificateTable>,
    tenants: Vec<(Arc<Tenant>, UpstreamIdentity)>,
}

impl Equipment {
    fn load(
        tenants: &[Arc<Tenant>],
        listener_tls: Option<&KeyPair>,
        now: UnixSeconds,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let shown = |pair| CertificateTable::load(pair, tenants.iter().map(|tenant| &**tenant), now);
        let certificates = listener_tls.map(shown).transpose().unwrap_or_else(|mut found| {
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
}

/// Builds everything before anything is replaced.
fn build(
    tenants: &[Arc<Tenant>],
    listener_tls: Option<&KeyPair>,
    now: UnixSeconds,
    workshop: &Workshop<'_>,
    former: &Table,
) -> Result<Built, Vec<String>> {
    let equipment = Equipment::load(tenants, listener_tls, now)?;
    let table = Table::new(equipment.tenants, workshop, former).map_err(|twice| vec![twice.to_string()])?;
    Ok(Built { table, certificates: equipment.certificates })
}
