//! An upstream on an address of its own that writes down every byte it is sent, connection by connection, and answers
//! as a case tells it to.
//!
//! It reads requests as strictly as RFC 9112 has them. What it can't read is written down too, as broken: nothing that
//! the gateway forwards may be.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, thread::JoinHandle, time::Duration};

use socket2::SockRef;

use crate::rig::framing::{self, Body};
use crate::rig::scripts;
use crate::support::process::{own_ip, stop_listening};
use crate::support::time::{SOON, until};
use crate::support::wire::Patient;

/// How long a connection that says nothing is kept; longer than any case takes.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// How much of a body is kept.
const BODY_KEPT_BYTES_MAX: usize = 256 * 1024;

/// What becomes of a connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next request is read.
    Goes,
    /// It is closed.
    Closes,
}

/// How a request is answered.
pub(crate) type Script = Arc<dyn Fn(&mut Exchange) -> io::Result<Then> + Send + Sync>;

/// One request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    /// Every byte up to and with the empty line.
    pub(crate) head: Vec<u8>,
    pub(crate) method: String,
    pub(crate) target: String,
    /// In the order and the spelling in which they came.
    pub(crate) headers: Vec<(String, String)>,
    /// Without its framing; of a long one the beginning.
    pub(crate) body: Vec<u8>,
    /// How long the body is, in bytes, as far as it has come.
    pub(crate) body_bytes: usize,
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether the body was read to its end.
    pub(crate) whole: bool,
}

impl Seen {
    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The value of a header that may stand once at most.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} stands more than once: {self:?}");
        all.first().copied()
    }

    fn grow(&mut self, piece: &[u8], trailers: &[(String, String)], whole: bool) {
        self.body_bytes += piece.len();
        let room = BODY_KEPT_BYTES_MAX.saturating_sub(self.body.len()).min(piece.len());
        self.body.extend_from_slice(&piece[..room]);
        self.trailers.extend_from_slice(trailers);
        self.whole = whole;
    }

    /// The target without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// A listener and what came in.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    broken: Mutex<Vec<String>>,
    scripts: Mutex<HashMap<String, Script>>,
    /// What is done with a connection before anything is read from it.
    greeting: Mutex<Option<fn(TcpStream)>>,
    accepted: AtomicUsize,
    stopped: AtomicBool,
    /// By the number of the connection.
    open: Mutex<HashMap<usize, TcpStream>>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        Self::listen(TcpListener::bind((own_ip(), 0)).unwrap())
    }

    /// On this address, which others may use too.
    pub(crate) fn start_at(ip: IpAddr) -> Self {
        Self::listen(TcpListener::bind((ip, 0)).unwrap())
    }

    /// Listens again at the same address.
    pub(crate) fn reopen(&self) {
        self.state.stopped.store(false, Ordering::SeqCst);
        let listener = TcpListener::bind(self.address).unwrap();
        let shared = Arc::clone(&self.state);
        let acceptor = std::thread::spawn(move || accept(&listener, &shared));
        assert!(lock(&self.acceptor).replace(acceptor).is_none(), "it was closed");
    }

    fn listen(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let acceptor = std::thread::spawn(move || accept(&listener, &shared));
        Self { address, state, acceptor: Mutex::new(Some(acceptor)) }
    }

    /// Answers requests for this path, without its query, by a script from now on.
    pub(crate) fn on(&self, path: &str, script: Script) {
        lock(&self.state.scripts).insert(path.to_owned(), script);
    }

    /// Takes every connection that comes from now on away from the reader of requests.
    pub(crate) fn greet(&self, greeting: Option<fn(TcpStream)>) {
        *lock(&self.state.greeting) = greeting;
    }

    /// All requests so far, in the order in which their heads were read.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen_that(|_| true)
    }

    /// The requests for a path, without its query.
    pub(crate) fn seen_at(&self, path: &str) -> Vec<Seen> {
        self.seen_that(|seen| seen.path() == path)
    }

    /// The requests whose target holds a text.
    pub(crate) fn seen_with(&self, text: &str) -> Vec<Seen> {
        self.seen_that(|seen| seen.target.contains(text))
    }

    pub(crate) fn seen_that(&self, is: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        lock(&self.state.seen).iter().filter(|seen| is(seen)).cloned().collect()
    }

    /// How many requests there were of a kind.
    pub(crate) fn count(&self, is: impl Fn(&Seen) -> bool) -> usize {
        lock(&self.state.seen).iter().filter(|seen| is(seen)).count()
    }

    /// How many requests there were for a path, without its query.
    pub(crate) fn count_at(&self, path: &str) -> usize {
        self.count(|seen| seen.path() == path)
    }

    /// The one request for a path.
    #[track_caller]
    pub(crate) fn only(&self, path: &str) -> Seen {
        let mut seen = self.seen_at(path);
        assert_eq!(seen.len(), 1, "requests for {path}: {seen:?}");
        seen.remove(0)
    }

    /// The first request for a path whose body is whole, waited for.
    pub(crate) fn whole(&self, path: &str) -> Seen {
        until("the upstream has read a whole request", SOON, || {
            self.seen_at(path).into_iter().find(|seen| seen.whole)
        })
    }

    /// What could not be read as a request.
    pub(crate) fn broken(&self) -> Vec<String> {
        lock(&self.state.broken).clone()
    }

    /// Breaks all connections that are open.
    pub(crate) fn hang_up(&self) {
        for (_, stream) in lock(&self.state.open).drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Stops listening and breaks all connections; nobody else gets its address.
    pub(crate) fn close(&self) {
        let Some(acceptor) = lock(&self.acceptor).take() else { return };
        self.state.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = acceptor.join();
        self.hang_up();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.close();
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming().flatten() {
        if state.stopped.load(Ordering::SeqCst) {
            return stop_listening(listener);
        }
        let connection = state.accepted.fetch_add(1, Ordering::SeqCst);
        let greeting = *lock(&state.greeting);
        // A greeting that drops its connection must be the last who has it.
        if let (None, Ok(handle)) = (greeting, stream.try_clone()) {
            lock(&state.open).insert(connection, handle);
        }
        let state = Arc::clone(state);
        std::thread::spawn(move || match greeting {
            Some(greeting) => greeting(stream),
            None => {
                converse(stream, connection, &state);
                lock(&state.open).remove(&connection);
            }
        });
    }
}

/// Gives a socket buffers that do not grow: what is under way is what the gateway holds, and little more.
pub(crate) fn pin<'socket>(socket: impl Into<SockRef<'socket>>) {
    let socket = socket.into();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    socket.set_send_buffer_size(64 * 1024).unwrap();
}

/// Answers the requests of one connection, one after the other.
fn converse(stream: TcpStream, connection: usize, state: &Arc<State>) {
    pin(&stream);
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(SILENCE_MAX));
    let _ = stream.set_write_timeout(Some(SILENCE_MAX));
    let mut incoming = Incoming::over(Patient(stream));
    loop {
        let head = match incoming.head() {
            Ok(Some(head)) => head,
            Ok(None) => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                lock(&state.broken).push(error.to_string());
                return;
            }
            Err(_) => return,
        };
        let (seen, body) = match framing::read_head(connection, &head) {
            Ok(read) => read,
            Err(problem) => {
                lock(&state.broken).push(format!("{problem}: {}", String::from_utf8_lossy(&head)));
                return;
            }
        };
        let script = lock(&state.scripts).get(seen.path()).cloned();
        let index = {
            let mut all = lock(&state.seen);
            all.push(seen.clone());
            all.len() - 1
        };
        let mut exchange = Exchange { seen, body, index, incoming, state: Arc::clone(state) };
        let then = script.unwrap_or_else(scripts::echo)(&mut exchange);
        if !matches!(then, Ok(Then::Goes)) || exchange.read_body().is_err() {
            let _ = exchange.incoming.stream.0.shutdown(Shutdown::Both);
            return;
        }
        incoming = exchange.incoming;
    }
}

/// One request and the connection it came on.
pub(crate) struct Exchange {
    pub(crate) seen: Seen,
    body: Body,
    index: usize,
    incoming: Incoming,
    state: Arc<State>,
}

impl Exchange {
    /// Reads what is left of the body and writes it down.
    pub(crate) fn read_body(&mut self) -> io::Result<()> {
        while self.read_piece()? {}
        Ok(())
    }

    /// Reads some of the body and writes it down; false at its end.
    pub(crate) fn read_piece(&mut self) -> io::Result<bool> {
        if self.seen.whole {
            return Ok(false);
        }
        let (mut piece, mut trailers) = (Vec::new(), Vec::new());
        let read = framing::read_piece(&mut self.body, &mut self.incoming, &mut piece, &mut trailers);
        let more = read.inspect_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                lock(&self.state.broken).push(error.to_string());
            }
        })?;
        self.seen.grow(&piece, &trailers, !more);
        if let Some(seen) = lock(&self.state.seen).get_mut(self.index) {
            seen.grow(&piece, &trailers, !more);
        }
        Ok(more)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.incoming.stream.write_all(bytes)
    }

    /// Bytes that are no part of a request, as after an upgrade; none at the end.
    pub(crate) fn read_raw(&mut self) -> io::Result<Vec<u8>> {
        if self.incoming.buffer.is_empty() && !self.incoming.fill()? {
            return Ok(Vec::new());
        }
        Ok(std::mem::take(&mut self.incoming.buffer))
    }

    /// Waits until the other side closes, whatever it sends before that.
    pub(crate) fn until_closed(&mut self) {
        while self.read_raw().is_ok_and(|bytes| !bytes.is_empty()) {}
    }

    /// What came behind the request and was not read yet.
    pub(crate) fn buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.incoming.buffer)
    }

    pub(crate) fn socket(&self) -> io::Result<Patient> {
        self.incoming.stream.0.try_clone().map(Patient)
    }
}

/// What comes in on a connection.
pub(crate) struct Incoming {
    stream: Patient,
    buffer: Vec<u8>,
}

impl Incoming {
    pub(crate) const fn over(stream: Patient) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Everything up to and with an empty line; nothing at the end of the connection.
    fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                return Ok(Some(self.buffer.drain(..end + 4).collect()));
            }
            if !self.fill()? {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(invalid(format!("half a head: {}", String::from_utf8_lossy(&self.buffer)))),
                };
            }
        }
    }

    /// At most so many bytes, at least one.
    pub(crate) fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() && !self.fill()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = most.min(self.buffer.len());
        Ok(self.buffer.drain(..count).collect())
    }

    /// A line without its CRLF.
    pub(crate) fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                if line.pop() != Some(b'\r') || line.contains(&b'\r') {
                    return Err(invalid(format!("a line that does not end with CRLF: {line:?}")));
                }
                return Ok(line);
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 65_536];
        let count = self.stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }
}

pub(crate) fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
