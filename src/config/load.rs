//! A configuration as it can be used: the file itself, each file of `tenants.d`, and what is in force where one of them
//! can't be used.
//!
//! Each file is used or refused by itself. The former version of a refused one stays in force, if there is one. Must not
//! know certificates: a [`FileProbe`] opens the files that keys name.
//!
//! Which version of each file counts, the new one, the one in force, or neither:
//! no two tenants have an id or a host in common: these are claims. Files that have one in common, in either version, are judged
//! together. While no two of them make one claim, the new version of each counts, also where a host goes from one file to
//! another. Else each claim stays with the file that has it in force, and a new one is the configuration file's, or nobody's where
//! two files of `tenants.d` make it: a file that wants what another has, or gives up what another wants, is refused whole, and
//! its former version stays in force. It depends on no order of files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::{path::Path, sync::Arc};

use zeroize::Zeroizing;

use crate::config::notes::{NamedFile, Notes, ValueLocation};
use crate::config::problem::{Location, Problem, Problems};
use crate::config::tenants::folder::{FOLDER, File};
use crate::config::{
    Fixed, Loaded, Settings, listen::Listen, reader::Reader, tenants, tenants::tenant::Claimant, tree,
    tree::Table, written::quoted,
};
use crate::domain::{HostPattern, Tenant};

/// All that there is to say of a configuration.
#[derive(Debug)]
pub struct ConfigReport {
    /// The usable part of it; none if the file itself can't be used and none is in force.
    pub loaded: Option<Loaded>,
    /// Errors and warnings of all files.
    pub problems: Problems,
    /// False if the configuration file could not be read at all.
    pub is_read: bool,
    /// The files that keys name, whatever is wrong elsewhere. They have not been opened.
    pub files: Vec<NamedFile>,
}

impl ConfigReport {
    /// Reads the file at `path` and the tenants beside it where `former` is in force, or nothing; `environment` is all variables
    /// of the process. So many values are noted.
    pub fn over(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
        values_max: usize,
        former: Option<&Settings>,
        probe: &mut FileProbe<'_>,
    ) -> Self {
        let text = tree::read_file(path);
        let is_read = text.is_ok();
        let main = Main::read(path, text, environment, values_max);
        Self { is_read, ..Self::with_folder(main, Some(path), former, probe) }
    }

    /// Reads a text that stands nowhere: there are no tenants beside it.
    pub(super) fn of_text(
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
        values_max: usize,
    ) -> Self {
        let text = text.to_owned().into();
        let main = Main::read(Path::new("tiergate.toml"), Ok(text), environment, values_max);
        Self::with_folder(main, None, None, &mut no_probe)
    }

    fn with_folder(
        main: Main,
        path: Option<&Path>,
        former: Option<&Settings>,
        probe: &mut FileProbe<'_>,
    ) -> Self {
        let Main { name, mut notes, settings, listen, tenants, gateway, is_toml } = main;
        let refused = |problems| File {
            name: Arc::clone(&name),
            is_main: true,
            offered: None,
            problems,
            in_force: former.map(|former| former.live.main_tenants().to_vec()),
        };
        let mut main = refused(notes.errors());
        let settings = offer(&mut main, settings, tenants, &notes.files, former, probe);
        let mut read_folder = |settings: Option<Settings>, main: File| {
            let counts = settings.as_ref().or(former);
            let listen = counts.map(|counts| &counts.fixed.listen).or(listen.as_ref());
            let in_force = main.in_force.as_ref().map_or(0, Vec::len);
            let others = main.offered.as_ref().map_or(in_force, Vec::len);
            let mut of_folder = notes.further();
            let files = match path {
                Some(path) if is_toml || former.is_some() => {
                    tenants::read_folder(&mut of_folder, listen, counts, path, others)
                }
                Some(_) | None => Ok(Vec::new()),
            };
            (choose(settings, main, files, former, probe), of_folder)
        };
        let (mut chosen, mut of_folder) = read_folder(settings, main);
        if former.is_some() && !chosen.claims_of_main.is_empty() {
            // The folder was read under rules that do not come into force.
            let problems = chosen.claims_of_main;
            (chosen, of_folder) = read_folder(None, refused(problems.clone()));
            chosen.claims.extend(problems);
        }
        let Chosen { settings, refused, claims, .. } = chosen;
        notes.add(of_folder, true);
        notes.problems.extend(claims);
        let is_reached = settings.as_ref().is_none_or(|settings| settings.fixed.listen.reaches_tenants());
        if let (Some(count @ 1..), false) = (settings.as_ref().map(|all| all.live.tenants.len()), is_reached)
        {
            let phrase =
                format!("is empty, and nobody reaches the tenants, {count} in all; write an address");
            notes.problems.push(gateway.problem(phrase).as_warning());
        }
        let Notes { problems, values, files, .. } = notes;
        let loaded = settings.map(|settings| Loaded { settings, values, refused });
        Self { loaded, problems: Problems(problems), is_read: true, files }
    }

    /// A configuration that can be used as a whole, or everything that is wrong with it.
    pub fn whole(self) -> Result<Loaded, Problems> {
        self.loaded.filter(|_| !self.problems.has_error()).ok_or(self.problems)
    }
}

/// The configuration file by itself.
struct Main {
    name: Arc<str>,
    is_toml: bool,
    notes: Notes,
    /// Without tenants.
    settings: Option<Settings>,
    /// There though other sections are wrong.
    listen: Option<Listen>,
    tenants: Vec<Claimant>,
    /// The place of the gateway's addresses.
    gateway: ValueLocation,
}

impl Main {
    fn read(
        path: &Path,
        text: Result<Zeroizing<String>, String>,
        environment: impl Iterator<Item = (String, String)>,
        values_max: usize,
    ) -> Self {
        let (name, is_read) = (tree::name_of(path), text.is_ok());
        let text = text.map_err(|phrase| vec![Problem::new(&name, phrase)]);
        let (table, broken) = match text.and_then(|text| tree::parse(&name, &text)) {
            Ok(table) => (table, None),
            Err(problems) => (Table::new(), Some(problems)),
        };
        let location = Location::of_file(Arc::clone(&name), None);
        let notes = || Notes { values_max, ..Notes::default() };
        let mut reader = Reader::new(location, table, environment, notes());
        let (settings, listen, tenants) = Settings::read(&mut reader);
        let gateway = reader.place("listen.gateway", None);
        let is_toml = broken.is_none();
        let notes = match broken {
            None => reader.finish(&tenants::known()[0]),
            // Of a file that is not TOML the rest is not read: half a file would seem to have other mistakes.
            Some(mut problems) => {
                problems.extend(is_read.then(|| reader.unknown_variables()).into_iter().flatten());
                Notes { problems, ..notes() }
            }
        };
        Self { name, is_toml, notes, settings, listen, tenants, gateway }
    }
}

/// Looks into the files that the configuration file names, of its own those alone that a reload reads: whoever starts looks into
/// them otherwise. Gives its settings if it can be used; the file offers its tenants then.
fn offer(
    main: &mut File,
    settings: Option<Settings>,
    mut tenants: Vec<Claimant>,
    files: &[NamedFile],
    former: Option<&Settings>,
    probe: &mut FileProbe<'_>,
) -> Option<Settings> {
    let settings = settings.filter(|_| main.problems.is_empty())?;
    if let Some(former) = former {
        main.problems.extend(other_chain(&former.fixed, &settings.fixed));
        let own = files.iter().filter(|named| named.is_live && !named.is_of_tenant());
        main.problems.extend(own.flat_map(&mut *probe));
    }
    let in_force: HashSet<&str> = main.in_force.iter().flatten().map(|tenant| &*tenant.id).collect();
    for claimant in &mut tenants {
        let found = claimant.files.iter().flat_map(&mut *probe).collect::<Vec<_>>();
        if in_force.contains(&*claimant.tenant.id) {
            // The whole file keeps its former version.
            main.problems.extend(found);
        } else {
            claimant.problems = found;
        }
    }
    if !main.problems.is_empty() {
        return None;
    }
    main.offered = Some(tenants);
    Some(settings)
}

/// Refuses a chain that the next start would refuse. Another one counts from the next start on.
fn other_chain(at_start: &Fixed, now: &Fixed) -> Option<Problem> {
    if !at_start.store.is_same(&now.store) {
        return None;
    }
    let checked = now.binding().check(at_start.binding().as_str(), "another place in [store]");
    Some(Problem::new("chain", format!("the store {}", checked.err()?)))
}

/// Why a file is refused that others have a claim of.
const WAITS: &str = "it changes hands once no two files claim what these have";

/// How many problems of its claims one file has, at most.
const CLAIM_PROBLEMS_MAX: usize = 20;

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
    pub(super) refused: Vec<RefusedFile>,
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
    probe: &mut FileProbe<'_>,
) -> Chosen {
    let allow_empty = settings.as_ref().or(former).is_some_and(|settings| settings.live.gateway.allow_empty);
    let mut read = read;
    for file in read.iter_mut().flatten().filter(|file| file.problems.is_empty()) {
        let tenants = file.offered.iter().flatten();
        file.problems = tenants.flat_map(|claimant| &claimant.files).flat_map(&mut *probe).collect();
    }
    let (mut files, of_folder) = in_folder(read, former, allow_empty);
    let refused = |place: &str, problems: &[Problem], is_kept| {
        RefusedFile::new(place, problems.iter().map(Problem::on_one_line), is_kept)
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
            chosen.refused.push(RefusedFile { is_main: file.is_main, ..refused });
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
        problems.truncate(CLAIM_PROBLEMS_MAX);
        let refused = if file.in_force.is_some() { Version::InForce } else { Version::Neither };
        (if is_refused { refused } else { Version::New }, problems)
    };
    files.iter().enumerate().map(judged).collect()
}

/// How many problems of one file are told; the rest is counted.
const PROBLEMS_MAX: usize = 10;

/// The longest problem that is told whole, in characters.
const PROBLEM_CHARS_MAX: usize = 500;

/// A file, or a block of the configuration file, that is not used as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedFile {
    /// As problems name it.
    pub place: String,
    /// Its problems, each on a line of bounded length; a bounded number.
    pub problems: Vec<String>,
    /// True if its former version is in force.
    pub is_kept: bool,
    /// True for the configuration file.
    pub is_main: bool,
}

impl RefusedFile {
    /// With as many of these lines as are told.
    pub fn new(
        place: impl Into<String>,
        lines: impl IntoIterator<Item = impl AsRef<str>>,
        is_kept: bool,
    ) -> Self {
        let cut = |line: &str| match line.char_indices().nth(PROBLEM_CHARS_MAX) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line.to_owned(),
        };
        let (place, mut lines) = (place.into(), lines.into_iter());
        let told = lines.by_ref().take(PROBLEMS_MAX);
        let mut problems: Vec<String> = told.map(|line| cut(line.as_ref())).collect();
        let rest = lines.count();
        if rest > 0 {
            problems.push(format!("{place}: {rest} more problems"));
        }
        Self { place, problems, is_kept, is_main: false }
    }

    /// True for `tenants.d` as a whole.
    pub fn is_folder(&self) -> bool {
        self.place == FOLDER
    }

    /// True for a file of `tenants.d`.
    pub fn is_in_folder(&self) -> bool {
        self.place.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Looks into files that keys name, and gives everything for which they can't be used.
pub type FileProbe<'a> = dyn FnMut(&NamedFile) -> Vec<Problem> + 'a;

/// Looks into no file.
pub fn no_probe(_: &NamedFile) -> Vec<Problem> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Claimant, File, Version, settle};
    use crate::config::problem::Problem;
    use crate::domain::{HostPattern, Tenant, fixture};

    /// A tenant with an id and some hosts, "a h1 h2"; nothing: none.
    fn version(text: &str) -> Option<Vec<Arc<Tenant>>> {
        let (id, hosts) = text.split_once(' ')?;
        let hosts = hosts.split(' ').map(|host| HostPattern::parse(host).unwrap()).collect();
        Some(vec![Arc::new(Tenant { id: id.into(), hosts, ..fixture::tenant() })])
    }

    /// Files as they were and are; one that begins with ! can't be served, with @ it is the main one.
    fn versions(files: &[[&str; 2]]) -> Vec<Version> {
        let claimant = |tenant| Claimant {
            tenant,
            table: "f".into(),
            places: Vec::new(),
            files: Vec::new(),
            problems: Vec::new(),
        };
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
