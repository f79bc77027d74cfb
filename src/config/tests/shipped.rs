//! The file that is shipped: it shows every key with its default, and every key of it is strict.

use std::path::Path;
use std::time::Duration;

use alloy::primitives::address;
use toml::{Table, Value};

use super::{
    MINIMAL, load, parse, problems, remove, set, shipped_file, shipped_file_for, shipped_keys_and_sections,
};
use crate::config::store::StoreSettings;

pub(super) const TEXT: &str = include_str!("../../../conf/tiergate.toml");

#[test]
fn the_shipped_file_loads_and_says_what_an_absent_key_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/tiergate.toml");
    let shipped = load(&path).unwrap();
    assert_eq!(shipped, parse(MINIMAL, &[]).unwrap());
}

#[test]
fn the_file_for_replicas_names_a_redis() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/replicas.toml");
    let settings = load(&path).unwrap();
    let StoreSettings::Redis(redis) = settings.fixed.store else { panic!("{:?}", settings.fixed.store) };
    assert_eq!(redis.url.to_string(), "redis://127.0.0.1:6379");
    assert_eq!((redis.timeout, redis.wait_replicas), (Duration::from_millis(250), 0));
    assert_eq!(settings.live.tenants.len(), 1);
}

#[test]
fn the_optional_registries_are_read_where_they_are_given() {
    let contracts = parse(&shipped_file().to_string(), &[]).unwrap().fixed.chain.reading.registries;
    assert_eq!(contracts.reputation, Some(address!("9fE46736679d2D9a65F0992F2272dE9f3c7fa6e0")));
    assert_eq!(contracts.validation, Some(address!("Cf7Ed3AccA5a467e9e704C703E8D87F634fB0Fc9")));
    assert_eq!(contracts.organization(), Some(address!("Dc64a140Aa3E981100a9becA4E685f962f0cF6C9")));
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_and_section_is_refused_by_name_under_another_name() {
    let (keys, sections) = shipped_keys_and_sections();
    let sections =
        sections.into_iter().filter(|path| !path.ends_with(']')).map(|path| (path, Table::new().into()));
    for (path, value) in keys.into_iter().chain(sections) {
        for renamed in [format!("{path}s"), format!("{path}_renamed"), path.to_uppercase()] {
            let mut file = shipped_file_for(&path);
            remove(&mut file, &path);
            set(&mut file, &renamed, value.clone());
            let found = problems(&file.to_string(), &[]);
            // A section in upper case is unknown as a whole.
            let section = renamed.split(['.', '[']).next().unwrap();
            let is_named = |line: &String| {
                [&renamed, section].iter().any(|name| line.starts_with(&format!("{name}: is ")))
            };
            assert!(found.iter().any(is_named), "{renamed}: {found:?}");
        }
    }
}

// threat: A wrong configuration runs quietly
#[test]
fn every_key_and_section_is_refused_by_its_path_with_every_wrong_type() {
    let (keys, sections) = shipped_keys_and_sections();
    for path in sections.into_iter().filter(|path| !path.ends_with(']')) {
        for wrong in wrong_types("a table") {
            let mut file = shipped_file_for(&path);
            set(&mut file, &path, wrong.clone());
            let found = problems(&file.to_string(), &[]);
            let start = format!("{path}: is ");
            assert!(found.iter().any(|line| line.starts_with(&start)), "{path} = {wrong}: {found:?}");
        }
    }
    for (path, value) in keys {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let wrong_items = wrong_types(items.first().map_or("", type_of)).into_iter();
        let wrong_lists =
            wrong_items.filter(|_| !items.is_empty()).map(|item| Value::from(vec![item; items.len()]));
        for wrong in wrong_types(type_of(&value)).into_iter().chain(wrong_lists) {
            let mut file = shipped_file_for(&path);
            set(&mut file, &path, wrong.clone());
            let found = problems(&file.to_string(), &[]);
            let start = format!("{path}: ");
            assert!(!found.is_empty(), "{path} = {wrong} is accepted");
            assert!(found.iter().all(|line| line.starts_with(&start)), "{path} = {wrong}: {found:?}");
        }
    }
}

/// A value of every type of TOML but one.
fn wrong_types(right: &str) -> Vec<Value> {
    ["\"text\"", "7", "1.5", "true", "1979-05-27", "[[]]", "{ inside = 1 }"]
        .into_iter()
        .map(|literal| literal.parse().unwrap())
        .filter(|value| type_of(value) != right)
        .collect()
}

fn type_of(value: &Value) -> &'static str {
    crate::config::written::type_of(value)
}
