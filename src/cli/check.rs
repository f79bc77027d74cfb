//! `tiergate check`: every problem of a configuration at once. `tiergate config show`: its values, with their origins. With
//! `--online --through URL` a request goes through another gateway, with identity headers that a client made up.

use std::path::Path;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{ClientBuilder, Method, Url};
use serde_json::{Value as Json, json};

use crate::app::{Finding, descriptors::Descriptors, named_files, online, store, tenants::emptiness};
use crate::cli::client::{TIME_MAX, address, exchange, wait_for};
use crate::cli::{ConfigFile, Failure, complain, output::Output, say};
use crate::config::{
    ConfigReport, ConfigSource, Loaded, NamedFile, Position, Problem, RefusedFile, VALUES_SHOWN_MAX, Value,
    no_probe, problem::Problems, schema,
};
use crate::domain::{AgentId, UnixSeconds};
use crate::os::Os;
use crate::ports::Clock;
use crate::tls::{FileLoader, LoadedFiles};

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
        let (loaded, mut problems) = survey(&ConfigSource::at(config));
        let loaded = loaded.as_ref();
        let descriptors = loaded.map(|loaded| Descriptors::planned(&loaded.settings, 0)).transpose();
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
                let asked = online::ask(settings, ConfigSource::at(config), self.agent_id);
                wait_for("everything that is asked", asked)??
            }
            _ => Vec::new(),
        };
        findings.extend(self.through.iter().filter(|_| !is_unusable).map(|url| through(url, &Os::new())));
        if self.output == Output::Json {
            say(format_args!("{}", objects(&problems, &findings)))?;
        }
        if is_unusable {
            return Err(unusable(config, &problems));
        }
        if self.output == Output::Text {
            if warnings.is_empty() {
                say(format_args!("{}: no problems", config.display()))?;
            } else {
                complain(format_args!("warnings\n\n{}\n", listed(&problems)));
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
        }
        let wrong = |(part, state): &Finding| Some(format!("  {part}: {}", state.as_ref().err()?));
        let wrong: Vec<String> = findings.iter().filter_map(wrong).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let (count, all, wrong) = (wrong.len(), findings.len(), wrong.join("\n"));
        Err(Failure::new(format!("{count} of {all} parts are not as they should be:\n{wrong}")))
    }
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
        let loaded = ConfigSource::at(&config).read(usize::MAX, None, &mut no_probe).whole();
        let values = loaded.map_err(|problems| unusable(&config, &problems))?.values;
        if output == Output::Json {
            let typed = |text: &str| text.parse::<toml::Value>().ok();
            let object =
                |it: &Value| json!({ "key": it.key, "value": typed(&it.value), "origin": it.origin });
            return output.print(&values.iter().map(object).collect::<Json>());
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

/// Reads the configuration, and looks into the files that it names. Tenants that can't be served are left out. Other tools may
/// mend or still have to write all but the keys of the configuration file, so that only these end a process for good.
pub(super) fn load_to_serve(source: &ConfigSource) -> Result<(Loaded, Problems), Failure> {
    let (former, now) = (LoadedFiles::default(), UnixSeconds(Os::new().unix_seconds()));
    let mut loader = FileLoader::new(&former);
    let mut look = |named: &NamedFile| named_files::errors(named, &mut loader);
    let ConfigReport { loaded, mut problems, files, is_read } =
        source.read(VALUES_SHOWN_MAX, None, &mut look);
    let Some(loaded) = loaded else {
        problems.0.extend(unreadable_override());
        let failure = unusable(&source.path, &problems);
        return Err(if is_read { failure } else { failure.with_code(1) });
    };
    if let Some(problem) = unreadable_override() {
        return Err(unusable(&source.path, &Problems(vec![problem])));
    }
    let of_service = files.iter().filter(|named| !named.is_of_tenant());
    let of_files: Vec<Problem> = of_service.flat_map(look).collect();
    if !of_files.is_empty() {
        return Err(unusable(&source.path, &Problems(of_files)).with_code(1));
    }
    problems.0.extend(files.iter().flat_map(|named| named_files::warnings(named, now, &loader)));
    let Loaded { settings, refused, .. } = &loaded;
    problems.0.extend(named_files::unused_secret(settings).map(Problem::as_warning));
    let is_folder_lost = refused.iter().any(RefusedFile::is_folder);
    let is_nobody_served = emptiness(&loaded, &source.path).is_some();
    if is_folder_lost || ((settings.live.strict_tenants || is_nobody_served) && !refused.is_empty()) {
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
fn survey(source: &ConfigSource) -> (Option<Loaded>, Problems) {
    let ConfigReport { loaded, mut problems, files, .. } = source.read(0, None, &mut no_probe);
    problems.0.extend(unreadable_override());
    let (former, now) = (LoadedFiles::default(), UnixSeconds(Os::new().unix_seconds()));
    let mut loader = FileLoader::new(&former);
    for named in &files {
        problems.0.extend(named_files::errors(named, &mut loader));
        problems.0.extend(named_files::warnings(named, now, &loader));
    }
    (loaded, problems)
}

fn unusable(config: &Path, problems: &Problems) -> Failure {
    let (list, count) = (listed(problems), counted(problems.0.len(), "problem"));
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

/// Problems beyond this number are counted only.
const LISTED_MAX: usize = 1_000;

/// A line for each problem, with the place in front, as compilers write it.
fn listed(problems: &Problems) -> String {
    let lines = problems.0.iter().take(LISTED_MAX).map(|problem| {
        let place = problem.position.as_ref().map(|position| format!("{position}: ")).unwrap_or_default();
        format!("{place}{}: {problem}", severity_of(problem))
    });
    let rest = problems.0.len().checked_sub(LISTED_MAX).filter(|rest| *rest > 0);
    lines.chain(rest.map(|rest| format!("and {rest} more"))).collect::<Vec<_>>().join("\n")
}

const fn severity_of(problem: &Problem) -> &'static str {
    if problem.is_warning { "warning" } else { "error" }
}

/// An object for each problem, and of the same form for each part that was asked.
fn objects(problems: &Problems, findings: &[Finding]) -> Json {
    let object = |severity: &str, place: &str, message: &str, at: Option<&Position>| {
        let (file, line, column) = (at.map(|at| &*at.file), at.map(|at| at.line), at.map(|at| at.column));
        json!({
            "severity": severity, "place": place, "message": message, "file": file, "line": line, "column": column
        })
    };
    let problems = problems.0.iter().map(|problem| {
        object(severity_of(problem), &problem.place, &problem.phrase, problem.position.as_ref())
    });
    let findings = findings.iter().map(|(part, state)| match state {
        Ok(seen) => object("info", part, seen, None),
        Err(wrong) => object("error", part, wrong, None),
    });
    problems.chain(findings).collect()
}

/// Spellings of a header that no client may set.
const NAMES: [&str; 10] = [
    "x-agent-id",
    "x_agent_id",
    "x-agent_id",
    "x.agent.id",
    "x-agent-owner",
    "x-agent-tier",
    "x-agent-tier-source",
    "x-agent-staked-amount",
    "x-agent-assertion",
    "x-agent-domain",
];

/// A header that any client may set. An answer that shows it shows the headers of its request.
const CONTROL: &str = "x-tiergate-check";

/// Asks a URL of a gateway, and says if what a client made up comes back in the answer. A route whose upstream shows the headers
/// of its request tells that for certain.
fn through(url: &Url, clock: &dyn Clock) -> Finding {
    let made_up = format!("made-up-{}", clock.unix_millis());
    let value = HeaderValue::from_str(&made_up).unwrap_or(HeaderValue::from_static("made-up"));
    let control = made_up.replace("made-up", "control");
    let mut headers: HeaderMap =
        NAMES.iter().map(|name| (HeaderName::from_static(name), value.clone())).collect();
    headers
        .extend(HeaderValue::from_str(&control).ok().map(|value| (HeaderName::from_static(CONTROL), value)));
    let answer = exchange(
        ClientBuilder::new().timeout(TIME_MAX).default_headers(headers),
        Method::GET,
        url.as_str(),
        None,
    );
    let state = answer.map_err(|(cause, _)| cause).and_then(|(status, text)| {
        let body: Json = serde_json::from_str(&text).unwrap_or_default();
        if text.contains(&made_up) {
            return Err("an X-Agent-Id that a client made up comes through to the upstream".to_owned());
        }
        match body.get("errorType").and_then(Json::as_str) {
            Some(error_type) => Err(format!("refuses a request without a credential, {status} {error_type}: take a public route")),
            None if status.is_success() && text.contains(&control) => {
                Ok(format!("strips a made-up X-Agent-Id, and passes other headers: {status}"))
            }
            None if status.is_success() => {
                Err(format!("answers {status} without the headers of the request: take a public route whose upstream shows them"))
            }
            None => Err(format!("answers {status}, with no errorType of Tiergate's")),
        }
    });
    (format!("gateway {url}"), state)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Position, Problem, Problems, listed, objects};

    #[test]
    fn each_problem_is_listed_with_its_place() {
        let problem = Problem::new("listen.api", "is \"x\"");
        let position = Position { file: "a.toml".into(), line: 5, column: 7 };
        let warning = Problem { is_warning: true, position: Some(position), ..problem.clone() };
        let problems = Problems(vec![warning, problem]);
        let lines = "a.toml:5:7: warning: listen.api: is \"x\"\nerror: listen.api: is \"x\"";
        assert_eq!(listed(&problems), lines);
        let object = |severity, file: Option<&str>, line: Option<u8>, column: Option<u8>| {
            json!({
                "severity": severity, "place": "listen.api", "message": "is \"x\"",
                "file": file, "line": line, "column": column,
            })
        };
        let expected =
            [object("warning", Some("a.toml"), Some(5), Some(7)), object("error", None, None, None)];
        assert_eq!(objects(&problems, &[]), json!(expected));
    }
}
