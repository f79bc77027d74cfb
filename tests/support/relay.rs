//! Stands between the service and its node, and misbehaves on command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::process::own_ip;

/// How the node treats a call.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Answers as the real node does.
    Honest,
    /// Holds the call until the behaviour is another one, and closes then.
    Hang,
    /// Closes the connection instead of answering.
    Close,
    /// Answers with this status and body.
    Http(u16, String),
    /// Refuses this method with this JSON-RPC error code, and answers all others as the real node does.
    Refuse(&'static str, i64),
    /// Answers this method with this result, and all others as the real node does.
    Tell(&'static str, Value),
    /// Answers with these members in place of `result`, with the call's own id.
    Members(Value),
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
        let state = Arc::new(State { behaviour, changed: Condvar::new(), held: AtomicUsize::new(0) });
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
                    return;
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
        let asked: Value = serde_json::from_slice(&call).unwrap();
        let answering = |mut members: Value| {
            members["jsonrpc"] = json!("2.0");
            if members.get("id").is_none() {
                members["id"] = asked["id"].clone();
            }
            (200, members.to_string().into_bytes())
        };
        let (status, body) = match behaviour {
            Behaviour::Refuse(method, code) if asked["method"] == json!(method) => {
                answering(json!({ "error": { "code": code, "message": "refused" } }))
            }
            Behaviour::Tell(method, result) if asked["method"] == json!(method) => {
                answering(json!({ "result": result }))
            }
            Behaviour::Honest | Behaviour::Refuse(..) | Behaviour::Tell(..) => {
                let answer = Connection::open(node)?.send("POST", "/", &[], Some(&call))?;
                (answer.status, answer.body)
            }
            Behaviour::Hang => {
                state.hold(stopped);
                return Ok(());
            }
            Behaviour::Close => return Ok(()),
            Behaviour::Http(status, body) => (status, body.into_bytes()),
            Behaviour::Members(members) => answering(members),
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
    }
}
