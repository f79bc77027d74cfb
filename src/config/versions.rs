//! Which version of each file counts: the new one, the one in force, or neither.
//!
//! No two tenants have an id or a host in common: these are claims. Files that have one in common, in either version, are judged
//! together. While no two of them make one claim, the new version of each counts, also where a host goes from one file to
//! another. Else each claim stays with the file that has it in force, and a new one is the configuration file's, or nobody's where
//! two files of `tenants.d` make it: a file that wants what another has, or gives up what another wants, is refused whole, and
//! its former version stays in force. It depends on no order of files.

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

/// Why a file is refused that others have a claim of.
const WAITS: &str = "it changes hands once no two files claim what these have";

/// How many problems of its claims one file has, at most.
const PROBLEMS_MAX: usize = 20;

/// The version of a file that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    New,
    InForce,
    Neither,
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
    /// The version that counts unless claims forbid it. One that can't be served claims its hosts all the same.
    const fn wanted(&self) -> Version {
        match (&self.offered, &self.in_force) {
            (Some(_), Some(_)) if self.problems.is_empty() => Version::New,
            (_, Some(_)) => Version::InForce,
            (Some(_), None) => Version::New,
            (None, None) => Version::Neither,
        }
    }

    /// True for a file that can be used, or whose former version is in force.
    fn is_usable(&self) -> bool {
        (self.offered.is_some() && self.problems.is_empty()) || self.in_force.is_some()
    }

    /// Every claim of a version, with its tenant if it is new.
    fn claims(&self, version: Version) -> impl Iterator<Item = (Claim<'_>, Option<&Claimant>)> {
        let now = self.offered.iter().flatten().filter(move |_| version == Version::New);
        let now = now.map(|claimant| (&claimant.tenant, Some(claimant)));
        let before = self.in_force.iter().flatten().filter(move |_| version == Version::InForce);
        let all = now.chain(before.map(|tenant| (tenant, None)));
        all.flat_map(|(tenant, claimant)| Claim::all(tenant).map(move |claim| (claim, claimant)))
    }
}

/// Chooses the version of each file that counts. `settings` are those that the configuration file offers, `read` are the files of
/// the folder.
pub(super) fn choose(
    settings: Option<Settings>,
    main: File,
    read: Result<Vec<File>, Box<Problem>>,
    former: Option<&Settings>,
    beside: &mut dyn Beside,
) -> Chosen {
    let allow_empty = settings.as_ref().or(former).is_some_and(|settings| settings.live.gateway.allow_empty);
    let mut read = read;
    for file in read.iter_mut().flatten().filter(|file| file.problems.is_empty()) {
        let tenants = file.offered.iter().flatten();
        file.problems = tenants.flat_map(|claimant| beside.of_tenant(&claimant.tenant)).collect();
    }
    let (mut files, of_folder) = in_folder(read, former, allow_empty);
    let refused = |place: &str, problems: &[Problem], is_kept| {
        Refused::new(place, problems.iter().map(Problem::on_one_line), is_kept)
    };
    let gives_up_all = main.offered.as_ref().is_some_and(Vec::is_empty);
    files.insert(0, main);
    let before = former.map_or(0, |former| former.live.tenants.len());
    let mut versions = settle(&files);
    let serves = |(file, (version, _)): (&File, &(Version, Vec<Problem>))| match version {
        Version::InForce => file.in_force.as_ref().is_some_and(|tenants| !tenants.is_empty()),
        Version::New => !file.is_main && file.problems.is_empty(),
        Version::Neither => false,
    };
    let is_nobody_left = gives_up_all && !files.iter().zip(&versions).any(serves);
    if let Some(main) = files.first_mut().filter(|_| is_nobody_left && before > 0 && !allow_empty) {
        main.problems.push(Problem::new("tenants", lost(before)));
        main.offered = None;
        versions = settle(&files);
    }

    let mut chosen = Chosen::default();
    let (mut served, mut names, mut unserved) = (Vec::new(), Vec::new(), Vec::new());
    let is_main_used = versions.first().is_some_and(|(version, _)| *version == Version::New);
    for (file, (version, claims)) in files.iter().zip(versions) {
        let offered = file.offered.iter().flatten();
        let mut serve = |tenant: &Arc<Tenant>| {
            served.push(Arc::clone(tenant));
            names.extend((!file.is_main).then(|| Arc::clone(&file.name)));
        };
        match version {
            Version::InForce => file.in_force.iter().flatten().for_each(serve),
            Version::New if file.problems.is_empty() => {
                for (Claimant { tenant, problems, .. }, number) in offered.zip(1_usize..) {
                    if problems.is_empty() {
                        serve(tenant);
                    } else {
                        unserved.extend(tenant.hosts.iter().cloned());
                        chosen.refused.push(refused(&format!("tenants[{number}]"), problems, false));
                    }
                }
            }
            Version::New | Version::Neither => {
                unserved.extend(offered.flat_map(|claimant| claimant.tenant.hosts.iter().cloned()));
            }
        }
        let problems: Vec<Problem> = file.problems.iter().chain(&claims).cloned().collect();
        if !problems.is_empty() {
            let refused = refused(&file.name, &problems, version == Version::InForce);
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
    if let Some(Settings { live: settings, .. }) = &mut chosen.settings {
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
    let in_force = || former.into_iter().flat_map(|former| former.live.of_folder());
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
type Makers<'a> = BTreeMap<usize, Option<&'a Claimant>>;

/// Files that are judged together: each, by its place in the list, leads to an earlier one, the first of them to itself.
struct Groups(Vec<usize>);

impl Groups {
    fn first(&self, mut at: usize) -> usize {
        while let Some(before) = self.0.get(at).filter(|before| **before != at) {
            at = *before;
        }
        at
    }

    /// The first of both.
    fn join(&mut self, one: usize, other: usize) -> usize {
        let (one, other) = (self.first(one), self.first(other));
        let first = one.min(other);
        for at in [one, other] {
            self.0.get_mut(at).into_iter().for_each(|before| *before = first);
        }
        first
    }
}

/// The version of each file that counts, and the problems of those that don't for what they claim.
fn settle(files: &[File]) -> Vec<(Version, Vec<Problem>)> {
    let mut owners: HashMap<Claim<'_>, usize> = HashMap::new();
    let mut makers: HashMap<Claim<'_>, Makers<'_>> = HashMap::new();
    for (at, file) in files.iter().enumerate() {
        owners.extend(file.claims(Version::InForce).map(|(claim, _)| (claim, at)));
        for (claim, claimant) in file.claims(file.wanted()) {
            makers.entry(claim).or_default().insert(at, claimant);
        }
    }
    let mut groups = Groups((0..files.len()).collect());
    for (claim, who) in &makers {
        who.keys().chain(owners.get(claim)).fold(None, |one, at| Some(groups.join(one.unwrap_or(*at), *at)));
    }
    let disputed = makers.values().filter(|who| who.len() > 1).filter_map(|who| who.keys().next());
    let disputed: HashSet<usize> = disputed.map(|at| groups.first(*at)).collect();
    let judged = |(at, file): (usize, &File)| {
        if !disputed.contains(&groups.first(at)) || file.wanted() != Version::New {
            return (file.wanted(), Vec::new());
        }
        let (mut is_refused, mut problems) = (false, Vec::new());
        let own = file.claims(Version::New).chain(file.claims(Version::InForce));
        for (claim, claimant) in own {
            // Whatever others want, the main file may give up what it has: its other changes count.
            let Some(who) = makers.get(&claim).filter(|_| claimant.is_some() || !file.is_main) else {
                continue;
            };
            let is_new =
                || who.keys().find(|at| who.len() == 1 || files.get(**at).is_some_and(|file| file.is_main));
            let keeper = owners.get(&claim).or_else(is_new);
            let other = keeper.filter(|keeper| **keeper != at);
            let other = other.or_else(|| who.keys().find(|other| **other != at));
            if keeper == Some(&at) && who.contains_key(&at) {
                continue;
            }
            is_refused = true;
            let name = other.and_then(|other| Some((who.get(other).copied().flatten(), files.get(*other)?)));
            let name = name.map(|(of, file)| of.map_or(&*file.name, |of| &*of.table)).unwrap_or_default();
            problems.extend(match claimant {
                Some(claimant) => claim.problem(claimant, name),
                None => Some(Problem::new(
                    &file.name,
                    format!("gives up an id or a host that {name} claims; {WAITS}"),
                )),
            });
        }
        problems.truncate(PROBLEMS_MAX);
        let refused = if file.in_force.is_some() { Version::InForce } else { Version::Neither };
        (if is_refused { refused } else { Version::New }, problems)
    };
    files.iter().enumerate().map(judged).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Claimant, File, Version, settle};
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

    /// Files as they were and are; one that begins with ! can't be served, with @ it is the main one.
    fn versions(files: &[[&str; 2]]) -> Vec<Version> {
        let claimant =
            |tenant| Claimant { tenant, table: "f".into(), places: Vec::new(), problems: Vec::new() };
        let file = |[before, now]: &[&str; 2]| File {
            name: "f".into(),
            is_main: now.starts_with('@'),
            offered: version(now.trim_start_matches(['!', '@']))
                .map(|tenants| tenants.into_iter().map(claimant).collect()),
            problems: now.starts_with('!').then(|| Problem::new("f", "")).into_iter().collect(),
            in_force: version(before),
        };
        let read: Vec<File> = files.iter().map(file).collect();
        let forward: Vec<Version> = settle(&read).into_iter().map(|(version, _)| version).collect();
        let read: Vec<File> = files.iter().rev().map(file).collect();
        let mut backward: Vec<Version> = settle(&read).into_iter().map(|(version, _)| version).collect();
        backward.reverse();
        assert_eq!(forward, backward, "the order of files counts for nothing");
        forward
    }

    // threat: A half-applied reload, a broken next start
    #[test]
    fn the_file_in_force_keeps_its_host_and_of_newcomers_none_has_it() {
        use Version::{InForce, Neither, New};
        for (files, expected) in [
            // Nobody claims what another does, also where a host changes hands.
            (&[["a x", "a y"], ["b y", "b x"]][..], &[New, New][..]),
            (&[["a x", "a x y"], ["", "b x"]], &[New, Neither]),
            (&[["a x", ""], ["", "b x"]], &[InForce, Neither]),
            (&[["a x", "a z"], ["", "b x"]], &[New, New]),
            (&[["b y", "b y x"], ["a x", "a x"]], &[InForce, New]),
            (&[["", "a x"], ["", "b x"]], &[Neither, Neither]),
            (&[["", "a x"], ["", "b x y"], ["", "c y"]], &[Neither, Neither, Neither]),
            (&[["", "a x"], ["", "a y"]], &[Neither, Neither]),
            // One that can't be served claims its host all the same, and its former version serves.
            (&[["", "!a x"], ["", "b x"]], &[Neither, Neither]),
            (&[["a y", "!a x"], ["", "b x"]], &[InForce, New]),
            // Strangers who claim one host hold up nobody else.
            (&[["a x", "a z"], ["", "b x"], ["", "c q"], ["", "d q"]], &[New, New, Neither, Neither]),
            // Where two files claim one host, theirs don't change hands, and each keeps what it would have given up.
            (&[["a x", "a z"], ["", "b x"], ["", "c x"]], &[InForce, Neither, Neither]),
            (&[["a x", "a y"], ["b y", "b x q"], ["", "c q"]], &[InForce, InForce, Neither]),
            (&[["a x", "a y"], ["b y", "b y"], ["", "c x"]], &[InForce, New, Neither]),
            (&[["a x", "a y"], ["b y", "b z"], ["c z", "c z"]], &[InForce, InForce, New]),
            // The main file's changes wait for no dispute of others, and what it gives up is nobody's.
            (&[["a x", "@a z"], ["", "b x"], ["", "c x"]], &[New, Neither, Neither]),
        ] {
            assert_eq!(versions(files), expected, "{files:?}");
        }
    }
}
