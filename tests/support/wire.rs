//! A connection on which a case writes what it wants, byte for byte, and reads what comes; and requests as bytes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{client::Answer, secrets};

/// How long an answer is waited for: longer than a case lets the service wait, on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// A stream whose reads a signal does not end: those with a time limit are not started again by the system.
pub(crate) struct Patient(pub(crate) TcpStream);

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Patient,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn open(server: SocketAddr) -> Self {
        Self::over(TcpStream::connect(server).unwrap()).unwrap()
    }

    /// A connection from this address of the loopback network.
    pub(crate) fn open_from(from: IpAddr, server: SocketAddr) -> Self {
        connect_from(from, server).and_then(Self::over).unwrap()
    }

    pub(crate) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { stream: Patient(stream), buffer: Vec::new() })
    }

    /// The address that the server sees as its peer.
    pub(crate) fn own_address(&self) -> SocketAddr {
        self.stream.0.local_addr().unwrap()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes what must arrive.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.write(bytes).unwrap();
    }

    pub(crate) fn socket(&self) -> Patient {
        Patient(self.stream.0.try_clone().unwrap())
    }

    /// Reads an answer with its body; interim answers are passed over.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().unwrap_or_else(|error| panic!("no answer: {error}; {}", self.shown()))
    }

    pub(crate) fn try_answer(&mut self) -> io::Result<Answer> {
        loop {
            let answer = self.head()?;
            if (100..200).contains(&answer.status) && answer.status != 101 {
                continue;
            }
            let answer = self.body(answer)?;
            if answer.status >= 400 {
                secrets::are_not_in(&answer.body, "the body of an error");
            }
            return Ok(answer);
        }
    }

    /// Reads the head of an answer, also of an interim one.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Answer { status, headers, body: Vec::new() });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| io::Error::other("no header"))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Reads the body that a head announces.
    pub(crate) fn body(&mut self, mut answer: Answer) -> io::Result<Answer> {
        if matches!(answer.status, 101 | 204 | 304) {
            return Ok(answer);
        }
        if let Some(length) = answer.header("content-length").map(str::to_owned) {
            let length = length.parse().map_err(io::Error::other)?;
            answer.body = self.take(length)?;
        } else if answer
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            while let Some(chunk) = self.chunk()? {
                answer.body.extend_from_slice(&chunk);
            }
        } else {
            while self.fill()? {}
            answer.body = std::mem::take(&mut self.buffer);
        }
        Ok(answer)
    }

    /// Reads one chunk; nothing for the last, whose trailers are read too.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        if size == 0 {
            while !self.line()?.is_empty() {}
            return Ok(None);
        }
        let chunk = self.take(size)?;
        match self.line()?.as_str() {
            "" => Ok(Some(chunk)),
            more => Err(io::Error::other(format!("a chunk that is longer than it says: {more:?}"))),
        }
    }

    /// Reads exactly so many bytes.
    pub(crate) fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Everything that comes until the server closes, which it must do.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the connection is not closed: {error}; {}", self.shown()),
            }
        }
        std::mem::take(&mut self.buffer)
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(line) = take_line(&mut self.buffer)? {
                return Ok(line);
            }
            if !self.fill()? {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, format!("cut off: {}", self.shown()));
                return Err(cut);
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 65_536];
        let count = self.stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}

/// Takes the first line, if it is whole.
pub(crate) fn take_line(buffer: &mut Vec<u8>) -> io::Result<Option<String>> {
    let Some(end) = buffer.windows(2).position(|window| window == b"\r\n") else { return Ok(None) };
    let line = buffer.drain(..end + 2).take(end).collect();
    String::from_utf8(line).map(Some).map_err(io::Error::other)
}

/// Connects from this address of the loopback network.
pub(crate) fn connect_from(from: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(server).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A request of HTTP/1.1, as it goes over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, host: &str, target: &str) -> Self {
        let headers = vec![("Host".to_owned(), host.to_owned())];
        Self { method: method.to_owned(), target: target.to_owned(), headers, body: None }
    }

    pub(crate) fn get(host: &str, target: &str) -> Self {
        Self::new("GET", host, target)
    }

    /// One more header, whether or not there is one of this name.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_all(self, headers: &[(String, String)]) -> Self {
        headers.iter().fold(self, |request, (name, value)| request.with(name, value))
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.with("X-API-Key", key)
    }

    /// A body, and its length as a header.
    pub(crate) fn body(self, body: &[u8]) -> Self {
        let length = body.len().to_string();
        Self { body: Some(body.to_vec()), ..self.with("Content-Length", &length) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        [head.as_bytes(), b"\r\n", self.body.as_deref().unwrap_or_default()].concat()
    }

    /// Sends it on a connection of its own and reads the answer.
    #[track_caller]
    pub(crate) fn ask(&self, server: SocketAddr) -> Answer {
        self.ask_on(&mut Wire::open(server))
    }

    #[track_caller]
    pub(crate) fn ask_on(&self, wire: &mut Wire) -> Answer {
        wire.send(&self.bytes());
        let head_only = self.method == "HEAD";
        if head_only { wire.head().unwrap() } else { wire.answer() }
    }
}
