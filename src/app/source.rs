//! Where the configuration comes from, and whether it has changed since it was read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::config::{ConfigReport, FileProbe, Settings, problem::Problems, tenants::watched_files};
use crate::files::{Fingerprints, fingerprint_of};

/// A configuration file with the environment over it.
pub(crate) struct ConfigSource {
    /// Where the file is.
    pub(crate) path: PathBuf,
    /// Of the environment, by name.
    overrides: Vec<(String, String)>,
    /// The fingerprint of the files before they were first read.
    pub(super) first: u64,
    /// Warnings that were there when it was last read, which the log has told.
    warned: Mutex<HashSet<String>>,
}

impl ConfigSource {
    /// The file at a path. To be made before it is read, so that a change while it is read is noticed later.
    pub(crate) fn at(path: &Path) -> Self {
        Self { overrides: environment().collect(), ..Self::alone(path) }
    }

    /// The same without the environment.
    pub(crate) fn alone(path: &Path) -> Self {
        let first = fingerprint(path);
        Self { path: path.to_owned(), overrides: Vec::new(), first, warned: Mutex::default() }
    }

    /// Reads the file, the folder of tenants beside it, and the environment, where `former` is in force, or nothing. So many values
    /// are noted.
    pub(crate) fn read(
        &self,
        values_max: usize,
        former: Option<&Settings>,
        probe: &mut FileProbe<'_>,
    ) -> ConfigReport {
        ConfigReport::over(&self.path, self.overrides.iter().cloned(), values_max, former, probe)
    }

    /// Writes warnings into the log that were not there when it was read before.
    pub(crate) fn log_warnings(&self, problems: &Problems) {
        problems.log_warnings(&mut self.warned.lock());
    }

    pub(super) fn now(&self) -> u64 {
        fingerprint(&self.path)
    }
}

/// The fingerprint of a configuration. Of the folder only the files that hold tenants count: others come and go there while those are
/// written.
fn fingerprint(path: &Path) -> u64 {
    let (files, unlisted) = watched_files(path);
    fingerprint_of(&(Fingerprints::now(&files), unlisted))
}

/// The process's environment; a name that is not text can't be one of ours.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::ConfigSource;

    #[test]
    fn whatever_happens_to_a_watched_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiergate.toml");
        fs::write(&path, "a").unwrap();
        let source = ConfigSource::at(&path);
        assert_eq!(source.now(), source.first);
        let mut last = source.first;
        let tenants = folder.path().join("tenants.d");
        let mode = |mode| fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let steps: [&dyn Fn(); 9] = [
            &|| fs::write(&path, "ab").unwrap(),
            &|| mode(0o000),
            &|| mode(0o600),
            &|| fs::write(&tenants, "").unwrap(),
            &|| {
                fs::remove_file(&tenants).unwrap();
                fs::create_dir(&tenants).unwrap();
            },
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
        for other in [".a.toml", "a.toml~", "a.txt"] {
            fs::write(tenants.join(other), "x").unwrap();
            assert_eq!(source.now(), last, "{other} holds no tenant");
        }
    }
}
