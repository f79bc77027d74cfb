//! The examples of `--help` and of the manual, as somebody types them.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use super::dev::Dev;
use super::owner::Elsewhere;
use super::{PROGRAM, tiergate};

/// Commands with examples. Keys can be changed ten times an hour, so that the order is one that needs no others.
const ORDER: [(&str, usize); 12] = [
    ("keys generate", 0),
    ("keys revoke", 0),
    ("keys generate", 1),
    ("keys rotate", 0),
    ("keys rotate", 1),
    ("keys status", 0),
    ("keys status", 1),
    ("verify", 0),
    ("verify", 1),
    ("sign", 0),
    ("sign", 1),
    ("keys revoke", 1),
];

/// The examples behind a command's help: each begins with two blanks, and goes on with more.
fn examples(command: &str) -> Vec<String> {
    let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    let help = String::from_utf8(tiergate(&arguments).stdout).unwrap();
    let (_, list) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{command}: {help}"));
    let mut found: Vec<String> = Vec::new();
    for line in list.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with("   ") => last.extend(["\n", line]),
            _ => found.push(line.to_owned()),
        }
    }
    found
}

#[test]
fn the_examples_of_the_help_work_as_typed_and_the_manual_has_the_same() {
    let service = Elsewhere::start();
    let folder = service.folder.path();
    fs::copy(Dev::shared().key_file(4), folder.join("owner.key")).unwrap();
    assert!(tiergate(&["man", folder.to_str().unwrap()]).status.success());
    let names = ORDER.map(|(command, _)| command);
    let all: BTreeMap<&str, Vec<String>> = names.into_iter().map(|name| (name, examples(name))).collect();
    for (name, examples) in &all {
        assert_eq!(examples.len(), 2, "{name}: {examples:?}");
        let page = folder.join(format!("tiergate-{}.1", name.replace(' ', "-")));
        let page = fs::read_to_string(page).unwrap().replace("\\-", "-").replace("\\\\", "\\");
        let lines = examples.iter().flat_map(|example| example.lines());
        lines.for_each(|line| assert!(page.contains(line.trim()), "{name}: {line}: {page}"));
    }
    for (name, at) in ORDER {
        let typed = all[name][at].replace("https://keys.example", &service.url);
        if name == "keys generate" {
            let _ = fs::remove_file(folder.join("api.key"));
        }
        let mut shell = Command::new("sh");
        // A key that is kept elsewhere.
        shell.args(["-ec", &format!("gpg() {{ cat owner.key; }}\n{typed}")]);
        let path = [Path::new(PROGRAM).parent().unwrap().to_str().unwrap(), "/usr/bin", "/bin"].join(":");
        let output = service
            .in_place(shell)
            .env("PATH", path)
            .env("CURL_CA_BUNDLE", folder.join("cert"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_quiet = !said.contains("tiergate: ") || typed.contains("--typed-data");
        assert!(output.status.success() && is_quiet, "{typed}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let is_answered =
            ["agentId", "agentid", "x-agent-id", "hasKey"].iter().any(|word| printed.contains(word));
        assert!(is_answered || typed.contains("request.json"), "{typed}: {printed}");
    }
}
