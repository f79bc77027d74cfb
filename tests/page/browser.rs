//! A real Chromium, driven by a kept library in a process of its own.

use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::skip::skip;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A browser with one page. It ends when this is dropped, or when this process ends.
pub(crate) struct Browser {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Browser {
    /// `None`, and the test is skipped, where there is no browser and none is required.
    pub(crate) fn start() -> Option<Self> {
        let program = chromium();
        let driver = Path::new(ROOT).join("tools/node_modules/puppeteer-core");
        let Some(program) = program.filter(|_| driver.is_dir()) else {
            skip("chromium or its driver");
            return None;
        };
        let mut child = Command::new("node")
            .arg(Path::new(ROOT).join("tests/page/browse.mjs"))
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self { child, commands, answers })
    }

    #[track_caller]
    pub(crate) fn command(&mut self, verb: &str, argument: impl Into<Value>) -> Value {
        let command = json!({ verb: argument.into() });
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        let answer =
            self.answers.next().unwrap_or_else(|| panic!("the browser has ended: {command}")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer.get("error").is_none(), "{command}: {}", answer["error"].as_str().unwrap());
        answer["value"].clone()
    }

    /// Opens a page.
    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        assert_eq!(self.command("open", url), 200, "{url}");
    }

    /// Waits until an expression of the page is true, and gives its value.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) -> Value {
        self.command("until", expression)
    }

    /// Waits for a row of a table that begins with these texts.
    #[track_caller]
    pub(crate) fn row(&mut self, table: &str, texts: &[&str]) {
        let (table, texts) = (json!(table), json!(texts));
        self.until(&format!(
            "[...document.getElementById({table}).rows].some((row) => \
             {texts}.every((text, at) => text === '*' || row.cells[at]?.textContent === text))"
        ));
    }

    /// Waits until the text of an element contains this one.
    #[track_caller]
    pub(crate) fn text(&mut self, id: &str, text: &str) {
        self.until(&format!("document.getElementById({}).textContent.includes({})", json!(id), json!(text)));
    }

    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        self.command("click", selector);
    }

    #[track_caller]
    pub(crate) fn write(&mut self, selector: &str, text: &str) {
        self.command("type", json!([selector, text]));
    }

    /// Changes the size of the window and the colours that the user prefers.
    #[track_caller]
    pub(crate) fn look(&mut self, width: u32, height: u32, dark: bool) {
        self.command("look", json!({ "width": width, "height": height, "dark": dark }));
    }

    /// Keeps a picture of the page where the tests are built.
    #[track_caller]
    pub(crate) fn picture(&mut self, name: &str) {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        self.command("shot", path.to_str().unwrap());
        assert!(std::fs::metadata(path).unwrap().len() > 10_000);
    }

    /// Fails when something else than `origin` was asked for anything, or when the browser complained.
    #[track_caller]
    pub(crate) fn has_kept_to(&mut self, origin: &str) {
        assert_eq!(self.has_asked_only(&[origin]), [""; 0]);
    }

    /// Fails when something else than these origins was asked for anything. Gives what the browser complained of.
    #[track_caller]
    pub(crate) fn has_asked_only(&mut self, origins: &[&str]) -> Vec<String> {
        let report = self.command("report", true);
        let texts = |name: &str| -> Vec<String> { serde_json::from_value(report[name].clone()).unwrap() };
        let requested = texts("requested");
        assert!(!requested.is_empty());
        let is_own = |url: &String| {
            url.starts_with("data:") || origins.iter().any(|origin| url.starts_with(&format!("{origin}/")))
        };
        assert_eq!(requested.iter().find(|url| !is_own(url)), None);
        texts("complaints")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

fn chromium() -> Option<PathBuf> {
    if let Some(named) = env::var_os("TG_CHROMIUM") {
        return Some(named.into());
    }
    let folders = env::var_os("PATH").unwrap();
    env::split_paths(&folders).map(|folder| folder.join("chromium")).find(|program| program.is_file())
}
