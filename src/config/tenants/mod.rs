//! `[[tenants]]` and `tenants.d/*.toml`: whose traffic the gateway takes.
//!
//! The environment overrides none of it. Must not know the gateway.

mod cors;
pub(in crate::config) mod folder;
mod in_flight;
pub(super) mod neighbours;
mod proxy;
mod route;
pub mod rules;
pub(in crate::config) mod tenant;
mod values;

use crate::config::problem::{Location, Problem};
use crate::config::tenants::neighbours::{Missing, Neighbours};
use crate::config::{
    Settings, listen::Listen, notes::Notes, reader::Reader, tenants::folder::File, tenants::rules::Rules,
    tenants::tenant::Claimant, tree::Table,
};
use crate::domain::{BotDomains, KeyPair};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
pub(super) fn read(
    reader: &mut Reader,
    listen: Option<(&Listen, Option<&KeyPair>)>,
    allow_link_local: bool,
    lacks: Missing,
) -> Option<Vec<Claimant>> {
    let mut neighbours = Neighbours::new(listen, allow_link_local, lacks, Rules::default());
    reader.tables("tenants", TENANTS_MAX, |reader| tenant::read(reader, &mut neighbours))
}

/// The tenants of the folder beside the file at a path, under what counts of that file if it can be used; `others` is how many
/// there are already. Or the problem of the folder.
pub(super) fn read_folder(
    notes: &mut Notes,
    listen: Option<&Listen>,
    counts: Option<&Settings>,
    path: &Path,
    others: usize,
) -> Result<Vec<File>, Box<Problem>> {
    let allow_link_local = counts.is_none_or(|counts| counts.live.gateway.allow_link_local);
    let rules = counts.map(|counts| counts.live.tenants_rules.clone()).unwrap_or_default();
    let tls = counts.and_then(|counts| counts.live.listen.tls.as_ref());
    let listen = listen.map(|listen| (listen, tls));
    let lacks = counts.map(|counts| Missing {
        signer: counts.live.assertion.issuer.is_none(),
        kept_nonces: counts.fixed.signature.forgets_early(),
        bots: counts.fixed.web_bot_auth == BotDomains::default(),
    });
    let mut neighbours = Neighbours::new(listen, allow_link_local, lacks.unwrap_or_default(), rules);
    folder::read(notes, &folder::beside(path), TENANTS_MAX.saturating_sub(others), |reader, file| {
        neighbours.begin_file(reader, file.file_stem().and_then(OsStr::to_str));
        tenant::read(reader, &mut neighbours).filter(|_| !neighbours.is_outside)
    })
}

/// Every path that a tenant may have, and every path that a route may have.
pub(super) fn known() -> [Vec<&'static str>; 2] {
    [read_tenant as fn(&mut Reader), read_route].map(|read| {
        let notes = Notes::default();
        let mut reader = Reader::new(Location::default(), Table::new(), std::iter::empty(), notes);
        read(&mut reader);
        reader.scope.known
    })
}

/// Reads a tenant of whom nothing is known, for the keys that it may have.
pub(super) fn read_tenant(reader: &mut Reader) {
    drop(tenant::read(reader, &mut Neighbours::new(None, false, Missing::default(), Rules::default())));
}

/// Reads a route in the same way.
pub(super) fn read_route(reader: &mut Reader) {
    let nobody = Neighbours::new(None, false, Missing::default(), Rules::default());
    drop(route::read(reader, &mut route::Taken::default(), &nobody));
}
