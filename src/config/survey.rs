//! A configuration as it can be used: the file itself, each file of `tenants.d`, and what is in force where one of them
//! can't be used.
//!
//! Each file is used or refused by itself. The former version of a refused one stays in force, if there is one. Must not
//! know certificates: [`Beside`] looks into the files that keys name.

use std::path::Path;
use std::sync::Arc;

use toml::Table;

use crate::config::document::Document;
use crate::config::location::Location;
use crate::config::notes::{self, NamedFile, Notes, Value, Wanted};
use crate::config::problem::{Problem, Problems};
use crate::config::reader::Reader;
use crate::config::refused::{Beside, Nobody, Refused};
use crate::config::versions::{Main, Wrong, put_together};
use crate::config::{Loaded, Settings, syntax, tenants};

/// All that there is to say of a configuration.
#[derive(Debug)]
pub struct Survey {
    /// The usable part of it; none if the file itself can't be used and none is in force.
    pub settings: Option<Settings>,
    /// Errors and warnings of all files.
    pub problems: Problems,
    /// Files that are not used as they are, in the order of their names, the configuration file first.
    pub refused: Vec<Refused>,
    /// False if the configuration file could not be read at all.
    pub is_read: bool,
    /// The values that were read, in the order of the sections, as many as are wanted.
    pub values: Vec<Value>,
    /// The files that keys name, whatever is wrong elsewhere; none unless they are wanted. They have not been opened.
    pub files: Vec<NamedFile>,
}

impl Survey {
    /// Reads the file at `path` and the tenants beside it; `environment` is all variables of the process. Nothing is in force,
    /// and no file that keys name is looked into.
    pub fn of(path: &Path, environment: impl Iterator<Item = (String, String)>, wanted: Wanted) -> Self {
        Self::over(path, environment, wanted, None, &mut Nobody)
    }

    /// The same where `former` is in force.
    pub fn over(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
        wanted: Wanted,
        former: Option<&Settings>,
        beside: &mut dyn Beside,
    ) -> Self {
        let read = syntax::read_file(path).map(|text| Document::new(path, &text));
        let read = read.map_err(|phrase| Problem::new(path.to_string_lossy().escape_debug(), phrase));
        Self::read(read, environment, Some(path), wanted, former, beside)
    }

    /// Reads a document that stands nowhere.
    pub(super) fn of_document(
        document: Arc<Document>,
        environment: impl Iterator<Item = (String, String)>,
        wanted: Wanted,
    ) -> Self {
        Self::read(Ok(document), environment, None, wanted, None, &mut Nobody)
    }

    fn read(
        document: Result<Arc<Document>, Problem>,
        environment: impl Iterator<Item = (String, String)>,
        path: Option<&Path>,
        wanted: Wanted,
        former: Option<&Settings>,
        beside: &mut dyn Beside,
    ) -> Self {
        let is_read = document.is_ok();
        let parsed = document.map_err(|problem| (None, vec![problem])).and_then(|document| {
            let table = syntax::table(&document);
            table.map(|table| (Arc::clone(&document), table)).map_err(|problems| (Some(document), problems))
        });
        let (document, table, broken) = match parsed {
            Ok((document, table)) => (document, table, None),
            Err((document, problems)) => {
                let document = document.unwrap_or_else(|| Document::new(path.unwrap_or(Path::new("")), ""));
                (document, Table::new(), Some(problems))
            }
        };
        let is_broken = broken.is_some();
        let location = Location::of_file(Arc::clone(&document), None);
        let mut reader = Reader::new(document, table, environment, wanted);
        let [of_tenant, _] = tenants::known();
        let (settings, listen) = Settings::read(&mut reader);
        match broken {
            // Of a file that is not TOML the rest is not read: half a file would seem to have other mistakes.
            Some(mut problems) => {
                problems.extend(is_read.then(|| reader.unknown_variables()).into_iter().flatten());
                reader.fail(problems);
            }
            None => reader.report_unknown(&of_tenant),
        }
        let main = Main::new(settings, reader.errors(), former, beside);
        let mut with_folder = |main: Main, reader: &mut Reader| {
            let files = match path {
                Some(path) if !is_broken || former.is_some() => {
                    let counts = main.settings.as_ref().or(former);
                    let listen = counts.map(|counts| &counts.listen).or(listen.as_ref());
                    tenants::read_folder(reader, listen, counts, path, main.tenants())
                }
                Some(_) | None => Ok(Vec::new()),
            };
            put_together(main, files, &location, former, beside)
        };
        let mark = reader.mark();
        let (mut settings, mut wrong) = with_folder(main, &mut reader);
        if former.is_some() && !wrong.of_main.is_empty() {
            // The folder was read under rules that do not come into force.
            let of_main = wrong.of_main;
            reader.forget(mark);
            (settings, wrong) = with_folder(Main::refused(of_main.clone()), &mut reader);
            wrong.claims.extend(of_main);
        }
        let Wrong { refused, claims, .. } = wrong;
        reader.report_elsewhere(claims);
        let is_reached = settings.as_ref().is_none_or(|settings| !settings.listen.gateway.is_empty());
        if let (Some(count @ 1..), false) = (settings.as_ref().map(|all| all.tenants.len()), is_reached) {
            let phrase =
                format!("is empty, and nobody reaches the tenants, {count} in all; write an address");
            reader.warn(&["listen.gateway"], phrase);
        }
        let Notes { problems, entries, files, .. } = reader.finish();
        Self { settings, problems: problems.into(), refused, is_read, values: notes::values(entries), files }
    }

    /// The settings and their values, of a configuration that can be used as a whole.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn loaded(self) -> Result<Loaded, Problems> {
        if self.problems.has_error() { Err(self.problems) } else { self.partly() }
    }

    /// As much as can be used, and its values.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, if nothing can be used.
    pub fn partly(self) -> Result<Loaded, Problems> {
        let Self { settings, problems, values, refused, .. } = self;
        settings.map(|settings| Loaded { settings, values, refused }).ok_or(problems)
    }

    /// The settings, of a configuration that can be used as a whole.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn usable(self) -> Result<Settings, Problems> {
        self.loaded().map(|loaded| loaded.settings)
    }
}
