//! `tiergate check`: every problem of a configuration file at once.

use std::path::Path;

use crate::app::source::Source;
use crate::app::tenants::certificate_problems;
use crate::cli::{BAD_CONFIGURATION, Failure, say};
use crate::config::Settings;
use crate::domain::freshness::UnixSeconds;
use crate::os::Os;
use crate::ports::clock::Clock;

/// Checks the file, and the certificates that it names.
pub(super) fn check(config: &Path) -> Result<(), Failure> {
    let settings = load(&Source::at(config))?;
    let problems = certificate_problems(&settings, UnixSeconds(Os::new().unix_seconds()));
    if !problems.is_empty() {
        let message = format!("certificates can't be used:\n  {}", problems.join("\n  "));
        return Err(Failure::new(message).with_code(BAD_CONFIGURATION));
    }
    say(format_args!("{}: no problems", config.display()))
}

/// Reads the file and the environment.
pub(super) fn load(source: &Source) -> Result<Settings, Failure> {
    if let Some(name) = unreadable_override() {
        let message = format!("the environment variable {name} is not UTF-8 text");
        return Err(Failure::new(message).with_code(BAD_CONFIGURATION));
    }
    source.load().map_err(|problems| {
        let list: Vec<String> = problems.as_slice().iter().map(|problem| format!("\n  {problem}")).collect();
        let message =
            format!("the configuration {} can't be used:{}", source.path().display(), list.concat());
        Failure::new(message).with_code(BAD_CONFIGURATION)
    })
}

/// An override whose value can't be read: to pass over it would be to start with something else than was meant.
fn unreadable_override() -> Option<String> {
    std::env::vars_os()
        .filter(|(_, value)| value.to_str().is_none())
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .find(|name| name.starts_with("TIERGATE__"))
}
