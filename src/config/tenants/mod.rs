//! `[[tenants]]` and `tenants.d/*.toml`: whose traffic the gateway takes.
//!
//! The environment overrides none of it. Must not know the gateway.

pub(super) mod context;
mod cors;
pub(in crate::config) mod folder;
mod in_flight;
mod proxy;
mod route;
pub mod rules;
pub(in crate::config) mod tenant;
mod values;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::config::tenants::{context::Context, folder::File, tenant::Claimant};
use crate::config::{notes::Notes, problem::Problem, reader::Reader};

/// How many tenants there may be, those of all files together.
pub const TENANTS_MAX: usize = 100_000;

/// The files that loading the file at `path` reads: itself, then those of the folder beside it that hold tenants, in the
/// order of their names; and why that folder can't be listed.
pub fn watched_files(path: &Path) -> (Vec<PathBuf>, Option<String>) {
    let (files, unlisted) = match folder::files(&folder::beside(path), TENANTS_MAX) {
        Ok(files) => (files, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    (std::iter::once(path.to_owned()).chain(files).collect(), unlisted)
}

/// True if there is a folder of tenants beside the file at `path`, or a link in its place.
pub fn has_folder(path: &Path) -> bool {
    folder::beside(path).symlink_metadata().is_ok()
}

/// The tenants of the file that is being read.
pub(super) fn read(reader: &mut Reader, context: &Context) -> Option<Vec<Claimant>> {
    reader.tables("tenants", TENANTS_MAX, |reader| tenant::read(reader, context))
}

/// The files of the folder beside the file at a path, where there are `others` already. Or the problem of the folder.
pub(super) fn read_folder(
    notes: &mut Notes,
    context: &mut Context,
    path: &Path,
    others: usize,
) -> Result<Vec<File>, Box<Problem>> {
    folder::read(notes, &folder::beside(path), TENANTS_MAX.saturating_sub(others), |reader, file| {
        context.begin_file(reader, file.file_stem().and_then(OsStr::to_str));
        tenant::read(reader, context)
    })
}
