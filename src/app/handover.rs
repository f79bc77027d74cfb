//! Listening sockets that the process does not open itself: systemd holds them for it, or the process that it replaces sends
//! them. They are never closed in between, so no client is refused.
//!
//! A socket is used for the listener whose configured address it has.
//!
//! For an upgrade the program is started again, gets the listening sockets, and serves beside this process until this one ends. If
//! the new process ends before it can serve, this one goes on as if nothing had happened. If it fails later, while this one drains,
//! nobody serves: a supervisor has to start the program again.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::{MaybeUninit, take};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::{future::pending, net::SocketAddr, os::unix::net::UnixStream, time::Duration};

use listenfd::ListenFd;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::Socket;
use tokio::io::AsyncReadExt;
use tokio::{net, time::timeout};

/// How many sockets one message holds. The kernel takes 253.
const SOCKETS_MAX: usize = 64;

/// How long the process that is replaced may take for its sockets.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// The byte of a message that another one follows, and of the last.
const MORE: [u8; 1] = *b"+";
const LAST: [u8; 1] = *b".";

/// The sockets that a process was given.
#[derive(Default)]
pub(crate) struct Handover {
    /// Sockets that no listener has taken.
    pub(super) sockets: Vec<Socket>,
    /// True if there were any: clients may already be waiting at them.
    pub(super) had_sockets: bool,
    /// The process that this one replaces.
    predecessor: Option<UnixStream>,
}

impl Handover {
    /// Those that systemd passes (`LISTEN_FDS`), if it does. Changes the environment, so there must be one thread only.
    /// All of them are TCP sockets, or none is taken.
    pub(crate) fn from_systemd() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).filter_map(|index| passed.take_tcp_listener(index).transpose());
        let sockets = sockets.map(|socket| socket.map(Socket::from)).collect::<io::Result<_>>()?;
        Ok(Self::of(sockets, None))
    }

    /// Those that the process at the other end of standard input sends, which this one replaces.
    pub(crate) fn from_predecessor() -> io::Result<Self> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SENT_WITHIN))?;
        let sockets = receive(&stream)?.into_iter().map(Socket::from).collect();
        Ok(Self::of(sockets, Some(stream)))
    }

    fn of(sockets: Vec<Socket>, predecessor: Option<UnixStream>) -> Self {
        Self { had_sockets: !sockets.is_empty(), sockets, predecessor }
    }

    /// The address of a socket with this port that no listener has taken.
    pub(super) fn at_port(&self, port: u16) -> Option<SocketAddr> {
        self.sockets.iter().filter_map(local_address).find(|address| address.port() == port)
    }

    /// True if another process serves as long as this one does not.
    pub(super) const fn replaces(&self) -> bool {
        self.predecessor.is_some()
    }

    /// The sockets that are bound to an address.
    pub(super) fn take(&mut self, address: SocketAddr) -> Vec<Socket> {
        let is_bound = |socket: &Socket| local_address(socket) == Some(address);
        let (taken, left) = take(&mut self.sockets).into_iter().partition(is_bound);
        self.sockets = left;
        taken
    }

    /// Closes the sockets that no listener has taken.
    pub(super) fn close_others(&mut self) {
        for socket in take(&mut self.sockets) {
            let address = local_address(&socket).map(|address| address.to_string()).unwrap_or_default();
            tracing::warn!(address, "a socket that was handed over is closed: no listener has its address");
        }
    }

    /// Tells the process that this one replaces that it may end.
    pub(super) fn confirm(&self) {
        // One that is gone need not know.
        let _ = self.predecessor.as_ref().map(|mut stream| stream.write_all(&LAST));
    }

    /// Returns when the process that this one replaced has ended: systemd kills it once this one has.
    pub(super) async fn predecessor_ended(&self) {
        let stream = self.predecessor.as_ref().and_then(|stream| stream.try_clone().ok());
        let stream = stream.filter(|stream| stream.set_nonblocking(true).is_ok());
        if let Some(Ok(mut stream)) = stream.map(net::UnixStream::from_std) {
            let _ = stream.read_u8().await;
        }
    }
}

pub(super) fn local_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

/// Sends sockets to another process.
fn send(stream: impl AsFd, sockets: &[Socket]) -> io::Result<()> {
    for sockets in sockets.chunks(SOCKETS_MAX) {
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        sendmsg(&stream, &[IoSlice::new(&MORE)], &mut control, SendFlags::NOSIGNAL)?;
    }
    rustix::net::send(&stream, &LAST, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut received = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                received.extend(descriptors);
            }
        }
        match byte {
            MORE => {}
            LAST => return Ok(received),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The argument of `run` that makes a process a successor.
pub(crate) const TAKE_OVER: &str = "take-over";

/// How long a successor may take until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// A process that is to replace this one. It is killed when this is dropped before it serves.
pub(super) struct Successor {
    process: Child,
    /// It holds the other end for as long as it lives.
    stream: net::UnixStream,
    serves: bool,
}

impl Successor {
    /// Starts the program at the path that this process was started with, with the same arguments.
    pub(super) fn start(sockets: &[Socket]) -> io::Result<Self> {
        let (ours, theirs) = net::UnixStream::pair()?;
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
        send(&successor.stream, sockets)?;
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

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::unix::net::UnixStream};

    use socket2::Socket;

    use super::{Handover, SOCKETS_MAX, receive, send};

    #[test]
    fn every_socket_arrives_and_is_found_by_its_address() {
        let listeners: Vec<_> =
            (0..=2 * SOCKETS_MAX).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sockets: Vec<Socket> = listeners.into_iter().map(Socket::from).collect();
        send(&ours, &sockets).unwrap();
        let sockets = receive(&theirs).unwrap().into_iter().map(Socket::from).collect();
        let mut handover = Handover::of(sockets, None);
        for address in addresses {
            assert_eq!(handover.take(address).len(), 1);
            assert_eq!(handover.take(address).len(), 0);
        }
        assert!(handover.had_sockets && handover.sockets.is_empty());
    }

    #[test]
    fn a_process_that_ends_before_all_sockets_are_sent_hands_over_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        receive(&theirs).unwrap_err();
    }
}
