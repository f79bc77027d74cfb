//! The tables of the pages are those of the program.

use std::{collections::BTreeSet, fs};

use super::{files, read, root};
use crate::architecture::lines_at;

/// The cells of the rows of every table of a page, without head and rule.
pub(super) fn rows(page: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let lines: Vec<&str> = page.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let is_head = lines.get(index + 1).is_some_and(|next| next.starts_with("| ---"));
        if line.starts_with("| ") && !line.starts_with("| ---") && !is_head {
            let cells = line.trim_matches(['|', ' ']).split(" | ");
            found.push(cells.map(|cell| cell.trim().to_owned()).collect());
        }
    }
    found
}

/// The code spans of a text.
pub(super) fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The texts in double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// A metric of the program.
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) labels: Vec<String>,
    pub(super) is_histogram: bool,
}

/// The metrics of the program.
pub(super) fn metrics() -> Vec<Metric> {
    let source = read("src/telemetry/metrics.rs");
    let (_, table) = source.split_once("\nmetrics! {\n").unwrap();
    let (table, _) = table.split_once("\n}\n").unwrap();
    let made = table.split(';').filter_map(|row| {
        // Words behind "from" are values of a label.
        let (_, call) = row.split(" from [").next()?.split_once(" =")?;
        let mut texts = quoted(call).map(str::to_owned);
        let name = texts.next()?;
        let name = if name.starts_with("http_") { name } else { format!("tiergate_{name}") };
        Some(Metric { name, labels: texts.collect(), is_histogram: call.contains("_BUCKETS") })
    });
    let (name, labels) =
        ("tiergate_build_info".to_owned(), ["version", "commit", "features"].map(str::to_owned).to_vec());
    made.chain([Metric { name, labels, is_histogram: false }]).collect()
}

#[test]
fn the_page_about_metrics_has_each_metric_of_the_program_with_its_labels() {
    let page = read("docs/metrics.md");
    let is_metric =
        |cells: &Vec<String>| ["`tiergate_", "`http_"].iter().any(|start| cells[0].starts_with(start));
    let listed = rows(&page).into_iter().filter(is_metric).map(|cells| {
        let name = spans(&cells[0]).next().unwrap().to_owned();
        (name, spans(&cells[1]).map(str::to_owned).collect())
    });
    let made = metrics().into_iter().map(|metric| (metric.name, metric.labels));
    assert_eq!(listed.collect::<BTreeSet<_>>(), made.collect());
}

#[test]
fn the_page_about_registries_has_each_function_and_event_that_the_program_knows() {
    // `address indexed` for a parameter `address indexed owner`, and nothing for its name.
    fn without_name(parameter: &str) -> String {
        let words: Vec<&str> = parameter.split_whitespace().collect();
        words[..words.len() - 1].join(" ")
    }
    let sources = ["documented", "erc8004", "calls"]
        .map(|file| read(&format!("src/chain/registries/{file}.rs")))
        .concat();
    // What the creation asks, each function in quotes, but for the block number of Arbitrum.
    let creation = read("contracts/AgentDetails.sol");
    let asked =
        quoted(&creation).filter(|text| text.ends_with(')') && !text.ends_with("()")).map(str::to_owned);
    // Functions without parameters are those of a vault's token, and `getVersion`.
    let declared = sources.lines().filter(|line| !line.contains("()")).filter_map(|line| {
        let (kind, rest) = line.trim().split_once(' ')?;
        let (name, rest) = rest.split_once('(').filter(|_| ["function", "event"].contains(&kind))?;
        let parameters = rest.split_once(')').unwrap().0.split(',').map(without_name);
        Some(format!("{name}({})", parameters.collect::<Vec<_>>().join(",")))
    });
    let page = read("docs/registries.md");
    let is_call = |span: &&str| {
        span.contains('(') && !span.starts_with('(') && span.ends_with(')') && !span.ends_with("()")
    };
    let listed =
        rows(&page).into_iter().filter_map(|cells| Some(spans(cells.get(1)?).find(is_call)?.to_owned()));
    let declared: BTreeSet<String> = declared.chain(asked).collect();
    assert!(declared.len() > 15, "{declared:?}");
    assert_eq!(listed.collect::<BTreeSet<_>>(), declared);
}

#[test]
fn every_metric_that_a_page_names_is_one_of_the_program() {
    let known: BTreeSet<String> = metrics().into_iter().map(|metric| metric.name).collect();
    let pages = files(&root().join("docs"), ".md").into_iter().chain([root().join("README.md")]);
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        let words = page.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        for word in words.filter(|word| word.starts_with("tiergate_")) {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            assert!(known.contains(name), "{}: {word}", path.display());
        }
    }
}

#[test]
fn the_page_about_errors_has_each_error_type_of_the_program() {
    let source = read("src/wire/errors.rs");
    let is_type = |text: &&str| text.len() > 4 && text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let made: BTreeSet<&str> = quoted(&source).filter(is_type).collect();
    let page = read("docs/errors.md");
    let rows = rows(&page);
    let listed: Vec<&str> = rows.iter().flat_map(|cells| spans(&cells[1])).collect();
    let reserved = ["INSUFFICIENT_DEPOSIT", "RELAY_FAILED"];
    assert!(reserved.iter().all(|name| page.contains(&format!("`{name}`"))));
    let all: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!((all, listed.len()), (made.clone(), made.len()), "each has one row");
}

/// Warnings of the program's log that ask for nothing.
const ASK_FOR_NOTHING: [&str; 1] = ["the audit log is written again"];

/// Faults that a `FaultLog` writes beside texts of its callers. Of the chain's each begins with what differs.
const FAULTS: [&str; 2] = ["StoreFault", "NoEntropy"];

/// The beginnings of the texts of `FAULTS` in a file, by name.
fn faults(source: &str) -> impl Iterator<Item = (&'static str, String)> {
    FAULTS.into_iter().filter_map(move |name| {
        let is_end = |rest: &str| !rest.starts_with(|char: char| char.is_ascii_alphanumeric());
        let mut heads = source.split("#[error(").skip(1).filter_map(|rest| rest.split_once("struct "));
        let (text, _) = heads.find(|(_, rest)| rest.strip_prefix(name).is_some_and(is_end))?;
        let begin = quoted(text).next()?.split('{').next()?;
        Some((name, begin.trim().to_owned()))
    })
}

/// The beginnings of the warnings and errors of the program's log, up to what differs.
fn logged() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut named = BTreeSet::new();
    for path in files(&root().join("src"), ".rs") {
        let source = fs::read_to_string(&path).unwrap();
        let is_code = !path.components().any(|part| part.as_os_str() == "tests");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for (name, begin) in faults(code) {
            named.insert(name);
            found.insert(begin);
        }
        let calls = code.split("tracing::").skip(1).chain(code.split(".note(format_args").skip(1));
        for call in calls.filter(|_| is_code) {
            let is_shown = ["warn!(", "error!(", "!("].iter().any(|start| call.starts_with(start));
            let call = call.split(");").next().filter(|_| is_shown).unwrap_or_default();
            let message = quoted(call).find(|text| text.contains(' ')).unwrap_or_default();
            let begin = message.split('{').next().unwrap_or_default().trim();
            found.extend(begin.contains(' ').then(|| begin.to_owned()));
        }
    }
    assert_eq!(named, BTreeSet::from(FAULTS));
    found
}

/// The runbook with each item in one line.
fn runbook() -> String {
    read("docs/runbook.md").replace("\n  ", " ")
}

/// A message that begins with a variable has no fixed beginning. The runbook lists the causes that stand there.
#[test]
fn the_runbook_has_the_beginning_of_each_warning_and_error_of_the_program_that_asks_for_something() {
    let page = runbook();
    let listed = spans(&page).filter(|span| span.contains(' '));
    let listed: Vec<&str> = listed.filter_map(|span| Some(span.split("...").next()?.trim())).collect();
    let is_listed = |begin: &str| listed.iter().any(|line| !line.is_empty() && begin.starts_with(line));
    let logged = logged();
    let asks = |begin: &&String| !ASK_FOR_NOTHING.contains(&begin.as_str());
    let missing: Vec<&String> = logged.iter().filter(asks).filter(|begin| !is_listed(begin)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ASK_FOR_NOTHING.iter().all(|begin| logged.contains(*begin)), "{logged:?}");
    assert!(logged.len() > 30, "{} lines were found", logged.len());
}

/// A line stands before the colon of an item, with `...` for what differs from time to time.
#[test]
fn the_runbook_has_lines_that_the_program_writes() {
    let sources = files(&root().join("src"), ".rs").into_iter().map(|path| fs::read_to_string(path).unwrap());
    let sources = sources.collect::<String>();
    let mut count = 0;
    let page = runbook();
    let items = page.lines().filter_map(|line| Some(line.strip_prefix("- ")?.split_once("`: ")?.0));
    for item in items {
        for line in spans(item) {
            let pieces = line.split("...").map(str::trim).filter(|piece| piece.contains(' '));
            for piece in pieces {
                count += 1;
                assert!(sources.contains(piece), "{line}: {piece}");
            }
        }
    }
    assert!(count > 60, "{count} pieces were found");
}

/// The names that stand alone at the beginning of these lines of a text, before `=` or `:`.
fn names<'a>(text: &'a str, begin: &str, separator: &str) -> BTreeSet<&'a str> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(begin)?.split_once(separator));
    let is_name = |name: &&str| name.chars().all(|char| char.is_ascii_lowercase() || char == '_');
    lines.map(|(name, _)| name).filter(is_name).collect()
}

#[test]
fn the_page_about_the_log_has_the_fields_of_the_access_log_and_of_the_audit_log() {
    let page = read("docs/logs.md");
    let access = read("src/record.rs");
    let (_, line) = access.split_once("target: \"access\",\n            ").unwrap();
    let (line, _) = line.split_once(");").unwrap();
    let audit = read("src/telemetry/audit.rs");
    let (_, record) = audit.split_once("pub(crate) struct Record").unwrap();
    let (record, _) = record.split_once("\n}\n").unwrap();
    for (section, known) in
        [("## Access log", names(line, "", " = ")), ("## Audit log", names(record, "pub(crate) ", ": "))]
    {
        assert!(known.len() > 8, "{known:?}");
        let (_, text) = page.split_once(section).unwrap();
        let rows = rows(text.split("\n## ").next().unwrap());
        let listed: BTreeSet<&str> = rows.iter().flat_map(|cells| spans(&cells[0])).collect();
        assert_eq!(listed, known, "{section}");
    }
}

/// The tables and keys of the shipped configuration, by their paths; those that are commented out are among them.
fn settings() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut table = "";
    let conf = read("conf/tiergate.toml");
    for line in conf.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)) {
        let is_name = |text: &str| text.chars().all(|char| char.is_ascii_lowercase() || "_.".contains(char));
        if let Some(header) = line.strip_prefix('[').map(|rest| rest.trim_matches(['[', ']'])) {
            table = header;
            found.insert(table.to_owned());
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| is_name(key)) {
            found.insert(format!("{table}.{key}"));
        }
    }
    found
}

/// A key of a tenant's table may stand without `tenants.`.
#[test]
fn every_setting_and_variable_that_a_page_names_is_in_the_shipped_configuration() {
    let (known, conf) = (settings(), read("conf/tiergate.toml"));
    let tables: BTreeSet<&str> = known
        .iter()
        .filter_map(|path| path.strip_prefix("tenants.").unwrap_or(path).split_once('.'))
        .map(|(table, _)| table)
        .collect();
    let pages = files(&root().join("docs"), ".md").into_iter().chain([root().join("README.md")]);
    let mut count = 0;
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        let variables = page.split(|char: char| !char.is_ascii_uppercase() && char != '_');
        let variables = variables.filter_map(|word| word.strip_prefix("TIERGATE__"));
        let variables = variables.map(|word| word.to_ascii_lowercase().replace("__", "."));
        let is_key = |span: &&str| {
            let is_path = span.chars().all(|char| char.is_ascii_lowercase() || "_.".contains(char));
            let table = span.split_once('.').map(|(table, _)| table);
            let is_file = [".rs", ".md", ".toml", ".d"].iter().any(|suffix| span.ends_with(suffix));
            is_path && !is_file && table.is_some_and(|table| tables.contains(table))
        };
        let text = page.split("\n```").step_by(2).collect::<String>();
        let keys = spans(&text).map(|span| span.trim_matches(['[', ']'])).filter(is_key).map(str::to_owned);
        for key in variables.chain(keys) {
            // Tables that stand in place of keys which are shown, and so in a comment alone.
            let is_told = conf.contains(&format!("[[{key}]]"));
            let is_known = is_told || known.contains(&key) || known.contains(&format!("tenants.{key}"));
            assert!(is_known, "{}: {key}", path.display());
            count += 1;
        }
    }
    assert!(count > 100, "{count} settings were found");
}

#[test]
fn the_tiers_of_the_readme_are_those_of_the_shipped_configuration() {
    let conf = read("conf/tiergate.toml");
    let list = |key: &str| -> Vec<String> {
        let (_, text) = conf.split_once(&format!("\n{key} = [")).unwrap();
        let items = text.split_once(']').unwrap().0.split(',');
        items.map(|item| item.trim().trim_matches('"').to_owned()).collect()
    };
    let page = read("README.md");
    let tiers = rows(&page).into_iter().filter(|cells| ["1", "2", "3", "4"].contains(&cells[0].as_str()));
    let (stakes, limits): (Vec<_>, Vec<_>) =
        tiers.map(|cells| (cells[2].replace(',', ""), cells[3].replace(',', ""))).unzip();
    assert_eq!((stakes, limits), (list("stake"), list("requests_per_minute")));
}

/// Figures that are up to a tenth off are near enough for whoever decides what a part is worth.
#[test]
fn the_page_about_the_scope_says_how_many_lines_each_part_has() {
    let page = read("docs/scope.md");
    let (_, parts) = page.split_once("## Parts that can be left off").unwrap();
    let mut wrong = Vec::new();
    for row in rows(parts) {
        let [part, _, paths, told] = row.as_slice() else { panic!("{row:?}") };
        let lines: usize = spans(paths).map(|path| lines_at(&root().join(path))).sum();
        let told: usize = told.replace(',', "").parse().unwrap();
        if lines.abs_diff(told) * 10 > told {
            wrong.push(format!("{part}: {lines} lines, and {told} on the page"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
