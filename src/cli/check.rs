//! `tiergate check`: every problem of a configuration at once. `tiergate config show`: its values, with their origins.

use std::path::Path;

use crate::app::descriptors::Descriptors;
use crate::app::named_files;
use crate::app::source::Source;
use crate::cli::{BAD_CONFIGURATION, ConfigFile, Failure, report, say};
use crate::config::Settings;
use crate::config::problem::{Problem, Problems};
use crate::domain::freshness::UnixSeconds;
use crate::os::Os;
use crate::ports::clock::Clock;

/// Check a configuration file and the files that it names, and show every problem at its place.
#[derive(clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Take warnings for errors.
    #[arg(long)]
    strict: bool,
    /// Print the problems as JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Also prints how a process with the limits of this one would divide its file descriptors.
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = &self.file.config;
        let survey = Source::at(config).survey();
        let mut problems = survey.problems.as_slice().to_vec();
        problems.extend(unreadable_override());
        let now = UnixSeconds(Os::new().unix_seconds());
        problems.extend(survey.files.iter().flat_map(|named| named_files::problems(named, now)));
        let descriptors = survey.settings.as_ref().map(Descriptors::planned).transpose();
        if let Err(too_few) = &descriptors {
            problems.push(Problem::new("file descriptors", too_few.to_string()).as_warning());
        }
        let problems = Problems::from(problems);
        let warnings = problems.as_slice().iter().filter(|problem| problem.is_warning()).count();
        let errors = problems.as_slice().len() - warnings;
        if self.json {
            say(format_args!("{}", report::json(&problems)))?;
        }
        if errors > 0 || (self.strict && warnings > 0) {
            return Err(unusable(config, &problems));
        }
        if self.json {
            return Ok(());
        }
        if warnings > 0 {
            say(format_args!("{}\n", report::drawn(&problems)))?;
        }
        let counted =
            if warnings > 0 { format!("{warnings} warnings, no errors") } else { "no problems".to_owned() };
        say(format_args!("{}: {counted}", config.display()))?;
        match descriptors {
            Ok(Some(descriptors)) => say(format_args!("{descriptors}")),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

/// Look at the configuration.
#[derive(clap::Subcommand)]
pub(super) enum Config {
    /// Print every value that is in force with this file and environment, and where it comes from. Secrets are blanked.
    Show(ConfigFile),
}

impl Config {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self::Show(ConfigFile { config }) = self;
        let survey = Source::at(&config).survey();
        if survey.settings.is_none() {
            return Err(unusable(&config, &survey.problems));
        }
        let width = survey
            .values
            .iter()
            .map(|value| value.key.len() + value.value.len())
            .filter(|len| *len < 60)
            .max();
        for value in survey.values {
            let (key, text, origin) = (value.key, value.value, value.origin);
            let padding = width.unwrap_or(0).saturating_sub(key.len() + text.len());
            say(format_args!("{key} = {text}{:padding$}  # {origin}", ""))?;
        }
        Ok(())
    }
}

/// Reads the file and the environment.
pub(super) fn load(source: &Source) -> Result<Settings, Failure> {
    let loaded = match unreadable_override() {
        Some(problem) => Err(vec![problem].into()),
        None => source.load(),
    };
    loaded.map_err(|problems| unusable(source.path(), &problems))
}

fn unusable(config: &Path, problems: &Problems) -> Failure {
    let (list, count) = (report::drawn(problems), problems.as_slice().len());
    let s = if count == 1 { "" } else { "s" };
    Failure::new(format!(
        "the configuration {} can't be used: {count} problem{s}\n\n{list}",
        config.display()
    ))
    .with_code(BAD_CONFIGURATION)
}

/// An override whose value can't be read: to pass over it would be to start with something else than was meant.
fn unreadable_override() -> Option<Problem> {
    std::env::vars_os()
        .filter(|(_, value)| value.to_str().is_none())
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .find(|name| name.starts_with("TIERGATE_"))
        .map(|name| Problem::new(name, "is not UTF-8 text"))
}
