//! The files under `deploy`: each alert is tested, and rules, their tests and the dashboard name only metrics and labels
//! that the program has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};
use yaml_rust2::{Yaml, YamlLoader};

use super::links::broken;
use super::tables::{Metric, metrics};
use super::{read, root, tool};

const RULES: &str = "deploy/prometheus/alerts.yaml";
const TESTS: &str = "deploy/prometheus/alerts.test.yaml";
const DASHBOARD: &str = "deploy/grafana/dashboard.json";

/// Labels that Prometheus gives to every series.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// Metrics that are not in the program's table: of the library, and of Prometheus itself, with their labels.
const FOREIGN: [(&str, &[&str]); 7] = [
    ("process_cpu_seconds_total", &[]),
    ("process_max_fds", &[]),
    ("process_open_fds", &[]),
    ("process_resident_memory_bytes", &[]),
    ("process_start_time_seconds", &[]),
    ("up", &[]),
    ("ALERTS", &["alertname", "alertstate"]),
];

/// Words of a query before a list of labels.
const GROUPING: [&str; 6] = ["by", "on", "without", "ignoring", "group_left", "group_right"];

/// Other words of a query that name no metric.
const KEYWORDS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

/// The series that there are: their names and labels.
type Known = BTreeMap<String, BTreeSet<String>>;

fn yaml(path: &str) -> Yaml {
    YamlLoader::load_from_str(&read(path)).unwrap().remove(0)
}

fn items(yaml: &Yaml) -> impl Iterator<Item = &Yaml> {
    yaml.as_vec().into_iter().flatten()
}

fn rules(file: &Yaml) -> impl Iterator<Item = &Yaml> {
    items(&file["groups"]).flat_map(|group| items(&group["rules"]))
}

/// The names of the alerts.
fn alerts(file: &Yaml) -> BTreeSet<String> {
    rules(file).filter_map(|rule| rule["alert"].as_str().map(str::to_owned)).collect()
}

fn known() -> Known {
    let mut known = Known::new();
    let mut add = |name: String, labels: &mut dyn Iterator<Item = String>| {
        let labels = labels.chain(TARGET_LABELS.map(str::to_owned));
        known.entry(name).or_default().extend(labels);
    };
    for Metric { name, labels, is_histogram } in metrics() {
        if is_histogram {
            let bucket_labels = labels.iter().cloned().chain(["le".to_owned()]);
            add(format!("{name}_bucket"), &mut { bucket_labels });
            add(format!("{name}_count"), &mut labels.into_iter());
        } else {
            add(name, &mut labels.into_iter());
        }
    }
    for (name, labels) in FOREIGN {
        add(name.to_owned(), &mut labels.iter().map(|&label| label.to_owned()));
    }
    for rule in rules(&yaml(RULES)) {
        if let Some(name) = rule["record"].as_str() {
            add(name.to_owned(), &mut ["slo".to_owned()].into_iter());
        }
    }
    known
}

/// The metrics and labels of a query that there are not.
fn unknown(query: &str, known: &Known) -> Vec<String> {
    let is_name = |word: &&str| word.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
    let is_call = |next| ["(", "by", "without"].contains(&next);
    let text = query.split('"').step_by(2).collect::<String>();
    let ranges = text.split('[').map(|piece| piece.split_once(']').map_or(piece, |(_, behind)| behind));
    let text: String = ranges.collect();
    let mut spaced = String::new();
    for char in text.chars() {
        let is_part = char.is_ascii_alphanumeric() || "_:.".contains(char);
        if is_part { spaced.push(char) } else { spaced.extend([' ', char, ' ']) }
    }
    let mut words = spaced.split_whitespace().peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let next = words.peek().copied();
        if GROUPING.contains(&word) && next == Some("(") {
            let labels = words.by_ref().take_while(|&word| word != ")").filter(is_name);
            let is_unknown = |label: &&str| !known.values().any(|labels| labels.contains(*label));
            found.extend(labels.filter(is_unknown).map(|label| format!("{word} ({label})")));
        } else if is_name(&word) && !next.is_some_and(is_call) && !KEYWORDS.contains(&word) {
            let none = BTreeSet::new();
            let labels = known.get(word).unwrap_or(&none);
            found.extend((!known.contains_key(word)).then(|| word.to_owned()));
            if next == Some("{") {
                let selected = words.by_ref().take_while(|&word| word != "}").filter(is_name);
                let unknown = selected.filter(|&label| !labels.contains(label));
                found.extend(unknown.map(|label| format!("{word}{{{label}}}")));
            }
        }
    }
    found
}

/// The panels of the dashboard that ask for something.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

fn queries(panel: &Value) -> impl Iterator<Item = &str> {
    panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

/// Runs promtool beside the rules.
fn promtool(arguments: &[&str]) {
    let Some(output) = tool("promtool", arguments, &root().join("deploy/prometheus")) else { return };
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{stdout}{stderr}");
}

#[test]
fn the_alert_rules_are_valid_and_their_tests_pass() {
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["test", "rules", "alerts.test.yaml"]);
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_quiet() {
    let (mut firing, mut quiet) = (BTreeSet::new(), BTreeSet::new());
    for case in items(&yaml(TESTS)["tests"]).flat_map(|test| items(&test["promql_expr_test"])) {
        let query = case["expr"].as_str().unwrap();
        assert!(query.contains(r#",alertstate="firing"})"#), "{query}");
        let (_, name) = query.split_once(r#"(ALERTS{alertname=""#).unwrap();
        let (name, _) = name.split_once('"').unwrap();
        let is_quiet = case["exp_samples"].as_vec().unwrap().is_empty();
        if is_quiet { &mut quiet } else { &mut firing }.insert(name.to_owned());
    }
    let alerts = alerts(&yaml(RULES));
    assert_eq!((&firing, &quiet), (&alerts, &alerts));
    assert!(alerts.len() > 20, "{} alerts were found", alerts.len());
}

#[test]
fn every_alert_says_how_urgent_it_is_what_to_do_and_where_to_read_on() {
    for rule in rules(&yaml(RULES)).filter(|rule| !rule["alert"].is_badvalue()) {
        let name = rule["alert"].as_str().unwrap();
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].as_str().is_some_and(|text| text.len() > 10), "{name}: {key}");
        }
        let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
        let page = runbook.strip_prefix("https://tiergate.example/").unwrap();
        assert!(page.starts_with("docs/runbook.md#"), "{name}: {page}");
        let page = format!("[page]({page})");
        assert_eq!(broken(&root().join("README.md"), &page).0, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn rules_their_tests_and_the_dashboard_name_only_metrics_of_the_program() {
    let known = known();
    let (rules_file, tests, dashboard) = (yaml(RULES), yaml(TESTS), dashboard());
    let texts = |items: Vec<&Yaml>, key: &str| -> Vec<String> {
        items.into_iter().filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let tests = || items(&tests["tests"]);
    let series = tests().flat_map(|test| items(&test["input_series"])).collect();
    let cases = tests().flat_map(|test| items(&test["promql_expr_test"])).collect();
    let asked = panels(&dashboard).into_iter().flat_map(queries).map(str::to_owned);
    let mut count = 0;
    for query in texts(rules(&rules_file).collect(), "expr")
        .into_iter()
        .chain(texts(series, "series"))
        .chain(texts(cases, "expr"))
        .chain(asked)
    {
        assert_eq!(unknown(&query, &known), Vec::<String>::new(), "{query}");
        count += 1;
    }
    assert!(count > 150, "{count} queries were found");
}

#[test]
fn a_metric_or_label_that_the_program_does_not_have_is_found() {
    let known = known();
    for good in [
        "1 - tiergate_ready",
        r#"sum by (le) (rate(tiergate_rpc_duration_seconds_bucket{le="no_such"}[5m]))"#,
        "up == 0 and on (job) tiergate_build_info offset 1h",
    ] {
        assert_eq!(unknown(good, &known), Vec::<String>::new(), "{good}");
    }
    for (bad, why) in [
        ("1 - tiergate_redy", "tiergate_redy"),
        ("sum(rate(tiergate_rpc_duration_seconds[$__rate_interval]))", "tiergate_rpc_duration_seconds"),
        (r#"tiergate_ready{check="store",listener="api"} == 0"#, "tiergate_ready{listener}"),
        ("count by (agent) (tiergate_ready)", "by (agent)"),
        ("node_load1 > on (job) tiergate_ready", "node_load1"),
    ] {
        assert_eq!(unknown(bad, &known), [why], "{bad}");
    }
}

#[test]
fn every_panel_has_a_title_and_a_unit_and_asks_the_chosen_data_source() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!((&variables[0]["name"], &variables[0]["type"]), (&json!("datasource"), &json!("datasource")));
    assert_eq!(variables[1]["name"], "tenant");
    let (metric, label) = variables[1]["query"]["query"].as_str().unwrap().split_once(", ").unwrap();
    let metric = metric.strip_prefix("label_values(").unwrap();
    assert!(known()[metric].contains(label.trim_end_matches(')')), "{metric} has no {label}");

    let chosen = json!({"type": "prometheus", "uid": "${datasource}"});
    let mut titles = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(!title.is_empty() && titles.insert(title), "{title} stands twice");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        let sources = panel["targets"].as_array().unwrap().iter().chain([panel, &variables[1]]);
        assert!(sources.map(|of| &of["datasource"]).all(|source| *source == chosen), "{title}");
    }
}

/// Queries of a dashboard are checked as rules, with its variables filled in. JSON is YAML.
#[test]
fn every_query_of_the_dashboard_is_valid() {
    let dashboard = dashboard();
    let filled = |query: &str| query.replace("$__rate_interval", "5m").replace("$tenant", ".*");
    let queries = panels(&dashboard).into_iter().flat_map(queries).enumerate();
    let rules: Vec<Value> = queries
        .map(|(number, query)| json!({"record": format!("query:{number}"), "expr": filled(query)}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.json");
    fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]);
}
