//! `tiergate-dev` in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::{path::Path, sync::mpsc, time::Duration};

/// The longest that a start in a debug build on a busy machine may take.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// It dies with this process, however that ends: its shell waits for a pipe that closes then.
pub(super) struct Started {
    alive: Option<ChildStdin>,
    shell: Child,
    /// What it printed until it was ready.
    pub(super) printed: String,
}

impl Started {
    /// Starts it, and waits until it is ready.
    pub(super) fn new(
        program: &Path,
        arguments: &[String],
        variables: &[(&str, &str)],
        stderr: Stdio,
    ) -> Self {
        let script = r#""$@" & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid"#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(program).args(arguments).envs(variables.iter().copied());
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let alive = shell.stdin.take();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // Nobody reads what it prints later, and it is not kept waiting.
                let _ = sender.send(line + "\n");
            }
        });
        let mut started = Self { alive, shell, printed: String::new() };
        while !started.printed.contains("Ctrl-C") {
            started.printed += &lines.recv_timeout(START_TIME_MAX).unwrap();
        }
        started
    }

    /// Interrupts it, and waits for its end.
    pub(super) fn end(&mut self) -> ExitStatus {
        drop(self.alive.take());
        self.shell.wait().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end();
    }
}
