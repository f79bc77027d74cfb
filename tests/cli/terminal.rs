//! The program in a terminal, which `script` opens, and beside it without one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::{net::TcpListener, path::Path};

use super::{PROGRAM, command};
use crate::support::process::own_ip;

/// A command line in a terminal that has colours.
pub(super) fn in_terminal(line: &[&str]) -> Command {
    let line = line.join(" ");
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null());
    script
}

/// True once the terminal no longer shows what is typed. Each look is a process of its own, so that many are time enough.
fn hides_typing(terminal: &Path) -> bool {
    (0..5_000).any(|_| {
        let stty = Command::new("stty").arg("-F").arg(terminal).arg("-a").output().unwrap();
        String::from_utf8(stty.stdout).unwrap().split_whitespace().any(|setting| setting == "-echo")
    })
}

/// Runs the program in a terminal and types a line there once typing is hidden. Returns all that the terminal showed.
pub(super) fn typed_in_secret(arguments: &[&str], line: &str) -> String {
    let shell = ["sh", "-c", &format!("'tty; exec \"$0\" \"$@\"' {PROGRAM}")];
    let mut script = in_terminal(&[&shell[..], arguments].concat());
    script.env_remove("TIERGATE_KEYSTORE_PASSWORD").env_remove("TIERGATE_URL");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keyboard = script.stdin.take().unwrap();
    let mut screen = BufReader::new(script.stdout.take().unwrap());
    let mut terminal = String::new();
    screen.read_line(&mut terminal).unwrap();
    assert!(hides_typing(Path::new(terminal.trim())), "{terminal}");
    writeln!(keyboard, "{line}").unwrap();
    let mut shown = String::new();
    screen.read_to_string(&mut shown).unwrap();
    assert!(script.wait().unwrap().success(), "{shown}");
    shown
}

fn program<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&[PROGRAM], args].concat()
}

/// True if the program writes a terminal's control sequences.
fn is_coloured(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(text.windows(8).any(|word| word == b"tiergate"), "{}", String::from_utf8_lossy(&text));
    text.contains(&0x1b)
}

#[test]
fn there_are_colours_in_a_terminal_alone_and_none_with_no_color() {
    for args in [&["--help"][..], &["keys", "surprise"]] {
        assert!(is_coloured(&mut in_terminal(&program(args))), "{args:?}");
        assert!(!is_coloured(in_terminal(&program(args)).env("NO_COLOR", "1")), "{args:?}");
        assert!(!is_coloured(command(args).env("TERM", "xterm")), "{args:?}");
    }
    // The log's lines have none anywhere.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/tiergate.toml");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut run = in_terminal(&[PROGRAM, "run", "--config", shipped]);
    run.env("TIERGATE__LISTEN__API", taken.local_addr().unwrap().to_string())
        .env("TIERGATE__LOG__LEVEL", "debug")
        .env("TIERGATE__STORE__EMBEDDED__CREATE", "true");
    assert!(!is_coloured(run.env("TIERGATE__STORE__EMBEDDED__PATH", tempfile::tempdir().unwrap().path())));
}

#[test]
fn a_person_is_told_what_a_long_wait_is_for_and_a_script_is_not() {
    let service = TcpListener::bind((own_ip(), 0)).unwrap();
    let url = format!("http://{}", service.local_addr().unwrap());
    let args = ["keys", "status", "--agent-id", "1", "--url", &url];
    let script = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = service.accept().unwrap();
    let mut terminal = in_terminal(&program(&args)).stdout(Stdio::piped()).spawn().unwrap();
    let asked_too = service.accept().unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.next().unwrap();
    assert!(said.contains(&format!("waiting for {url}/keys/status")), "{said}");
    drop((asked, asked_too));
    assert!(lines.next().unwrap().contains("no answer from"));
    terminal.wait().unwrap();
    let output = script.wait_with_output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains("waiting"));
}
