//! Child processes that end with the test process, whatever becomes of it.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use socket2::SockRef;

use crate::support::secrets;
use crate::support::time::{SOON, until};
use watched::Watched;

#[path = "loopback.rs"]
mod loopback;
#[path = "../../src/store/redis/tests/watched.rs"]
mod watched;

thread_local! {
    /// How much of the processors' time the processes have taken that ended on this thread, in clock ticks.
    pub(crate) static TICKS: Cell<u64> = const { Cell::new(0) };
}

/// How much of the processors' time a process or a thread has taken, by its `stat` in `/proc`, in clock ticks: hundredths of a
/// second on Linux. With four fields its ended children are counted too, with two they are not.
pub(crate) fn ticks(stat: &str, fields: usize) -> u64 {
    let stat = fs::read_to_string(stat).unwrap_or_default();
    let all = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    all.skip(11).take(fields).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// A running program.
pub(crate) struct Process {
    pub(crate) pid: u32,
    log: PathBuf,
    watched: Watched,
    /// True if it is the service.
    is_ours: bool,
}

/// Kills it at once, as with `kill -9`. The service has written no secret.
impl Drop for Process {
    fn drop(&mut self) {
        let taken = [self.pid, self.watched.watcher.id()].map(|pid| ticks(&format!("/proc/{pid}/stat"), 4));
        TICKS.set(TICKS.get() + taken.iter().sum::<u64>());
        self.watched.kill();
        if let Some(folder) = self.log.parent().filter(|_| self.is_ours && !std::thread::panicking()) {
            secrets::are_not_in_files(folder);
        }
    }
}

impl Process {
    /// Starts a program; what it writes is appended to `log`. `limits` is put before the rest of the shell's script.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path, limits: &str) -> Self {
        // There is a log from the beginning on.
        File::options().create(true).append(true).open(log).unwrap();
        let watched = Watched::start(program.as_os_str(), arguments, log, limits);
        let is_ours = program.file_name().is_some_and(|name| name == "tiergate");
        Self { pid: watched.pid, log: log.to_owned(), watched, is_ours }
    }

    /// Everything that was written so far, to standard output and standard error.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits until one line has all these parts, and gives everything that was written by then. A thread of its own writes lines, in
    /// their order and some time after the answer that they tell of: who reads the log at once may miss one, and who looks for what is
    /// not said has to wait for a line behind it.
    #[track_caller]
    pub(crate) fn await_log(&self, parts: &[&str]) -> String {
        until(&format!("a line of the log has {parts:?}"), SOON, || {
            let log = self.log();
            log.lines().any(|line| parts.iter().all(|part| line.contains(part))).then_some(log)
        })
    }

    /// The exit code, once the process has ended.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        fs::read_to_string(self.log.with_extension("status")).ok()?.trim().parse().ok()
    }
}

/// Runs a program that should end by itself.
pub(crate) fn run_to_end(program: &Path, arguments: &[String], folder: &Path) -> Output {
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until("the program ends by itself", SOON, || child.try_wait().unwrap())
    }));
    let status = ended.unwrap_or_else(|panic| {
        let _ = child.kill();
        std::panic::resume_unwind(panic)
    });
    Output { status, stdout: fs::read(out).unwrap(), stderr: fs::read(err).unwrap() }
}

/// A loopback address that nobody else uses.
pub(crate) fn own_ip() -> IpAddr {
    loopback::own_ip().into()
}

/// A port of this own address where nobody listens. It is computed and not found by binding: a child of another thread has a copy of a
/// dropped listener between fork and exec, on a busy machine for seconds. 6,000 addresses in a row have different ports, for a listener at
/// all addresses. They are below Linux's ephemeral ports.
pub(crate) fn free_port(ip: IpAddr) -> SocketAddr {
    let IpAddr::V4(address) = ip else { panic!("{ip} is nobody's own") };
    SocketAddr::new(ip, 20_000 + 2 * (address.to_bits() % 6_000) as u16)
}

/// Two such ports.
pub(crate) fn free_ports(ip: IpAddr) -> (SocketAddr, SocketAddr) {
    let one = free_port(ip);
    (one, SocketAddr::new(ip, one.port() + 1))
}

/// Ends listening. To drop the listener is not enough, for the same reason.
pub(crate) fn stop_listening(listener: &TcpListener) {
    SockRef::from(listener).shutdown(Shutdown::Both).unwrap();
}

#[test]
fn an_address_is_free_once_listening_has_ended_though_a_copy_of_the_socket_is_open() {
    let listener = TcpListener::bind(free_port(own_ip())).unwrap();
    let (address, _copy) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    stop_listening(&listener);
    drop(listener);
    TcpListener::bind(address).unwrap();
}
