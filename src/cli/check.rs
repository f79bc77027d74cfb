//! `tiergate check`: every problem of a configuration file at once.

use std::path::Path;

use crate::app::descriptors::Descriptors;
use crate::app::nodes::header_problems;
use crate::app::source::Source;
use crate::app::store_files;
use crate::app::tenants::certificate_problems;
use crate::cli::{BAD_CONFIGURATION, Failure, say};
use crate::config::Settings;
use crate::domain::freshness::UnixSeconds;
use crate::os::Os;
use crate::ports::clock::Clock;

/// Checks the file, and the certificates, keys, passwords and headers in files that it names. Also prints how a process with
/// the limits of this one would divide its file descriptors.
pub(super) fn check(config: &Path) -> Result<(), Failure> {
    let source = Source::at(config);
    let now = UnixSeconds(Os::new().unix_seconds());
    let read = read(&source);
    let problems = match &read {
        Ok(settings) => {
            let of_store = store_files::problems(&settings.store, now);
            [certificate_problems(settings, now), of_store, header_problems(settings)].concat()
        }
        Err(problems) => {
            let store = source.load_store();
            let of_files = store.map(|store| store_files::problems(&store, now)).unwrap_or_default();
            [problems.clone(), of_files].concat()
        }
    };
    let (Ok(settings), true) = (read, problems.is_empty()) else { return Err(unusable(config, &problems)) };
    say(format_args!("{}: no problems", config.display()))?;
    match Descriptors::planned(&settings) {
        Ok(descriptors) => say(format_args!("{descriptors}")),
        Err(too_few) => say(format_args!("{too_few}")),
    }
}

/// Reads the file and the environment.
pub(super) fn load(source: &Source) -> Result<Settings, Failure> {
    read(source).map_err(|problems| unusable(source.path(), &problems))
}

fn read(source: &Source) -> Result<Settings, Vec<String>> {
    if let Some(name) = unreadable_override() {
        return Err(vec![format!("{name}: is not UTF-8 text")]);
    }
    source.load().map_err(|problems| problems.as_slice().iter().map(ToString::to_string).collect())
}

fn unusable(config: &Path, problems: &[String]) -> Failure {
    let list = problems.join("\n  ");
    Failure::new(format!("the configuration {} can't be used:\n  {list}", config.display()))
        .with_code(BAD_CONFIGURATION)
}

/// An override whose value can't be read: to pass over it would be to start with something else than was meant.
fn unreadable_override() -> Option<String> {
    std::env::vars_os()
        .filter(|(_, value)| value.to_str().is_none())
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .find(|name| name.starts_with("TIERGATE__"))
}
