//! Files of a configuration that are not used as they are, and who looks into the files that keys name.

use crate::config::Settings;
use crate::config::problem::Problem;
use crate::config::tenants::folder::FOLDER;
use crate::domain::tenant::Tenant;

/// How many problems of one file are told; the rest is counted.
const PROBLEMS_MAX: usize = 10;

/// The longest problem that is told whole, in characters.
const PROBLEM_CHARS_MAX: usize = 500;

/// A file, or a block of the configuration file, that is not used as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refused {
    /// As problems name it.
    pub place: String,
    /// Its problems, each on a line of bounded length; a bounded number.
    pub problems: Vec<String>,
    /// True if its former version is in force.
    pub is_kept: bool,
    /// True for the configuration file.
    pub is_main: bool,
}

impl Refused {
    /// With as many of these lines as are told.
    pub fn new(
        place: impl Into<String>,
        lines: impl IntoIterator<Item = impl AsRef<str>>,
        is_kept: bool,
    ) -> Self {
        let cut = |line: &str| match line.char_indices().nth(PROBLEM_CHARS_MAX) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line.to_owned(),
        };
        let (place, mut lines) = (place.into(), lines.into_iter());
        let told = lines.by_ref().take(PROBLEMS_MAX);
        let mut problems: Vec<String> = told.map(|line| cut(line.as_ref())).collect();
        let rest = lines.count();
        if rest > 0 {
            problems.push(format!("{place}: {rest} more problems"));
        }
        Self { place, problems, is_kept, is_main: false }
    }

    /// True for `tenants.d` as a whole.
    pub fn is_folder(&self) -> bool {
        self.place == FOLDER
    }

    /// True for a file of `tenants.d`.
    pub fn is_in_folder(&self) -> bool {
        self.place.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Looks into the files that a configuration names.
pub trait Beside {
    /// Everything for which the configuration file can't be used, but for its tenants.
    fn of_file(&mut self, _: &Settings) -> Vec<Problem> {
        Vec::new()
    }

    /// Everything for which a tenant can't be served.
    fn of_tenant(&mut self, _: &Tenant) -> Vec<Problem> {
        Vec::new()
    }
}

/// Looks into no file.
pub struct Nobody;

impl Beside for Nobody {}
