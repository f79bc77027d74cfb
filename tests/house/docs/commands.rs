//! Runs the `sh` blocks of a page in one shell, as they are printed, beside a `tiergate-dev`. A `text` block behind an `sh`
//! block is what that prints; `...` in it stands for anything. A `toml` block is the file `tiergate.toml`.
//!
//! Three things are not as a reader has them: `target/quick/tiergate` is the program of this build, the address
//! 127.0.0.1 is one that no other test uses, and the commands of `NOT_TYPED` are not typed.

use std::process::{Command, Stdio};
use std::{collections::BTreeSet, fs, io::Write, os::unix::fs::symlink};

use super::read;
use super::started::Started;
use super::tables::{rows, spans};
use crate::loopback;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

/// Commands that are blocks of their own and are not typed: the first is done beside them, the second runs this test.
const NOT_TYPED: [&str; 2] = ["make dev", "make test"];

/// Printed between the outputs of two blocks, with the exit code of the former.
const MARK: &str = "-- end of a block --";

/// `tiergate-dev` on an address of its own.
fn start() -> (Started, String) {
    let ip = loopback::own_ip().to_string();
    let ports = [("api", 8080), ("gateway", 8000), ("upstream", 9000), ("admin", 8082), ("chain", 8545)];
    let addresses = ports.map(|(name, port)| [format!("--{name}"), format!("{ip}:{port}")]);
    let program = env!("CARGO_BIN_EXE_tiergate-dev").as_ref();
    (Started::new(program, &addresses.concat(), &[], Stdio::null()), ip)
}

/// A command without the variables of Tiergate that the one who runs the tests has set.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIERGATE_")) {
        command.env_remove(name);
    }
    command
}

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fences = page.split("\n```").skip(1).step_by(2);
    fences.map(|block| block.split_once('\n').unwrap()).collect()
}

/// True when this was printed: `...` stands for anything.
fn is_as_documented(printed: &str, documented: &str) -> bool {
    let mut pieces = documented.split("...");
    let Some(mut rest) = printed.strip_prefix(pieces.next().unwrap()) else { return false };
    let mut last = "";
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        (rest, last) = (&rest[at + piece.len()..], piece);
    }
    rest.is_empty() || (documented.contains("...") && (last.is_empty() || rest.ends_with(last)))
}

/// Everything that does not work as the page says.
fn problems(page: &str) -> Vec<String> {
    let (_dev, ip) = start();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("target/quick")).unwrap();
    symlink(PROGRAM, folder.path().join("target/quick/tiergate")).unwrap();
    fs::write(folder.path().join(".curlrc"), "max-time = 30\n").unwrap();
    let blocks = blocks(page);
    let mut typed = Vec::new();
    for (index, (language, text)) in blocks.iter().enumerate() {
        match *language {
            "toml" => fs::write(folder.path().join("tiergate.toml"), text).unwrap(),
            "sh" if !NOT_TYPED.contains(text) => {
                let printed = blocks.get(index + 1).filter(|(next, _)| *next == "text");
                typed.push((*text, printed.map(|(_, text)| *text)));
            }
            _ => {}
        }
    }
    let script = typed.iter().map(|(text, _)| format!("{text}\nprintf '\\n{MARK}%s\\n' $?\n"));
    let script = script.collect::<String>().replace("127.0.0.1", &ip);
    let mut shell = command("sh")
        .args(["-c", "exec 2>&1; . /dev/stdin"])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("TIERGATE_URL", format!("http://{}:8080", ip))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
    let output = output.replace('\r', "").replace(&ip, "127.0.0.1");
    let mut outputs = output.split(MARK);
    let mut found = Vec::new();
    let mut printed = outputs.next().unwrap_or_default();
    for (text, documented) in &typed {
        let next = outputs.next().unwrap_or("none");
        let (code, behind) = next.split_once('\n').unwrap_or((next, ""));
        let documented = documented.unwrap_or("...").trim();
        if code != "0" || !is_as_documented(printed.trim(), documented) {
            found.push(format!("exit code {code} of\n{text}\nprinted\n{printed}\ndocumented\n{documented}"));
        }
        printed = behind;
    }
    found
}

/// Fails with everything that does not work.
fn holds(page: &str, blocks_min: usize) {
    let text = read(page);
    let runs = blocks(&text).iter().filter(|(language, _)| *language == "sh").count();
    assert!(runs >= blocks_min, "{page}: {runs} blocks were found");
    let found = problems(&text);
    assert!(found.is_empty(), "{page}: {}", found.join("\n"));
}

#[test]
fn the_commands_of_the_readme_print_what_it_says() {
    holds("README.md", 8);
}

#[test]
fn the_commands_of_the_page_about_the_api_print_what_it_says() {
    holds("docs/api.md", 8);
}

/// Each row names commands, and may name options of theirs.
#[test]
fn the_page_about_operations_has_each_command_of_the_program_and_options_that_there_are() {
    let help = |arguments: &[&str]| {
        let output = command(PROGRAM).args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = help(&[]);
    let (_, list) = all.split_once("Commands:\n").unwrap();
    let list = list.split_once("\n\n").unwrap().0.lines().filter(|line| !line.starts_with("   "));
    let made: BTreeSet<&str> = list.filter_map(|line| line.split_whitespace().next()).collect();
    let page = read("docs/operations.md");
    let (_, table) = page.split_once("## Commands\n").unwrap();
    let table = table.split_once("\n\n`tiergate-dev`").unwrap().0;
    let mut listed = BTreeSet::from(["help"]);
    for cells in rows(table) {
        let commands: Vec<String> = spans(&cells[0]).map(str::to_owned).collect();
        for text in &commands {
            let words: Vec<&str> = text.split(' ').filter(|word| *word != "tiergate").collect();
            listed.extend(made.iter().copied().filter(|name| *name == words[0]));
            let options = help(&words);
            let named = spans(&cells[1]).filter(|span| span.starts_with("--"));
            named.for_each(|option| assert!(options.contains(option), "{text}: {option}"));
        }
    }
    assert_eq!(listed, made);
}

#[test]
fn a_command_that_is_broken_and_an_output_that_is_another_are_found() {
    let status = "target/quick/tiergate keys status --agent-id 4";
    let typed = [
        (status, "agentId  4\nhasKey   false", true),
        (status, "agentId  4\nhasKey   true", false),
        ("target/quick/tiergate keys stauts --agent-id 4", "...", false),
        ("curl -s http://127.0.0.1:8081/livez", "...", false),
        ("echo one two three", "one ... two", false),
        ("echo the end", "the end", true),
    ];
    let page = typed.map(|(command, text, _)| format!("x\n```sh\n{command}\n```\n\n```text\n{text}\n```\n"));
    let found = problems(&page.concat());
    let wrong: Vec<_> = typed.iter().filter(|(.., is_good)| !is_good).collect();
    assert_eq!(found.len(), wrong.len(), "{found:?}");
    for ((command, ..), found) in wrong.iter().zip(found) {
        assert!(found.contains(command), "{command}: {found}");
    }
}
