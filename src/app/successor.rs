//! An upgrade: the program is started again, gets the listening sockets, and serves beside this process until this one ends.
//!
//! If the new process ends before it can serve, this one goes on as if nothing had happened. If it fails later, while this
//! one drains, nobody serves: a supervisor has to start the program again.

use std::process::{Child, Command, Stdio};
use std::{ffi::OsString, future::pending, io, os::fd::OwnedFd, time::Duration};

use socket2::Socket;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::app::handover;

/// The argument of `run` that makes a process a successor.
pub(crate) const TAKE_OVER: &str = "take-over";

/// How long a successor may take until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// A process that is to replace this one. It is killed when this is dropped before it serves.
pub(super) struct Successor {
    process: Child,
    /// It holds the other end for as long as it lives.
    stream: UnixStream,
    serves: bool,
}

impl Successor {
    /// Starts the program at the path that this process was started with, with the same arguments.
    pub(super) fn start(sockets: &[Socket]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs.into_std()?);
        let mut words = std::env::args_os();
        let program = words.next().unwrap_or_default();
        let flag = OsString::from(format!("--{TAKE_OVER}"));
        let process = Command::new(program)
            .args(words.filter(|word| *word != flag))
            .arg(&flag)
            .stdin(Stdio::from(theirs))
            .spawn()?;
        tracing::info!(process = process.id(), "the program is started again to replace this process");
        let successor = Self { process, stream: ours, serves: false };
        handover::send(&successor.stream, sockets)?;
        Ok(successor)
    }

    /// Waits until the new process serves, or says why it can't.
    pub(super) async fn serves(&mut self) -> Result<(), String> {
        match timeout(SERVES_WITHIN, self.stream.read_u8()).await {
            Ok(Ok(_)) => self.serves = true,
            Ok(Err(_)) => return Err("the new process ended before it could serve".to_owned()),
            Err(_) => return Err(format!("the new process could not serve within {SERVES_WITHIN:?}")),
        }
        Ok(())
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns when it has ended otherwise than in order, and says how.
    pub(super) async fn failure(mut self) -> String {
        while self.stream.read_u8().await.is_ok() {}
        match self.process.wait() {
            Ok(status) if status.success() => pending().await,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.serves {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
