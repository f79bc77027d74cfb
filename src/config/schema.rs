//! All keys as they are declared, and a JSON schema of them, by which editors complete and check a configuration file.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::config::reader::{Declared, Kind, Reader};
use crate::config::{Settings, notes::Notes, problem::Location, tree::Table, written::Shown};

/// Every key, by its path; `[]` stands behind the name of an array of tables.
pub(super) fn declared() -> Vec<Declared> {
    let (nowhere, notes) = (Location::default(), Notes::default());
    let mut reader = Reader::new(nowhere, Table::new(), std::iter::empty(), notes);
    reader.declared = Some(Vec::new());
    drop(Settings::read(&mut reader));
    reader.declared.unwrap_or_default()
}

/// The schema of a configuration file (JSON Schema, draft 7, as taplo and VS Code read it).
pub fn schema() -> Json {
    let keys = declared();
    let keys: Vec<(&str, &Declared)> = keys.iter().map(|key| (&*key.path, key)).collect();
    let mut schema = table(&keys);
    schema.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    schema.insert("title".to_owned(), json!("Tiergate's configuration"));
    Json::Object(schema)
}

/// A table with these keys, each by the rest of its path.
fn table(keys: &[(&str, &Declared)]) -> Map<String, Json> {
    let mut properties = Map::new();
    let mut rest = keys.to_vec();
    while let Some(&(first, key)) = rest.first() {
        let name = first.split('.').next().unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(path, _)| path.split('.').next() == Some(name));
        let inside: Vec<_> =
            own.iter().filter_map(|(path, key)| Some((path.split_once('.')?.1, *key))).collect();
        let property = match (inside.is_empty(), name.strip_suffix("[]")) {
            (true, _) => value(key),
            (false, None) => Json::Object(table(&inside)),
            (false, Some(_)) => json!({ "type": "array", "items": table(&inside) }),
        };
        properties.insert(name.trim_end_matches("[]").to_owned(), property);
        rest = others;
    }
    let table = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if let Json::Object(table) = table { table } else { Map::new() }
}

/// The value of a key.
fn value(key: &Declared) -> Json {
    let mut value = kind(&key.kind);
    let mut about: String = key.prose().map(str::trim).collect::<Vec<_>>().join(" ");
    if let Kind::Duration([least, most], has_none) = &key.kind {
        let none = if *has_none { ", or 0s" } else { "" };
        let _ = write!(about, " A duration from {least} to {most}{none}.");
    }
    let when =
        if key.is_live { "It is read again while the process runs." } else { "It counts from the start." };
    let _ = write!(about, " {when}");
    if let Json::Object(value) = &mut value {
        value.insert("description".to_owned(), about.trim().into());
        value.extend(key.default.as_ref().map(|default| ("default".to_owned(), json!(default))));
        let example = key.example().filter(|_| key.default.is_none());
        value.extend((key.shown == Shown::Never).then(|| ("writeOnly".to_owned(), true.into())));
        value.extend(example.map(|example| ("examples".to_owned(), json!([example]))));
    }
    value
}

fn kind(kind: &Kind) -> Json {
    match kind {
        Kind::Text | Kind::Duration(..) => json!({ "type": "string" }),
        Kind::Words(words) => json!({ "type": "string", "enum": words }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer(bounds) => {
            json!({ "type": "integer", "minimum": bounds.start(), "maximum": bounds.end() })
        }
        Kind::List(item, count) => {
            let items = self::kind(item);
            json!({ "type": "array", "items": items, "minItems": count.start(), "maxItems": count.end() })
        }
        Kind::Tables(most) => json!({ "type": "array", "items": { "type": "object" }, "maxItems": most }),
    }
}
