//! Which version of each file counts: the offered one, the one in force, or none.
//!
//! No two tenants have an id or a host in common: these are claims. Of several files that make one, the file keeps it that has
//! it in force, else the configuration file before those of `tenants.d`, else none. All others are refused whole: their
//! former versions stay in force. It depends on no order of files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::config::Settings;
use crate::config::problem::Problem;
use crate::config::refused::{Beside, Refused};
use crate::config::tenants::folder::{FOLDER, File};
use crate::config::tenants::tenant::Claimant;
use crate::config::written::quoted;
use crate::domain::host::HostPattern;
use crate::domain::tenant::Tenant;

/// How many problems of its claims one file has, at most.
const PROBLEMS_MAX: usize = 20;

/// The version of a file that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Now,
    Before,
    /// Neither.
    Out,
}

/// A configuration of which the version of each file is chosen.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) settings: Option<Settings>,
    pub(super) refused: Vec<Refused>,
    /// Problems of claims, which nobody has noted yet.
    pub(super) claims: Vec<Problem>,
    /// Those of the configuration file.
    pub(super) claims_of_main: Vec<Problem>,
}

/// Something that one tenant alone may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Claim<'a> {
    Id(&'a str),
    Host(&'a HostPattern),
}

impl<'a> Claim<'a> {
    fn all(tenant: &'a Tenant) -> impl Iterator<Item = Self> {
        std::iter::once(Self::Id(&tenant.id)).chain(tenant.hosts.iter().map(Self::Host))
    }

    /// The problem that `other` makes the same claim.
    fn problem(self, claimant: &Claimant, other: &str) -> Option<Problem> {
        let (number, phrase) = match self {
            Claim::Id(id) => (0, format!("is {}, the id of {other}; write another", quoted(id))),
            Claim::Host(host) => {
                let number = claimant.tenant.hosts.iter().position(|own| own == host)? + 1;
                let host = quoted(&host.to_string());
                (number, format!("item {number} is {host}, a host of {other}; write each host once"))
            }
        };
        Some(claimant.places.get(number)?.clone().problem(phrase))
    }
}

impl File {
    /// True for a file that can be used, or whose former version is in force.
    fn is_usable(&self) -> bool {
        (self.offered.is_some() && self.problems.is_empty()) || self.in_force.is_some()
    }

    /// Every claim of a version, with its tenant if it stands there now.
    fn claims(&self, stand: Stand) -> impl Iterator<Item = (Claim<'_>, Option<&Claimant>)> {
        let now = self.offered.iter().flatten().filter(move |_| stand == Stand::Now);
        let now = now.map(|claimant| (&claimant.tenant, Some(claimant)));
        let before = self.in_force.iter().flatten().filter(move |_| stand == Stand::Before);
        let all = now.chain(before.map(|tenant| (tenant, None)));
        all.flat_map(|(tenant, claimant)| Claim::all(tenant).map(move |claim| (claim, claimant)))
    }
}

/// Chooses the version of each file that counts. `settings` are those that the configuration file offers, `read` are the files of
/// the folder.
pub(super) fn choose(
    settings: Option<Settings>,
    mut main: File,
    read: Result<Vec<File>, Box<Problem>>,
    former: Option<&Settings>,
    beside: &mut dyn Beside,
) -> Chosen {
    let allow_empty = settings.as_ref().or(former).is_some_and(|settings| settings.gateway.allow_empty);
    let (mut files, of_folder) = in_folder(read, former, allow_empty);
    let refused = |place: &str, problems: &[Problem], is_kept| {
        Refused::new(place, problems.iter().map(Problem::on_one_line), is_kept)
    };
    let before = former.map_or(0, |former| former.tenants.len());
    let is_nobody_left =
        main.offered.as_ref().is_some_and(Vec::is_empty) && !files.iter().any(File::is_usable);
    if is_nobody_left && before > 0 && !allow_empty {
        main.problems.push(Problem::new("tenants", lost(before)));
        main.offered = None;
    }
    for file in files.iter_mut().filter(|file| file.problems.is_empty()) {
        let tenants = file.offered.iter().flatten();
        file.problems = tenants.flat_map(|claimant| beside.of_tenant(&claimant.tenant)).collect();
    }
    files.insert(0, main);

    let mut chosen = Chosen::default();
    let (mut served, mut names, mut unserved) = (Vec::new(), Vec::new(), Vec::new());
    let stands = settle(&files);
    let is_main_used = stands.first().is_some_and(|(stand, _)| *stand == Stand::Now);
    for (file, (stand, claims)) in files.iter().zip(stands) {
        let offered = file.offered.iter().flatten();
        let mut serve = |tenant: &Arc<Tenant>| {
            served.push(Arc::clone(tenant));
            names.extend((!file.is_main).then(|| Arc::clone(&file.name)));
        };
        match stand {
            Stand::Before => file.in_force.iter().flatten().for_each(serve),
            Stand::Now if file.problems.is_empty() => {
                for (Claimant { tenant, problems, .. }, number) in offered.zip(1_usize..) {
                    if problems.is_empty() {
                        serve(tenant);
                    } else {
                        unserved.extend(tenant.hosts.iter().cloned());
                        chosen.refused.push(refused(&format!("tenants[{number}]"), problems, false));
                    }
                }
            }
            Stand::Now | Stand::Out => {
                unserved.extend(offered.flat_map(|claimant| claimant.tenant.hosts.iter().cloned()));
            }
        }
        let problems: Vec<Problem> = file.problems.iter().chain(&claims).cloned().collect();
        if !problems.is_empty() {
            let refused = refused(&file.name, &problems, stand == Stand::Before);
            chosen.refused.push(Refused { is_main: file.is_main, ..refused });
        }
        if file.is_main {
            let of_folder = of_folder
                .iter()
                .map(|problem| refused(FOLDER, std::slice::from_ref(problem), former.is_some()));
            chosen.refused.extend(of_folder);
            chosen.claims_of_main.clone_from(&claims);
        }
        chosen.claims.extend(claims);
    }
    chosen.settings = if is_main_used { settings } else { former.cloned() };
    if let Some(settings) = &mut chosen.settings {
        let taken: HashSet<&HostPattern> = served.iter().flat_map(|tenant| &tenant.hosts).collect();
        let unserved: BTreeSet<_> = unserved.into_iter().filter(|host| !taken.contains(host)).collect();
        settings.unserved_hosts = unserved.into_iter().collect();
        settings.tenants = served;
        settings.tenant_files = names;
    }
    chosen
}

/// The files of the folder, those with a version in force among them. Where it lost all tenants that were in force it is refused
/// as a whole: those stay.
fn in_folder(
    read: Result<Vec<File>, Box<Problem>>,
    former: Option<&Settings>,
    allow_empty: bool,
) -> (Vec<File>, Option<Problem>) {
    let in_force = || former.into_iter().flat_map(Settings::of_folder);
    let by_name: HashMap<&Arc<str>, &Arc<Tenant>> = in_force().collect();
    let (mut files, problem) = match read {
        Ok(files) => (files, None),
        Err(problem) => (Vec::new(), Some(*problem)),
    };
    for file in &mut files {
        file.in_force = by_name.get(&file.name).map(|tenant| vec![Arc::clone(tenant)]);
    }
    let is_lost = !by_name.is_empty() && !allow_empty && !files.iter().any(File::is_usable);
    let problem = problem.or_else(|| is_lost.then(|| Problem::new(FOLDER, lost(by_name.len()))));
    if problem.is_some() {
        let kept = in_force().map(|(name, tenant)| File {
            name: Arc::clone(name),
            in_force: Some(vec![Arc::clone(tenant)]),
            ..File::default()
        });
        files = kept.chain(files).collect();
    }
    (files, problem)
}

/// A volume that is not mounted looks like an empty folder.
fn lost(before: usize) -> String {
    format!(
        "there is no tenant, and there were {before} before; set gateway.allow_empty to true if that is meant"
    )
}

/// The files that make a claim, by their place in the list, each with the tenant that does.
type Claimants<'a> = BTreeMap<usize, Option<&'a Claimant>>;

/// The version of each file that counts, and the problems of those that don't for what they claim.
fn settle(files: &[File]) -> Vec<(Stand, Vec<Problem>)> {
    let first = |file: &File| match (&file.offered, &file.in_force) {
        (Some(_), Some(_)) if !file.problems.is_empty() => Stand::Before,
        (Some(_), _) => Stand::Now,
        (None, Some(_)) => Stand::Before,
        (None, None) => Stand::Out,
    };
    let mut stands: Vec<(Stand, Vec<Problem>)> = files.iter().map(|file| (first(file), Vec::new())).collect();
    let mut owners: HashMap<Claim<'_>, usize> = HashMap::new();
    let mut claimants: HashMap<Claim<'_>, Claimants<'_>> = HashMap::new();
    for (at, (file, (stand, _))) in files.iter().zip(&stands).enumerate() {
        owners.extend(file.claims(Stand::Before).map(|(claim, _)| (claim, at)));
        for (claim, claimant) in file.claims(*stand) {
            claimants.entry(claim).or_default().insert(at, claimant);
        }
    }
    let mut contested: Vec<Claim<'_>> =
        claimants.iter().filter(|(_, who)| who.len() > 1).map(|(claim, _)| *claim).collect();
    // Each round refuses at least one file, and each file is refused once.
    while !contested.is_empty() {
        contested.sort_unstable();
        contested.dedup();
        let mut refused = BTreeSet::new();
        for claim in contested.drain(..) {
            let Some(who) = claimants.get(&claim).filter(|who| who.len() > 1) else { continue };
            let main = who.keys().find(|at| files.get(**at).is_some_and(|file| file.is_main));
            let keeper = owners.get(&claim).filter(|at| who.contains_key(at)).or(main);
            for (at, claimant) in who.iter().filter(|(at, _)| Some(*at) != keeper) {
                let Some((Stand::Now, problems)) = stands.get_mut(*at) else { continue };
                refused.insert(*at);
                let other = keeper.or_else(|| who.keys().find(|other| *other != at));
                let other = other.filter(|_| problems.len() < PROBLEMS_MAX).zip(*claimant);
                problems.extend(other.and_then(|(other, claimant)| {
                    let name = who.get(other).copied().flatten().map(|other| &*other.table);
                    let name = name.or_else(|| files.get(*other).map(|file| &*file.name));
                    claim.problem(claimant, name.unwrap_or_default())
                }));
            }
        }
        for at in refused {
            let (Some(file), Some((stand, _))) = (files.get(at), stands.get_mut(at)) else { continue };
            for (claim, _) in file.claims(Stand::Now) {
                claimants.entry(claim).or_default().remove(&at);
            }
            *stand = if file.in_force.is_some() { Stand::Before } else { Stand::Out };
            for (claim, claimant) in file.claims(*stand) {
                claimants.entry(claim).or_default().insert(at, claimant);
                contested.push(claim);
            }
        }
    }
    stands
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Claimant, File, Stand, settle};
    use crate::config::problem::Problem;
    use crate::domain::fixture;
    use crate::domain::host::HostPattern;
    use crate::domain::tenant::Tenant;

    /// A tenant with an id and some hosts, "a h1 h2"; nothing: none.
    fn version(text: &str) -> Option<Vec<Arc<Tenant>>> {
        let (id, hosts) = text.split_once(' ')?;
        let hosts = hosts.split(' ').map(|host| HostPattern::parse(host).unwrap()).collect();
        Some(vec![Arc::new(Tenant { id: id.into(), hosts, ..fixture::tenant() })])
    }

    /// Files as they were and are; one that begins with ! can't be served.
    fn stands(files: &[[&str; 2]]) -> Vec<Stand> {
        let claimant =
            |tenant| Claimant { tenant, table: "f".into(), places: Vec::new(), problems: Vec::new() };
        let file = |[before, now]: &[&str; 2]| File {
            name: "f".into(),
            is_main: false,
            offered: version(now.trim_start_matches('!'))
                .map(|tenants| tenants.into_iter().map(claimant).collect()),
            problems: now.starts_with('!').then(|| Problem::new("f", "")).into_iter().collect(),
            in_force: version(before),
        };
        let read: Vec<File> = files.iter().map(file).collect();
        let forward: Vec<Stand> = settle(&read).into_iter().map(|(stand, _)| stand).collect();
        let read: Vec<File> = files.iter().rev().map(file).collect();
        let mut backward: Vec<Stand> = settle(&read).into_iter().map(|(stand, _)| stand).collect();
        backward.reverse();
        assert_eq!(forward, backward, "the order of files counts for nothing");
        forward
    }

    // threat: A half-applied reload, a broken next start
    #[test]
    fn the_file_in_force_keeps_its_host_and_of_newcomers_none_has_it() {
        use Stand::{Before, Now, Out};
        for (files, expected) in [
            // Nobody claims what another does, also where a host changes hands.
            (&[["a x", "a y"], ["b y", "b x"]][..], &[Now, Now][..]),
            (&[["a x", "a x y"], ["", "b x"]], &[Now, Out]),
            (&[["a x", ""], ["", "b x"]], &[Before, Out]),
            (&[["a x", "a z"], ["", "b x"]], &[Now, Now]),
            (&[["b y", "b y x"], ["a x", "a x"]], &[Before, Now]),
            (&[["", "a x"], ["", "b x"]], &[Out, Out]),
            (&[["", "a x"], ["", "b x y"], ["", "c y"]], &[Out, Out, Out]),
            (&[["", "a x"], ["", "a y"]], &[Out, Out]),
            // One that can't be served claims its host all the same, and its former version serves.
            (&[["", "!a x"], ["", "b x"]], &[Out, Out]),
            (&[["a y", "!a x"], ["", "b x"]], &[Before, Now]),
            // A refused file takes back what it would have given up.
            (&[["a x", "a y"], ["b y", "b y"], ["", "c x"]], &[Before, Now, Out]),
            (&[["a x", "a y"], ["b y", "b z"], ["c z", "c z"]], &[Before, Before, Now]),
        ] {
            assert_eq!(stands(files), expected, "{files:?}");
        }
    }
}
