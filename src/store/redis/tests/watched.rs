//! A child process that ends with the test's process, whatever becomes of that. `tests/support/process.rs` has this file
//! too.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::{ffi::OsStr, path::Path};

/// Runs the child beside a reader of a pipe that closes when the test's process is gone, and kills it then. How the child
/// ended stands beside its log.
const SCRIPT: &str = r#"log=$1; shift
rm -f "$log.status"
"$@" >>"$log" 2>&1 & child=$!
echo $child
exec 3<&0
{ cat <&3 >/dev/null; kill -9 $child; } & reader=$!
wait $child
echo $? >"$log.status"
kill $reader"#;

/// A running child.
pub(super) struct Watched {
    pub(super) watcher: Child,
    pub(super) pid: u32,
}

impl Watched {
    /// Starts a program; what it writes is appended to `log`. `limits` is put before the rest of the shell's script.
    pub(super) fn start(program: &OsStr, arguments: &[String], log: &Path, limits: &str) -> Self {
        let mut watcher = Command::new("sh")
            .arg("-c")
            .arg(format!("{limits}\n{SCRIPT}"))
            .arg("sh")
            .arg(log)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Where the shell tells of the kill.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(watcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { watcher, pid: line.trim().parse().unwrap() }
    }

    /// Kills it as with `kill -9`, and waits for the end.
    pub(super) fn kill(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.kill();
    }
}
