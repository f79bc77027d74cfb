//! One exchange as bytes: the same bytes come out however those that go in are cut, and they are what a simple model says.

use std::sync::Arc;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::sample::Index;

use crate::gateway::held::{CheckedBody, HeldBytes};
use crate::gateway::relay::exchange::{Buffers, Exchange};
use crate::gateway::{context::Context, failure::Failure};
use crate::http1::{Spans, head::read_request};
use crate::message_signature::BodyDigest;

/// A request whose answer gets one line of ours.
pub(super) fn context() -> Context {
    let mut ctx = Context::new();
    ctx.record.request_id = Some("1".to_owned());
    ctx
}

/// The outcome of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    upstream: Vec<u8>,
    client: Vec<u8>,
    failure: Option<Failure>,
    /// The bytes of the client and of the upstream that were not taken.
    left: (usize, usize),
    client_goes_on: bool,
    upstream_goes_on: bool,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The pieces of a text that is cut at these places.
fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter().map(|end| &bytes[std::mem::replace(&mut begin, end)..end]).collect()
}

/// Runs an exchange: first all of the client's bytes, then all of the upstream's, and then its end.
fn run(
    method: &str,
    head: &str,
    body: &[u8],
    answer: &[u8],
    closes: bool,
    cuts: &[Vec<Index>; 2],
) -> Outcome {
    let mut spans = Spans::default();
    let request = read_request(head.as_bytes(), &mut spans).unwrap();
    let mut exchange = Exchange::new(&request, method == "HEAD", false, true, None);
    let (mut buffers, mut ahead, ctx) = (Buffers::default(), BytesMut::new(), context());
    let (mut upstream, mut client) = (Vec::new(), Vec::new());
    let mut steps = || {
        for piece in cut(body, &cuts[0]) {
            ahead.extend_from_slice(piece);
            while exchange.take_upload(&mut ahead, &mut buffers)? {}
            upstream.append(&mut buffers.to_upstream.bytes);
        }
        for piece in cut(answer, &cuts[1]) {
            if exchange.is_answered() {
                buffers.incoming.extend_from_slice(piece);
                continue;
            }
            buffers.incoming.extend_from_slice(piece);
            exchange.take_answer(&mut buffers, &ctx)?;
            client.append(&mut buffers.to_client.bytes);
        }
        if closes && !exchange.is_answered() { exchange.upstream_closed(&mut buffers) } else { Ok(()) }
    };
    let failure = steps().err();
    client.append(&mut buffers.to_client.bytes);
    Outcome {
        upstream,
        client,
        failure,
        left: (ahead.len(), buffers.incoming.len()),
        client_goes_on: exchange.client_goes_on(),
        upstream_goes_on: exchange.upstream_goes_on(&buffers),
    }
}

/// A body in chunks, with extensions and trailers; and the data alone.
fn chunked() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunk = (proptest::collection::vec(any::<u8>(), 1..40), prop_oneof![Just(""), Just(";x=\"y\"")]);
    let trailers = prop_oneof![Just(""), Just("X-Sum: 1\r\n"), Just("Content-Length: 1\r\nX-Sum: 1\r\n")];
    (proptest::collection::vec(chunk, 0..5), trailers).prop_map(|(chunks, trailers)| {
        let (mut bytes, mut data) = (Vec::new(), Vec::new());
        for (piece, extension) in chunks {
            bytes.extend([format!("{:x}{extension}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat());
            data.extend(piece);
        }
        bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
        (bytes, data)
    })
}

/// A body's framing header, its bytes, and its data.
fn body() -> impl Strategy<Value = (String, Vec<u8>, Vec<u8>)> {
    let length = proptest::collection::vec(any::<u8>(), 0..80)
        .prop_map(|data| (format!("Content-Length: {}\r\n", data.len()), data.clone(), data));
    let chunks =
        chunked().prop_map(|(bytes, data)| ("Transfer-Encoding: chunked\r\n".to_owned(), bytes, data));
    prop_oneof![Just((String::new(), Vec::new(), Vec::new())), length, chunks]
}

fn cuts() -> impl Strategy<Value = [Vec<Index>; 2]> {
    let places = || proptest::collection::vec(any::<Index>(), 0..8);
    [places(), places()]
}

/// A body's data as a reader of HTTP/1 finds it, and its trailers; nothing if it is cut off. Chunks may come out otherwise
/// than they went in.
fn read_back(bytes: &[u8], in_chunks: bool) -> Option<(String, String)> {
    if !in_chunks {
        return Some((text(bytes), String::new()));
    }
    let (mut rest, mut data) = (bytes, Vec::new());
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            let is_whole = rest == b"\r\n" || rest.ends_with(b"\r\n\r\n");
            return is_whole.then(|| (text(&data), text(rest)));
        }
        data.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// The heads of what a client got, and its body.
fn apart(client: &[u8]) -> (String, Vec<u8>) {
    let ours = client.windows(12).position(|window| window == b"X-Request-Id").unwrap();
    let end = ours + client[ours..].windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    (text(&client[..end]), client[end..].to_vec())
}

/// The trailers that pass.
fn kept(framing: &str, sent: &[u8]) -> String {
    let is_kept = framing.starts_with('T') && text(sent).ends_with("X-Sum: 1\r\n\r\n");
    if !framing.starts_with('T') {
        ""
    } else if is_kept {
        "X-Sum: 1\r\n\r\n"
    } else {
        "\r\n"
    }
    .to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn whole_requests_and_answers_come_out_whole_however_they_are_cut(
        method in prop_oneof![Just("GET"), Just("HEAD"), Just("POST")],
        is_old in any::<bool>(),
        (framing, sent, data) in body(),
        interims in 0..3_usize,
        status in prop_oneof![Just(200_u16), Just(204), Just(304), Just(500)],
        (answer_framing, answer_sent, answer_data) in body(),
        is_forged in any::<bool>(),
        cuts in cuts(),
    ) {
        // HTTP/1.0 has no chunks.
        let is_old = is_old && !framing.starts_with('T');
        let has_body = method != "HEAD" && status != 204 && status != 304;
        let is_to_close = has_body && answer_framing.is_empty();
        let (answer_sent, answer_data) = match (has_body, is_to_close) {
            (false, _) => (Vec::new(), Vec::new()),
            (true, true) => (b"until the end".to_vec(), b"until the end".to_vec()),
            (true, false) => (answer_sent, answer_data),
        };
        let behind = if is_forged && !is_to_close { "HTTP/1.1 200 Forged\r\n\r\n" } else { "" };
        let head = format!("{method} / HTTP/1.{}\r\nHost: a\r\n{framing}\r\n", u8::from(!is_old));
        let hints = "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n";
        let answer = format!("{}HTTP/1.1 {status} So\r\nDate: y\r\n{answer_framing}\r\n", hints.repeat(interims));
        let answer = [answer.as_bytes(), &answer_sent, behind.as_bytes()].concat();

        let got = run(method, &head, &sent, &answer, is_to_close, &cuts);
        prop_assert_eq!(got.failure, None);
        let (in_chunks, out_in_chunks) =
            (framing.starts_with('T'), has_body && !is_old && !answer_framing.starts_with('C'));
        prop_assert_eq!(read_back(&got.upstream, in_chunks), Some((text(&data), kept(&framing, &sent))));
        let (heads, body) = apart(&got.client);
        let trailers = if !out_in_chunks { String::new() } else if is_to_close { "\r\n".to_owned() } else {
            kept(&answer_framing, &answer_sent)
        };
        prop_assert_eq!(read_back(&body, out_in_chunks), Some((text(&answer_data), trailers)));
        let length = if answer_framing.starts_with('C') && status != 204 { &answer_framing } else { "" };
        let lines = [
            hints.repeat(if is_old { 0 } else { interims }),
            format!("HTTP/1.1 {status} So\r\nDate: y\r\n{length}"),
            (if out_in_chunks { "Transfer-Encoding: chunked\r\n" } else { "" }).to_owned(),
            "X-Request-Id: 1\r\n".to_owned(),
            (if is_old { "Connection: close\r\n\r\n" } else { "\r\n" }).to_owned(),
        ];
        prop_assert_eq!(heads, lines.concat());
        prop_assert_eq!(got.left, (0, behind.len()));
        prop_assert_eq!(got.client_goes_on, !is_old);
        let has_body_anyway = !has_body && !answer_framing.is_empty() && answer_framing != "Content-Length: 0\r\n";
        prop_assert_eq!(got.upstream_goes_on, !is_to_close && behind.is_empty() && !has_body_anyway);
    }

    #[test]
    fn an_answer_that_breaks_off_fails_and_gets_no_end_however_it_is_cut(
        (framing, sent, _) in body(),
        end in any::<Index>(),
        cuts in cuts(),
    ) {
        let answer = [format!("HTTP/1.1 200 So\r\n{framing}\r\n").as_bytes(), &sent].concat();
        let head_length = answer.len() - sent.len();
        let answer = &answer[..end.index(answer.len())];
        let got = run("GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"", answer, true, &cuts);
        if framing.is_empty() && answer.len() == head_length {
            prop_assert_eq!(got.failure, None, "it ends with its connection");
        } else if framing == "Content-Length: 0\r\n" && answer.len() >= head_length {
            prop_assert_eq!(got.failure, None);
        } else {
            prop_assert_eq!(got.failure, Some(Failure::Upstream("ConnectionClosed")));
            if answer.len() < head_length {
                prop_assert_eq!(text(&got.client), "");
            } else {
                let (_, body) = apart(&got.client);
                let data = if framing.starts_with('T') { read_back(&body, true) } else { None };
                prop_assert_eq!(data, None, "half of it is no whole body");
                prop_assert!(framing.starts_with('T') || body.len() < sent.len());
            }
        }
        prop_assert!(!got.upstream_goes_on);
    }

    #[test]
    fn bytes_that_are_no_answer_fail_alike_however_they_are_cut(
        garbage in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(proptest::sample::select(b"HTP/1. 20\r\n:aContent-Length".to_vec()), 0..200),
        ],
        begins in prop_oneof![
            Just(""), Just("HTTP/1.1 200 OK\r\n"), Just("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ],
        cuts in cuts(),
    ) {
        let answer = [begins.as_bytes(), &garbage].concat();
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let whole = run("GET", request, b"", &answer, true, &Default::default());
        let pieces = run("GET", request, b"", &answer, true, &cuts);
        prop_assert_eq!(whole.failure, pieces.failure);
        prop_assert_eq!(whole.upstream_goes_on, pieces.upstream_goes_on);
        let head = |outcome: &Outcome| text(&outcome.client).split("\r\n\r\n").next().unwrap().to_owned();
        prop_assert_eq!(head(&whole), head(&pieces));
    }

    #[test]
    fn a_body_that_breaks_its_syntax_fails_and_never_reaches_the_upstream_whole(
        (sent, _) in chunked(),
        place in any::<Index>(),
        byte in prop_oneof![Just(b'\n'), Just(b' '), Just(b'\0')],
        cuts in cuts(),
    ) {
        let mut broken = sent.clone();
        let at = place.index(sent.len());
        broken.insert(at, byte);
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = run("POST", head, &broken, b"", false, &Default::default());
        let pieces = run("POST", head, &broken, b"", false, &cuts);
        prop_assert_eq!(whole.failure, pieces.failure);
        if pieces.failure.is_some() {
            prop_assert_eq!(pieces.failure, Some(Failure::Malformed));
            prop_assert_eq!(read_back(&pieces.upstream, true), None);
        } else {
            // A blank may stand in an extension or a trailer, and a line feed behind the body.
            let is_whole = read_back(&pieces.upstream, true).is_some();
            prop_assert!(!is_whole || byte == b' ' || pieces.left.0 == 1);
        }
    }
}

#[test]
fn the_room_of_a_body_that_is_held_is_free_when_it_was_sent_or_dropped() {
    for is_sent in [true, false] {
        let mut spans = Spans::default();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = read_request(head, &mut spans).unwrap();
        let mut exchange = Exchange::new(&request, false, false, true, None);
        let (mut buffers, held) = (Buffers::default(), HeldBytes::unshared());
        let memory = Arc::clone(&held.memory);
        let digest = HeaderMap::from_iter([(
            HeaderName::from_static("content-digest"),
            HeaderValue::from_static("sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:"),
        )]);
        let digest = BodyDigest::of(&digest).unwrap().unwrap();
        exchange.check_body(CheckedBody::new(digest, Some(held)), &mut buffers);
        let mut body = BytesMut::from("11\r\n{\"hello\":\"world\"}\r\n0\r\n\r\n");
        let length = body.len();
        while exchange.take_upload(&mut body, &mut buffers).unwrap() {}
        assert_eq!(memory.taken(), length as u64, "frames count too");
        if is_sent {
            buffers.to_upstream.wrote(length);
        } else {
            buffers.clear();
        }
        assert_eq!((memory.taken(), buffers.to_upstream.bytes.capacity()), (0, 0));
    }
}
