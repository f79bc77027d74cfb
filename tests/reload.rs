//! Tenants are exchanged under load: the real program reads them again a thousand times, while clients that never
//! reconnect check of each answer that it stems from a table that was in force while the request was under way.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test does not find where it should be is its failure"
)]

#[path = "reload/gateway.rs"]
mod gateway;
#[path = "support"]
#[expect(dead_code, reason = "shared with the contract's cases, which need more of it")]
mod support {
    pub(crate) mod client;
    pub(crate) mod metrics;
    pub(crate) mod process;
    pub(crate) mod time;
    pub(crate) mod wire;
}
#[path = "reload/tables.rs"]
mod tables;
#[path = "reload/upstreams.rs"]
mod upstreams;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use crate::gateway::Gateway;
use crate::support::client::Connection;
use crate::support::time::{SOON, Stopwatch, until};
use crate::tables::{HOSTS, Part, UPSTREAMS, answering, host};
use crate::upstreams::{Upstreams, answer};

/// How often the tenants are exchanged.
const RELOADS: usize = 1_000;

/// How many connections of HTTP/1.1 ask all the time.
const CONNECTIONS: usize = 8;

/// A request, and what may be answered to it.
struct Question<'a> {
    gateway: &'a Gateway,
    host: usize,
    part: Part,
    path: String,
    /// The oldest version that may answer.
    since: usize,
}

impl<'a> Question<'a> {
    /// The `turn`th question of an asker. Its path is asked for once only, so that no answer passes for another's.
    fn new(gateway: &'a Gateway, asker: &str, turn: usize) -> Self {
        let (part, prefix) = if turn.is_multiple_of(2) { (Part::Rest, "/rest") } else { (Part::Own, "/own") };
        let path = format!("{prefix}/{asker}/{turn}");
        Self { gateway, host: turn % HOSTS, part, path, since: gateway.confirmed() }
    }

    /// Checks an answer that has just come.
    #[track_caller]
    fn check(&self, status: u16, body: &str) {
        let versions = self.since..=self.gateway.announced();
        let matches = |version| match answering(self.host, self.part, version) {
            Some(number) => status == 200 && body == answer(number, &host(self.host), &self.path),
            None => status == 404 && body.contains("NOT_FOUND"),
        };
        assert!(
            versions.clone().any(matches),
            "no tenants of versions {versions:?} answer {} of {} with {status} {body}",
            self.path,
            host(self.host)
        );
    }

    /// As HTTP/1.1.
    fn bytes(&self) -> Vec<u8> {
        format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.path, host(self.host)).into_bytes()
    }
}

/// Ends the askers also when a check fails, so that the failure is seen.
struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_thousand_reloads_under_load_mislead_no_request_and_drop_none() {
    let upstreams = Upstreams::start(UPSTREAMS);
    let gateway = Gateway::start(upstreams.addresses());
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        for asker in 0..CONNECTIONS {
            let (gateway, over, answers) = (&gateway, &over, &answers);
            scope.spawn(move || {
                let _end = EndsWith(over);
                answers.fetch_add(ask_http1(gateway, asker, over), Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            let _end = EndsWith(&over);
            answers.fetch_add(ask_http2(&gateway, &over), Ordering::SeqCst);
        });
        let _end = EndsWith(&over);
        let mut admin = gateway.admin();
        for _ in 0..RELOADS {
            assert!(!over.load(Ordering::SeqCst), "an asker has ended: {}", gateway.log());
            gateway.reload(&mut admin);
        }
        assert_eq!(gateway.reloads(&mut admin, "refused"), 0, "{}", gateway.log());
    });
    let (answers, took) = (answers.into_inner(), watch.elapsed());
    println!("{RELOADS} reloads and {answers} requests in {took:?}");
    assert!(answers > RELOADS, "too few requests to show anything: {answers}");
}

#[test]
fn a_request_under_way_keeps_the_tenants_that_it_began_with() {
    let upstreams = Upstreams::start(UPSTREAMS);
    let gateway = Gateway::start(upstreams.addresses());
    let mut admin = gateway.admin();
    let mut connection = Connection::open(gateway.address).unwrap();
    for version in 0..4 {
        let path = format!("/held/{version}");
        let head = format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\nhe", host(0));
        connection.write(head.as_bytes()).unwrap();
        until("the request is at its upstream", SOON, || upstreams.holds(&path).then_some(()));
        gateway.reload(&mut admin);
        connection.write(b"ld").unwrap();
        let held = connection.read(false).unwrap();
        let before = answering(0, Part::Rest, version).unwrap();
        assert_eq!((held.status, held.text()), (200, answer(before, &host(0), &path)));
        let next = Question::new(&gateway, "next", version * HOSTS * 2);
        connection.write(&next.bytes()).unwrap();
        let after = connection.read(false).unwrap();
        next.check(after.status, &after.text());
    }
}

/// Asks on one connection until it is over; gives the number of answers.
fn ask_http1(gateway: &Gateway, asker: usize, over: &AtomicBool) -> usize {
    let mut connection = Connection::open(gateway.address).unwrap();
    let name = asker.to_string();
    let mut turn = asker;
    while !over.load(Ordering::SeqCst) {
        let question = Question::new(gateway, &name, turn);
        connection.write(&question.bytes()).unwrap();
        let answer = connection.read(false).unwrap();
        question.check(answer.status, &answer.text());
        turn += 1;
    }
    turn - asker
}

/// Asks on one connection of HTTP/2, four requests at a time, until it is over; gives the number of answers.
fn ask_http2(gateway: &Gateway, over: &AtomicBool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let asker = |at| ask_on_streams(gateway, sender.clone(), at, over);
        let (a, b, c, d) = tokio::join!(asker(0), asker(1), asker(2), asker(3));
        a + b + c + d
    })
}

/// One stream after the other.
async fn ask_on_streams(
    gateway: &Gateway,
    sender: SendRequest<Bytes>,
    asker: usize,
    over: &AtomicBool,
) -> usize {
    let name = format!("stream-{asker}");
    let mut sender = sender.ready().await.unwrap();
    let mut turn = asker;
    while !over.load(Ordering::SeqCst) {
        let question = Question::new(gateway, &name, turn);
        let uri = format!("http://{}{}", host(question.host), question.path);
        let (answer, _) = sender.send_request(Request::get(uri).body(()).unwrap(), true).unwrap();
        let (head, mut body) = answer.await.unwrap().into_parts();
        let mut text = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            text.extend_from_slice(&piece);
        }
        question.check(head.status.as_u16(), &String::from_utf8_lossy(&text));
        turn += 1;
        sender = sender.ready().await.unwrap();
    }
    turn - asker
}
