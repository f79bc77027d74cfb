//! Notes of a configuration that is being read: problems, and if they are wanted, each value with its origin and the files
//! that keys name.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::document::{Maps, Site};
use crate::config::problem::Problem;
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

impl Wanted {
    /// How many values are wanted.
    pub(super) const fn values_max(self) -> usize {
        match self {
            Self::Settings => 0,
            Self::Files => VALUES_SHOWN_MAX,
            Self::Values => usize::MAX,
        }
    }
}

/// The notes.
pub(super) struct Notes {
    pub(super) wanted: Wanted,
    pub(super) problems: Vec<Problem>,
    pub(super) entries: Vec<Entry>,
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
    /// The value of a header.
    HeaderValue(PathBuf),
}

/// A value that was read, before its place is known.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    /// `None` for a default.
    pub(super) place: Option<Place>,
}

/// The place of a value.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Its path, or a variable.
    pub(super) name: String,
    /// In a file.
    pub(super) site: Option<Site>,
}

impl Place {
    pub(super) fn problem(self, phrase: impl Into<String>) -> Problem {
        let problem = Problem::new(self.name, phrase);
        match self.site {
            Some(site) => problem.at(site),
            None => problem,
        }
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
    pub(super) const fn new(wanted: Wanted, problems: Vec<Problem>) -> Self {
        Self { wanted, problems, entries: Vec::new(), files: Vec::new() }
    }

    /// Takes everything, to write more behind it.
    pub(super) fn taken(&mut self) -> Self {
        let empty = Self::new(self.wanted, Vec::new());
        std::mem::replace(self, empty)
    }
}

/// The values, looked for in their files.
pub(super) fn values(entries: Vec<Entry>) -> Vec<Value> {
    let mut maps = Maps::default();
    let found = entries.into_iter().map(|Entry { key, value, place }| {
        let origin = place.map(|Place { name, site }| match site {
            Some(site) => maps.excerpt(&site).position(),
            None => name,
        });
        Value { key, value, origin: origin.unwrap_or_else(|| DEFAULT.to_owned()) }
    });
    found.collect()
}
