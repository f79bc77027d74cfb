//! `[[tenants]]` and `tenants.d/*.toml`: whose traffic the gateway takes.
//!
//! The environment overrides none of it. Must not know the gateway.

mod cors;
pub(in crate::config) mod folder;
mod in_flight;
mod neighbours;
pub(in crate::config) mod parties;
mod proxy;
mod route;
pub mod rules;
mod tenant;
mod values;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Table;

use crate::config::Settings;
use crate::config::document::Document;
use crate::config::listen::Listen;
use crate::config::notes::Wanted;
use crate::config::problem::Problem;
use crate::config::reader::Reader;
use crate::config::tenants::folder::TenantFile;
use crate::config::tenants::neighbours::Neighbours;
use crate::config::tenants::rules::Rules;
use crate::domain::tenant::Tenant;

/// How many tenants there may be, those of all files together.
pub const TENANTS_MAX: usize = 100_000;

/// The files that loading the file at `path` reads: itself, then those of the folder beside it that hold tenants, in the
/// order of their names; and why that folder can't be listed.
#[must_use]
pub fn watched_files(path: &Path) -> (Vec<PathBuf>, Option<String>) {
    let (files, unlisted) = match folder::files(&folder::beside(path), TENANTS_MAX) {
        Ok(files) => (files, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    (std::iter::once(path.to_owned()).chain(files).collect(), unlisted)
}

/// True if there is a folder of tenants beside the file at `path`, or a link in its place.
#[must_use]
pub fn has_folder(path: &Path) -> bool {
    folder::beside(path).symlink_metadata().is_ok()
}

/// The tenants of the file that is being read.
pub(super) fn read(
    reader: &mut Reader,
    listen: Option<&Listen>,
    allow_link_local: bool,
) -> Option<Vec<Arc<Tenant>>> {
    let mut neighbours = Neighbours::new(listen, allow_link_local, Rules::default());
    reader.tables("tenants", TENANTS_MAX, |reader| tenant::read(reader, &mut neighbours))
}

/// The tenants of the folder beside the file at a path, under what counts of that file if it can be used; `others` is how many
/// there are already.
///
/// # Errors
///
/// The problem of the folder.
pub(super) fn read_folder(
    reader: &mut Reader,
    listen: Option<&Listen>,
    counts: Option<&Settings>,
    path: &Path,
    others: usize,
) -> Result<Vec<TenantFile>, Box<Problem>> {
    let allow_link_local = counts.is_none_or(|counts| counts.allow_link_local);
    let rules = counts.map(|counts| counts.tenants_rules.clone()).unwrap_or_default();
    let mut neighbours = Neighbours::new(listen, allow_link_local, rules);
    folder::read(reader, &folder::beside(path), TENANTS_MAX.saturating_sub(others), |reader, file| {
        neighbours.begin_file(reader, file.file_stem().and_then(OsStr::to_str));
        tenant::read(reader, &mut neighbours).filter(|_| !neighbours.is_outside())
    })
}

/// Every path that a tenant may have, and every path that a route may have.
pub(super) fn known() -> [Vec<&'static str>; 2] {
    let known_after = |read: &dyn Fn(&mut Reader)| {
        let mut reader =
            Reader::new(Document::new(Path::new(""), ""), Table::new(), std::iter::empty(), Wanted::Settings);
        read(&mut reader);
        reader.known().to_vec()
    };
    let of_tenant = known_after(&|reader| {
        drop(tenant::read(reader, &mut Neighbours::new(None, false, Rules::default())))
    });
    let of_route = known_after(&|reader| {
        drop(route::read(
            reader,
            &mut route::Taken::default(),
            &Neighbours::new(None, false, Rules::default()),
        ));
    });
    [of_tenant, of_route]
}
