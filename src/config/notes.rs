//! Notes of a file that is being read: problems, the files that keys name, what its tenants claim, and as many values as are
//! wanted, each with its origin.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde::Serialize;

use crate::config::problem::{Problem, ValueLocation};
use crate::config::written::quoted;
use crate::domain::{HostPattern, KeyPair, Tenant};

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
    pub(super) claims: Claims,
}

/// The claims of one file's tenants, each by the first that makes it.
pub(super) type Claims = BTreeMap<Claim, Claimed>;

/// Something that one tenant alone may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    Id(Arc<str>),
    Host(HostPattern),
}

/// A claim as it is written.
#[derive(Debug)]
pub(super) struct Claimed {
    /// The table of its tenant, as problems name it.
    pub(super) table: Arc<str>,
    pub(super) place: ValueLocation,
    /// The item of the list, from 1.
    pub(super) number: usize,
}

impl Claim {
    /// What a tenant claims.
    pub(super) fn of(tenant: &Tenant) -> impl Iterator<Item = Self> {
        let hosts = tenant.hosts.iter().cloned().map(Self::Host);
        std::iter::once(Self::Id(Arc::clone(&tenant.id))).chain(hosts)
    }
}

impl Claimed {
    /// The problem that `other` makes the same claim.
    pub(super) fn problem(&self, claim: &Claim, other: &str) -> Problem {
        self.place.clone().problem(match claim {
            Claim::Id(id) => format!("is {}, the id of {other}; write another", quoted(id)),
            Claim::Host(host) => {
                let (number, host) = (self.number, quoted(&host.to_string()));
                format!("item {number} is {host}, a host of {other}; write each host once")
            }
        })
    }
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
