//! Tenants are exchanged under load. The real program reads them again and again, while clients that never reconnect ask.
//! Each answer must come from tenants that were in force while its request was under way.

mod breakages;
mod gateway;
mod tables;
mod upstreams;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use self::gateway::Gateway;
use self::tables::{HOSTS, Part, UPSTREAMS, answering, host};
use self::upstreams::{Upstreams, answer};
use crate::support::time::{SOON, until};
use crate::support::whole::{reloads, times};
use crate::support::{client::Connection, stop::Stop};

/// How often the tenants are exchanged, at each change and before a release.
const RELOADS: [usize; 2] = [50, 150];

/// How often all tenants are lost.
const LOSSES: [usize; 2] = [10, 30];

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

// threat: A half-applied reload, a broken next start
#[test]
fn reloads_under_load_mislead_no_request_and_drop_none() {
    under_load(reloads(RELOADS), |gateway, admin, _| gateway.reload(admin), |refused| refused == 0);
}

// threat: An unmounted volume looks empty
#[test]
fn a_folder_of_tenants_that_comes_and_goes_under_load_drops_nothing() {
    let lose = |gateway: &Gateway, admin: &mut Connection, turn: usize| {
        gateway.lose_tenants(admin, turn.is_multiple_of(2));
    };
    under_load(times(LOSSES), lose, |refused| refused >= times(LOSSES));
}

/// Does something so many times while clients ask, each time after some more answers. Checks how many reloads were refused.
fn under_load(
    times: usize,
    work: impl Fn(&Gateway, &mut Connection, usize),
    is_right: impl Fn(usize) -> bool,
) {
    let upstreams = Upstreams::start(UPSTREAMS);
    let gateway = Gateway::start(upstreams.addresses());
    let (stop, answers) = (Stop::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (gateway, stop, answers) = (&gateway, &stop, &answers);
        for asker in 0..CONNECTIONS {
            scope.spawn(move || {
                let _stops = stop.at_end();
                ask_http1(gateway, asker, stop, answers);
            });
        }
        scope.spawn(|| {
            let _stops = stop.at_end();
            ask_http2(gateway, stop, answers);
        });
        let _stops = stop.at_end();
        let mut admin = gateway.program.admin();
        for turn in 0..times {
            let goal = answers.load(Ordering::SeqCst) + CONNECTIONS;
            work(gateway, &mut admin, turn);
            until("questions were answered meanwhile", SOON, || {
                assert!(!stop.is_set(), "an asker has ended: {}", gateway.program.process.log());
                (answers.load(Ordering::SeqCst) >= goal).then_some(())
            });
        }
        assert!(is_right(Gateway::reloads(&mut admin, "refused")), "{}", gateway.program.process.log());
    });
}

// threat: A half-applied reload, a broken next start
#[test]
fn a_request_under_way_keeps_the_tenants_that_it_began_with() {
    let upstreams = Upstreams::start(UPSTREAMS);
    let gateway = Gateway::start(upstreams.addresses());
    let mut admin = gateway.program.admin();
    let mut connection = Connection::open(gateway.program.address).unwrap();
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

/// Asks on one connection until it is told to stop.
fn ask_http1(gateway: &Gateway, asker: usize, stop: &Stop, answers: &AtomicUsize) {
    let mut connection = Connection::open(gateway.program.address).unwrap();
    let name = asker.to_string();
    for turn in (asker..).take_while(|_| !stop.is_set()) {
        let question = Question::new(gateway, &name, turn);
        connection.write(&question.bytes()).unwrap();
        let answer = connection.read(false).unwrap();
        question.check(answer.status, &answer.text());
        answers.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks on one connection of HTTP/2, four requests at a time, until it is told to stop.
fn ask_http2(gateway: &Gateway, stop: &Stop, answers: &AtomicUsize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.program.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let asker = |at| ask_on_streams(gateway, sender.clone(), at, stop, answers);
        tokio::join!(asker(0), asker(1), asker(2), asker(3));
    });
}

/// One stream after the other.
async fn ask_on_streams(
    gateway: &Gateway,
    sender: SendRequest<Bytes>,
    asker: usize,
    stop: &Stop,
    answers: &AtomicUsize,
) {
    let name = format!("stream-{asker}");
    let mut sender = sender.ready().await.unwrap();
    for turn in (asker..).take_while(|_| !stop.is_set()) {
        let question = Question::new(gateway, &name, turn);
        let (status, text) = tokio::time::timeout(SOON, ask_one(&mut sender, &question)).await.unwrap();
        question.check(status, &text);
        answers.fetch_add(1, Ordering::SeqCst);
        sender = sender.ready().await.unwrap();
    }
}

async fn ask_one(sender: &mut SendRequest<Bytes>, question: &Question<'_>) -> (u16, String) {
    let uri = format!("http://{}{}", host(question.host), question.path);
    let (answer, _) = sender.send_request(Request::get(uri).body(()).unwrap(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        text.extend_from_slice(&piece);
    }
    (head.status.as_u16(), String::from_utf8_lossy(&text).into_owned())
}
