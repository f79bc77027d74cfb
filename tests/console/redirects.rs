//! The programs that the page shows, at a server that redirects elsewhere.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use super::stage::Stage;
use crate::support::process::own_ip;

/// The command that puts the key into a variable, and the programs for curl, TypeScript and Python, as the page shows them.
pub(crate) fn snippets(stage: &mut Stage) -> [String; 4] {
    let texts = "[...document.querySelectorAll('#snippets pre')].map((pre) => pre.textContent)";
    serde_json::from_value(stage.browser.until(texts)).unwrap()
}

/// Runs them; gives what each printed. The key is pasted where the first asks for it.
pub(crate) fn run([variable, shell, typescript, python]: &[String; 4], key: &str) -> [String; 3] {
    let programs = [
        ("sh", vec!["-c", shell]),
        ("node", vec!["--input-type=module", "--eval", typescript]),
        ("python3", vec!["-c", python]),
    ];
    programs.map(|(program, arguments)| {
        let typed = format!("{variable} && exec \"$@\"");
        let mut bash = Command::new("bash");
        bash.args(["-c", &typed, "bash", program]).args(arguments).env_remove("TIERGATE_API_KEY");
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut bash = bash.spawn().unwrap();
        writeln!(bash.stdin.take().unwrap(), "{key}").unwrap();
        let output = bash.wait_with_output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

/// Fails if one of the programs shows the key to the server that the one it asks redirects to.
pub(crate) fn show_the_key_to_no_other_server(snippets: &[String; 4], key: &str) {
    for status in ["302 Found", "307 Temporary Redirect"] {
        let (other, seen_there) = server("200 OK");
        let (asked, seen) = server(&format!("{status}\r\nLocation: {other}/elsewhere"));
        let moved = snippets.clone().map(|text| {
            let Some((_, rest)) = text.split_once("http://") else { return text };
            text.replace(&format!("http://{}", rest.split_once('/').unwrap().0), &asked)
        });
        let printed = run(&moved, key);
        let (seen, seen_there) = (end(&asked, seen), end(&other, seen_there));
        assert_eq!(seen.matches(key).count(), 3, "{printed:?}");
        assert!(!seen_there.contains(key), "{status}: {seen_there}");
    }
}

/// A server that answers everything with this status, until it is asked for `/end`.
fn server(status: &str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind((own_ip(), 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let serving = thread::spawn(move || {
        let mut seen = String::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read(&mut stream);
            if request.starts_with("GET /end ") {
                return seen;
            }
            seen.push_str(&request);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, serving)
}

/// One request, whole.
fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let length = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.map(|(_, value)| value.trim().parse::<usize>().unwrap()).sum();
            if body.len() >= length {
                return text.into_owned();
            }
        }
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the request breaks off");
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn end(url: &str, serving: thread::JoinHandle<String>) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
    serving.join().unwrap()
}
