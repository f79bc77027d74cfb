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

use crate::config::problem::Problems;
use crate::config::{Nobody, Settings, Survey};

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
    Survey::over(path, std::iter::empty(), 0, None, &mut Nobody).whole().map(|loaded| loaded.settings)
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

fn remove(table: &mut Table, path: &str) {
    let (table, name) = place(table, path);
    table.remove(name);
}

/// Every key of the shipped file with its value, the optional ones too, and every section and tenant; headers for nodes
/// and rules of tenants have tests of their own.
fn shipped_keys_and_sections() -> (Vec<(String, Value)>, Vec<String>) {
    fn walk(table: &Table, section: &str, keys: &mut Vec<(String, Value)>, sections: &mut Vec<String>) {
        for (key, value) in table {
            let first = value.as_array().and_then(|items| items.first()?.as_table());
            let (path, inside) = match first {
                Some(first) => (format!("{section}{key}[1]"), Some(first)),
                None => (format!("{section}{key}"), value.as_table()),
            };
            match inside {
                Some(inside) => {
                    walk(inside, &format!("{path}."), keys, sections);
                    sections.push(path);
                }
                None => keys.push((path, value.clone())),
            }
        }
    }
    let mut file = uncommented_file();
    remove(&mut file, "chain.rpc_headers");
    remove(&mut file, "tenants_rules");
    let (mut keys, mut sections) = Default::default();
    walk(&file, "", &mut keys, &mut sections);
    (keys, sections)
}

fn shipped_keys() -> Vec<(String, Value)> {
    shipped_keys_and_sections().0
}

/// The shipped file with its optional keys and sections, and its example of a tenant, no longer commented out; without
/// what goes together with a Redis or with the public only.
fn shipped_file() -> Table {
    shipped_file_for("tenants")
}

/// The same with a key in it, without the keys of `[store]` that do not go together with that key, and without the tenant
/// unless the key is one of its own.
fn shipped_file_for(path: &str) -> Table {
    let mut file = uncommented_file();
    if !path.starts_with("tenants") {
        file.remove("tenants");
    } else if LIMITS_OF_THE_PUBLIC.contains(&path) {
        set(&mut file, "tenants[1].routes[1].access", "public".into());
        remove(&mut file, "tenants[1].routes[1].min_tier");
    } else {
        LIMITS_OF_THE_PUBLIC.iter().for_each(|limit| remove(&mut file, limit));
    }
    if !path.starts_with("store.redis") {
        remove(&mut file, "store.redis");
        return file;
    }
    remove(&mut file, "store.embedded");
    set(&mut file, "store.kind", "redis".into());
    if path != "store.redis.url" {
        set(&mut file, "store.redis.url", "rediss-sentinel://sentinel.example/service".into());
    }
    for of_two in ["password", "sentinel_password"] {
        let (text, in_file) = (format!("store.redis.{of_two}"), format!("store.redis.{of_two}_file"));
        remove(&mut file, if path == in_file { &text } else { &in_file });
    }
    file
}

/// They do not go together with agents.
const LIMITS_OF_THE_PUBLIC: [&str; 2] =
    ["tenants[1].routes[1].requests_per_minute", "tenants[1].routes[1].bot_requests_per_minute"];

fn uncommented_file() -> Table {
    let lines = shipped::TEXT.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_assignment(rest) || is_header(rest) => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n").parse().unwrap()
}

fn is_assignment(line: &str) -> bool {
    let name = line.split_once(" = ").map_or("", |(name, _)| name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn is_header(line: &str) -> bool {
    line.starts_with('[') && line.ends_with(']')
}
