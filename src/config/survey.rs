//! A configuration as it can be used: the file itself, each file of `tenants.d`, and what is in force where one of them
//! can't be used.
//!
//! Each file is used or refused by itself. The former version of a refused one stays in force, if there is one. Must not
//! know certificates: [`Beside`] looks into the files that keys name.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::config::listen::Listen;
use crate::config::location::Location;
use crate::config::notes::{NamedFile, Notes, Place};
use crate::config::problem::{Problem, Problems};
use crate::config::reader::Reader;
use crate::config::refused::{Beside, Nobody};
use crate::config::tenants::folder::File;
use crate::config::tenants::tenant::Claimant;
use crate::config::tree::Table;
use crate::config::versions::{Chosen, choose};
use crate::config::{Loaded, Settings, tenants, tree};

/// All that there is to say of a configuration.
#[derive(Debug)]
pub struct Survey {
    /// The usable part of it; none if the file itself can't be used and none is in force.
    pub loaded: Option<Loaded>,
    /// Errors and warnings of all files.
    pub problems: Problems,
    /// False if the configuration file could not be read at all.
    pub is_read: bool,
    /// The files that keys name, whatever is wrong elsewhere. They have not been opened.
    pub files: Vec<NamedFile>,
}

impl Survey {
    /// Reads the file at `path` and the tenants beside it where `former` is in force, or nothing; `environment` is all variables
    /// of the process. So many values are noted.
    pub fn over(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
        values_max: usize,
        former: Option<&Settings>,
        beside: &mut dyn Beside,
    ) -> Self {
        let text = tree::read_file(path);
        let is_read = text.is_ok();
        let main = Main::read(path, text, environment, values_max);
        Self { is_read, ..Self::with_folder(main, Some(path), former, beside) }
    }

    /// Reads a text that stands nowhere: there are no tenants beside it.
    pub(super) fn of_text(
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
        values_max: usize,
    ) -> Self {
        let text = text.to_owned().into();
        let main = Main::read(Path::new("tiergate.toml"), Ok(text), environment, values_max);
        Self::with_folder(main, None, None, &mut Nobody)
    }

    fn with_folder(
        main: Main,
        path: Option<&Path>,
        former: Option<&Settings>,
        beside: &mut dyn Beside,
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
        let settings = offer(&mut main, settings, tenants, beside);
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
            (choose(settings, main, files, former, beside), of_folder)
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
    gateway: Place,
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

/// Looks into the files that the configuration file names. Gives its settings if it can be used; the file offers its tenants then.
fn offer(
    main: &mut File,
    settings: Option<Settings>,
    mut tenants: Vec<Claimant>,
    beside: &mut dyn Beside,
) -> Option<Settings> {
    let settings = settings.filter(|_| main.problems.is_empty())?;
    main.problems.extend(beside.of_file(&settings));
    let in_force: HashSet<&str> = main.in_force.iter().flatten().map(|tenant| &*tenant.id).collect();
    for claimant in &mut tenants {
        let found = beside.of_tenant(&claimant.tenant);
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
