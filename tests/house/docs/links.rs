//! Links between pages, and files that pages name, exist.

use std::{collections::BTreeSet, fs, path::Path};

use super::{files, root};

/// A page without its code: fenced blocks and spans are no links.
fn prose(page: &str) -> String {
    let text = page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    text.split('`').step_by(2).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let text = page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    for line in text.lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|char| char.is_alphanumeric() || "-_ ".contains(*char));
        let anchor: String = kept.map(|char| if char == ' ' { '-' } else { char }).collect();
        let mut unique = anchor.clone();
        let mut count = 0;
        while !found.insert(unique.clone()) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    found
}

/// The links of a page that lead nowhere, and how many it has.
pub(super) fn broken(path: &Path, page: &str) -> (Vec<String>, usize) {
    let text = prose(page);
    let targets: Vec<&str> =
        text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    let leads_nowhere = |target: &&str| {
        if target.starts_with("https://") || target.starts_with("http://") {
            return false;
        }
        let (file, anchor) = target.split_once('#').map_or((*target, None), |(file, at)| (file, Some(at)));
        let file = if file.is_empty() { path.to_owned() } else { path.with_file_name("").join(file) };
        let is_anchor = |anchor| fs::read_to_string(&file).is_ok_and(|page| anchors(&page).contains(anchor));
        !file.exists() || !anchor.is_none_or(is_anchor)
    };
    let wrong = targets.iter().filter(|target| leads_nowhere(target));
    (wrong.map(|target| format!("{}: {target}", path.display())).collect(), targets.len())
}

/// The pages and scripts that a text names by their path from the root and that do not exist.
fn unknown(path: &Path, text: &str) -> Vec<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "-_./".contains(char);
    let words = text.split(|char| !is_part(char)).map(|word| word.trim_end_matches('.'));
    let paths = words.filter(|word| {
        ["docs/", "conf/", "scripts/", "deploy/"].iter().any(|folder| word.starts_with(folder))
            && [".md", ".toml", ".yaml", ".json", ".cfg"].iter().any(|suffix| word.ends_with(suffix))
    });
    let missing = paths.filter(|word| !root().join(word).exists());
    missing.map(|word| format!("{}: {word}", path.display())).collect()
}

#[test]
fn every_link_and_anchor_of_the_pages_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in files(&root(), ".md") {
        let (found, links) = broken(&path, &fs::read_to_string(&path).unwrap());
        wrong.extend(found);
        count += links;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} links were found");
}

#[test]
fn every_page_and_configuration_that_is_named_exists() {
    let texts = [".md", ".rs", ".toml", ".yaml", ".py"].map(|suffix| files(&root(), suffix)).concat();
    let wrong = texts.iter().flat_map(|path| {
        // This file names some that do not exist.
        let is_this = path.ends_with("tests/house/docs/links.rs");
        let text = if is_this { String::new() } else { fs::read_to_string(path).unwrap() };
        unknown(path, &text)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = root().join("docs/operations.md");
    for good in ["[a](logs.md)", "[a](../README.md#test-it)", "[a](redis.md)", "`[a](b)`"] {
        assert_eq!(broken(&page, good).0, Vec::<String>::new(), "{good}");
    }
    for bad in ["[a](README.md)", "[a](../README.md#no-such)", "[a](#no-such)", "x\n```sh\n```\n[a](b.md)"] {
        assert_eq!(broken(&page, bad).0.len(), 1, "{bad}");
    }
    assert_eq!(unknown(&page, "See `docs/no-such.md`, docs/logs.md.").len(), 1);
}
