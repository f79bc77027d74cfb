//! What is wrong with a configuration: everything at once, each problem with its place.
//!
//! Must not hold a secret: whoever writes a phrase shows values through `written::quoted` only.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    place: String,
    phrase: String,
}

impl Problem {
    pub(super) fn new(place: impl fmt::Display, phrase: impl Into<String>) -> Self {
        Self { place: place.to_string(), phrase: phrase.into() }
    }

    /// Where it is: a path in the file (`chain.contracts.identity`, `tenants[1].hosts`), an environment variable, a line
    /// and a column, or the file itself; in a tenant's own file with its name in front.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What was found and what is allowed.
    #[must_use]
    pub fn phrase(&self) -> &str {
        &self.phrase
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.phrase)
    }
}

/// Everything that is wrong, in the order of the sections; what is unknown stands at the end of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The problems one by one.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(problems: Vec<Problem>) -> Self {
        Self(problems)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    /// One problem per line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { "\n" };
            write!(out, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
