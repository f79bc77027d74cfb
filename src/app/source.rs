//! Where the configuration comes from, and whether it has changed since it was read.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::listen::Listen;
use crate::config::problem::Problems;
use crate::config::tenants::watched_files;
use crate::config::{Loaded, Settings, Survey, Wanted};

/// A configuration file with the environment over it.
pub(crate) struct Source {
    path: PathBuf,
    /// Of the environment, by name.
    overrides: Vec<(String, String)>,
    /// As the files were before they were first read.
    first: Fingerprint,
}

/// What files looked like: equal when none of them has been written, exchanged or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Source {
    /// The file at a path. To be made before it is read, so that a change while it is read is noticed later.
    pub(crate) fn at(path: &Path) -> Self {
        Self { overrides: environment().collect(), ..Self::alone(path) }
    }

    /// The same without the environment.
    pub(crate) fn alone(path: &Path) -> Self {
        let first = Fingerprint::of(&watched_files(path));
        Self { path: path.to_owned(), overrides: Vec::new(), first }
    }

    /// Reads the file, the folder of tenants beside it, and the environment. Warnings are in the log.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub(crate) fn load(&self) -> Result<Loaded, Problems> {
        let survey = self.survey(Wanted::Files);
        survey.problems.log_warnings();
        survey.loaded()
    }

    /// Reads them with all that there is to say of them.
    pub(crate) fn survey(&self, wanted: Wanted) -> Survey {
        Survey::of(&self.path, self.overrides.iter().cloned(), wanted)
    }

    /// Reads what they say of the listeners, whatever is wrong elsewhere; nothing when a part of that is wrong.
    pub(crate) fn load_listen(&self) -> Option<Listen> {
        Settings::load_listen(&self.path, self.overrides.iter().cloned())
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn first(&self) -> Fingerprint {
        self.first
    }

    pub(super) fn now(&self) -> Fingerprint {
        Fingerprint::of(&watched_files(&self.path))
    }
}

impl Fingerprint {
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let mut hasher = DefaultHasher::new();
        for file in files {
            file.hash(&mut hasher);
            let seen = std::fs::metadata(file).ok();
            seen.map(|seen| (seen.dev(), seen.ino(), seen.len(), seen.mtime(), seen.mtime_nsec()))
                .hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

/// The process's environment; a name that is not text can't be one of ours.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Source;

    #[test]
    fn whatever_happens_to_a_watched_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiergate.toml");
        fs::write(&path, "a").unwrap();
        let source = Source::at(&path);
        assert_eq!(source.now(), source.first());
        let mut last = source.first();
        let tenants = folder.path().join("tenants.d");
        let steps: [&dyn Fn(); 6] = [
            &|| fs::write(&path, "ab").unwrap(),
            &|| fs::create_dir(&tenants).unwrap(),
            &|| fs::write(tenants.join("a.toml"), "x").unwrap(),
            &|| fs::write(tenants.join("b.toml"), "x").unwrap(),
            &|| fs::rename(tenants.join("b.toml"), tenants.join("a.toml")).unwrap(),
            &|| fs::remove_file(tenants.join("a.toml")).unwrap(),
        ];
        for (at, step) in steps.iter().enumerate() {
            step();
            let now = source.now();
            assert_ne!(now, last, "step {at}");
            last = now;
        }
    }
}
