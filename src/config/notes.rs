//! Notes of a file that is being read: problems, and if they are wanted, each value with its origin and the files that keys
//! name.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::problem::{Position, Problem};
use crate::domain::host::HostPattern;
use crate::domain::tenant::KeyPair;

/// The origin of a value that nobody wrote.
pub const DEFAULT: &str = "default";

/// How many values are noted for the operator's page: those of some fifty tenants.
pub const VALUES_SHOWN_MAX: usize = 2_000;

/// Beside settings and problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// No more.
    Settings,
    /// The files that keys name, and the first [`VALUES_SHOWN_MAX`] values.
    Files,
    /// These files, and every value.
    Values,
}

/// The notes.
pub(super) struct Notes {
    pub(super) wants_files: bool,
    /// How many values are wanted.
    values_max: usize,
    pub(super) problems: Vec<Problem>,
    pub(super) values: Vec<Value>,
    pub(super) files: Vec<NamedFile>,
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Value {
    /// The path of its key.
    pub key: String,
    /// The value as TOML writes it, or stars for a secret.
    pub value: String,
    /// [`DEFAULT`], a file and a line, or a variable.
    pub origin: String,
}

/// Files of one kind that keys name.
#[derive(Debug)]
pub struct NamedFile {
    /// Their paths, and what they should hold.
    pub content: Content,
    /// The keys that name them.
    pub(super) places: Vec<Place>,
}

/// The content that named files should have.
#[derive(Debug)]
pub enum Content {
    /// A certificate and its key, under two keys.
    Pair(KeyPair),
    /// A certificate that clients of these hosts are shown.
    Shown(KeyPair, Vec<HostPattern>),
    /// Authorities that are believed.
    Authorities(PathBuf),
    /// A secret.
    Secret(PathBuf),
    /// Keys that sign assertions.
    SigningKeys(PathBuf),
    /// The value of a header.
    HeaderValue(PathBuf),
}

/// The place of a value.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Its path, or a variable.
    pub(super) name: String,
    /// In a file.
    pub(super) position: Option<Position>,
}

impl Place {
    pub(super) fn problem(self, phrase: impl Into<String>) -> Problem {
        Problem::new(self.name, phrase).at(self.position)
    }

    /// The file and the line, or the variable.
    pub(super) fn origin(self) -> String {
        self.position.map_or(self.name, |position| position.to_string())
    }
}

impl NamedFile {
    /// True if a tenant's key names them.
    #[must_use]
    pub fn is_of_tenant(&self) -> bool {
        self.places.first().is_some_and(|place| is_of_tenant(&place.name))
    }

    /// A problem of one of the files, the first if there is no such.
    #[must_use]
    pub fn problem(&self, number: usize, phrase: &str) -> Option<Problem> {
        Some(self.places.get(number).or(self.places.first())?.clone().problem(phrase))
    }
}

/// True for the path of a key of a tenant.
pub(super) fn is_of_tenant(key: &str) -> bool {
    key.starts_with("tenants[") || key.contains(": ")
}

impl Notes {
    pub(super) const fn new(wanted: Wanted) -> Self {
        let values_max = match wanted {
            Wanted::Settings => 0,
            Wanted::Files => VALUES_SHOWN_MAX,
            Wanted::Values => usize::MAX,
        };
        let wants_files = !matches!(wanted, Wanted::Settings);
        Self { wants_files, values_max, problems: Vec::new(), values: Vec::new(), files: Vec::new() }
    }

    /// Those of a further file, which has room for as many values as are still wanted.
    pub(super) fn further(&self) -> Self {
        let values_max = self.values_max.saturating_sub(self.values.len());
        Self { values_max, wants_files: self.wants_files, ..Self::new(Wanted::Settings) }
    }

    /// Adds those of a further file. Of one that is not used only the problems count.
    pub(super) fn add(&mut self, further: Self, is_used: bool) {
        self.problems.extend(further.problems);
        if is_used {
            self.values.extend(further.values);
            self.files.extend(further.files);
        }
    }

    /// True if more values are wanted.
    pub(super) const fn wants_values(&self) -> bool {
        self.values.len() < self.values_max
    }

    /// The errors so far.
    pub(super) fn errors(&self) -> Vec<Problem> {
        self.problems.iter().filter(|problem| !problem.is_warning()).cloned().collect()
    }
}
