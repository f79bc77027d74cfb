//! What a configuration file and the environment may say, from outside: text in, settings or problems out.

mod bounds;
mod environment;
mod mistakes;
mod rpc_headers;
mod secrets;
mod shipped;
mod store;
mod tenants;

use toml::{Table, Value};

use crate::config::Settings;
use crate::config::problem::Problems;

/// The shortest file that is accepted: what has no default.
const MINIMAL: &str = r#"
[chain.contracts]
identity = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
stake_vault = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
"#;

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Settings, Problems> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::parse(text, environment)
}

/// What is wrong, line by line; nothing when the text is accepted.
fn problems(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let Err(problems) = parse(text, environment) else { return Vec::new() };
    problems.to_string().lines().map(str::to_owned).collect()
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

fn set(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let section = table.entry(section).or_insert_with(|| Table::new().into());
            set(section.as_table_mut().unwrap(), rest, value);
        }
    }
}

fn remove(table: &mut Table, path: &str) {
    match path.split_once('.') {
        None => drop(table.remove(path)),
        Some((section, rest)) => remove(table.get_mut(section).unwrap().as_table_mut().unwrap(), rest),
    }
}

/// Every key of the shipped file, the optional ones too, with its value; tenants and headers have keys of their own.
fn shipped_keys() -> Vec<(String, Value)> {
    let mut file = uncommented_file();
    file.remove("tenants");
    remove(&mut file, "chain.rpc_headers");
    keys_of(&file)
}

/// Every key of a table and its sections, with its value.
fn keys_of(table: &Table) -> Vec<(String, Value)> {
    fn walk(table: &Table, section: &str, keys: &mut Vec<(String, Value)>) {
        for (key, value) in table {
            let path = format!("{section}{key}");
            if let Value::Table(inside) = value {
                walk(inside, &format!("{path}."), keys);
            } else {
                keys.push((path, value.clone()));
            }
        }
    }
    let mut keys = Vec::new();
    walk(table, "", &mut keys);
    keys
}

/// The shipped file with its optional keys and sections, and its example of a tenant, no longer commented out; without
/// what goes together with a Redis only.
fn shipped_file() -> Table {
    shipped_file_for("store.path")
}

/// The same with a key in it, and without those of `[store]` that do not go together with that key.
fn shipped_file_for(path: &str) -> Table {
    let mut file = uncommented_file();
    if ["store.kind", "store.path"].contains(&path) || !path.starts_with("store.") {
        for optional in OPTIONAL_OF_REDIS {
            remove(&mut file, optional);
        }
        return file;
    }
    set(&mut file, "store.kind", "redis".into());
    if path != "store.url" {
        set(&mut file, "store.url", "rediss-sentinel://sentinel.example/service".into());
    }
    for of_two in ["password", "sentinel_password"] {
        let (text, in_file) = (format!("store.{of_two}"), format!("store.{of_two}_file"));
        remove(&mut file, if path == in_file { &text } else { &in_file });
    }
    file
}

/// The keys of Redis that have no default.
const OPTIONAL_OF_REDIS: [&str; 8] = [
    "store.password",
    "store.password_file",
    "store.sentinel_username",
    "store.sentinel_password",
    "store.sentinel_password_file",
    "store.ca",
    "store.cert",
    "store.key",
];

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
