//! Stands between the service and its node, and misbehaves on command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{thread::JoinHandle, time::Duration};

use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::process::{own_ip, stop_listening};

/// How the node treats a call.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Answers as the real node does.
    Honest,
    /// Answers as another node does.
    Moved(SocketAddr),
    /// Holds the call until the behaviour is another one, and closes then.
    Hang,
    /// Closes the connection instead of answering.
    Close,
    /// Answers with this status and body.
    Http(u16, String),
    /// Refuses this method with this JSON-RPC error code, and answers all others as the real node does.
    Refuse(&'static str, i64),
    /// Answers calls without `to` with these members, and all others as the real node does.
    RefuseCreations(Value),
    /// Reads the data of calls in `data` alone, and refuses `{blockHash}`.
    Peculiar,
    /// Answers with these members in place of `result`, with the call's own id.
    Members(Value),
    /// Stands for several back ends, of which some lag.
    Balanced(Balance),
    /// Answers each fifth request with 429, closes instead of answering each tenth, and never answers each fiftieth.
    Sick,
}

/// Back ends behind one URL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Balance {
    /// How many of ten requests are answered as of some blocks ago.
    pub(crate) behind_of_ten: u64,
    /// How many blocks.
    pub(crate) lag_blocks: u64,
    /// A connection stays with one back end.
    pub(crate) is_sticky: bool,
}

/// A listener in front of a node.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    node: SocketAddr,
    state: Arc<State>,
    open: Option<Open>,
}

/// State that the connections of a relay share.
struct State {
    behaviour: Mutex<Behaviour>,
    changed: Condvar,
    held: AtomicUsize,
    connections: AtomicU64,
    requests: AtomicU64,
}

impl State {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until calls are no longer held.
    fn hold(&self, stopped: &AtomicBool) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let mut behaviour = self.behaviour();
        while matches!(*behaviour, Behaviour::Hang) && !stopped.load(Ordering::SeqCst) {
            behaviour = self.changed.wait(behaviour).unwrap_or_else(PoisonError::into_inner);
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Open {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Relay {
    pub(crate) fn new(node: SocketAddr) -> Self {
        let listener = TcpListener::bind((own_ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Mutex::new(Behaviour::Honest);
        let state = Arc::new(State {
            behaviour,
            changed: Condvar::new(),
            held: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let mut relay = Self { address, node, state, open: None };
        relay.serve(listener);
        relay
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.state.behaviour() = behaviour;
        self.state.changed.notify_all();
    }

    /// How many calls are held.
    pub(crate) fn held(&self) -> usize {
        self.state.held.load(Ordering::SeqCst)
    }

    /// Stops listening and breaks every connection.
    pub(crate) fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.stop.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody begins to wait in between.
        drop(self.state.behaviour());
        self.state.changed.notify_all();
        let _ = TcpStream::connect(self.address);
        let _ = open.thread.join();
    }

    /// Listens again at the same address.
    pub(crate) fn reopen(&mut self) {
        assert!(self.open.is_none());
        self.serve(TcpListener::bind(self.address).unwrap());
    }

    fn serve(&mut self, listener: TcpListener) {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, node, state) = (Arc::clone(&stop), self.node, Arc::clone(&self.state));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return stop_listening(&listener);
                }
                let (stopped, state) = (Arc::clone(&stopped), Arc::clone(&state));
                std::thread::spawn(move || {
                    let _ = converse(stream, node, &state, &stopped);
                });
            }
        });
        self.open = Some(Open { stop, thread });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.close();
    }
}

/// Answers the calls of one connection, one after the other.
fn converse(stream: TcpStream, node: SocketAddr, state: &State, stopped: &AtomicBool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let connection = state.connections.fetch_add(1, Ordering::SeqCst);
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut call = vec![0; length];
        stream.read_exact(&mut call)?;
        if stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let behaviour = state.behaviour().clone();
        let request = state.requests.fetch_add(1, Ordering::SeqCst);
        let answer_of = |node: SocketAddr| -> std::io::Result<(u16, Vec<u8>)> {
            let answer = Connection::open(node)?.send("POST", "/", &[], Some(&call))?;
            Ok((answer.status, answer.body))
        };
        let honest = || answer_of(node);
        let (status, body) = match behaviour {
            Behaviour::Honest => honest()?,
            Behaviour::Moved(other) => answer_of(other)?,
            Behaviour::Refuse(method, code) => each(&call, |asked| {
                let error = json!({ "code": code, "message": "refused" });
                if asked["method"] == json!(method) {
                    Ok(json!({ "error": error }))
                } else {
                    ask(node, asked)
                }
            })?,
            Behaviour::RefuseCreations(members) => each(&call, |asked| {
                if asked["method"] == json!("eth_call") && asked["params"][0]["to"].is_null() {
                    return Ok(members.clone());
                }
                ask(node, asked)
            })?,
            Behaviour::Peculiar => each(&call, |asked| {
                let (call, block) = (&asked["params"][0], &asked["params"][1]);
                let error =
                    |code, why| Ok(json!({ "error": { "code": code, "message": why, "data": "0x" } }));
                match asked["method"] == json!("eth_call") {
                    true if block.is_object() => error(-32_602, "no block number"),
                    true if call["data"].is_null() => error(3, "execution reverted"),
                    _ => ask(node, asked),
                }
            })?,
            Behaviour::Members(members) => each(&call, |_| Ok(members.clone()))?,
            Behaviour::Balanced(balance) => {
                let back_end = if balance.is_sticky { connection } else { request };
                if some_number(back_end) % 10 < balance.behind_of_ten {
                    each(&call, |asked| lagging(node, asked, balance.lag_blocks))?
                } else {
                    honest()?
                }
            }
            Behaviour::Sick if request.is_multiple_of(50) => {
                // Until the caller gives up and closes.
                let _ = stream.read(&mut [0])?;
                return Ok(());
            }
            Behaviour::Sick if request.is_multiple_of(10) => return Ok(()),
            Behaviour::Sick if request.is_multiple_of(5) => (429, Vec::new()),
            Behaviour::Sick => honest()?,
            Behaviour::Hang => {
                state.hold(stopped);
                return Ok(());
            }
            Behaviour::Close => return Ok(()),
            Behaviour::Http(status, body) => (status, body.into_bytes()),
        };
        let pause = if status == 429 { "Retry-After: 0\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{pause}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
    }
}

/// Answers a request, or each of a batch, with the members that `answer` gives.
fn each(call: &[u8], answer: impl Fn(&Value) -> std::io::Result<Value>) -> std::io::Result<(u16, Vec<u8>)> {
    let whole = |asked: &Value| {
        let mut members = answer(asked)?;
        members["jsonrpc"] = json!("2.0");
        if members.get("id").is_none() {
            members["id"] = asked["id"].clone();
        }
        Ok::<_, std::io::Error>(members)
    };
    let call: Value = serde_json::from_slice(call)?;
    let body = match call.as_array() {
        Some(calls) => Value::Array(calls.iter().map(whole).collect::<Result<_, _>>()?),
        None => whole(&call)?,
    };
    Ok((200, body.to_string().into_bytes()))
}

/// The node's own answer to one call.
fn ask(node: SocketAddr, call: &Value) -> std::io::Result<Value> {
    Ok(serde_json::from_slice(&Connection::open(node)?.post("/", call)?.body)?)
}

/// The answer of a back end that lags by so many blocks.
fn lagging(node: SocketAddr, call: &Value, blocks: u64) -> std::io::Result<Value> {
    let result = |method: &str, params: Value| {
        let answer = ask(node, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        Ok::<_, std::io::Error>(answer?["result"].clone())
    };
    let number = |hex: &Value| {
        let digits = hex.as_str().unwrap_or_default().trim_start_matches("0x");
        u64::from_str_radix(digits, 16).ok()
    };
    let head = number(&result("eth_blockNumber", json!([]))?).unwrap_or(0).saturating_sub(blocks);
    let shown = json!(format!("{head:#x}"));
    let unknown = json!({ "error": { "code": -32_000, "message": "header not found" } });
    let is_unknown = |hash: &Value| {
        let block = result("eth_getBlockByHash", json!([hash, false]))?;
        Ok::<_, std::io::Error>(number(&block["number"]).is_none_or(|number| number > head))
    };
    let mut call = call.clone();
    match call["method"].as_str().unwrap_or_default() {
        "eth_blockNumber" => return Ok(json!({ "result": shown })),
        "eth_getBlockByNumber" => match number(&call["params"][0]) {
            Some(number) if number > head => return Ok(json!({ "result": null })),
            Some(_) => {}
            None => call["params"][0] = shown,
        },
        "eth_call" => match call["params"][1].get("blockHash") {
            Some(hash) if is_unknown(hash)? => return Ok(unknown),
            Some(_) => {}
            None => call["params"][1] = shown,
        },
        "eth_getLogs" => match call["params"][0].get("blockHash") {
            Some(hash) if is_unknown(hash)? => return Ok(unknown),
            Some(_) => {}
            // Nodes answer so when a range begins after their head.
            None if number(&call["params"][0]["fromBlock"]).is_none_or(|from| from > head) => {
                return Ok(json!({ "result": [] }));
            }
            None => {
                let to = number(&call["params"][0]["toBlock"]).unwrap_or(head).min(head);
                call["params"][0]["toBlock"] = json!(format!("{to:#x}"));
            }
        },
        _ => {}
    }
    ask(node, &call)
}

/// A number that looks like any.
fn some_number(of: u64) -> u64 {
    fastrand::Rng::with_seed(of).u32(..).into()
}
