//! Every key by its declaration: default, bounds, variable, types, secrets, and its place in the reference and the schema.

use std::{collections::BTreeSet, path::Path, time::Duration};

use humantime::{format_duration, parse_duration};
use toml::{Table, Value};

use super::{ROUTE, TENANT, minimal_with, parse, problems, variable};
use crate::config::notes::{DEFAULT, Notes, Value as Noted};
use crate::config::reader::{Declared, Kind, Reader};
use crate::config::schema::{declared, schema};
use crate::config::written::{Shown, type_of};
use crate::config::{Settings, problem::Location, tree};

const OTHER_ADDRESS: &str = "'0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0'";

/// The source of tiers that has this key, with what it needs.
fn source_with(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "tiers.contract" | "tiers.decimals" | "tiers.of" | "tiers.thresholds" => &[
            ("chain.registries", "'erc8004'"),
            ("tiers.source", "'erc20'"),
            ("tiers.contract", OTHER_ADDRESS),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.function" => &[
            ("tiers.source", "'call'"),
            ("tiers.contract", OTHER_ADDRESS),
            ("tiers.function", "'score(uint256)'"),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.average_over" | "tiers.clients" | "tiers.tag" => &[
            ("chain.registries", "'erc8004'"),
            ("chain.contracts.reputation", OTHER_ADDRESS),
            ("tiers.source", "'reputation'"),
            ("tiers.clients", "['0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0']"),
            ("tiers.thresholds", "['1']"),
        ],
        "tiers.file" => &[("tiers.source", "'list'"), ("tiers.file", "'agents.txt'")],
        "tiers.tier" => &[("tiers.source", "'everyone'")],
        _ => &[],
    }
}

/// The file in which a key is overridden: what has no default, and what goes together or has to be chosen.
fn base_with(path: &str, keys: &[(&str, &str)]) -> String {
    let base = [
        ("authz.tls.cert", "\"cert.pem\""),
        ("authz.tls.key", "\"key.pem\""),
        ("listen.tls.cert", "\"cert.pem\""),
        ("listen.tls.key", "\"key.pem\""),
        ("console.chain_name", "\"Somewhere\""),
        ("signature.service_name", "\"Somebody\""),
        ("assertion.issuer", "\"gate\""),
        ("assertion.key_file", "\"keys.pem\""),
    ];
    let redis = [
        ("store.kind", "\"redis\""),
        ("store.redis.url", "\"rediss://redis.example\""),
        ("store.redis.cert", "\"cert.pem\""),
        ("store.redis.key", "\"key.pem\""),
    ];
    let sentinels = [
        ("store.redis.url", "\"rediss-sentinel://sentinel.example/service\""),
        ("store.redis.sentinel_password", "\"first\""),
    ];
    let trusted = [("listen.trusted_proxies", "[\"10.0.0.0/8\"]")];
    let trusted = if path == "listen.proxy_protocol" { &trusted[..] } else { &[] };
    let audit = if path == "log.audit_required" { &[("log.audit", "\"stdout\"")][..] } else { &[] };
    let erc8004 = if path == "chain.feedback_max" { &[("chain.registries", "\"erc8004\"")][..] } else { &[] };
    let of_redis = path.starts_with("store.redis.");
    let of_sentinels = path.starts_with("store.redis.sentinel_");
    // One of two ways to write the same password.
    let last = if path.ends_with("_file") { 1 } else { sentinels.len() };
    let sentinels = if of_sentinels { &sentinels[..last] } else { &[] };
    minimal_with(
        &[
            &base[..],
            trusted,
            audit,
            erc8004,
            source_with(path),
            if of_redis { &redis } else { &[] },
            sentinels,
            keys,
        ]
        .concat(),
    )
}

/// The keys that a variable overrides.
fn of_file() -> Vec<Declared> {
    let keys = declared().into_iter();
    keys.filter(|key| !key.path.contains("[]") && !matches!(key.kind, Kind::Tables(_))).collect()
}

/// The file in which a key of this path is tried, with more keys.
pub(super) fn file_with(path: &str, keys: &[(&str, &str)]) -> String {
    let tenant = if path.starts_with("tenants[1]") { &TENANT[..] } else { &[] };
    let route = if path.starts_with("tenants[1].routes[1]") { &[ROUTE][..] } else { &[] };
    base_with(path, &[tenant, route, keys].concat())
}

/// The type of a key, as messages call it, and that of an item of its list.
fn types(kind: &Kind) -> [&'static str; 2] {
    let of = |kind: &Kind| match kind {
        Kind::Text | Kind::Words(_) | Kind::Duration(..) => "a string",
        Kind::Flag => "a boolean",
        Kind::Integer(_) => "an integer",
        Kind::List(..) | Kind::Tables(_) => "an array",
    };
    [of(kind), if let Kind::List(item, _) = kind { of(item) } else { "" }]
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_and_section_is_refused_by_its_path_with_another_name_or_type() {
    let refused = |path: &str, wrong: &str| {
        let found = problems(&file_with(path, &[(path, wrong)]), &[]);
        // A section's name that is not known stands for all below it.
        let name = path.split(['.', '[']).next().unwrap();
        let is_named = |line: &String| [path, name].iter().any(|at| line.starts_with(&format!("{at}: ")));
        assert!(found.iter().any(is_named), "{path} = {wrong}: {found:?}");
    };
    let values = ["\"text\"", "7", "1.5", "true", "1979-05-27", "[[]]", "{ inside = 1 }"];
    let other = |right: &'static str| {
        values.into_iter().filter(move |value| type_of(&value.parse().unwrap()) != right)
    };
    let mut sections = BTreeSet::new();
    for key in declared() {
        let path = key.path.replace("[]", "[1]");
        let [right, item] = types(&key.kind);
        other(right).for_each(|wrong| refused(&path, wrong));
        if !item.is_empty() {
            other(item).for_each(|wrong| refused(&path, &format!("[{wrong}]")));
        }
        let above = path.match_indices('.').map(|(at, _)| path[..at].to_owned());
        sections.extend(above.filter(|section| !section.ends_with(']')));
        for renamed in [format!("{path}s"), path.to_uppercase()] {
            refused(&renamed, "1");
        }
    }
    for section in sections {
        other("a table").for_each(|wrong| refused(&section, wrong));
        refused(&format!("{section}s"), "{}");
    }
}

/// Every value of a file and its variables, with its origin, whatever is wrong with them.
fn values(text: &str, variables: &[(&str, &str)]) -> Vec<Noted> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let table = tree::parse(&"tiergate.toml".into(), text).unwrap();
    let notes = Notes { values_max: usize::MAX, ..Notes::default() };
    let mut reader = Reader::new(Location::default(), table, variables, notes);
    drop(Settings::read(&mut reader));
    reader.finish().values
}

/// The values at both ends of what a key takes, those beyond them, and the phrase about the latter.
fn bounds(key: &Declared) -> Option<(Vec<Value>, Vec<Value>, String)> {
    match &key.kind {
        Kind::Integer(bounds) => {
            let (least, most) = (*bounds.start(), *bounds.end());
            let beyond = [least.checked_sub(1), most.checked_add(1)].into_iter().flatten();
            let phrase = format!("; write a whole number from {least} to {most}");
            Some((vec![least.into(), most.into()], beyond.map(Value::from).collect(), phrase))
        }
        Kind::Duration(bounds, has_none) => {
            let [least, most] = bounds.map(|text| parse_duration(text).unwrap());
            let below =
                least.checked_sub(Duration::from_nanos(1)).filter(|below| !(*has_none && below.is_zero()));
            let beyond = below.into_iter().chain([most + Duration::from_nanos(1)]);
            let none = has_none.then_some(Duration::ZERO);
            let text = |duration: Duration| Value::from(format_duration(duration).to_string());
            let phrase = format!("; write a duration from {} to {}", bounds[0], bounds[1]);
            Some((
                [least, most].into_iter().chain(none).map(text).collect(),
                beyond.map(text).collect(),
                phrase,
            ))
        }
        Kind::Words(words) => {
            let phrase = format!("; write \"{}\"", words[0]);
            Some((words.iter().map(|word| Value::from(*word)).collect(), vec!["mistaken".into()], phrase))
        }
        Kind::List(_, count) if *count.end() <= 1_024 => {
            let item = key.example()?.as_array()?.first()?.clone();
            let times = |count: usize| Value::from(vec![item.clone(); count]);
            let below = count.start().checked_sub(1).map(times);
            let beyond = below.into_iter().chain([times(count.end() + 1)]).collect();
            Some((vec![times(*count.start()), times(*count.end())], beyond, " items; write ".to_owned()))
        }
        Kind::Tables(most) => {
            let tables = |count| Value::from(vec![Table::new(); count]);
            let few = Some(*most).filter(|most| *most <= 1_024);
            let within = few.into_iter().map(tables).collect();
            Some((within, vec![tables(most + 1)], " items; write ".to_owned()))
        }
        Kind::Text | Kind::Flag | Kind::List(..) => None,
    }
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_takes_its_default_and_what_lies_within_its_bounds_and_nothing_beyond() {
    let mut count = 0;
    for key in declared() {
        let path = &*key.path.replace("[]", "[1]");
        let found = |value: &Value| problems(&file_with(path, &[(path, &value.to_string())]), &[]);
        // An address without TLS does not go with the certificates that others need.
        if let Some(default) = key.default.as_ref().filter(|_| path != "store.redis.url") {
            let found = found(default);
            assert!(!found.iter().any(|line| line.starts_with(&format!("{path}: "))), "{found:?}");
        }
        // How many clients there are is its bound.
        if path.ends_with(".average_over") {
            continue;
        }
        let Some((within, beyond, phrase)) = bounds(&key) else { continue };
        for value in within {
            let found = found(&value);
            assert!(!found.iter().any(|line| line.contains(&phrase)), "{path} = {value}: {found:?}");
        }
        for value in beyond {
            let found = found(&value);
            let start = format!("{path}: ");
            let is_named = found.iter().any(|line| line.starts_with(&start) && line.contains(&phrase));
            assert!(is_named, "{path} = {value}: {found:?}");
            count += 1;
        }
    }
    assert!(count > 120, "{count}");
}

#[test]
fn every_key_is_overridden_by_its_variable_whether_or_not_the_file_has_its_section() {
    for key in of_file() {
        let path = &*key.path;
        let Some(value) = key.example() else { panic!("{path} has no example") };
        // The certificates of the others ask for TLS.
        let value = if path == "store.redis.url" { "rediss://other".into() } else { value };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = variable(path);
        let overridden = parse(&base_with(path, &[]), &[(&name, &text)]);
        assert_eq!(overridden, parse(&base_with(path, &[(path, &value.to_string())]), &[]), "{path}");
        let wrong = base_with(path, &[(path, "{}")]);
        assert!(problems(&wrong, &[]).iter().any(|line| line.starts_with(path)), "{path}");
        let found = problems(&wrong, &[(&name, &text)]);
        assert!(found.iter().all(|line| !line.starts_with(path)), "{path}: {found:?}");
        let all = values(&base_with(path, &[]), &[(&name, &text)]);
        let is_shown =
            |noted: &Noted| noted.key == path && noted.origin == name && noted.is_live == key.is_live;
        assert!(all.iter().any(is_shown) || path == "store.embedded.path", "{path}");
        let is_strict = match &key.kind {
            Kind::Integer(_) | Kind::Flag | Kind::Duration(..) | Kind::Words(_) => true,
            Kind::List(item, _) => matches!(**item, Kind::Integer(_)),
            Kind::Text | Kind::Tables(_) => false,
        };
        let found = problems(&base_with(path, &[]), &[(&name, "mistaken")]);
        let is_named = found.iter().any(|line| line.starts_with(&format!("{name}: ")));
        assert!(is_named || !is_strict, "{path}: {found:?}");
    }
}

/// The keys of values that may be secrets.
const MASKED: [&str; 8] = [
    "chain.rpc_urls",
    "chain.http_proxy",
    "store.redis.url",
    "store.redis.password",
    "store.redis.sentinel_password",
    "console.rpc_url",
    "console.development_rpc_url",
    "traces.endpoint",
];

// threat: The operator's page leaks
#[test]
fn a_value_that_may_be_a_secret_is_not_shown() {
    let keys: Vec<_> = of_file().into_iter().filter(|key| key.shown != Shown::Always).collect();
    let paths: Vec<&str> = keys.iter().map(|key| &*key.path).collect();
    assert_eq!(paths, MASKED);
    for key in &keys {
        let path = &*key.path;
        let text = "https://user:SECRET@host.example/SECRET";
        let value =
            if matches!(key.kind, Kind::List(..)) { format!("['{text}']") } else { format!("'{text}'") };
        let in_file = values(&base_with(path, &[(path, &value)]), &[]);
        let in_variable = values(&base_with(path, &[]), &[(&variable(path), text)]);
        for noted in [in_file, in_variable].concat() {
            assert!(!noted.value.contains("SECRET"), "{noted:?}");
            let is_it = noted.key == path && noted.origin != DEFAULT;
            let is_url = is_it && key.shown == Shown::Host;
            assert!(!is_url || noted.value.contains("https://host.example"), "{noted:?}");
        }
    }
}

/// The paragraphs of a file: its tables, each with the prose above it.
fn paragraphs(text: &str) -> Vec<String> {
    text.trim_end().split("\n\n").map(str::to_owned).collect()
}

/// The reference as the declarations have it; the prose of tables is that of this text.
fn reference(text: &str) -> String {
    let keys = declared();
    let table_of = |key: &Declared| {
        let path = key.path.replace("[]", "");
        path.rsplit_once('.').map(|(table, name)| (table.to_owned(), name.to_owned()))
    };
    let mut written = Vec::new();
    for paragraph in paragraphs(text) {
        let header = |line: &&str| line.trim_start_matches("# ").starts_with('[') && line.ends_with(']');
        let Some(header) = paragraph.lines().find(header) else {
            written.push(paragraph);
            continue;
        };
        let table = header.trim_matches(['#', ' ', '[', ']']);
        let (prose, _) = paragraph.split_once(header).unwrap();
        let mut lines = vec![format!("{prose}{header}")];
        let own = keys.iter().filter_map(|key| Some((key, table_of(key).filter(|(of, _)| of == table)?.1)));
        for (key, name) in own {
            let Some(value) = key.example() else { continue };
            lines.extend(key.prose().map(|line| format!("#{line}")));
            let first = key.prose().next().unwrap_or_default();
            let is_optional =
                (key.default.is_none() && !first.starts_with(" Required")) || first.starts_with(" For \"");
            let mark = if is_optional || header.starts_with('#') { "# " } else { "" };
            lines.push(format!("{mark}{name} = {value}"));
        }
        written.push(lines.join("\n"));
    }
    written.join("\n\n") + "\n"
}

/// `TG_WRITE=1` writes it.
#[test]
fn the_reference_shows_every_key_as_it_is_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/tiergate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let wanted = reference(&text);
    if std::env::var_os("TG_WRITE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    for (found, wanted) in paragraphs(&text).iter().zip(paragraphs(&wanted)) {
        assert_eq!(*found, wanted, "TG_WRITE=1 writes conf/tiergate.toml");
    }
    // A table of [[tiers.sources]] has the keys of [tiers].
    for key in declared().into_iter().filter(|key| !key.path.starts_with("tiers.sources[]")) {
        let path = key.path.replace("[]", "");
        let (table, name) = path.rsplit_once('.').unwrap_or(("", &path));
        let is_shown = paragraphs(&wanted).iter().any(|paragraph| {
            let has = |line: String| {
                paragraph.lines().any(|shown| shown.trim_start_matches("# ").starts_with(&line))
            };
            (has(format!("[{table}]")) || has(format!("[[{table}]]"))) && has(format!("{name} = "))
        });
        let has_tables = matches!(key.kind, Kind::Tables(_));
        assert!(is_shown || has_tables || key.example().is_none(), "{path} has no table in the reference");
    }
}

// threat: A change that waits for a restart
#[test]
fn the_page_lists_the_keys_that_are_read_again() {
    let mut tables: Vec<(String, Vec<String>)> = Vec::new();
    for key in of_file().into_iter().filter(|key| key.is_live) {
        let (table, name) = key.path.rsplit_once('.').unwrap();
        match tables.iter_mut().find(|(known, _)| known == table) {
            Some((_, names)) => names.push(format!("`{name}`")),
            None => tables.push((table.to_owned(), vec![format!("`{name}`")])),
        }
    }
    let row = |(table, names): &(String, Vec<String>)| format!("| `[{table}]` | {} |\n", names.join(", "));
    let rows: String = tables.iter().map(row).collect();
    let head = "| Table | Read again |\n| --- | --- |\n";
    let wanted = format!("{head}{rows}| `[[tenants_rules]]`, `[[tenants]]`, files of `tenants.d` | all |\n");
    let mut arrays = declared().into_iter().filter(|key| key.path.contains("[]"));
    assert!(arrays.all(|key| key.is_live == key.path.starts_with("tenants")), "no other array is read again");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    assert!(std::fs::read_to_string(path).unwrap().contains(&wanted), "{wanted}");
}

#[test]
fn the_schema_has_every_key_with_its_bounds() {
    let schema = schema();
    for key in declared() {
        let pointer = key.path.replace("[]", "/items").replace('.', "/properties/");
        let found = schema.pointer(&format!("/properties/{pointer}"));
        let Some(found) = found else { panic!("{}", key.path) };
        if let Kind::Integer(bounds) = &key.kind {
            let [least, most] = ["minimum", "maximum"].map(|bound| found[bound].as_i64());
            assert_eq!((least, most), (Some(*bounds.start()), Some(*bounds.end())), "{}", key.path);
        }
    }
    let tiers = &schema["properties"]["tiers"]["properties"]["sources"]["items"];
    assert_eq!(tiers["additionalProperties"], false);
    let password = &schema["properties"]["store"]["properties"]["redis"]["properties"]["password"];
    assert_eq!(password["writeOnly"], true);
    let format = &schema["properties"]["log"]["properties"]["format"];
    assert_eq!(format["enum"], serde_json::json!(["text", "json"]));
}
