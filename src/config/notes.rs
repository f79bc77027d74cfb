//! Notes of a file that is being read: problems, the files that keys name, and as many values as are wanted, each with its
//! origin.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::problem::{Position, Problem};
use crate::domain::{HostPattern, KeyPair};

/// The origin of a value that nobody wrote.
pub const DEFAULT: &str = "default";

/// How many values are noted for the operator's page: those of some fifty tenants.
pub const VALUES_SHOWN_MAX: usize = 2_000;

/// The notes.
#[derive(Default)]
pub(super) struct Notes {
    /// How many values are wanted.
    pub(super) values_max: usize,
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
    /// True if another value counts without a restart.
    #[serde(skip)]
    pub is_live: bool,
}

/// Files of one kind that keys name.
#[derive(Debug, Clone)]
pub struct NamedFile {
    /// Their paths, and what they should hold.
    pub content: Content,
    /// True if a reload reads them.
    pub(super) is_live: bool,
    /// The keys that name them.
    pub(super) places: Vec<ValueLocation>,
}

/// The content that named files should have.
#[derive(Debug, Clone)]
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
    /// Agents with their tiers.
    Agents(PathBuf),
}

/// The place of a value.
#[derive(Debug, Clone)]
pub(super) struct ValueLocation {
    /// Its path, or a variable.
    pub(super) name: String,
    /// In a file.
    pub(super) position: Option<Position>,
}

impl ValueLocation {
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
    pub fn is_of_tenant(&self) -> bool {
        let is_below = |key: &str| key.starts_with("tenants[") || key.contains(": ");
        self.places.first().is_some_and(|place| is_below(&place.name))
    }

    /// A problem of one of the files, the first if there is no such.
    pub fn problem(&self, number: usize, phrase: &str) -> Option<Problem> {
        Some(self.places.get(number).or(self.places.first())?.clone().problem(phrase))
    }
}

impl Notes {
    /// Those of a further file, which has room for as many values as are still wanted.
    pub(super) fn further(&self) -> Self {
        Self { values_max: self.values_max.saturating_sub(self.values.len()), ..Self::default() }
    }

    /// Adds those of a further file. Of one that is not used only the problems count.
    pub(super) fn add(&mut self, further: Self, is_used: bool) {
        self.problems.extend(further.problems);
        if is_used {
            self.values.extend(further.values);
            self.files.extend(further.files);
        }
    }

    /// The errors so far.
    pub(super) fn errors(&self) -> Vec<Problem> {
        self.problems.iter().filter(|problem| !problem.is_warning).cloned().collect()
    }
}
