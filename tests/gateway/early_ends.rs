//! Answers that end before their time, that come before the end of their request, or that can be read in two ways: the
//! same over HTTP/1 and HTTP/2, by the relay and by the library.

use std::{io::Write, thread};

use bytes::Bytes;
use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::frames::{End, Frames};
use crate::rig::h2c::{self, Message, run};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{refusals::is_upstream_error, scripts, site::Site, upstream::Then};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_answer_that_breaks_off_shows_what_came_of_it,
    an_answer_without_a_length_that_is_reset_is_not_whole,
    an_answer_that_breaks_off_in_its_head_is_502,
    a_refusal_over_http_2_waits_for_the_end_of_its_upload,
    an_upload_over_http_2_that_goes_on_behind_its_refusal_is_reset,
    a_body_of_http_2_that_ends_with_an_empty_frame_ends_once,
];

/// How often an upstream resets its connection.
const RESETS: usize = 20;

/// What an upload sends at once.
const UPLOAD_PIECE: [u8; 100] = [b'x'; 100];

/// How many pieces an upload has.
const UPLOAD_PIECES: usize = 10_000;

/// A site of each way out, whose upstream is asked again however often it has failed.
fn sites(stage: &Stage) -> [(&'static str, Site); 2] {
    ["relay", "library"].map(|way| {
        let site = Site::of(stage).tenant(|tenant| tenant.set("health.eject_after", 0));
        (way, site.way(way).start())
    })
}

/// The status of an answer over HTTP/2, the part of its body that came, and whether that was all.
fn parts(site: &Site, path: &str) -> (u16, Vec<u8>, bool) {
    run(async {
        let mut client = h2c::connect(site.gateway.address).await.unwrap().ready().await.unwrap();
        let uri = format!("http://{ACME}{path}");
        let head = http::Request::builder().method(Method::GET).uri(uri).body(()).unwrap();
        let (answer, _) = client.send_request(head, true).unwrap();
        let (head, mut incoming) = answer.await.unwrap().into_parts();
        let mut body = Vec::new();
        while let Some(piece) = incoming.data().await {
            let Ok(piece) = piece else { return (head.status.as_u16(), body, false) };
            body.extend_from_slice(&piece);
        }
        (head.status.as_u16(), body, true)
    })
}

// threat: Our bytes in another's stream
// threat: A dead or broken upstream
fn an_answer_that_breaks_off_shows_what_came_of_it(stage: &Stage) {
    for (way, site) in sites(stage) {
        for framed in [
            "Content-Length: 9\r\n\r\nhalf",
            "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "Transfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        ] {
            for _ in 0..5 {
                let path = public_path();
                site.upstream.on(&path, scripts::bytes(format!("HTTP/1.1 200 OK\r\n{framed}"), Then::Closes));
                assert_eq!(parts(&site, &path), (200, b"half".to_vec(), false), "HTTP/2, {framed}");
                let mut wire = site.gateway.connect();
                wire.send(&Request::get(ACME, &path).bytes());
                let head = wire.head().unwrap_or_else(|error| panic!("{way}, {framed}: {error}"));
                assert_eq!(head.status, 200);
                let rest = wire.rest();
                let text = String::from_utf8_lossy(&rest);
                assert!(text.contains("half") && !text.contains("0\r\n\r\n"), "{way}, {framed}: {text}");
            }
        }
    }
}

/// The end of its connection is the end of such an answer. The kernel reports a reset once: where a write of the upload
/// gets it, the next read shows an end.
fn an_answer_without_a_length_that_is_reset_is_not_whole(stage: &Stage) {
    let [(_, relay), (_, library)] = sites(stage);
    for (site, uploads) in [(&relay, false), (&relay, true), (&library, false)] {
        for length in [4, 65_000].repeat(RESETS) {
            let path = public_path();
            site.upstream.on(
                &path,
                scripts::script(move |exchange| {
                    exchange.write(&[b"HTTP/1.1 200 OK\r\n\r\n", &vec![b'x'; length][..]].concat())?;
                    // A reset without an end before it.
                    rustix::net::connect_unspec(&exchange.socket()?.0)?;
                    Ok(Then::Closes)
                }),
            );
            let mut wire = site.gateway.connect();
            let upload = if uploads { UPLOAD_PIECES } else { 0 };
            let request = Request::new("POST", ACME, &path);
            wire.send(&request.with("Content-Length", &(upload * UPLOAD_PIECE.len()).to_string()).bytes());
            let mut socket = wire.socket();
            let sender = thread::spawn(move || (0..upload).all(|_| socket.write_all(&UPLOAD_PIECE).is_ok()));
            let rest = wire.rest();
            sender.join().unwrap();
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{length}, {uploads}: {} bytes", rest.len());
        }
    }
}

// threat: A dead or broken upstream
fn an_answer_that_breaks_off_in_its_head_is_502(stage: &Stage) {
    for (way, site) in sites(stage) {
        for part in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
            // A switch that nobody asked for.
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            &format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(3_000_000)),
        ] {
            let path = public_path();
            site.upstream.on(&path, scripts::bytes(part, Then::Closes));
            let part = part.get(..60).unwrap_or(part);
            assert_eq!(h2c::ask(site.gateway.address, &get(&path)).unwrap().status, 502, "HTTP/2, {part:?}");
            // It is not asked again on a connection that it may have closed for being old.
            let answer = site.gateway.ask(&Request::new("POST", ACME, &path));
            assert_eq!(answer.status, 502, "{way}, {part:?}");
            is_upstream_error(&answer);
        }
    }
}

fn get(path: &str) -> Message {
    Message::request(Method::GET, ACME, path)
}

/// An upload on stream 1 whose answer has come, of a tenant that takes 1,000 bytes.
fn refused_upload(site: &Site, path: &str) -> Frames {
    let mut frames = Frames::open(site.gateway.address);
    frames.headers(&pseudo("POST", path), false);
    frames.data(&[b'x'; 2_000], false);
    assert_eq!(frames.end(), End::Answered, "{path}");
    frames
}

fn pseudo<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", ACME), (":path", path)]
}

fn small(stage: &Stage) -> Site {
    Site::of(stage).tenant(|tenant| tenant.set("max_body_bytes", 1_000)).start()
}

/// Clients that have not yet read the answer lose it to a reset.
fn a_refusal_over_http_2_waits_for_the_end_of_its_upload(stage: &Stage) {
    let site = small(stage);
    // 401, and 413.
    for path in [agents_path(), public_path()] {
        // The gateway waits for that for a second.
        until("an upload ends in time", SOON, || {
            let mut frames = refused_upload(&site, &path);
            frames.data(&[b'x'; 2_000], false);
            frames.data(b"x", true);
            // Another stream is served meanwhile.
            frames.headers_of(3, &pseudo("GET", &public_path()), true);
            assert_eq!(frames.end_of(3), End::Answered);
            (!frames.is_reset()).then_some(())
        });
    }
}

fn an_upload_over_http_2_that_goes_on_behind_its_refusal_is_reset(stage: &Stage) {
    let site = small(stage);
    for path in [agents_path(), public_path()] {
        refused_upload(&site, &path).until_reset();
    }
}

/// Sends the pieces and then an empty frame that ends the stream; gives the status.
fn post_in_pieces(gateway: std::net::SocketAddr, path: &str, pieces: &[&'static str]) -> u16 {
    run(async {
        let mut client = h2c::connect(gateway).await.unwrap().ready().await.unwrap();
        let uri = format!("http://{ACME}{path}");
        let head = http::Request::builder().method(Method::POST).uri(uri).body(()).unwrap();
        let (answer, mut body) = client.send_request(head, false).unwrap();
        for piece in pieces {
            body.send_data(Bytes::from_static(piece.as_bytes()), false).unwrap();
            tokio::task::yield_now().await;
        }
        body.send_data(Bytes::new(), true).unwrap();
        answer.await.unwrap().status().as_u16()
    })
}

fn a_body_of_http_2_that_ends_with_an_empty_frame_ends_once(stage: &Stage) {
    let Site { gateway, upstream, .. } = &Site::start(stage);
    for pieces in [&[][..], &["abc"], &["abc", "def"]] {
        for _ in 0..20 {
            let path = public_path();
            assert_eq!(post_in_pieces(gateway.address, &path, pieces), 200);
            assert_eq!(upstream.whole(&path).body, pieces.concat().as_bytes());
            let next = public_path();
            assert_eq!(gateway.ask(&Request::get(ACME, &next)).status, 200, "behind {pieces:?}");
        }
    }
    assert_eq!(upstream.broken(), Vec::<String>::new(), "nothing stands between two requests");
}
