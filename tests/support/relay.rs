//! Stands between the service and its node, and misbehaves on command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::process::own_ip;

/// What the node does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Answers as the real node does.
    Honest,
    /// Takes the call and never answers.
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
    behaviour: Arc<Mutex<Behaviour>>,
    open: Option<Open>,
}

struct Open {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Relay {
    pub(crate) fn new(node: SocketAddr) -> Self {
        let listener = TcpListener::bind((own_ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut relay =
            Self { address, node, behaviour: Arc::new(Mutex::new(Behaviour::Honest)), open: None };
        relay.serve(listener);
        relay
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
    }

    /// Stops listening and breaks every connection.
    pub(crate) fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.stop.store(true, Ordering::SeqCst);
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
        let (stopped, node, behaviour) = (Arc::clone(&stop), self.node, Arc::clone(&self.behaviour));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (stopped, behaviour) = (Arc::clone(&stopped), Arc::clone(&behaviour));
                std::thread::spawn(move || {
                    let _ = converse(stream, node, &behaviour, &stopped);
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
fn converse(
    stream: TcpStream,
    node: SocketAddr,
    behaviour: &Mutex<Behaviour>,
    stopped: &AtomicBool,
) -> std::io::Result<()> {
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
        let behaviour = behaviour.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let honest = || Connection::open(node)?.send("POST", "/", &[], Some(&call));
        let (status, body) = match behaviour {
            Behaviour::Honest => {
                let answer = honest()?;
                (answer.status, answer.body)
            }
            Behaviour::Refuse(method, code) => {
                let asked: Value = serde_json::from_slice(&call).unwrap();
                if asked["method"] == json!(method) {
                    let error = json!({ "code": code, "message": "refused" });
                    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
                    (200, answer.to_string().into_bytes())
                } else {
                    let answer = honest()?;
                    (answer.status, answer.body)
                }
            }
            Behaviour::Tell(method, result) => {
                let asked: Value = serde_json::from_slice(&call).unwrap();
                if asked["method"] == json!(method) {
                    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
                    (200, answer.to_string().into_bytes())
                } else {
                    let answer = honest()?;
                    (answer.status, answer.body)
                }
            }
            Behaviour::Hang => {
                // Until the caller gives up and closes.
                let _ = stream.read(&mut [0])?;
                return Ok(());
            }
            Behaviour::Close => return Ok(()),
            Behaviour::Http(status, body) => (status, body.into_bytes()),
            Behaviour::Members(mut members) => {
                let call: Value = serde_json::from_slice(&call).unwrap();
                members["jsonrpc"] = json!("2.0");
                if members.get("id").is_none() {
                    members["id"] = call["id"].clone();
                }
                (200, members.to_string().into_bytes())
            }
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
    }
}
