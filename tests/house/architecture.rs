//! The rules of the house as tests: who may use whom, what is fenced in where, and what every file looks like.
//!
//! They read the sources as text. Each rule is a function from one source to its violations, so that each is also tried
//! on a source that breaks it: a check that can't fail holds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules of ours a module may use. The order is that of the layers; `*` is everything.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("addresses", &[]),
    ("files", &["domain"]),
    ("panic_guard", &[]),
    ("fair_timeout", &[]),
    ("http1", &[]),
    ("http2", &["http1"]),
    ("message_signature", &["domain", "http1"]),
    ("mcp", &["domain", "http1"]),
    ("sharded", &["domain"]),
    ("ports", &["domain"]),
    ("error", &["domain", "ports"]),
    ("os", &["domain", "ports"]),
    ("telemetry", &["domain", "ports"]),
    ("supervision", &["telemetry"]),
    ("pipeline", &["domain", "error", "fair_timeout", "sharded", "ports"]),
    ("config", &["domain", "addresses", "files"]),
    ("chain", &["domain", "fair_timeout", "ports", "telemetry"]),
    (
        "store",
        &["domain", "files", "panic_guard", "fair_timeout", "sharded", "ports", "telemetry", "supervision"],
    ),
    ("tls", &["domain", "files", "ports", "telemetry"]),
    ("bots", &["domain", "addresses", "sharded", "ports", "telemetry"]),
    ("assertion", &["domain", "ports", "pipeline", "tls"]),
    ("wire", &["domain", "error", "http1", "message_signature", "ports", "pipeline"]),
    ("record", &["domain", "error", "http1", "ports", "telemetry", "pipeline", "wire"]),
    ("serve", &["domain", "error", "sharded", "http1", "http2", "ports", "telemetry", "wire", "record"]),
    (
        "api",
        &[
            "domain",
            "error",
            "assertion",
            "http1",
            "ports",
            "telemetry",
            "pipeline",
            "wire",
            "serve",
            "record",
        ],
    ),
    (
        "gateway",
        &[
            "domain",
            "error",
            "assertion",
            "bots",
            "addresses",
            "sharded",
            "http1",
            "http2",
            "message_signature",
            "mcp",
            "ports",
            "telemetry",
            "pipeline",
            "wire",
            "tls",
            "serve",
            "record",
        ],
    ),
    ("admin", &["domain", "error", "http1", "ports", "telemetry", "pipeline", "wire", "serve", "record"]),
    ("dev", &["domain", "error", "http1", "ports", "os", "wire", "serve", "record"]),
    ("app", &["*"]),
    ("bin", &["*"]),
    ("cli", &["*"]),
    ("lib", &["*"]),
    ("main", &["*"]),
];

/// What is fenced in: the word, and where it may stand, as beginnings of paths under `src`.
const FENCES: &[(&str, &[&str])] = &[
    ("redb", &["store/embedded/"]),
    // `app` only names our own module of that name.
    ("redis::", &["store/redis/", "app/store.rs"]),
    ("revm", &["dev/"]),
    // The development chain speaks JSON-RPC too, from the other side.
    ("alloy::rpc::types", &["chain/", "dev/"]),
    ("alloy::rpc::json_rpc", &["chain/"]),
    ("alloy::rpc::client", &["chain/"]),
    ("alloy::providers", &["chain/"]),
    ("alloy::transports", &["chain/"]),
    ("reqwest", &["bots/", "chain/", "cli/", "telemetry/traces.rs"]),
    ("opentelemetry", &["telemetry/traces.rs"]),
    // Background tasks and threads of ours are supervised.
    ("pingora::services", &[]),
    ("pingora::server::Server", &[]),
    ("pingora::proxy", &["gateway/library/"]),
    // The log only names it.
    ("rustls", &["tls/", "serve/", "telemetry/log.rs"]),
    ("ring::signature", &["tls/", "assertion/", "bots/", "message_signature/tests/"]),
    ("x509_parser", &["tls/"]),
    // Errors of ours are closed types. Pingora, OpenTelemetry and TLS clients erase theirs, and a panic has no type.
    (
        "downcast_ref",
        &["gateway/library/faults.rs", "telemetry/traces.rs", "tls/pem.rs", "store/redis/tests/server.rs"],
    ),
    ("SystemTime::now", &["os.rs"]),
    // Besides, the runtime's own time, which tests simulate.
    ("Instant::now", &["os.rs", "chain/tests/clock.rs", "serve/timer.rs"]),
    ("getrandom", &["os.rs"]),
    ("listenfd", &["app/handover.rs"]),
    ("sd_notify", &["app/lifecycle.rs"]),
    // No test is judged by the speed of the machine: they have clocks of their own, and ask this one only when to give up.
    ("os::Os", &["app/", "cli/", "chain/tests/", "wire/request_id.rs", "store/redis/tests/"]),
    (
        "prometheus",
        &[
            "telemetry/",
            "chain/",
            "admin/",
            "api/observe.rs",
            "gateway/counters.rs",
            "record.rs",
            "serve/",
            "app/",
        ],
    ),
];

/// The longest file, in lines.
const LINES_MAX: usize = 700;

/// Files that may be longer, and why.
const LONG_FILES: &[(&str, &str)] = &[];

/// Beginnings of doc comments that name nothing: whoever reads one has to look elsewhere for its subject.
const NAMELESS: &[&str] = &[
    "It",
    "Its",
    "This",
    "That",
    "These",
    "Those",
    "They",
    "What",
    "Who",
    "Whom",
    "Whose",
    "Whoever",
    "Whatever",
    "Whether",
    "All",
    "Any",
    "Anybody",
    "Anything",
    "Each",
    "Every",
    "Everybody",
    "Everything",
    "Nothing",
    "Nobody",
    "None",
    "Some",
    "Somebody",
    "Something",
    "Such",
    "Both",
    "Either",
    "Neither",
    "Others",
];

/// Names of another time, by module: so many doc comments that begin so, and functions that are `of_*`. No module gets more, and
/// whoever takes one away lowers the figure.
const NAMELESS_LEFT: &[(&str, usize)] = &[
    ("api", 5),
    ("app", 25),
    ("bin", 1),
    ("chain", 36),
    ("cli", 6),
    ("config", 79),
    ("domain", 114),
    ("mcp", 3),
    ("ports", 14),
    ("store", 29),
];

/// One file under `src`.
struct Source {
    /// Relative to `src`, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    /// Files that are compiled for tests alone.
    fn is_for_tests(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || ["tests.rs", "fixture.rs", "contract.rs"].contains(&name)
    }

    /// The code that is shipped, without comments.
    fn shipped(&self) -> String {
        if self.is_for_tests() {
            return String::new();
        }
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        without_comments(self.text.get(..end).unwrap_or_default())
    }

    /// The code of tests, without comments.
    fn tests(&self) -> String {
        if self.is_for_tests() {
            return without_comments(&self.text);
        }
        let begin = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        without_comments(self.text.get(begin..).unwrap_or_default())
    }

    fn module(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// How many `super::` lead from this file's module to the root.
    fn depth(&self) -> usize {
        let parts = self.path.split('/').count();
        if self.path.ends_with("/mod.rs") { parts - 1 } else { parts }
    }
}

fn without_comments(text: &str) -> String {
    let code = text.lines().map(|line| match line.find("//") {
        Some(at) if !line.get(..at).is_some_and(|before| before.ends_with(':')) => {
            line.get(..at).unwrap_or_default()
        }
        _ => line,
    });
    code.collect::<Vec<_>>().join("\n")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(files_under(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sources_under(folder: &Path) -> Vec<Source> {
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(folder).expect("it is below").to_string_lossy().replace('\\', "/"),
        text: fs::read_to_string(&path).expect("a source is text"),
    };
    files_under(folder, "rs").into_iter().map(read).collect()
}

/// Every word that a path into the crate's root begins with: `crate::word`, `crate::{word, …}`, `super::super::word`.
fn used_modules(source: &Source, code: &str) -> Vec<String> {
    used_below(source, code, "")
}

/// The same for paths into a folder that the source stands below.
fn used_below(source: &Source, code: &str, folder: &str) -> Vec<String> {
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let from_root: String = ["crate"].iter().chain(&parts).map(|part| format!("{part}::")).collect();
    let from_here = "super::".repeat(source.depth() - parts.len());
    let mut used = Vec::new();
    for start in [from_root, from_here] {
        for (at, _) in code.match_indices(&start) {
            used.extend(first_words(code.get(at + start.len()..).unwrap_or_default()));
        }
    }
    used.sort();
    used.dedup();
    used
}

fn first_words(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let mut depth = 0_usize;
    let mut words = vec![word(group)];
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => words.push(word(group.get(at + 1..).unwrap_or_default())),
            _ => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn layering(source: &Source) -> Vec<String> {
    let module = source.module();
    let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{}: the module {module} has no place in the order of layers", source.path)];
    };
    if may_use.contains(&"*") {
        return Vec::new();
    }
    let used = used_modules(source, &source.shipped());
    let strange = used.into_iter().filter(|used| used != module && !may_use.contains(&used.as_str()));
    strange.map(|used| format!("{}: {module} may not use {used}", source.path)).collect()
}

/// The files and folders in this folder that use each other in a circle, and those that use them.
fn circle(folder: &str, sources: &[Source]) -> BTreeSet<String> {
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let rest = source.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        let Some(rest) = rest.filter(|rest| *rest != "mod.rs") else { continue };
        let name = rest.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let used = used_below(source, &source.shipped(), folder).into_iter().filter(|used| used != name);
        uses.entry(name).or_default().extend(used);
    }
    loop {
        let is_used =
            |name: &str| uses.get(name).is_some_and(|used| used.iter().any(|it| uses.contains_key(&**it)));
        let Some(free) = uses.keys().copied().find(|name| !is_used(name)) else { break };
        uses.remove(free);
    }
    uses.into_keys().map(str::to_owned).collect()
}

fn fences(source: &Source) -> Vec<String> {
    let code = source.shipped() + &source.tests();
    let broken = FENCES.iter().filter(|(word, places)| {
        has_word(&code, word) && !places.iter().any(|place| source.path.starts_with(place))
    });
    broken.map(|(word, _)| format!("{}: {word} does not belong here", source.path)).collect()
}

/// The word as a path's beginning or part, not as a part of another word.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn introduction(source: &Source) -> Vec<String> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}: does not begin with what it is, in //!", source.path)]
}

/// Doc comments that begin with a pronoun or a quantifier, and functions that are named by a preposition.
fn names(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in source.text.lines().map(str::trim_start) {
        let doc = line.strip_prefix("/// ").filter(|_| !is_inside);
        is_inside = line.starts_with("///");
        let first = doc.map(|doc| doc.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default());
        if first.is_some_and(|first| NAMELESS.contains(&first)) {
            found.push(format!("{}: a doc comment does not begin with its subject: {line}", source.path));
        }
        if line.split("fn of_").nth(1).is_some_and(|_| !line.starts_with("//")) {
            found.push(format!("{}: a function is named after no noun or verb: {line}", source.path));
        }
    }
    found
}

fn length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let is_excused = LONG_FILES.iter().any(|(path, _)| *path == source.path);
    if lines > LINES_MAX && !is_excused {
        return vec![format!("{}: has {lines} lines", source.path)];
    }
    Vec::new()
}

/// How many lines a file or the files below a folder ship, comments included. Those of other languages count whole.
pub(crate) fn lines_at(path: &Path) -> usize {
    let below = |extension| if path.is_dir() { files_under(path, extension) } else { Vec::new() };
    let files: Vec<PathBuf> = ["rs", "ts", "py"].into_iter().flat_map(below).collect();
    let files = if path.is_dir() { files } else { vec![path.to_owned()] };
    let lines = files.iter().map(|file| {
        let text = fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let source = Source { path: file.to_string_lossy().into_owned(), text };
        if file.extension().is_some_and(|kind| kind == "rs") { source.shipped() } else { source.text }
            .lines()
            .count()
    });
    lines.sum()
}

/// How many lines each module ships, comments included.
fn lines_by_module(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_for_tests()) {
        *counted.entry(source.module().to_owned()).or_default() += source.shipped().lines().count();
    }
    counted
}

/// The modules that have outgrown their budget by more than 5 %, and all of them by more than 3 %.
fn overgrown(counted: &BTreeMap<String, usize>, budget: &str) -> Vec<String> {
    let rows = budget.lines().filter_map(|row| row.split_once(' '));
    let budget: BTreeMap<&str, usize> =
        rows.filter_map(|(name, max)| Some((name, max.parse().ok()?))).collect();
    let all = ("all", counted.values().sum::<usize>(), budget.values().sum::<usize>(), 103);
    let of_module = |(name, lines): (&String, &usize)| {
        (name.clone(), *lines, budget.get(name.as_str()).copied().unwrap_or_default(), 105)
    };
    let each = counted.iter().map(of_module).chain([(all.0.to_owned(), all.1, all.2, all.3)]);
    let grown = each.filter(|(_, lines, max, percent)| lines * 100 > max * percent);
    grown.map(|(name, lines, max, _)| format!("{name}: {lines} lines, and {max} in the budget")).collect()
}

/// Exceptions from lints are expected ones with a reason.
fn exceptions(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let code = without_comments(&source.text);
    for opening in ["#[allow(", "#![allow("] {
        if code.contains(opening) {
            found.push(format!("{}: allows a lint; expect it, with a reason", source.path));
        }
    }
    for opening in ["[expect(", " expect("] {
        for (at, _) in code.match_indices(opening) {
            let attribute = code.get(at..).unwrap_or_default();
            let attribute = attribute.split(")]").next().unwrap_or_default();
            if !attribute.contains("reason = \"") {
                found.push(format!("{}: expects a lint without a reason", source.path));
            }
        }
    }
    found
}

/// The one place that pauses: between two looks at a condition of another process, up to a limit.
const POLLING: &str = "support/time.rs";

fn patience(path: &str, test_code: &str) -> Vec<String> {
    if path != POLLING && test_code.contains(concat!("sle", "ep(")) {
        return vec![format!("{path}: a test waits for time instead of for a condition")];
    }
    Vec::new()
}

fn assert_none(violations: Vec<String>) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

fn judge(rule: impl Fn(&Source) -> Vec<String>) {
    let sources = sources_under(&root().join("src"));
    assert!(sources.len() > 50, "the sources were found");
    assert_none(sources.iter().flat_map(rule).collect());
}

#[test]
fn a_layer_uses_only_what_lies_below_it() {
    judge(layering);
}

#[test]
fn files_of_a_folder_do_not_use_each_other_in_a_circle() {
    let sources = sources_under(&root().join("src"));
    let folders: BTreeSet<&str> =
        sources.iter().filter_map(|source| Some(source.path.rsplit_once('/')?.0)).collect();
    for folder in folders {
        let circle = circle(folder, &sources);
        assert!(circle.is_empty(), "{folder}: {circle:?}");
    }
}

#[test]
fn what_is_fenced_in_stays_there() {
    judge(fences);
}

#[test]
fn every_file_says_first_what_it_is() {
    judge(introduction);
    let tests = sources_under(&root().join("tests"));
    assert_none(tests.iter().flat_map(introduction).collect());
}

/// What the other rules take for tests is compiled for tests alone.
#[test]
fn files_for_tests_are_not_shipped() {
    let sources = sources_under(&root().join("src"));
    let mut seen = 0;
    for source in sources.iter().filter(|source| source.is_for_tests()) {
        let outermost = match source.path.split_once("/tests/") {
            Some((folder, _)) => format!("{folder}/tests"),
            None => source.path.trim_end_matches(".rs").to_owned(),
        };
        let (folder, name) = outermost.rsplit_once('/').expect("tests stand below a module");
        let parents = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        let parent = sources.iter().find(|parent| parents.contains(&parent.path)).expect("it has a parent");
        let is_gated = ["", "pub(crate) ", "pub(super) "]
            .into_iter()
            .any(|visibility| parent.text.contains(&format!("#[cfg(test)]\n{visibility}mod {name};")));
        assert!(is_gated, "{} is shipped by {}", source.path, parent.path);
        seen += 1;
    }
    assert!(seen > 10, "{seen} files for tests were found");
}

#[test]
fn no_file_is_longer_than_a_reader_is_patient() {
    judge(length);
    for (path, reason) in LONG_FILES {
        let text = fs::read_to_string(root().join("src").join(path)).expect("an excused file exists");
        assert!(text.lines().count() > LINES_MAX && !reason.is_empty(), "{path} needs no excuse any more");
    }
}

#[test]
fn doc_comments_begin_with_their_subject_and_functions_are_named_by_nouns_and_verbs() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources_under(&root().join("src")) {
        found.entry(source.module().to_owned()).or_default().extend(names(&source));
    }
    let left =
        |module: &str| NAMELESS_LEFT.iter().find(|(name, _)| *name == module).map_or(0, |(_, left)| *left);
    let more = found.into_iter().filter(|(module, names)| names.len() > left(module));
    assert_none(more.flat_map(|(_, names)| names).collect());
}

/// The house must not grow faster than its promises: who needs more lines writes them into the budget, where a reader sees them.
#[test]
fn no_module_outgrows_its_budget_of_lines() {
    let counted = lines_by_module(&sources_under(&root().join("src")));
    let budget = fs::read_to_string(root().join("tests/lines.txt")).expect("the budget can be read");
    let grown = overgrown(&counted, &budget);
    let table: String = counted.iter().map(|(name, lines)| format!("{name} {lines}\n")).collect();
    assert!(grown.is_empty(), "{}\nas it is:\n{table}", grown.join("\n"));
    let two = BTreeMap::from([("a".to_owned(), 105), ("b".to_owned(), 100)]);
    assert_eq!(overgrown(&two, "a 100\nb 100\n"), Vec::<String>::new());
    for budget in ["a 99\nb 120\n", "a 100\nb 98\n", "a 200\n", ""] {
        assert!(!overgrown(&two, budget).is_empty(), "{budget}");
    }
}

#[test]
fn every_exception_from_a_lint_has_a_reason() {
    judge(exceptions);
}

#[test]
fn no_test_waits_for_time_to_pass() {
    judge(|source| patience(&source.path, &source.tests()));
    let tests = sources_under(&root().join("tests"));
    assert_none(
        tests.iter().flat_map(|source| patience(&source.path, &without_comments(&source.text))).collect(),
    );
}

#[test]
fn every_shipped_configuration_is_loaded_by_a_test() {
    let mut tests: String = sources_under(&root().join("src")).iter().map(Source::tests).collect();
    let here = Path::new(file!()).file_name().expect("this file has a name");
    for file in files_under(&root().join("tests"), "rs").iter().filter(|file| file.file_name() != Some(here))
    {
        tests += &without_comments(&fs::read_to_string(file).expect("a source is text"));
    }
    let shipped = files_under(&root().join("conf"), "toml");
    assert!(!shipped.is_empty());
    for file in shipped {
        let name = file.strip_prefix(root()).expect("it is below").to_string_lossy().replace('\\', "/");
        assert!(tests.contains(&name), "no test loads {name}");
    }
}

/// Each rule finds what breaks it, and nothing in what keeps it.
#[test]
fn every_rule_can_be_broken() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let violations =
        |rule: fn(&Source) -> Vec<String>, path: &str, text: &str| rule(&source(path, text)).len();

    for (path, text, count) in [
        ("domain/a.rs", "use crate::domain::b::B;", 0),
        ("domain/a.rs", "use crate::ports::Clock;", 1),
        ("domain.rs", "fn f() { crate::store::g() }", 1),
        ("pipeline/a.rs", "use crate::{domain::x, chain::y, store::{self, z}};", 2),
        ("pipeline/a.rs", "use super::super::wire::x;", 1),
        ("pipeline/mod.rs", "use super::wire::x;", 1),
        ("pipeline/a.rs", "use super::owner::x; // crate::wire", 0),
        ("pipeline/a.rs", "#[cfg(test)]\nmod tests {\n use crate::store::x; }", 0),
        ("pipeline/tests/a.rs", "use crate::store::x;", 0),
        ("chain/a.rs", "use crate::store::x; use crate::pipeline::y;", 2),
        ("store/a.rs", "use crate::chain::x;", 1),
        ("config/a.rs", "use crate::ports::x;", 1),
        ("api/a.rs", "use crate::chain::x; use crate::admin::y;", 2),
        ("dev/a.rs", "use crate::pipeline::x;", 1),
        ("app.rs", "use crate::store::x; use crate::chain::y;", 0),
        ("surprise/a.rs", "", 1),
    ] {
        assert_eq!(violations(layering, path, text), count, "{path}: {text}");
    }
    for (one, other, count) in [
        ("use crate::a::c::C;", "use crate::a::b::B;", 2),
        ("use super::c::C;", "use super::super::{b::B, e};", 2),
        ("use crate::a::c::C;", "use crate::a::A; use crate::b::B;", 0),
        ("#[cfg(test)]\nmod tests {\n use crate::a::c::C; }", "use crate::a::b::B;", 0),
    ] {
        let sources =
            [source("a/b.rs", one), source("a/c/d.rs", other), source("a/e.rs", "use super::b::B;")];
        assert_eq!(circle("a", &sources).iter().filter(|name| *name != "e").count(), count, "{one} {other}");
    }
    for (word, _) in FENCES {
        assert_eq!(violations(fences, "domain/a.rs", &format!("use {word}::x;")), 1, "{word}");
        assert_eq!(
            violations(fences, "domain/a.rs", &format!("// {word}\nlet not_{word}y = 1;")),
            0,
            "{word}"
        );
    }
    assert_eq!(violations(introduction, "a.rs", "use x;\n//! Late."), 1);
    for (text, count) in [
        ("/// Its name.\n/// It is short.", 1),
        ("/// The name.\n/// It is short.\nfn name() {}", 0),
        ("/// Itself.", 0),
        ("pub(crate) const fn of_agent() {}", 1),
        ("fn of() {} // fn of old", 0),
    ] {
        assert_eq!(violations(names, "a.rs", text), count, "{text}");
    }
    assert_eq!(violations(length, "a.rs", &"\n".repeat(LINES_MAX + 1)), 1);
    assert_eq!(violations(length, "a.rs", &"\n".repeat(LINES_MAX)), 0);
    assert_eq!(violations(exceptions, "a.rs", "#[allow(dead_code, reason = \"r\")]"), 1);
    assert_eq!(violations(exceptions, "a.rs", "#![expect(clippy::x)]"), 1);
    assert_eq!(violations(exceptions, "a.rs", "#[cfg_attr(not(test), expect(dead_code))]"), 1);
    assert_eq!(violations(exceptions, "a.rs", "#[expect(clippy::x, reason = \"r\")]"), 0);
    let waiting = source("a.rs", concat!("#[cfg(test)]\nmod tests {\n sle", "ep(1); }"));
    assert_eq!(patience("a.rs", &waiting.tests()).len(), 1);
    assert_eq!(patience("a.rs", &waiting.shipped()).len(), 0);
}
