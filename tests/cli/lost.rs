//! Changes of an agent's key whose answer does not arrive: the owner is told that the key may have been changed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{fs, process::Output};

use tempfile::TempDir;

use super::dev::Dev;
use super::owner::quiet;
use super::{command, failure};
use crate::support::process::{own_ip, stop_listening};

const UNSURE: &str = "\nthe key may have been changed: `tiergate keys status` says";

/// The fate of a request that changes a key.
#[derive(Clone)]
enum Fate {
    /// The service gets it, and its answer is dropped.
    Lost,
    /// The service gets it, and its answer is waited for in vain.
    Held(SyncSender<()>),
    /// The server has gone away before.
    Unsent,
    /// Another server answers.
    Answered(String),
}

/// A server in front of the development service, which passes other requests on. Returns its URL.
fn in_front(fate: Fate) -> String {
    let listener = TcpListener::bind((own_ip(), 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        if let Fate::Unsent = fate {
            let (client, _) = listener.accept().unwrap();
            stop_listening(&listener);
            return pass(client, &fate);
        }
        listener.incoming().for_each(|client| pass(client.unwrap(), &fate));
    });
    url
}

fn pass(mut client: TcpStream, fate: &Fate) {
    let (mut request, mut buffer) = (String::new(), [0; 4_096]);
    let is_whole = |request: &str| {
        let (head, body) = request.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        (body.len() == length.map_or(0, |length| length.parse().unwrap())).then_some(())
    };
    while is_whole(&request).is_none() {
        let count = client.read(&mut buffer).unwrap();
        assert!(count > 0, "{request}");
        request.push_str(std::str::from_utf8(buffer.get(..count).unwrap()).unwrap());
    }
    let is_change = !request.starts_with("GET ");
    if let (true, Fate::Answered(answer)) = (is_change, fate) {
        return client.write_all(answer.as_bytes()).unwrap();
    }
    let mut service = TcpStream::connect(Dev::shared().url().trim_start_matches("http://")).unwrap();
    let request = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    service.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    service.read_to_end(&mut answer).unwrap();
    match fate {
        _ if !is_change => client.write_all(&answer).unwrap(),
        Fate::Held(arrived) => {
            arrived.send(()).unwrap();
            let _ = client.read(&mut buffer);
        }
        Fate::Lost | Fate::Unsent | Fate::Answered(_) => {}
    }
}

/// An owner in a folder of its own.
struct Owner {
    folder: TempDir,
    signed: [String; 5],
}

impl Owner {
    fn of(agent: u8) -> Self {
        let signed =
            ["--agent-id", &agent.to_string(), "--owner-key-file", &Dev::shared().key_file(agent), "-ojson"];
        Self { folder: tempfile::tempdir().unwrap(), signed: signed.map(str::to_owned) }
    }

    fn command(&self, url: &str, arguments: &[&str]) -> std::process::Command {
        let mut command = command(arguments);
        command.args(&self.signed).args(["--url", url]).current_dir(self.folder.path());
        command
    }

    fn keys(&self, url: &str, arguments: &[&str]) -> Output {
        self.command(url, &[&["keys"], arguments].concat()).output().unwrap()
    }

    fn has_key(&self) -> bool {
        let mut status = command(&["keys", "status", "-ojson", "--url", &Dev::shared().url()]);
        let printed = quiet(&status.args(&self.signed[..2]).output().unwrap());
        let status: serde_json::Value = serde_json::from_str(&printed).unwrap();
        status.get("hasKey").unwrap().as_bool().unwrap()
    }

    fn verify(&self) -> Output {
        let arguments = ["verify", "--api-key-file", "api.key", "--url", &Dev::shared().url()];
        command(&arguments).current_dir(self.folder.path()).output().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn a_change_whose_answer_is_lost_says_that_the_key_may_have_been_changed_and_the_next_try_works() {
    let (owner, lossy, service) = (Owner::of(3), in_front(Fate::Lost), Dev::shared().url());
    let is_lost = |arguments: &[&str]| {
        let said = failure(&owner.keys(&lossy, arguments), 3);
        assert!(said.contains(&format!("no answer from {lossy}")) && said.contains(UNSURE), "{said}");
    };
    is_lost(&["generate", "--out", "api.key"]);
    assert!(owner.has_key() && owner.files().is_empty(), "{:?}", owner.files());
    quiet(&owner.keys(&service, &["rotate", "--out", "api.key"]));
    quiet(&owner.verify());

    let old = fs::read_to_string(owner.path("api.key")).unwrap();
    is_lost(&["rotate", "--out", "api.key"]);
    assert_eq!(fs::read_to_string(owner.path("api.key")).unwrap(), old);
    assert_eq!(owner.files(), ["api.key"]);
    failure(&owner.verify(), 1);
    fs::set_permissions(owner.path("api.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(owner.path("api.key"), owner.path("kept.key")).unwrap();
    symlink("kept.key", owner.path("api.key")).unwrap();
    quiet(&owner.keys(&service, &["rotate", "--out", "api.key"]));
    quiet(&owner.verify());
    assert!(fs::symlink_metadata(owner.path("api.key")).unwrap().is_symlink());
    let mode = fs::metadata(owner.path("kept.key")).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, owner.files().len()), (0o600, 2));

    is_lost(&["revoke"]);
    assert!(!owner.has_key());
}

#[test]
fn a_command_that_is_killed_leaves_nothing_that_the_next_try_refuses() {
    let (arrived, arrivals): (_, Receiver<()>) = sync_channel(0);
    let (owner, service) = (Owner::of(1), Dev::shared().url());
    let held = in_front(Fate::Held(arrived));
    for (change, next) in [("generate", "rotate"), ("rotate", "rotate"), ("revoke", "generate")] {
        let out: &[&str] = if change == "revoke" { &[] } else { &["--out", "api.key"] };
        let mut waiting = owner.command(&held, &[&["keys", change], out].concat()).spawn().unwrap();
        arrivals.recv().unwrap();
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        if next == "generate" {
            fs::remove_file(owner.path("api.key")).unwrap();
        }
        quiet(&owner.keys(&service, &[next, "--out", "api.key"]));
        assert!(fs::read_to_string(owner.path("api.key")).unwrap().starts_with("svc_live_v1_"));
    }
}

#[test]
fn an_answer_that_may_stand_for_a_change_is_told_from_one_that_does_not_and_no_empty_key_is_kept() {
    let owner = Owner::of(5);
    let key = format!("svc_live_v1_{}\n", "0".repeat(64));
    fs::write(owner.path("old.key"), &key).unwrap();
    // Of each kind of answer every command gets one.
    let commands =
        [&["generate", "--out", "api.key"][..], &["generate"], &["rotate", "--out", "old.key"], &["revoke"]];
    let mut commands = commands.iter().cycle();
    for (status, body, code) in [
        (200, "{}", 3),
        (200, "", 3),
        (200, "<html>", 3),
        (200, r#"{"agentId":"5","apiKey":""}"#, 3),
        (200, r#"{"agentId":"5","apiKey":null,"success":false}"#, 3),
        (500, r#"{"error":"e","errorType":"INTERNAL_ERROR"}"#, 3),
        (502, "<html>", 3),
        (504, r#"{"error":"e","errorType":"UPSTREAM_TIMEOUT"}"#, 3),
        (503, r#"{"error":"e","errorType":"RPC_ERROR"}"#, 1),
        (503, r#"{"error":"e","errorType":"OVERLOADED"}"#, 1),
        (429, r#"{"error":"e","errorType":"RATE_LIMITED"}"#, 1),
        (401, r#"{"error":"e","errorType":"SIGNATURE_INVALID"}"#, 1),
        (404, "", 1),
        (302, "", 1),
    ] {
        let head =
            format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let url = in_front(Fate::Answered(head + body));
        let arguments = commands.next().unwrap();
        let said = failure(&owner.keys(&url, arguments), code);
        assert_eq!(said.contains(UNSURE), code == 3, "{status} {body} {arguments:?}: {said}");
        assert_eq!(
            (owner.files(), fs::read_to_string(owner.path("old.key")).unwrap()),
            (vec!["old.key".to_owned()], key.clone())
        );
    }
    let lossy = in_front(Fate::Lost);
    for output in [
        owner.keys(&in_front(Fate::Unsent), &["revoke"]),
        owner.keys("http://127.0.0.1:1", &["revoke"]),
        owner.command(&lossy, &["verify", "--by-signature"]).output().unwrap(),
    ] {
        let said = failure(&output, 1);
        assert!(!said.contains("may have been changed"), "{said}");
    }
}

#[test]
fn a_key_that_nobody_has_read_is_told_of() {
    let owner = Owner::of(5);
    let body = r#"{"agentId":"5","apiKey":"svc_live_v1_x"}"#;
    let head = format!("HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let url = in_front(Fate::Answered(head + body));
    for change in ["generate", "rotate"] {
        let (_, closed) = std::io::pipe().unwrap();
        let said = failure(&owner.command(&url, &["keys", change]).stdout(closed).output().unwrap(), 3);
        assert!(said.contains(UNSURE), "{said}");
    }
}

#[test]
fn a_file_that_holds_anything_but_an_api_key_is_never_replaced_and_no_key_is_made_then() {
    let (owner, service) = (Owner::of(5), Dev::shared().url());
    let hex = "0f".repeat(32);
    let api_key = format!("svc_live_v1_{hex}\n");
    for (change, text) in [
        ("rotate", String::new()),
        ("rotate", hex.clone()),
        ("rotate", format!("0x{hex}\n")),
        ("rotate", format!("{{\"crypto\":\"{hex}")),
        ("rotate", format!("{api_key}{api_key}")),
        ("rotate", "svc_live_v1_".to_owned()),
        ("generate", api_key.clone()),
    ] {
        fs::write(owner.path("file"), &text).unwrap();
        let said = failure(&owner.keys(&service, &[change, "--out", "file"]), 1);
        assert!(said.contains("cannot create file: it exists"), "{said}");
        assert_eq!(
            (fs::read_to_string(owner.path("file")).unwrap(), owner.files()),
            (text, vec!["file".to_owned()])
        );
    }
    failure(&owner.keys(&service, &["rotate", "--out", "."]), 1);
    failure(&owner.keys(&service, &["rotate", "--out", "/dev/null"]), 1);
}
