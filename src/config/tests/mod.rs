//! What a configuration file and the environment may say, from outside: text in, settings or problems out.

mod bounds;
mod declared;
mod environment;
mod mistakes;
mod registries;
mod restart;
mod rpc_headers;
mod secrets;
mod shipped;
mod store;
mod tenants;
mod tier_sources;
mod together;

use std::path::Path;

use toml::{Table, Value};

use crate::config::{ConfigReport, ConfigSource, Settings, no_probe, problem::Problems};

/// The shortest file that is accepted: what has no default.
const MINIMAL: &str = r#"
[chain]
chain_id = 8004
[chain.contracts]
identity = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
stake_vault = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
"#;

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Settings, Problems> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ConfigReport::of_text(text, environment, 0).whole().map(|loaded| loaded.settings)
}

/// The settings of a file and of the tenants beside it.
fn load(path: &Path) -> Result<Settings, Problems> {
    ConfigSource::alone(path).read(0, None, &mut no_probe).whole().map(|loaded| loaded.settings)
}

/// The problems, line by line, without warnings; none when the text is accepted.
fn problems(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let Err(problems) = parse(text, environment) else { return Vec::new() };
    errors(&problems)
}

fn errors(problems: &Problems) -> Vec<String> {
    let errors = problems.0.iter().filter(|problem| !problem.is_warning);
    errors.map(ToString::to_string).collect()
}

/// What a tenant has to have, beside listeners that speak TLS.
const TENANT: [(&str, &str); 5] = [
    ("listen.tls.cert", "\"cert.pem\""),
    ("listen.tls.key", "\"key.pem\""),
    ("tenants[1].id", "\"acme\""),
    ("tenants[1].hosts", "[\"api.acme.example\"]"),
    ("tenants[1].upstreams", "[\"127.0.0.1:9000\"]"),
];

/// What a route has to have.
const ROUTE: (&str, &str) = ("tenants[1].routes[1].path", "\"/v1\"");

fn variable(path: &str) -> String {
    format!("TIERGATE__{}", path.to_uppercase().replace('.', "__"))
}

/// Files, each as its keys and variables (`$`) and then all that is said of it: errors (`!`) and warnings (`?`), of which `…` stands
/// for an end, or `ok`. `base` are lines of all of them. The chain is one for development, which nothing is said of; where a key
/// leads into a tenant or a route, all that it has to have is there, and a listener.
#[track_caller]
fn says(base: &str, transcript: &str) {
    let is_said = |line: &&str| line.starts_with(['!', '?']) || *line == "ok";
    let mut lines = transcript.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while lines.peek().is_some() {
        let given: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| !is_said(line))).collect();
        let said: Vec<&str> = std::iter::from_fn(|| lines.next_if(is_said)).collect();
        assert!(!given.is_empty() && !said.is_empty(), "{given:?} {said:?}");
        let mut keys = vec![("chain.development", "true")];
        let mut variables = Vec::new();
        let all = base.lines().chain(given.iter().copied()).filter_map(|line| line.trim().split_once(" = "));
        if all.clone().any(|(name, _)| name.starts_with("tenants[1].")) {
            keys.extend(TENANT);
            keys.push(("listen.gateway", "['127.0.0.1:8000']"));
        }
        if all.clone().any(|(name, _)| name.starts_with("tenants[1].routes[1].")) {
            keys.push(ROUTE);
        }
        for (name, value) in all {
            match name.strip_prefix('$') {
                Some(name) => variables.push((name.to_owned(), value.to_owned())),
                None => keys.push((name, value)),
            }
        }
        let found = ConfigReport::of_text(&minimal_with(&keys), variables.into_iter(), 0).problems;
        let found = found.0.iter().map(|problem| (if problem.is_warning { '?' } else { '!' }, problem));
        let found: Vec<String> = found.map(|(mark, problem)| format!("{mark} {problem}")).collect();
        let said: Vec<&str> = said.into_iter().filter(|line| *line != "ok").collect();
        let is_same = |(found, said): (&String, &&str)| match said.strip_suffix('…') {
            Some(start) => found.starts_with(start),
            None => found == said,
        };
        let is_right = found.len() == said.len() && found.iter().zip(&said).all(is_same);
        assert!(is_right, "{given:#?} has {found:#?} and not {said:#?}");
    }
}

/// The warnings of a file for development with these keys, which can be used.
fn warnings(keys: &[&[(&str, &str)]]) -> Vec<String> {
    let keys = [&[("chain.development", "true")], &keys.concat()[..]].concat();
    let report = ConfigReport::of_text(&minimal_with(&keys), std::iter::empty(), 0);
    assert!(report.loaded.is_some(), "{}", report.problems);
    report.problems.0.iter().map(ToString::to_string).collect()
}

/// The minimal file with further keys, each a path and its value as TOML writes it.
fn minimal_with(keys: &[(&str, &str)]) -> String {
    let mut file: Table = MINIMAL.parse().unwrap();
    for (path, literal) in keys {
        let value = literal.parse().unwrap_or_else(|error| panic!("{literal}: {error}"));
        set(&mut file, path, value);
    }
    file.to_string()
}

/// The table that a path leads into, which is made where it is missing, and the last name of the path. In front of a
/// point `[1]` is the first table of an array.
fn place<'a>(table: &'a mut Table, path: &'a str) -> (&'a mut Table, &'a str) {
    let Some((section, rest)) = path.split_once('.') else { return (table, path) };
    let inside = match section.strip_suffix("[1]") {
        None => table.entry(section).or_insert_with(|| Table::new().into()),
        Some(array) => &mut table.entry(array).or_insert_with(|| vec![Table::new()].into())[0],
    };
    place(inside.as_table_mut().unwrap(), rest)
}

fn set(table: &mut Table, path: &str, value: Value) {
    let (table, name) = place(table, path);
    table.insert(name.to_owned(), value);
}
