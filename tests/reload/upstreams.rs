//! Servers that answer each request with their own number, the host and the path that they were asked for.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::process::own_ip;

/// The servers. Their threads end with the connections to them.
pub(crate) struct Upstreams {
    addresses: Vec<SocketAddr>,
    /// The paths of requests to `/held`, noted when their heads are there and their bodies may not be.
    held: Arc<Mutex<BTreeSet<String>>>,
}

impl Upstreams {
    pub(crate) fn start(count: usize) -> Self {
        let held = Arc::default();
        let start = |number| {
            let listener = TcpListener::bind((own_ip(), 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let held = Arc::clone(&held);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let held = Arc::clone(&held);
                    std::thread::spawn(move || serve(number, stream, &held));
                }
            });
            address
        };
        Self { addresses: (0..count).map(start).collect(), held }
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// True when the head of a request to this path has come.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.held.lock().unwrap().contains(path)
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
