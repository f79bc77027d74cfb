//! Chooses the version of each file of a configuration that counts: that of now, the one in force, or none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::Settings;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::refused::{Beside, Refused};
use crate::config::tenants::folder::{FOLDER, TenantFile};
use crate::config::tenants::parties::{Party, Stand, settle};
use crate::domain::host::HostPattern;
use crate::domain::tenant::Tenant;

/// The configuration file by itself.
pub(super) struct Main {
    /// Its settings if it can be used, without tenants.
    pub(super) settings: Option<Settings>,
    /// Its errors.
    problems: Vec<Problem>,
    /// Its tenants, each with what it can't be served for. Those that are in force can be served.
    tenants: Vec<(Arc<Tenant>, Vec<Problem>)>,
}

impl Main {
    /// With its settings, if it has no errors of its own.
    pub(super) fn new(
        settings: Option<Settings>,
        mut problems: Vec<Problem>,
        former: Option<&Settings>,
        beside: &mut dyn Beside,
    ) -> Self {
        let mut settings = settings.filter(|_| problems.is_empty());
        let mut tenants = Vec::new();
        if let Some(settings) = &mut settings {
            problems.extend(beside.of_file(settings));
            let former = former.into_iter().flat_map(Settings::main_tenants);
            let in_force: HashSet<&str> = former.map(|tenant| &*tenant.id).collect();
            for tenant in std::mem::take(&mut settings.tenants) {
                let found = beside.of_tenant(&tenant);
                if in_force.contains(&*tenant.id) {
                    // The whole file keeps its former version.
                    problems.extend(found);
                    tenants.push((tenant, Vec::new()));
                } else {
                    tenants.push((tenant, found));
                }
            }
        }
        Self { settings: settings.filter(|_| problems.is_empty()), problems, tenants }
    }

    /// A file that is refused for what it claims.
    pub(super) const fn refused(problems: Vec<Problem>) -> Self {
        Self { settings: None, problems, tenants: Vec::new() }
    }

    /// How many tenants it has.
    pub(super) fn tenants(&self) -> usize {
        self.tenants.len()
    }
}

/// What is wrong beside the settings.
#[derive(Default)]
pub(super) struct Wrong {
    pub(super) refused: Vec<Refused>,
    /// Problems of claims, which nobody has noted yet.
    pub(super) claims: Vec<Problem>,
    /// Those of a configuration file that can be used otherwise.
    pub(super) of_main: Vec<Problem>,
}

impl Wrong {
    /// Notes problems of claims, and gives them back.
    fn note(&mut self, claims: Option<Vec<Problem>>) -> Vec<Problem> {
        let claims = claims.unwrap_or_default();
        self.claims.extend(claims.iter().cloned());
        claims
    }
}

/// Chooses the version of each file that counts.
pub(super) fn put_together(
    main: Main,
    read: Result<Vec<TenantFile>, Box<Problem>>,
    location: &Location,
    former: Option<&Settings>,
    beside: &mut dyn Beside,
) -> (Option<Settings>, Wrong) {
    let Main { settings, mut problems, tenants } = main;
    let allow_empty = settings.as_ref().or(former).is_some_and(|settings| settings.allow_empty);
    let in_force: HashSet<&str> =
        former.into_iter().flat_map(Settings::of_folder).map(|(file, _)| &**file).collect();
    let (files, of_folder) = files(read, former, &in_force, allow_empty);
    let before = former.map_or(0, |former| former.tenants.len());
    let is_nobody_left = tenants.is_empty() && !files.iter().any(|file| is_usable(file, &in_force));
    if settings.is_some() && is_nobody_left && before > 0 && !allow_empty {
        problems.push(Problem::new("tenants", lost(before)));
    }
    let places = (1_usize..).map(|number| location.item("tenants", number));
    let now = tenants.iter().map(|(tenant, _)| Arc::clone(tenant)).zip(places).collect();
    let main = Party {
        name: location.file().into(),
        is_main: true,
        now: Some(now).filter(|_| problems.is_empty()),
        problems,
        before: former.map(|former| former.main_tenants().to_vec()),
    };
    let parties: Vec<Party> = std::iter::once(main).chain(parties(files, former, beside)).collect();
    let mut settled = parties.iter().zip(settle(&parties));
    let mut wrong = Wrong::default();

    let (main, settled_main) = settled.next().unzip();
    let claims = wrong.note(settled_main.map(|(_, claims)| claims));
    wrong.of_main.clone_from(&claims);
    let of_main: Vec<Problem> =
        main.into_iter().flat_map(|main| &main.problems).cloned().chain(claims).collect();
    let (mut unserved, is_used) = (Vec::new(), of_main.is_empty());
    let mut chosen = if is_used { settings } else { former.map(Settings::main_part) };
    if is_used {
        for ((tenant, found), number) in tenants.into_iter().zip(1_usize..) {
            if found.is_empty() {
                chosen.iter_mut().for_each(|chosen| chosen.tenants.push(Arc::clone(&tenant)));
            } else {
                unserved.extend(tenant.hosts.iter().cloned());
                wrong.refused.push(Refused::of(format!("tenants[{number}]"), found, false));
            }
        }
    } else {
        let refused = Refused::of(location.file(), of_main, former.is_some());
        wrong.refused.push(Refused { is_main: true, ..refused });
    }
    wrong.refused.extend(of_folder.map(|problem| Refused::of(FOLDER, vec![problem], former.is_some())));

    let mut served = Vec::with_capacity(parties.len());
    for (party, (stand, claims)) in settled {
        let Party { name, now, problems, before, .. } = party;
        let problems: Vec<Problem> = problems.iter().cloned().chain(wrong.note(Some(claims))).collect();
        let now = now.iter().flatten().map(|(tenant, _)| tenant).next();
        let (tenant, is_kept) = match stand {
            Stand::Now if !party.is_blocked() => (now, false),
            Stand::Before => (before.iter().flatten().next(), true),
            Stand::Now | Stand::Out => {
                unserved.extend(now.iter().flat_map(|tenant| tenant.hosts.iter().cloned()));
                (None, false)
            }
        };
        served.extend(tenant.map(|tenant| (Arc::clone(name), Arc::clone(tenant))));
        if !problems.is_empty() {
            wrong.refused.push(Refused::of(&**name, problems, is_kept));
        }
    }
    (chosen.map(|chosen| complete(chosen, served, unserved)), wrong)
}

/// The files of the folder. Where it lost all tenants that were in force it is refused as a whole: those stay.
fn files(
    read: Result<Vec<TenantFile>, Box<Problem>>,
    former: Option<&Settings>,
    in_force: &HashSet<&str>,
    allow_empty: bool,
) -> (Vec<TenantFile>, Option<Problem>) {
    let kept = || {
        let in_force = former.into_iter().flat_map(Settings::of_folder);
        in_force.map(|(file, _)| TenantFile { name: Arc::clone(file), tenant: None, problems: Vec::new() })
    };
    let is_any = |file: &TenantFile| is_usable(file, in_force);
    match read {
        Ok(files) if in_force.is_empty() || allow_empty || files.iter().any(is_any) => (files, None),
        Ok(files) => {
            let problem = Problem::new(FOLDER, lost(in_force.len()));
            (kept().chain(files).collect(), Some(problem))
        }
        Err(problem) => (kept().collect(), Some(*problem)),
    }
}

/// True for a file that can be used, or whose former version is in force.
fn is_usable(file: &TenantFile, in_force: &HashSet<&str>) -> bool {
    (file.tenant.is_some() && file.problems.is_empty()) || in_force.contains(&*file.name)
}

/// Each file of the folder with its tenant as it is and as it is in force.
fn parties(files: Vec<TenantFile>, former: Option<&Settings>, beside: &mut dyn Beside) -> Vec<Party> {
    let in_force: HashMap<&str, &Arc<Tenant>> =
        former.into_iter().flat_map(Settings::of_folder).map(|(file, tenant)| (&**file, tenant)).collect();
    let party = |TenantFile { name, tenant, mut problems }: TenantFile| {
        let before = in_force.get(&*name).map(|tenant| vec![Arc::clone(tenant)]);
        if let (Some((tenant, _)), true) = (&tenant, problems.is_empty()) {
            problems = beside.of_tenant(tenant);
        }
        Party { name, is_main: false, now: tenant.map(|tenant| vec![tenant]), problems, before }
    };
    files.into_iter().map(party).collect()
}

/// A configuration file's settings with the tenants of the folder, and the hosts that are nobody's.
fn complete(
    mut settings: Settings,
    served: Vec<(Arc<str>, Arc<Tenant>)>,
    unserved: Vec<HostPattern>,
) -> Settings {
    settings.folder_tenants = served.len();
    let (files, tenants): (Vec<_>, Vec<_>) = served.into_iter().unzip();
    settings.tenant_files = files;
    settings.tenants.extend(tenants);
    let taken: HashSet<&HostPattern> = settings.tenants.iter().flat_map(|tenant| &tenant.hosts).collect();
    let unserved: HashSet<HostPattern> = unserved.into_iter().filter(|host| !taken.contains(host)).collect();
    settings.unserved_hosts = unserved.into_iter().collect();
    settings.unserved_hosts.sort_unstable();
    settings
}

/// A volume that is not mounted looks like an empty folder.
fn lost(before: usize) -> String {
    format!(
        "there is no tenant, and there were {before} before; set gateway.allow_empty to true if that is meant"
    )
}
