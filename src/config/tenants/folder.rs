//! `tenants.d/*.toml`: one tenant in each file, its keys at the top level.
//!
//! Names that begin with a dot are passed over: editors and mounted volumes keep files of their own there. Each file is
//! used or refused by itself.

use std::path::{Path, PathBuf};
use std::{fs, io::ErrorKind, sync::Arc};

use crate::config::problem::{Location, Problem};
use crate::config::{notes::Claims, notes::Notes, reader::Reader, tenants::tenant::Claimant, tree};
use crate::domain::Tenant;

/// The folder beside the configuration file that holds tenants in files of their own.
pub(in crate::config) const FOLDER: &str = "tenants.d";

/// The folder beside the configuration file at this path.
pub(super) fn beside(path: &Path) -> PathBuf {
    path.parent().unwrap_or_else(|| Path::new("")).join(FOLDER)
}

/// A file with tenants.
#[derive(Default)]
pub(in crate::config) struct File {
    /// As problems name it.
    pub(in crate::config) name: Arc<str>,
    /// True for the configuration file.
    pub(in crate::config) is_main: bool,
    /// Its tenants as they stand there now; `None` if they can't be read.
    pub(in crate::config) offered: Option<Vec<Claimant>>,
    /// What they claim, as far as that can be read.
    pub(in crate::config) claims: Claims,
    /// Everything for which they can't be served.
    pub(in crate::config) problems: Vec<Problem>,
    /// Its tenants in force.
    pub(in crate::config) in_force: Option<Vec<Arc<Tenant>>>,
    /// Why it does not get all of its claims, or may not give up what it has.
    pub(in crate::config) contested: Vec<Problem>,
}

impl File {
    /// True if its tenants can be served.
    pub(in crate::config) fn is_usable(&self) -> bool {
        self.offered.is_some() && self.problems.is_empty()
    }

    /// True if its new version counts: it gets all of its claims too.
    pub(in crate::config) fn is_used(&self) -> bool {
        self.is_usable() && self.contested.is_empty()
    }

    /// The tenants that are served: the new ones, or those in force.
    pub(in crate::config) fn serves(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        let new = self.offered.iter().flatten().filter(|new| self.is_used() && new.problems.is_empty());
        let former = self.in_force.iter().flatten().filter(|_| !self.is_used());
        new.map(|claimant| &claimant.tenant).chain(former)
    }
}

/// Reads each file of the folder, in the order of their names; no folder is no files. Notes what each says; of one that can't be
/// used only the problems. Or the problem of the folder.
pub(super) fn read(
    notes: &mut Notes,
    folder: &Path,
    most: usize,
    mut read_one: impl FnMut(&mut Reader, &Path) -> Option<Claimant>,
) -> Result<Vec<File>, Box<Problem>> {
    let paths = files(folder, most).map_err(|phrase| {
        let problem = Problem::new(FOLDER, phrase);
        notes.problems.push(problem.clone());
        Box::new(problem)
    })?;
    let mut items = Vec::with_capacity(paths.len());
    for path in paths {
        let (name, file, mut found) = (shown(&path), tree::name_of(&path), notes.further());
        let text = tree::read_file(&path).map_err(|phrase| vec![Problem::new(&name, phrase)]);
        let tenant = match text.and_then(|text| tree::parse(&file, &text)) {
            Ok(table) => {
                let location = Location::of_file(file, Some(&name));
                let mut reader = Reader::new(location, table, std::iter::empty(), found);
                let tenant = read_one(&mut reader, &path);
                found = reader.finish(&[]);
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
    Ok(items)
}

/// The files that hold tenants, in the order of their names.
pub(super) fn files(folder: &Path, most: usize) -> Result<Vec<PathBuf>, String> {
    let unreadable = |why| format!("can't be read: {why}");
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(unreadable(why)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if is_tenant(&path) {
            files.push(path);
        }
        if files.len() > most {
            return Err(format!("holds more than {most} tenants, which is all that there is room for"));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn is_tenant(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    !name.starts_with(b".") && path.extension().is_some_and(|extension| extension == "toml")
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
