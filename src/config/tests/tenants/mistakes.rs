//! Tenants of whatever shape, which are judged without a panic.

use proptest::prelude::{Just, ProptestConfig as Config, Strategy, any, prop, prop_oneof, proptest};
use toml::{Table, Value};

use super::super::parse;
use super::{file_of, tenant_with};
use crate::config::schema::declared;

/// Names that mean something, and some that do not.
fn names() -> Vec<String> {
    let paths =
        declared().into_iter().filter_map(|key| Some(key.path.strip_prefix("tenants[].")?.to_owned()));
    let paths: Vec<String> = paths.collect();
    let names = paths.iter().flat_map(|path| path.split(['.', '[', ']'])).chain(["", "a.b", "\n"]);
    names.map(str::to_owned).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "(https?|h2c)://[a-z.:@/\\[\\]0-9]{0,12}",
        "[*./a-z0-9:\\[\\]-]{0,12}",
        "[0-9]{1,20}(ns|s|h|d|y)?",
        Just("0s".to_owned()),
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1_i64..=5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(names()), inner, 0..12)
                .prop_map(|keys| { Value::from(Table::from_iter(keys)) }),
        ]
    })
}

proptest! {
    #![proptest_config(Config { cases: Config::default().cases / 4, ..Config::default() })]

    #[test]
    fn no_value_panics(values in prop::collection::btree_map(prop::sample::select(names()), any_value(), 0..12)) {
        let keys = Table::from_iter(values);
        let mut tenant = tenant_with(&[]);
        tenant.extend(keys.clone());
        let mut route = keys;
        route.entry("path").or_insert(Value::from("/"));
        let mut with_route = tenant_with(&[]);
        with_route.insert("routes".to_owned(), vec![route.clone(), route].into());
        let _ = parse(&file_of(vec![tenant.clone(), tenant, with_route]), &[]);
    }
}
