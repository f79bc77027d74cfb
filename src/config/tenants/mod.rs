//! `[[tenants]]` and `tenants.d/*.toml`: whose traffic the gateway takes.
//!
//! The environment overrides none of it. Tenants are reloaded by loading the whole configuration again, so that a file
//! that would not start a process does not change a running one either. Must not know the gateway.

mod cors;
mod folder;
mod in_flight;
mod neighbours;
mod proxy;
mod route;
mod rules;
mod tenant;
mod values;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Table;

use crate::config::document::Document;
use crate::config::listen::Listen;
use crate::config::notes::Wanted;
use crate::config::reader::Reader;
use crate::config::tenants::neighbours::Neighbours;
use crate::config::tenants::rules::Rules;
use crate::domain::tenant::Tenant;

/// How many tenants there may be, those of all files together.
pub const TENANTS_MAX: usize = 100_000;

/// Every path whose change may change what loading the file at `path` gives: the file, the folder of tenants whether or
/// not it is there, and the files in it that hold tenants, in the order of their names.
#[must_use]
pub fn watched_files(path: &Path) -> Vec<PathBuf> {
    let folder = folder::beside(path);
    let files = folder::files(&folder, TENANTS_MAX).unwrap_or_default();
    [path.to_owned(), folder].into_iter().chain(files).collect()
}

/// True if there is a folder of tenants beside the file at `path`, or a link in its place.
#[must_use]
pub fn has_folder(path: &Path) -> bool {
    folder::beside(path).symlink_metadata().is_ok()
}

/// The tenants of the file that is being read, then those of the folder beside it if it stands at a path; and how many the
/// folder holds.
pub(super) fn read(
    reader: &mut Reader,
    listen: Option<&Listen>,
    allow_link_local: bool,
    path: Option<&Path>,
) -> Option<(Vec<Arc<Tenant>>, usize)> {
    let nobody = || Neighbours::new(None, true, Rules::default());
    let rules = Rules::read(reader);
    let mut neighbours = Neighbours::new(listen, allow_link_local, rules);
    let in_file = reader.tables("tenants", TENANTS_MAX, |reader| tenant::read(reader, &mut neighbours));
    let read_one = |reader: &mut Reader, file: &Path| {
        let is_under_rule = neighbours.enter_file(reader, file.file_stem().and_then(OsStr::to_str));
        // A file that is not takes no host and no id from whose they are.
        if is_under_rule {
            tenant::read(reader, &mut neighbours)
        } else {
            tenant::read(reader, &mut nobody())
        }
    };
    let room = TENANTS_MAX.saturating_sub(in_file.as_ref().map_or(0, Vec::len));
    let in_folder = match path {
        Some(path) => folder::read(reader, &folder::beside(path), room, read_one),
        None => Some(Vec::new()),
    };
    let (mut tenants, in_folder) = (in_file?, in_folder?);
    let folder_count = in_folder.len();
    tenants.extend(in_folder);
    Some((tenants, folder_count))
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
