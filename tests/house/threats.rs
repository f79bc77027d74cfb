//! `tests/threats.txt` names the tests that hold each row of `docs/threats.md`, `tests/mutants.txt` those that find each
//! mutant. Every name there must be the name of a test.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The rows of a page of threats, by their words in bold.
fn threats(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("- **"));
    rows.filter_map(|row| Some(row.split_once("**")?.0)).collect()
}

/// Everything that is wrong with a list of the tests of these threats, and how many names it has.
fn unproven(threats: &[&str], list: &str) -> (Vec<String>, usize) {
    let mut wrong = Vec::new();
    let mut count = 0;
    let mut listed = Vec::new();
    let paragraphs = list.split("\n\n").filter(|paragraph| !paragraph.starts_with('#'));
    for mut lines in paragraphs.map(str::lines) {
        let threat = lines.next().unwrap_or_default();
        listed.push(threat);
        let names: Vec<&str> = lines.map(str::trim).collect();
        if names.is_empty() {
            wrong.push(format!("{threat}: neither a test nor \"none\""));
        }
        for name in names.iter().filter(|name| !name.starts_with("none: ")) {
            count += 1;
            if !exists(name, &mut None) {
                wrong.push(format!("{threat}: no test is called {name}"));
            }
        }
    }
    if listed != threats {
        let rest = listed.iter().filter(|row| !threats.contains(row));
        let missing = threats.iter().filter(|row| !listed.contains(row));
        wrong.push(format!("other rows, or in another order: {:?}", rest.chain(missing).collect::<Vec<_>>()));
    }
    (wrong, count)
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
    if let Some(check) = name.strip_prefix("conformance: ") {
        return is_check(check);
    }
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

/// True when a check of `scripts/conformance` has a name that begins so, in a part that `.ci/run` runs.
fn is_check(name: &str) -> bool {
    let part = name.split([' ', ':']).next().unwrap_or_default();
    let ci = read(&root().join(".ci/run")).expect("it can be read");
    let parts = ci.lines().find_map(|line| line.strip_prefix("parts=\"")?.strip_suffix('"'));
    let is_made =
        ci.lines().any(|line| line.ends_with("tiergate scripts/took conformance scripts/conformance $parts"));
    let is_run = is_made && parts.is_some_and(|parts| parts.split(' ').any(|run| run == part));
    let folder = root().join("scripts/conformance.d");
    let mut files =
        fs::read_dir(folder).expect("the folder can be read").map(|entry| entry.expect("an entry"));
    let exists = files.any(|file| {
        let text = fs::read_to_string(file.path()).expect("a script is text");
        text.contains(&format!("\"{name}"))
    });
    is_run && exists
}

#[test]
fn every_test_that_the_list_of_threats_names_exists() {
    let [page, list] = ["docs/threats.md", "tests/threats.txt"]
        .map(|path| fs::read_to_string(root().join(path)).expect("it can be read"));
    let (wrong, count) = unproven(&threats(&page), &list);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 400, "{count} names were found");
}

#[test]
fn every_test_that_is_said_to_find_a_mutant_exists() {
    let list = fs::read_to_string(root().join("tests/mutants.txt")).expect("the list can be read");
    let (wrong, count) = problems(&list);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 15, "{count} names were found");
}

#[test]
fn a_name_that_no_test_has_is_found() {
    let known = "| **a** | b | `gateway::floods::rapid_resets_end_the_connection`; `conformance: abuse:`; `house::threats::a_name_that_no_test_has_is_found`, `every_test_that_the_list_of_threats_names_exists` |";
    assert_eq!(problems(known), (vec![], 4));
    for row in [
        "| **a** | b | `gateway::floods::no_such_case` |",
        "| **a** | b | `gateway::no_such_topic::rapid_resets_end_the_connection` |",
        "| **a** | b | `gateway::floods::rapid_resets_end_the_connection`, `no_such_case` |",
        "| **a** | b | `no_file_before_it` |",
        "| **a** | b | `gateway::floods::hanging`, `rapid_resets_end_the_connection` |",
        "| **a** | b | `conformance: abuse: no such check` |",
        "| **a** | b | `conformance: nghttp: small windows` |",
        "| **a** | b | it holds |",
        "| **a** | `gateway::floods::rapid_resets_end_the_connection` |",
    ] {
        assert_eq!(problems(row).0.len(), 1, "{row}");
    }
}

#[test]
fn a_test_that_is_ignored_is_no_proof() {
    for attributes in ["#[test]", "#[tokio::test]", "#[tokio::test(start_paused = true)]\n#[should_panic]"] {
        assert!(is_test(&format!("{attributes}\nfn a() {{}}"), "a"), "{attributes}");
        assert!(!is_test(&format!("{attributes}\n#[ignore = \"slow\"]\nfn a() {{}}"), "a"), "{attributes}");
    }
    assert!(!is_test("#[ignore]\nfn a() {}\nconst CASES: &[Case] = cases![a];", "a"));
}

#[test]
fn a_threat_without_its_tests_is_found() {
    let name = "gateway::floods::rapid_resets_end_the_connection";
    let known = format!("# A comment.\n\na\n  {name}\n  conformance: abuse:\n\nb `c`\n  none: nobody can\n");
    assert_eq!(unproven(&threats("x\n\n- **a**: b\n- **b `c`**, d: e\n"), &known), (vec![], 2));
    for (threats, list) in [
        (vec!["a"], "a\n  gateway::floods::no_such_case\n".to_owned()),
        (vec!["a"], "a\n  rapid_resets_end_the_connection\n".to_owned()),
        (vec!["a"], "a\n".to_owned()),
        (vec!["a"], format!("a\n  {name}\n\nb\n  {name}\n")),
        (vec!["a", "b"], format!("a\n  {name}\n")),
        (vec!["b", "a"], format!("a\n  {name}\n\nb\n  {name}\n")),
    ] {
        assert_eq!(unproven(&threats, &list).0.len(), 1, "{list}");
    }
}
