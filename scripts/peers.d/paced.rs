//! Asks at a fixed rate and says how long answers take: wrk has no rate, and h2load sends its connections' requests in
//! bursts. `paced ADDRESS PATH CONNECTIONS RATE SECONDS AGENTS` prints requests/s, p50 and p99 in microseconds, failures.
//!
//! One thread looks after all connections and never sleeps: it shares its core with the upstream, to which it yields
//! between two looks, and a thread that has to be woken for each answer would measure its own waking. A request is sent on
//! a connection that waits for nothing; if there is none when it is due, it counts from then.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::yield_now;
use std::time::{Duration, Instant};

struct Plan {
    address: String,
    path: String,
    connections: usize,
    rate: f64,
    seconds: f64,
    agents: u32,
}

/// A connection, and since when it waits for an answer.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    length: usize,
    since: Instant,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, connections, rate, seconds, agents] = words.as_slice() else {
        panic!("usage: paced ADDRESS PATH CONNECTIONS RATE SECONDS AGENTS")
    };
    let number = |text: &String| text.parse::<f64>().expect("a number");
    let plan = Plan {
        address: address.clone(),
        path: path.clone(),
        connections: number(connections) as usize,
        rate: number(rate),
        seconds: number(seconds),
        agents: number(agents) as u32,
    };
    let (mut micros, failures) = ask(&plan);
    micros.sort_unstable();
    let at = |share: usize| micros.get(micros.len() * share / 100).copied().unwrap_or(0);
    println!("{:.0} {} {} {failures}", micros.len() as f64 / plan.seconds, at(50), at(99));
}

/// The latencies in microseconds, and how many answers were not 200.
fn ask(plan: &Plan) -> (Vec<u32>, u32) {
    let mut free: Vec<Connection> = (0..plan.connections).map(|_| connect(&plan.address)).collect();
    let mut asked: VecDeque<Connection> = VecDeque::new();
    let (mut micros, mut failures, mut turn, mut is_late) = (Vec::new(), 0, 0_u32, false);
    let begin = Instant::now();
    loop {
        let due = begin + Duration::from_secs_f64(f64::from(turn) / plan.rate);
        let is_over = (due - begin).as_secs_f64() > plan.seconds;
        if is_over && asked.is_empty() {
            return (micros, failures);
        }
        let now = Instant::now();
        let is_due = !is_over && now >= due;
        is_late |= is_due && free.is_empty();
        if is_due && let Some(mut connection) = free.pop() {
            let agent = turn % plan.agents + 1;
            let request = format!(
                "GET {} HTTP/1.1\r\nHost: measured.example\r\nX-API-Key: svc_live_v1_{agent:064x}\r\n\r\n",
                plan.path
            );
            connection.since = if std::mem::take(&mut is_late) { due } else { now };
            connection.stream.write_all(request.as_bytes()).expect("it takes requests");
            asked.push_back(connection);
            turn += 1;
        }
        for _ in 0..asked.len() {
            let Some(mut connection) = asked.pop_front() else { break };
            match connection.answer() {
                None => asked.push_back(connection),
                Some(is_good) => {
                    failures += u32::from(!is_good);
                    micros.push(connection.since.elapsed().as_micros() as u32);
                    connection.length = 0;
                    free.push(connection);
                }
            }
        }
        yield_now();
    }
}

fn connect(address: &str) -> Connection {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_nonblocking(true).expect("a socket");
    Connection { stream, buffer: vec![0; 65_536], length: 0, since: Instant::now() }
}

impl Connection {
    /// True if the answer is 200; nothing while it is not there. It has a `Content-Length`.
    fn answer(&mut self) -> Option<bool> {
        match self.stream.read(&mut self.buffer[self.length..]) {
            Ok(0) => panic!("the connection was closed"),
            Ok(read) => self.length += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("it does not answer: {error}"),
        }
        let text = std::str::from_utf8(&self.buffer[..self.length]).expect("text");
        let end = text.find("\r\n\r\n")?;
        let head = text[..end].to_ascii_lowercase();
        let body: usize = head.split("content-length:").nth(1)?.lines().next()?.trim().parse().ok()?;
        (self.length >= end + 4 + body).then(|| head.starts_with("http/1.1 200"))
    }
}
