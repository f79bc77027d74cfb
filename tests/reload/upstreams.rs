//! Servers that answer each request with their own number, the host and the path that they were asked for.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::support::process::own_ip;

/// The servers. Their threads end with them.
pub(crate) struct Upstreams {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    acceptors: Vec<JoinHandle<()>>,
}

/// State that the servers' threads share.
#[derive(Default)]
struct Shared {
    /// The paths of requests to `/held`, noted when their heads are there and their bodies may not be.
    held: Mutex<BTreeSet<String>>,
    stopped: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Upstreams {
    pub(crate) fn start(count: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let start = |number| {
            let listener = TcpListener::bind((own_ip(), 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let shared = Arc::clone(&shared);
            (address, thread::spawn(move || accept(number, &listener, &shared)))
        };
        let (addresses, acceptors) = (0..count).map(start).unzip();
        Self { addresses, shared, acceptors }
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// True when the head of a request to this path has come.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.shared.held.lock().unwrap().contains(path)
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for address in &self.addresses {
            // The acceptor wakes up and ends.
            let _ = TcpStream::connect(address);
        }
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join();
        }
        for stream in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(number: usize, listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        shared.open.lock().unwrap().push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(number, stream, &shared.held));
    }
}

/// The answer of upstream `number` to a request.
pub(crate) fn answer(number: usize, host: &str, path: &str) -> String {
    format!("{number} {host} {path}")
}

fn serve(number: usize, stream: TcpStream, held: &Mutex<BTreeSet<String>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
        if path.starts_with("/held") {
            held.lock().unwrap().insert(path.clone());
        }
        let header = |wanted: &str| {
            let headers = lines.iter().filter_map(|line| line.split_once(':'));
            let mut named = headers.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            named.next().map(|(_, value)| value.trim().to_owned())
        };
        let length: u64 = header("content-length").map_or(0, |length| length.parse().unwrap());
        io::copy(&mut (&mut stream).take(length), &mut io::sink())?;
        let body = answer(number, &header("host").unwrap_or_default(), &path);
        write!(stream.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}
