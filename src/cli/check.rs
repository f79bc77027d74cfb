//! `tiergate check`: every problem of a configuration at once. `tiergate config show`: its values, with their origins.

use std::path::Path;

use reqwest::Url;
use serde_json::json;

use crate::app::descriptors::Descriptors;
use crate::app::named_files;
use crate::app::online::{self, Finding};
use crate::app::source::Source;
use crate::app::store;
use crate::app::tenants::{Look, emptiness};
use crate::cli::client::{address, wait_for};
use crate::cli::output::Output;
use crate::cli::{ConfigFile, Failure, complain, report, say, through};
use crate::config::problem::{Problem, Problems};
use crate::config::{Loaded, Refused, Settings, Survey, Value, schema};
use crate::domain::agent_id::AgentId;
use crate::domain::freshness::UnixSeconds;
use crate::os::Os;
use crate::ports::clock::Clock;
use crate::tls::loaded_files::LoadedFiles;

/// Check a configuration file and the files that it names, and list every problem with its place; exit code 2 if there are any.
#[derive(clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Take warnings for errors.
    #[arg(long)]
    strict: bool,
    /// Ask the nodes, contracts, store and upstreams too; exit code 1 if one of them is not as it should be.
    #[arg(long)]
    online: bool,
    /// The agent that `--online` reads: its owner, stake, tier and limit are printed [default: the first that is minted].
    #[arg(long, value_name = "N", value_parser = AgentId::parse, requires = "online")]
    agent_id: Option<AgentId>,
    /// A URL of another gateway that asks this service: a request goes there with identity headers that a client made up, and
    /// its answer must not show them. Take a public route whose upstream shows the headers of its requests.
    #[arg(long, value_name = "URL", requires = "online", value_parser = address)]
    through: Option<Url>,
    /// How to print the problems. As JSON, `--online` adds healthy parts with the severity `info`.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

impl Check {
    /// Also prints how a process with the limits of this one would divide its file descriptors.
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = &self.file.config;
        let (survey, mut problems) = survey(&Source::at(config));
        let loaded = survey.loaded.as_ref();
        let descriptors = loaded.map(|loaded| Descriptors::planned(&loaded.settings)).transpose();
        if let Err(too_few) = &descriptors {
            problems.0.push(Problem::new("file descriptors", too_few.as_str()).as_warning());
        }
        problems.0.extend(loaded.and_then(|loaded| emptiness(loaded, config)));
        problems.0.extend(loaded.and_then(|loaded| store::left_on(&loaded.settings)));
        problems.0.extend(loaded.and_then(|loaded| named_files::unused_secret(&loaded.settings)));
        let (warnings, errors): (Vec<&Problem>, Vec<&Problem>) =
            problems.0.iter().partition(|problem| problem.is_warning);
        let is_unusable = !errors.is_empty() || (self.strict && !warnings.is_empty());
        let mut findings = match loaded {
            Some(Loaded { settings, .. }) if self.online && !is_unusable => {
                let asked = online::ask(settings, Source::at(config), self.agent_id);
                wait_for("everything that is asked", asked)??
            }
            _ => Vec::new(),
        };
        findings
            .extend(self.through.iter().filter(|_| !is_unusable).map(|url| through::ask(url, &Os::new())));
        if self.output == Output::Json {
            say(format_args!("{}", report::json(&problems, &findings)))?;
        }
        if is_unusable {
            return Err(unusable(config, &problems));
        }
        if self.output == Output::Json {
            return well(&findings);
        }
        if warnings.is_empty() {
            say(format_args!("{}: no problems", config.display()))?;
        } else {
            complain(format_args!("warnings\n\n{}\n", report::listed(&problems)));
            say(format_args!("{}: no errors, {}", config.display(), counted(warnings.len(), "warning")))?;
        }
        if let Ok(Some(descriptors)) = descriptors {
            say(format_args!("{descriptors}"))?;
        }
        for (part, state) in &findings {
            if let Ok(state) = state {
                say(format_args!("{part}: {state}"))?;
            }
        }
        well(&findings)
    }
}

/// Fails with everything that is wrong.
fn well(findings: &[Finding]) -> Result<(), Failure> {
    let wrong = |(part, state): &Finding| Some(format!("  {part}: {}", state.as_ref().err()?));
    let wrong: Vec<String> = findings.iter().filter_map(wrong).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let count = findings.len();
    Err(Failure::new(format!(
        "{} of {count} parts are not as they should be:\n{}",
        wrong.len(),
        wrong.join("\n")
    )))
}

/// Look at the configuration.
#[derive(clap::Subcommand)]
pub(super) enum Config {
    /// Print every value that is in force with this file and environment, and where it comes from. Secrets are blanked.
    Show {
        #[command(flatten)]
        file: ConfigFile,
        /// How to print it.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Print a JSON schema of the configuration file, by which editors complete and check its keys.
    Schema,
}

impl Config {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self::Show { file: ConfigFile { config }, output } = self else {
            return say(format_args!("{:#}", schema()));
        };
        let loaded = Source::at(&config).survey(usize::MAX).whole();
        let values = loaded.map_err(|problems| unusable(&config, &problems))?.values;
        if output == Output::Json {
            let typed = |text: &str| format!("it = {text}").parse::<toml::Table>().ok()?.remove("it");
            let object =
                |it: &Value| json!({ "key": it.key, "value": typed(&it.value), "origin": it.origin });
            return output.print(&values.iter().map(object).collect::<serde_json::Value>());
        }
        let lengths = values.iter().map(|value| value.key.len() + value.value.len());
        let width = lengths.filter(|len| *len < 60).max();
        for Value { key, value: text, origin, .. } in values {
            let padding = width.unwrap_or(0).saturating_sub(key.len() + text.len());
            say(format_args!("{key} = {text}{:padding$}  # {origin}", ""))?;
        }
        Ok(())
    }
}

/// Reads the configuration, and looks into the files that it names.
pub(super) fn load(source: &Source) -> Result<Settings, Failure> {
    let (survey, all) = survey(source);
    let loaded = survey.loaded.filter(|_| !all.has_error());
    Ok(loaded.ok_or_else(|| unusable(&source.path, &all))?.settings)
}

/// The same for a process that is to serve: tenants that can't be served are left out. Other tools may mend or still have
/// to write all but the keys of the configuration file, so that only these end it for good.
pub(super) fn load_to_serve(source: &Source) -> Result<(Loaded, Problems), Failure> {
    let (files, now) = (LoadedFiles::default(), UnixSeconds(Os::new().unix_seconds()));
    let survey = source.over(None, &mut Look::first(&files, now));
    let Survey { loaded, mut problems, files, is_read } = survey;
    let Some(loaded) = loaded else {
        problems.0.extend(unreadable_override());
        let failure = unusable(&source.path, &problems);
        return Err(if is_read { failure } else { failure.with_code(1) });
    };
    if let Some(problem) = unreadable_override() {
        return Err(unusable(&source.path, &Problems(vec![problem])));
    }
    let of_service = files.iter().filter(|named| !named.is_of_tenant());
    let of_files = of_service.flat_map(|named| named_files::problems(named, now));
    let of_files: Vec<Problem> = of_files.filter(|problem| !problem.is_warning).collect();
    if !of_files.is_empty() {
        return Err(unusable(&source.path, &Problems(of_files)).with_code(1));
    }
    let Loaded { settings, refused, .. } = &loaded;
    problems.0.extend(named_files::unused_secret(settings).map(Problem::as_warning));
    let is_folder_lost = refused.iter().any(Refused::is_folder);
    let is_nobody_served = emptiness(&loaded, &source.path).is_some();
    if is_folder_lost || ((settings.live.gateway.strict_tenants || is_nobody_served) && !refused.is_empty()) {
        let lines: Vec<&str> = refused.iter().flat_map(|file| &file.problems).map(String::as_str).collect();
        let key = match (is_folder_lost, is_nobody_served) {
            (true, _) => "tenants.d",
            (false, true) => "there is no other",
            (false, false) => "gateway.strict_tenants",
        };
        let lines = lines.join("\n  ");
        return Err(Failure::new(format!("tenants can't be served ({key}):\n  {lines}")));
    }
    Ok((loaded, problems))
}

/// Everything that there is to say of the keys, and with it everything that is wrong with variables and files.
fn survey(source: &Source) -> (Survey, Problems) {
    let survey = source.survey(0);
    let now = UnixSeconds(Os::new().unix_seconds());
    let of_files = survey.files.iter().flat_map(|named| named_files::problems(named, now));
    let all = survey.problems.0.iter().cloned().chain(unreadable_override()).chain(of_files);
    let all = Problems(all.collect());
    (survey, all)
}

fn unusable(config: &Path, problems: &Problems) -> Failure {
    let (list, count) = (report::listed(problems), counted(problems.0.len(), "problem"));
    let next = if config.exists() { "" } else { "; `tiergate init` writes one, and --config names another" };
    let config = config.display();
    Failure::unusable(format!("the configuration {config} can't be used: {count}\n\n{list}{next}"))
}

fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// An override whose value can't be read: to pass over it would be to start with something else than was meant.
fn unreadable_override() -> Option<Problem> {
    std::env::vars_os()
        .filter(|(_, value)| value.to_str().is_none())
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .find(|name| name.starts_with("TIERGATE_"))
        .map(|name| Problem::new(name, "is not UTF-8 text"))
}
