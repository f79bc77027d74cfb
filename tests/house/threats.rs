//! Each row of `docs/threats.md` is held by tests, which say so in a line above them: `// threat: ` and the row's words in bold. `tests/mutants.txt`
//! names the tests that find each mutant. A test that does not run holds nothing.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

/// The rows that no test holds, and the reason.
const UNHELD: &[(&str, &str)] = &[("Timing of comparisons", "no test measures time")];

/// The files of `scripts/conformance.d` whose checks `.ci/run` makes, and the part that names them there.
const CHECKS: &[(&str, &str)] = &[("abuse.py", "abuse"), ("http2.py", "h2"), ("upstreams_h2.py", "h2c")];

const CLAIM: &str = "threat: ";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// All files below a folder that end so.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// The rows of a page of threats, by their words in bold.
fn threats(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("- **"));
    rows.filter_map(|row| Some(row.split_once("**")?.0)).collect()
}

/// The threats that the tests of a file claim to hold. `comment`: how its comments begin. Adds what is wrong.
fn claims<'a>(text: &'a str, comment: &str, wrong: &mut Vec<String>) -> Vec<&'a str> {
    let (mut held, mut claimed) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(threat) = line.strip_prefix(comment).and_then(|line| line.trim().strip_prefix(CLAIM)) {
            claimed.push(threat);
        } else if !claimed.is_empty() && !line.starts_with("//") && !line.starts_with("#[") {
            let function = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
            let runs = if comment == "#" {
                line.starts_with('@')
            } else {
                function.is_some_and(|name| is_test(text, name))
            };
            if runs {
                held.append(&mut claimed);
            } else {
                wrong.push(format!("{claimed:?} is held by no test that runs: {line}"));
                claimed.clear();
            }
        }
    }
    held
}

/// Everything that is wrong with what is held of these threats.
fn unheld(threats: &BTreeSet<&str>, held: &BTreeSet<&str>) -> Vec<String> {
    let excused: BTreeSet<&str> = UNHELD.iter().map(|(threat, _)| *threat).collect();
    let unknown = held.difference(threats).map(|threat| format!("{threat}: no such row"));
    let missing = threats.difference(held).filter(|threat| !excused.contains(*threat));
    let needless = excused.iter().filter(|threat| held.contains(*threat) || !threats.contains(*threat));
    let missing = missing.map(|threat| format!("{threat}: no test"));
    unknown.chain(missing).chain(needless.map(|threat| format!("{threat}: needs no excuse"))).collect()
}
/// Everything that is wrong with the rows of a table of mutants, and how many names it has.
fn problems(page: &str) -> (Vec<String>, usize) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with("| **")) {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [threat, _, proof] = cells.as_slice() else {
            wrong.push(format!("not three cells: {row}"));
            continue;
        };
        let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && !proof.starts_with("none") {
            wrong.push(format!("{threat}: neither a test nor \"none\""));
        }
        let mut file = None;
        for name in &names {
            count += 1;
            if !exists(name, &mut file) {
                wrong.push(format!("{threat}: no test is called {name}"));
            }
        }
    }
    (wrong, count)
}

/// True when a test has this name. One without a file is in the file of the name before it.
fn exists(name: &str, file: &mut Option<String>) -> bool {
    let function = match name.rsplit_once("::") {
        Some((path, function)) => {
            *file = source(path);
            function
        }
        None => name,
    };
    is_test(file.as_deref().unwrap_or_default(), function)
}

/// True when a function of this text runs as a test: it has an attribute of one, is listed in `cases!`, or in a macro of the
/// contract of stores.
fn is_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    let head = format!("fn {function}(");
    let Some(at) = lines.iter().position(|line| line.contains(&head)) else { return false };
    let above = lines.get(..at).unwrap_or_default().iter().rev();
    let attributes: Vec<&&str> = above.take_while(|line| line.starts_with('#')).collect();
    let has = |word: &str| attributes.iter().any(|line| line.contains(word));
    (has("test]") || has("test(") || is_listed(text, function)) && !has("ignore")
}

/// True when a list of cases names the function.
fn is_listed(text: &str, function: &str) -> bool {
    let lists = [("cases![", ']'), ("@$how $bench,", '}')];
    let names = lists.iter().flat_map(|(begin, end)| {
        let behind = text.split(begin).skip(1);
        behind.filter_map(|rest| rest.split(*end).next()).flat_map(|list| list.split([',', '\n']))
    });
    names.map(str::trim).any(|name| name == function)
}

/// The text of the file that a path of modules leads to: below `tests` where there is such a suite, else below `src`,
/// which may be said where both have it.
fn source(path: &str) -> Option<String> {
    let (first, rest) = path.split_once("::").unwrap_or((path, ""));
    let suites = root().join("tests");
    let is_suite = suites.join(first).is_dir() || suites.join(format!("{first}.rs")).is_file();
    let (folder, path) = match first {
        "src" => ("src", rest),
        _ if is_suite => ("tests", path),
        _ => ("src", path),
    };
    // A module for tests may stand in the file that it tests.
    [path, path.strip_suffix("::tests").unwrap_or(path)].iter().find_map(|path| {
        let base = root().join(folder).join(path.replace("::", "/"));
        read(&base.with_extension("rs")).or_else(|| read(&base.join("mod.rs")))
    })
}

#[test]
fn each_threat_is_held_by_tests_that_run() {
    let page = read(&root().join("docs/threats.md")).expect("it can be read");
    let (mut rust, mut wrong, mut count) = (Vec::new(), Vec::new(), 0);
    for folder in ["src", "tests"] {
        files(&root().join(folder), "rs", &mut rust);
    }
    let mut texts: Vec<(String, &str)> =
        rust.iter().map(|file| (read(file).expect("a source is text"), "//")).collect();
    let ci = read(&root().join(".ci/run")).expect("it can be read");
    let parts =
        ci.lines().find_map(|line| line.strip_prefix("parts=\"")?.strip_suffix('"')).unwrap_or_default();
    assert!(
        ci.lines().any(|line| line.ends_with("tiergate scripts/took conformance scripts/conformance $parts"))
    );
    for (file, part) in CHECKS {
        assert!(parts.split(' ').any(|run| run == *part), "{part} is not run");
        texts.push((read(&root().join("scripts/conformance.d").join(file)).expect("a script is text"), "#"));
    }
    let mut held = BTreeSet::new();
    for (text, comment) in &texts {
        let claimed = claims(text, comment, &mut wrong);
        count += claimed.len();
        held.extend(claimed);
    }
    wrong.extend(unheld(&threats(&page), &held));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 400, "{count} tests hold threats");
}

#[test]
fn every_test_that_is_said_to_find_a_mutant_exists() {
    let list = read(&root().join("tests/mutants.txt")).expect("the list can be read");
    let (wrong, count) = problems(&list);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 15, "{count} names were found");
}

#[test]
fn a_name_that_no_test_has_is_found() {
    let known = "| **a** | b | `gateway::floods::rapid_resets_end_the_connection`; `house::threats::a_name_that_no_test_has_is_found`, `each_threat_is_held_by_tests_that_run` |";
    assert_eq!(problems(known), (vec![], 3));
    for row in [
        "| **a** | b | `gateway::floods::no_such_case` |",
        "| **a** | b | `gateway::no_such_topic::rapid_resets_end_the_connection` |",
        "| **a** | b | `gateway::floods::rapid_resets_end_the_connection`, `no_such_case` |",
        "| **a** | b | `no_file_before_it` |",
        "| **a** | b | it holds |",
        "| **a** | `gateway::floods::rapid_resets_end_the_connection` |",
    ] {
        assert_eq!(problems(row).0.len(), 1, "{row}");
    }
}

#[test]
fn a_claim_counts_above_a_test_that_runs() {
    let claim = format!("// {CLAIM}a");
    for (text, is_held) in [
        ("#[test]\nfn b() {}", true),
        ("#[tokio::test(start_paused = true)]\n#[should_panic]\nasync fn b() {}", true),
        ("fn b() {}\nconst CASES: &[Case] = cases![b];", true),
        ("#[test]\n#[ignore = \"slow\"]\nfn b() {}", false),
        ("#[ignore]\nfn b() {}\nconst CASES: &[Case] = cases![b];", false),
        ("fn b() {}", false),
        ("#[test]\nlet b;", false),
    ] {
        let (text, mut wrong) = (format!("{claim}\n{text}\n"), Vec::new());
        assert_eq!(
            (claims(&text, "//", &mut wrong).len(), wrong.len()),
            (is_held.into(), (!is_held).into()),
            "{text}"
        );
    }
    let (text, mut wrong) = (format!("# {CLAIM}a\n@check(\"a\")\n# {CLAIM}b\ndef a():\n"), Vec::new());
    assert_eq!((claims(&text, "#", &mut wrong), wrong.len()), (vec!["a"], 1));
}

#[test]
fn a_threat_that_nobody_holds_is_found() {
    let excused = UNHELD[0].0;
    let page = format!("x\n\n- **a**: b\n- **b `c`**, d: e\n- **{excused}**\n");
    let rows = threats(&page);
    for (held, faults) in [
        (vec!["a", "b `c`"], 0),
        (vec!["a"], 1),
        (vec!["a", "b `c`", "d"], 1),
        (vec!["a", "b `c`", excused], 1),
    ] {
        assert_eq!(unheld(&rows, &held.iter().copied().collect()).len(), faults, "{held:?}");
    }
    assert_eq!(unheld(&BTreeSet::new(), &BTreeSet::new()).len(), 1);
}
