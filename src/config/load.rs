//! A configuration as it can be used: the file itself, each file of `tenants.d`, and what is in force where one of them
//! can't be used.
//!
//! Each file is used or refused by itself, as a whole. The former version of a refused one stays in force, if there is one. Must
//! not know certificates: a [`FileProbe`] opens the files that keys name.
//!
//! Ids and hosts are claims: no two tenants have one in common. One that a single file makes is that file's, also where it goes
//! from one to another. One that several make stays with the file that has it in force, and a new one is the configuration
//! file's, or nobody's where two files of `tenants.d` make it. A file that does not get all of its claims is refused, and a file
//! of `tenants.d` that gives up what stays; then all that they have stays with them. It depends on no order of files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::{mem, sync::Arc};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::config::notes::{Claim, NamedFile, Notes};
use crate::config::problem::{LINES_MAX, Location, Problem, Problems, ValueLocation};
use crate::config::tenants::{self, FOLDER, File, context::Context};
use crate::config::{Fixed, Loaded, Settings, reader::Reader, tree, tree::Table};
use crate::domain::{HostPattern, Tenant};
use crate::files::{Fingerprints, fingerprint_of};

/// A configuration file with the environment over it.
pub struct ConfigSource {
    /// The place of the file.
    pub path: PathBuf,
    /// The environment's, by name.
    overrides: Vec<(String, String)>,
    /// The fingerprint of the files before they were first read.
    pub(crate) first: u64,
    /// Warnings that were there when it was last read, which the log has told.
    warned: Mutex<HashSet<String>>,
}

impl ConfigSource {
    /// The file at a path. To be made before it is read, so that a change while it is read is noticed later.
    pub(crate) fn at(path: &Path) -> Self {
        Self { overrides: environment().collect(), ..Self::alone(path) }
    }

    /// The same without the environment.
    pub fn alone(path: &Path) -> Self {
        let (path, overrides, warned) = (path.to_owned(), Vec::new(), Mutex::default());
        let source = Self { path, overrides, first: 0, warned };
        Self { first: source.fingerprint(), ..source }
    }

    /// Reads the file, the folder of tenants beside it, and the environment, where `former` is in force since a start with these
    /// settings, or nothing. So many values are noted.
    pub fn read(
        &self,
        values_max: usize,
        former: Option<(&Settings, &Fixed)>,
        probe: &mut FileProbe<'_>,
    ) -> ConfigReport {
        let (text, environment) = (tree::read_file(&self.path), self.overrides.iter().cloned());
        let main = Main::read(&self.path, text, environment, values_max);
        ConfigReport::with_folder(main, &self.path, former, probe)
    }

    /// Writes a bounded number of the warnings into the log that were not there when it was read before.
    pub(crate) fn log_warnings(&self, problems: &Problems) {
        let new = problems.new_warnings(&mut self.warned.lock());
        for warning in new.iter().take(LINES_MAX) {
            tracing::warn!("configuration warning: {warning}");
        }
        let rest = new.len().saturating_sub(LINES_MAX);
        if rest > 0 {
            tracing::warn!(rest, "more warnings of the configuration: `tiergate check` lists all");
        }
    }

    /// The fingerprint of the files as they are now. Of the folder only those that hold tenants count: others come and go there while
    /// those are written.
    pub(crate) fn fingerprint(&self) -> u64 {
        let (files, unlisted) = tenants::watched_files(&self.path);
        fingerprint_of(&(Fingerprints::now(&files), unlisted))
    }
}

/// The process's environment; a name that is not text can't be one of ours.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

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
    fn with_folder(
        main: Main,
        path: &Path,
        former: Option<(&Settings, &Fixed)>,
        probe: &mut FileProbe<'_>,
    ) -> Self {
        let (former, at_start) = former.unzip();
        let Main { mut file, mut notes, settings, context, gateway, is_read, is_toml } = main;
        file.in_force = former.map(|former| former.live.main_tenants().to_vec());
        let settings = settings.filter(|settings| look(&mut file, settings, &notes.files, at_start, probe));
        let mut with = |file: File, settings: Option<Settings>, mut context: Context| {
            let offered = file.offered.as_ref().filter(|_| file.is_usable()).map(Vec::len);
            let others = offered.or(file.in_force.as_ref().map(Vec::len)).unwrap_or_default();
            let mut of_folder = notes.further();
            let folder = if is_toml || former.is_some() {
                tenants::read_folder(&mut of_folder, &mut context, path, others)
            } else {
                (Vec::new(), None)
            };
            (choose(settings, file, folder, former, probe), of_folder)
        };
        let (name, in_force) = (Arc::clone(&file.name), file.in_force.clone());
        let context = former.filter(|_| settings.is_none()).map_or(context, Settings::context);
        let (mut chosen, mut of_folder) = with(file, settings, context);
        if let Some(former) = former.filter(|_| !chosen.problems_of_main.is_empty()) {
            // The folder was read under rules that do not come into force.
            let problems = chosen.problems_of_main;
            let refused =
                File { name, is_main: true, problems: problems.clone(), in_force, ..File::default() };
            (chosen, of_folder) = with(refused, None, former.context());
            chosen.claims.extend(problems);
        }
        let Chosen { settings, refused, claims, .. } = chosen;
        notes.add(of_folder, true);
        notes.problems.extend(claims);
        let unreached = settings.as_ref().filter(|settings| !settings.fixed.listen.reaches_tenants());
        if let Some(count @ 1..) = unreached.map(|settings| settings.live.tenants.len()) {
            let phrase =
                format!("is empty, and nobody reaches the tenants, {count} in all; write an address");
            notes.problems.push(gateway.problem(phrase).as_warning());
        }
        let Notes { problems, values, files, .. } = notes;
        let loaded = settings.map(|settings| Loaded { settings, values, refused });
        Self { loaded, problems: Problems(problems), is_read, files }
    }

    /// A configuration that can be used as a whole, or everything that is wrong with it.
    pub fn whole(self) -> Result<Loaded, Problems> {
        let has_error = self.problems.0.iter().any(|problem| !problem.is_warning);
        self.loaded.filter(|_| !has_error).ok_or(self.problems)
    }
}

/// The configuration file by itself.
struct Main {
    /// With its tenants.
    file: File,
    is_read: bool,
    is_toml: bool,
    notes: Notes,
    /// Without tenants.
    settings: Option<Settings>,
    context: Context,
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
        let (settings, context, tenants) = Settings::read(&mut reader);
        let gateway = reader.place("listen.gateway", None);
        let is_toml = broken.is_none();
        let mut notes = match broken {
            None => reader.finish(),
            // Of a file that is not TOML the rest is not read: half a file would seem to have other mistakes.
            Some(mut problems) => {
                problems.extend(is_read.then(|| reader.unknown_variables()).into_iter().flatten());
                Notes { problems, ..notes() }
            }
        };
        let (claims, problems) = (mem::take(&mut notes.claims), notes.errors());
        let offered = settings.is_some().then_some(tenants);
        let file = File { name, is_main: true, offered, claims, problems, ..File::default() };
        Self { file, is_read, is_toml, notes, settings, context, gateway }
    }
}

/// True if the configuration file can be used, with the files that it names: of its own those alone that a reload reads, as
/// whoever starts looks into them otherwise.
fn look(
    main: &mut File,
    settings: &Settings,
    files: &[NamedFile],
    at_start: Option<&Fixed>,
    probe: &mut FileProbe<'_>,
) -> bool {
    if !main.is_usable() {
        return false;
    }
    if let Some(at_start) = at_start {
        main.problems.extend(other_chain(at_start, &settings.fixed));
        let own = files.iter().filter(|named| named.is_live && !named.is_of_tenant());
        main.problems.extend(own.flat_map(&mut *probe));
    }
    let in_force: HashSet<&str> = main.in_force.iter().flatten().map(|tenant| &*tenant.id).collect();
    for claimant in main.offered.iter_mut().flatten() {
        let found = claimant.files.iter().flat_map(&mut *probe).collect::<Vec<_>>();
        if in_force.contains(&*claimant.tenant.id) {
            // The whole file keeps its former version.
            main.problems.extend(found);
        } else {
            claimant.problems = found;
        }
    }
    main.is_usable()
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

/// A configuration of which the version of each file is chosen.
#[derive(Default)]
struct Chosen {
    settings: Option<Settings>,
    refused: Vec<RefusedFile>,
    /// Problems of claims, which nobody has noted yet.
    claims: Vec<Problem>,
    /// Why a configuration file is refused in which nothing was wrong by itself.
    problems_of_main: Vec<Problem>,
}

/// Chooses the version of each file that counts: the new one, the one in force, or neither. `settings` are those of the
/// configuration file, `read` are the files of the folder, or its problem.
fn choose(
    settings: Option<Settings>,
    main: File,
    (read, problem): (Vec<File>, Option<Problem>),
    former: Option<&Settings>,
    probe: &mut FileProbe<'_>,
) -> Chosen {
    let allow_empty = settings.as_ref().or(former).is_some_and(|settings| settings.live.allow_empty);
    let in_force = || former.into_iter().flat_map(|former| former.live.of_folder());
    let by_name: HashMap<&Arc<str>, &Arc<Tenant>> = in_force().collect();
    let mut files = vec![main];
    for mut file in read {
        if file.problems.is_empty() {
            let tenants = file.offered.iter().flatten();
            file.problems = tenants.flat_map(|claimant| &claimant.files).flat_map(&mut *probe).collect();
        }
        file.in_force = by_name.get(&file.name).map(|tenant| vec![Arc::clone(tenant)]);
        files.push(file);
    }
    judge(&mut files);
    // A volume that is not mounted looks like an empty folder, and a file that a program has begun to write like one without tenants.
    let lost = |before: usize, place: &str, files: &[File]| {
        let of_place = files.iter().filter(|file| place != FOLDER || !file.is_main);
        let is_lost = before > 0 && !allow_empty && of_place.flat_map(File::serves).next().is_none();
        let phrase = format!(
            "there is no tenant, and there were {before} before; set gateway.allow_empty to true if that is meant"
        );
        is_lost.then(|| Problem::new(place, phrase))
    };
    let of_folder = problem.or_else(|| lost(by_name.len(), FOLDER, &files));
    if of_folder.is_some() {
        let kept = |(name, tenant): (&Arc<str>, &Arc<Tenant>)| File {
            name: Arc::clone(name),
            in_force: Some(vec![Arc::clone(tenant)]),
            ..File::default()
        };
        files.splice(1..1, in_force().map(kept));
        judge(&mut files);
    }
    let of_all = lost(former.map_or(0, |former| former.live.tenants.len()), "tenants", &files);
    if let Some((main, problem)) = files.first_mut().zip(of_all) {
        let causes = main.offered.iter().flatten().flat_map(|claimant| &claimant.problems).cloned();
        let causes: Vec<Problem> = causes.collect();
        main.problems.extend([vec![problem], causes].concat());
        judge(&mut files);
    }
    compose(settings, &files, of_folder, former)
}

/// The settings in which the version of each file counts that was chosen.
fn compose(
    settings: Option<Settings>,
    files: &[File],
    of_folder: Option<Problem>,
    former: Option<&Settings>,
) -> Chosen {
    let (mut chosen, mut served, mut names, mut unserved) =
        (Chosen::default(), Vec::new(), Vec::new(), Vec::new());
    let refused = |place: &str, problems: &[Problem], is_kept| {
        RefusedFile::new(place, problems.iter().map(Problem::on_one_line), is_kept)
    };
    for file in files {
        for tenant in file.serves() {
            served.push(Arc::clone(tenant));
            names.extend((!file.is_main).then(|| Arc::clone(&file.name)));
        }
        if file.is_used() {
            for (claimant, number) in file.offered.iter().flatten().zip(1_usize..) {
                if !claimant.problems.is_empty() {
                    unserved.extend(claimant.tenant.hosts.iter().cloned());
                    chosen.refused.push(refused(&format!("tenants[{number}]"), &claimant.problems, false));
                }
            }
        } else {
            unserved.extend(file.claims.keys().filter_map(|claim| match claim {
                Claim::Host(host) => Some(host.clone()),
                Claim::Id(_) => None,
            }));
        }
        let problems: Vec<Problem> = file.problems.iter().chain(&file.contested).cloned().collect();
        if !problems.is_empty() {
            let refused = refused(&file.name, &problems, file.in_force.is_some());
            chosen.refused.push(RefusedFile { is_main: file.is_main, ..refused });
        }
        if file.is_main {
            let of_folder = of_folder.as_slice().iter().map(std::slice::from_ref);
            chosen.refused.extend(of_folder.map(|problem| refused(FOLDER, problem, former.is_some())));
            if settings.is_some() && !file.is_used() {
                chosen.problems_of_main.clone_from(&problems);
            }
        }
        chosen.claims.extend(file.contested.iter().cloned());
    }
    let is_main_used = files.first().is_some_and(File::is_used);
    chosen.settings = if is_main_used { settings } else { former.cloned() };
    if let Some(Settings { live: settings, .. }) = &mut chosen.settings {
        let taken: HashSet<&HostPattern> = served.iter().flat_map(|tenant| &tenant.hosts).collect();
        if let Some(Settings { live: former, .. }) = former {
            // A wildcard keeps the hosts that it has served: a file that can't be used changes nothing.
            let own: HashSet<&HostPattern> = former.tenants.iter().flat_map(|tenant| &tenant.hosts).collect();
            unserved.retain(|host| own.contains(host));
            let left_out = former.unserved_hosts.iter().filter(|_| !chosen.refused.is_empty());
            unserved.extend(left_out.cloned());
        }
        let unserved: BTreeSet<_> = unserved.into_iter().filter(|host| !taken.contains(host)).collect();
        settings.unserved_hosts = unserved.into_iter().collect();
        settings.tenants = served;
        settings.tenant_files = names;
    }
    chosen
}

/// The file that has a claim in force, and those that make it, by their places in the list.
#[derive(Default)]
struct Parties {
    owner: Option<usize>,
    makers: Vec<usize>,
}

/// Finds out which files do not get all of their claims.
fn judge(files: &mut [File]) {
    let of = |file: &File| file.in_force.iter().flatten().flat_map(|tenant| Claim::of(tenant)).collect();
    let in_force: Vec<Vec<Claim>> = files.iter().map(of).collect();
    let mut all: BTreeMap<&Claim, Parties> = BTreeMap::new();
    for (at, (file, in_force)) in files.iter().zip(&in_force).enumerate() {
        in_force.iter().for_each(|claim| all.entry(claim).or_default().owner = Some(at));
        // One that can't be used keeps what it has, and claims its hosts all the same where it has nothing.
        let keeps = !file.is_usable() && file.in_force.is_some();
        let kept = in_force.iter().filter(|_| keeps);
        let makes = file.claims.keys().filter(|_| !keeps).chain(kept);
        makes.for_each(|claim| all.entry(claim).or_default().makers.push(at));
    }
    let mut contested: Vec<Vec<Problem>> = files.iter().map(|_| Vec::new()).collect();
    let disputed = all.iter().filter(|(_, parties)| parties.makers.len() > 1);
    let mut staying: Vec<&Claim> = disputed.map(|(claim, _)| *claim).collect();
    // Each claim is looked at once, those of a refused file too.
    while let Some(claim) = staying.pop() {
        let Some(Parties { owner, makers }) = all.remove(claim) else { continue };
        let is_main = |at: usize| files.get(at).is_some_and(|file| file.is_main);
        let keeper = owner.or_else(|| makers.iter().copied().find(|at| makers.len() == 1 || is_main(*at)));
        // The configuration file may give up what it has, whoever claims that: its other changes count.
        let gives_up = owner.filter(|at| !makers.is_empty() && !makers.contains(at) && !is_main(*at));
        for at in makers.iter().copied().filter(|at| keeper != Some(*at)).chain(gives_up) {
            let (Some(file), Some(problems)) = (files.get(at), contested.get_mut(at)) else { continue };
            let other = keeper.iter().chain(&makers).find(|other| **other != at);
            let other = other.and_then(|other| files.get(*other));
            let name = other.map(|file| file.claims.get(claim).map_or(&file.name, |claimed| &claimed.table));
            let name = name.map(|name| &**name).unwrap_or_default();
            if problems.is_empty() {
                staying.extend(in_force.get(at).into_iter().flatten().chain(file.claims.keys()));
            }
            problems.push(match file.claims.get(claim) {
                Some(claimed) => claimed.problem(claim, name),
                None => {
                    Problem::new(&file.name, format!("gives up an id or a host that {name} claims; {WAITS}"))
                }
            });
        }
    }
    for (file, mut problems) in files.iter_mut().zip(contested) {
        problems.sort_by_key(|problem| problem.position.as_ref().map(|at| (at.line, at.column)));
        problems.truncate(CLAIM_PROBLEMS_MAX);
        file.contested = problems;
    }
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
}

/// Looks into files that keys name, and gives everything for which they can't be used.
pub type FileProbe<'a> = dyn FnMut(&NamedFile) -> Vec<Problem> + 'a;

/// Looks into no file.
pub fn no_probe(_: &NamedFile) -> Vec<Problem> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

    use proptest::prelude::{prop, prop_assert, proptest};

    use super::{ConfigReport, ConfigSource, File, Main, Path, judge, no_probe};
    use crate::config::notes::{Claim, Claimed};
    use crate::config::problem::{Problem, ValueLocation};
    use crate::domain::{HostPattern, Tenant, fixture};

    impl ConfigReport {
        /// Reads a text that stands nowhere: there are no tenants beside it.
        pub(crate) fn of_text(
            text: &str,
            environment: impl Iterator<Item = (String, String)>,
            values_max: usize,
        ) -> Self {
            let path = Path::new("tiergate.toml");
            let main = Main::read(path, Ok(text.to_owned().into()), environment, values_max);
            Self::with_folder(main, path, None, &mut no_probe)
        }
    }

    #[test]
    fn whatever_happens_to_a_watched_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiergate.toml");
        fs::write(&path, "a").unwrap();
        let source = ConfigSource::at(&path);
        assert_eq!(source.fingerprint(), source.first);
        let mut last = source.first;
        let tenants = folder.path().join("tenants.d");
        let mode = |mode| fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let steps: [&dyn Fn(); 9] = [
            &|| fs::write(&path, "ab").unwrap(),
            &|| mode(0o000),
            &|| mode(0o600),
            &|| fs::write(&tenants, "").unwrap(),
            &|| {
                fs::remove_file(&tenants).unwrap();
                fs::create_dir(&tenants).unwrap();
            },
            &|| fs::write(tenants.join("a.toml"), "x").unwrap(),
            &|| fs::write(tenants.join("b.toml"), "x").unwrap(),
            &|| fs::rename(tenants.join("b.toml"), tenants.join("a.toml")).unwrap(),
            &|| fs::remove_file(tenants.join("a.toml")).unwrap(),
        ];
        for (at, step) in steps.iter().enumerate() {
            step();
            let now = source.fingerprint();
            assert_ne!(now, last, "step {at}");
            last = now;
        }
        for other in [".a.toml", "a.toml~", "a.txt"] {
            fs::write(tenants.join(other), "x").unwrap();
            assert_eq!(source.fingerprint(), last, "{other} holds no tenant");
        }
    }

    /// A tenant with an id and some hosts, "a h1 h2"; nothing: none.
    fn version(text: &str) -> Option<Arc<Tenant>> {
        let (id, hosts) = text.split_once(' ')?;
        let hosts = hosts.split(' ').map(|host| HostPattern::parse(host).unwrap()).collect();
        Some(Arc::new(Tenant { id: id.into(), hosts, ..fixture::tenant() }))
    }

    /// A file as it was and is; one that begins with ! can't be served, with @ it is the main one.
    fn file([before, now]: &[&str; 2]) -> File {
        let offered = version(now.trim_start_matches(['!', '@']));
        let claimed = || {
            let place = ValueLocation { name: "f".into(), position: None };
            Claimed { table: "f".into(), place, number: 1 }
        };
        File {
            name: "f".into(),
            is_main: now.starts_with('@'),
            claims: offered
                .iter()
                .flat_map(|tenant| Claim::of(tenant))
                .map(|claim| (claim, claimed()))
                .collect(),
            offered: offered.map(|_| Vec::new()),
            problems: now.starts_with('!').then(|| Problem::new("f", "")).into_iter().collect(),
            in_force: version(before).map(|tenant| vec![tenant]),
            contested: Vec::new(),
        }
    }

    /// The version of each file that counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Version {
        New,
        InForce,
        Neither,
    }

    fn judged(files: &mut [File]) -> Vec<Version> {
        judge(files);
        let version = |file: &File| match &file.in_force {
            _ if file.is_used() => Version::New,
            Some(_) => Version::InForce,
            None => Version::Neither,
        };
        files.iter().map(version).collect()
    }

    fn versions(files: &[[&str; 2]]) -> Vec<Version> {
        let forward = judged(&mut files.iter().map(file).collect::<Vec<_>>());
        let mut backward = judged(&mut files.iter().rev().map(file).collect::<Vec<_>>());
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

    proptest! {
        // threat: A half-applied reload, a broken next start
        #[test]
        fn no_two_versions_that_count_share_a_claim_and_what_was_served_and_is_claimed_is_served(
            files in prop::collection::vec((0_u8..16, 0_u8..16, 0_u8..5), 1..7),
        ) {
            // Each host is in force once.
            let mut free = 0b1111;
            let hosts = |of: u8| (0..4).filter(move |bit| of & 1 << bit != 0).map(|bit| format!(" {bit}.x")).collect::<String>();
            let mut files: Vec<File> = files.iter().enumerate().map(|(at, (before, now, kind))| {
                let before = before & free;
                free &= !before;
                let text = |of: u8, mark: &str| if of == 0 { String::new() } else { format!("{mark}t{at}{}", hosts(of)) };
                let mark = match (at, kind) { (0, _) => "@", (_, 0) => "!", _ => "" };
                file(&[&text(before, ""), &text(*now, mark)])
            }).collect();
            let (mut served, versions): (Vec<Claim>, _) = (Vec::new(), judged(&mut files));
            for (file, version) in files.iter().zip(versions) {
                match version {
                    Version::New => served.extend(file.claims.keys().cloned()),
                    Version::InForce => served.extend(file.in_force.iter().flatten().flat_map(|tenant| Claim::of(tenant))),
                    Version::Neither => {}
                }
            }
            let count = served.len();
            served.sort_unstable();
            served.dedup();
            prop_assert!(served.len() == count);
            let owned = files.iter().filter(|file| !file.is_main).flat_map(|file| file.in_force.iter().flatten());
            for claim in owned.flat_map(|tenant| Claim::of(tenant)) {
                let is_wanted = files.iter().any(|file| file.is_usable() && file.claims.contains_key(&claim));
                prop_assert!(!is_wanted || served.contains(&claim), "{claim:?}");
            }
        }
    }
}
