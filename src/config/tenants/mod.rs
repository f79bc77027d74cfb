//! `[[tenants]]` and `tenants.d/*.toml`, one tenant in each file, its keys at the top level: whose traffic the gateway takes.
//!
//! The environment overrides none of it. Names that begin with a dot are passed over: editors and mounted volumes keep files of
//! their own there. Must not know the gateway.

pub(super) mod context;
mod proxy;
mod route;
pub mod rules;
pub(super) mod tenant;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io::ErrorKind, sync::Arc};

use crate::config::notes::{Claims, Notes};
use crate::config::problem::{Location, Problem};
use crate::config::tenants::{context::Context, tenant::Claimant};
use crate::config::{reader::Reader, tree};
use crate::domain::Tenant;

/// How many tenants there may be, those of all files together.
pub const TENANTS_MAX: usize = 100_000;

/// The folder beside the configuration file that holds tenants in files of their own.
pub(super) const FOLDER: &str = "tenants.d";

/// The folder beside the configuration file at this path.
fn beside(path: &Path) -> PathBuf {
    path.parent().unwrap_or_else(|| Path::new("")).join(FOLDER)
}

/// The files that loading the file at `path` reads: itself, then those of the folder beside it that hold tenants, in the
/// order of their names; and why that folder can't be listed.
pub(super) fn watched_files(path: &Path) -> (Vec<PathBuf>, Option<String>) {
    let listed = files(&beside(path), TENANTS_MAX);
    let unlisted = listed.as_ref().err().cloned();
    (std::iter::once(path.to_owned()).chain(listed.into_iter().flatten()).collect(), unlisted)
}

/// True if there is a folder of tenants beside the file at `path`, or a link in its place.
pub fn has_folder(path: &Path) -> bool {
    beside(path).symlink_metadata().is_ok()
}

/// The tenants of the file that is being read.
pub(super) fn read(reader: &mut Reader, context: &Context) -> Option<Vec<Claimant>> {
    reader.tables("tenants", TENANTS_MAX, |reader| tenant::read(reader, context))
}

/// A file with tenants.
#[derive(Default)]
pub(super) struct File {
    /// As problems name it.
    pub(super) name: Arc<str>,
    /// True for the configuration file.
    pub(super) is_main: bool,
    /// Its tenants as they stand there now; `None` if they can't be read.
    pub(super) offered: Option<Vec<Claimant>>,
    /// The ids and hosts that they claim, as far as they can be read.
    pub(super) claims: Claims,
    /// Everything for which they can't be served.
    pub(super) problems: Vec<Problem>,
    /// Its tenants in force.
    pub(super) in_force: Option<Vec<Arc<Tenant>>>,
    /// Why it does not get all of its claims, or may not give up what it has.
    pub(super) contested: Vec<Problem>,
}

impl File {
    /// True if its tenants can be served.
    pub(super) fn is_usable(&self) -> bool {
        self.offered.is_some() && self.problems.is_empty()
    }

    /// True if its new version counts: it gets all of its claims too.
    pub(super) fn is_used(&self) -> bool {
        self.is_usable() && self.contested.is_empty()
    }

    /// The tenants that are served: the new ones, or those in force.
    pub(super) fn serves(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        let new = self.offered.iter().flatten().filter(|new| self.is_used() && new.problems.is_empty());
        let former = self.in_force.iter().flatten().filter(|_| !self.is_used());
        new.map(|claimant| &claimant.tenant).chain(former)
    }
}

/// Reads each file of the folder beside the file at a path, in the order of their names, where there are `others` already; no folder
/// is no files. Notes what each says; of one that can't be used only the problems. Or the problem of the folder.
pub(super) fn read_folder(
    notes: &mut Notes,
    context: &mut Context,
    path: &Path,
    others: usize,
) -> (Vec<File>, Option<Problem>) {
    let paths = match files(&beside(path), TENANTS_MAX.saturating_sub(others)) {
        Ok(paths) => paths,
        Err(phrase) => {
            let problem = Problem::new(FOLDER, phrase);
            notes.problems.push(problem.clone());
            return (Vec::new(), Some(problem));
        }
    };
    let mut items = Vec::with_capacity(paths.len());
    for path in paths {
        let (name, file, mut found) = (shown(&path), tree::name_of(&path), notes.further());
        let text = tree::read_file(&path).map_err(|phrase| vec![Problem::new(&name, phrase)]);
        let tenant = match text.and_then(|text| tree::parse(&file, &text)) {
            Ok(table) => {
                let location = Location::of_file(file, Some(&name));
                let mut reader = Reader::new(location, table, std::iter::empty(), found);
                context.begin_file(&mut reader, path.file_stem().and_then(OsStr::to_str));
                let tenant = tenant::read(&mut reader, context);
                found = reader.finish();
                tenant
            }
            Err(problems) => {
                found.problems = problems;
                None
            }
        };
        let (problems, claims) = (found.errors(), std::mem::take(&mut found.claims));
        notes.add(found, tenant.is_some() && problems.is_empty());
        let offered = tenant.map(|tenant| vec![tenant]);
        items.push(File { name: name.into(), offered, claims, problems, ..File::default() });
    }
    (items, None)
}

/// The files of a folder that hold tenants, in the order of their names.
fn files(folder: &Path, most: usize) -> Result<Vec<PathBuf>, String> {
    let unreadable = |why| format!("can't be read: {why}");
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(unreadable(why)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        if files.len() > most {
            return Err(format!("holds more than {most} tenants, which is all that there is room for"));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The file as problems name it.
fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    // No two files have one name here, also where names are not text.
    match name.to_str() {
        Some(name) => format!("{FOLDER}/{}", name.escape_debug()),
        None => format!("{FOLDER}/{}", name.as_encoded_bytes().escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::{files, fs};

    #[test]
    fn the_folder_holds_no_more_tenants_than_there_is_room_for() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.toml", "b.toml", "c.txt", ".d.toml"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(files(folder.path(), 2).unwrap().len(), 2);
        let found = files(folder.path(), 1).unwrap_err();
        assert_eq!(found, "holds more than 1 tenants, which is all that there is room for");
    }
}
