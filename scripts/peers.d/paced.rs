//! Asks at a fixed rate and says how long answers take: wrk has no rate, and h2load sends its connections' requests in
//! bursts. `paced ADDRESS PATH CONNECTIONS RATE SECONDS AGENTS` prints requests/s, p50 and p99 in microseconds, failures.
//!
//! A thread for each connection sends one request after the other at the times that are due, each connection's times
//! shifted against the others'. A request that has to wait for the answer before it counts from when it was due.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

struct Plan {
    address: String,
    path: String,
    connections: u32,
    rate: f64,
    seconds: f64,
    agents: u32,
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
        connections: number(connections) as u32,
        rate: number(rate),
        seconds: number(seconds),
        agents: number(agents) as u32,
    };
    let begin = Instant::now() + Duration::from_millis(100);
    let each: Vec<(Vec<u32>, u32)> = thread::scope(|scope| {
        let started: Vec<_> = (0..plan.connections)
            .map(|which| {
                scope.spawn({
                    let plan = &plan;
                    move || ask(plan, which, begin)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a connection")).collect()
    });
    let failures: u32 = each.iter().map(|(_, failures)| failures).sum();
    let mut micros: Vec<u32> = each.into_iter().flat_map(|(micros, _)| micros).collect();
    micros.sort_unstable();
    let at = |share: usize| micros.get(micros.len() * share / 100).copied().unwrap_or(0);
    println!("{:.0} {} {} {failures}", micros.len() as f64 / plan.seconds, at(50), at(99));
}

/// One connection's requests: the latencies in microseconds, and how many answers were not 200.
fn ask(plan: &Plan, which: u32, begin: Instant) -> (Vec<u32>, u32) {
    let mut stream = TcpStream::connect(&plan.address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let period = f64::from(plan.connections) / plan.rate;
    let (mut buffer, mut micros, mut failures) = (vec![0; 65_536], Vec::new(), 0);
    for turn in 0_u32.. {
        let after = period * (f64::from(turn) + f64::from(which) / f64::from(plan.connections));
        if after > plan.seconds {
            break;
        }
        let agent = (turn * plan.connections + which) % plan.agents + 1;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: measured.example\r\nX-API-Key: svc_live_v1_{agent:064x}\r\n\r\n",
            plan.path
        );
        let due = begin + Duration::from_secs_f64(after);
        let early = due.saturating_duration_since(Instant::now());
        thread::sleep(early);
        // Waking late is this program's doing; being busy with the request before is not.
        let from = if early.is_zero() { due } else { Instant::now() };
        stream.write_all(request.as_bytes()).expect("it takes requests");
        failures += u32::from(!answer_is_good(&mut stream, &mut buffer));
        micros.push(from.elapsed().as_micros() as u32);
    }
    (micros, failures)
}

/// Reads one answer with a `Content-Length`.
fn answer_is_good(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> bool {
    let mut length = 0;
    loop {
        let read = stream.read(&mut buffer[length..]).expect("it answers");
        assert_ne!(read, 0, "the connection was closed");
        length += read;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let Some(end) = text.find("\r\n\r\n") else { continue };
        let head = text[..end].to_ascii_lowercase();
        let body =
            head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        if length >= end + 4 + body.unwrap_or(0) {
            return head.starts_with("http/1.1 200");
        }
    }
}
