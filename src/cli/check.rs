//! `tiergate check`: every problem of a configuration file at once.

use std::path::Path;

use crate::cli::Failure;
use crate::config::Settings;

/// The exit code for a configuration that can't be used.
const BAD_CONFIGURATION: u8 = 2;

/// Checks the file.
pub(super) fn check(config: &Path) -> Result<(), Failure> {
    load(config)?;
    println!("{}: no problems", config.display());
    Ok(())
}

/// Reads the file and the environment.
pub(super) fn load(config: &Path) -> Result<Settings, Failure> {
    Settings::load(config, environment()).map_err(|problems| {
        let list: Vec<String> = problems.as_slice().iter().map(|problem| format!("\n  {problem}")).collect();
        let message = format!("the configuration {} can't be used:{}", config.display(), list.concat());
        Failure::new(message).with_code(BAD_CONFIGURATION)
    })
}

/// The process's environment; what is not text can't be meant for us.
pub(super) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
