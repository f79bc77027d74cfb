//! What a configuration file and the environment may say, from outside: text in, settings or problems out.

mod authz;
mod bounds;
mod declared;
mod environment;
mod mistakes;
mod registries;
mod restart;
mod rpc_headers;
mod secrets;
mod shipped;
mod signature;
mod store;
mod tenants;
mod tier_sources;
mod tiers;
mod web_bot_auth;

use std::path::Path;

use toml::{Table, Value};

use crate::config::{ConfigReport, Settings, no_probe, problem::Problems};

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
    Settings::parse(text, environment)
}

/// The settings of a file and of the tenants beside it.
fn load(path: &Path) -> Result<Settings, Problems> {
    ConfigReport::over(path, std::iter::empty(), 0, None, &mut no_probe).whole().map(|loaded| loaded.settings)
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
