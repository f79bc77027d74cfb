//! Heads of clients, read by the library behind the reader of frames, and by its types alone.

mod encoder;
mod random;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::timeout;

use crate::http2::tests::encoder::{Encoder, encode};
use crate::http2::{
    AUTHORITY, Broken, Frames, METHOD, NAME, OURS, PSEUDO, REFUSED, SCHEME, VALUE, hpack::decode, problem,
};

type Field = (Vec<u8>, Vec<u8>);

/// A request as the library reads it: path, fields, and why it is to be refused.
#[derive(Debug, PartialEq)]
struct Seen {
    path: String,
    fields: Vec<(String, Vec<u8>)>,
    problem: Option<&'static str>,
    is_whole: bool,
}

/// The requests of a connection by the library, and the kinds of the frames that it answered with.
type Served = (Vec<(u32, Seen)>, Vec<(u8, u32)>);

/// Serves a client's frames by the library, as they come in pieces of these lengths in turn.
async fn serve(sent: &[u8], pieces: &[usize]) -> Served {
    let (mut client, server) = duplex(1 << 20);
    let mut whole = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
    whole.extend_from_slice(sent);
    let (mut frames, mut ahead, mut at) = (Frames::new(), BytesMut::new(), 0);
    for length in pieces.iter().cycle() {
        let end = whole.len().min(at + length);
        ahead.extend_from_slice(&whole[at..end]);
        at = end;
        while let ready @ 1.. = frames.next(&mut ahead) {
            client.write_all(&ahead.split_to(ready)).await.unwrap();
            frames.shown(ready);
        }
        if at == whole.len() {
            break;
        }
    }
    let mut requests = Vec::new();
    let served = async {
        let mut options = server::Builder::new();
        options.max_local_error_reset_streams(None);
        let mut connection: server::Connection<_, Bytes> = options.handshake(server).await.unwrap();
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let (problem, is_whole) = (problem(request.headers()), request.body().is_end_stream());
            let fields =
                request.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
            requests.push((
                answer.stream_id().into(),
                Seen { path, fields: fields.collect(), problem, is_whole },
            ));
            // It may be reset already.
            let _ = answer.send_response(Response::new(()), true);
        }
    };
    // Time passes once nothing is left to do.
    let read = async {
        let (mut answered, mut buffer) = (Vec::new(), [0; 4_096]);
        while let Ok(Ok(count @ 1..)) = timeout(Duration::from_secs(1), client.read(&mut buffer)).await {
            answered.extend_from_slice(&buffer[..count]);
        }
        drop(client);
        answered
    };
    let ((), answered) = tokio::join!(served, read);
    let (mut rest, mut kinds) = (answered.as_slice(), Vec::new());
    while let [a, b, c, kind, _, stream @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        kinds.push((*kind, u32::from_be_bytes(*stream.first_chunk().unwrap())));
        rest = &rest[9 + length..];
    }
    (requests, kinds)
}

fn serve_now(sent: &[u8], pieces: &[usize]) -> Served {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(serve(sent, pieces))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head, in frames of at most so many bytes.
fn head(stream: u32, block: &[u8], longest: usize, flags: u8) -> Vec<u8> {
    let last = block.len().div_ceil(longest).max(1) - 1;
    let pieces = (0..=last).flat_map(|at| {
        let piece = &block[at * longest..block.len().min((at + 1) * longest)];
        let end = if at == last { 4 } else { 0 };
        let padded = [&[3, 0, 0, 0, 0, 200], piece, &[0, 0, 0]].concat();
        match at {
            0 if flags & 0x28 != 0 => frame(1, flags | end, stream, &padded),
            0 => frame(1, flags | end, stream, piece),
            _ => frame(9, end, stream, piece),
        }
    });
    pieces.collect()
}

fn field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Field {
    (name.as_ref().to_vec(), value.as_ref().to_vec())
}

/// A request's fields, one of which may be another.
fn request(path: &str, other: Option<Field>) -> Vec<(Field, u8)> {
    let usual = [(":method", "GET"), (":scheme", "http"), (":authority", "api.example"), (":path", path)];
    let mut fields: Vec<Field> = usual.iter().map(|(name, value)| field(name, value)).collect();
    if let Some(other) = other {
        match fields.iter_mut().find(|(name, _)| *name == other.0) {
            Some(same) => *same = other,
            None => fields.push(other),
        }
    }
    fields.into_iter().map(|field| (field, 4)).collect()
}

#[test]
fn what_no_request_has_is_refused_by_name_and_other_streams_go_on() {
    let long = "v".repeat(20_000) + "\u{1}";
    for (name, value, expected) in [
        ("x-a", &*long, Some(VALUE)),
        (":path", "/x?q=\u{ff}", None),
        (":path", "/x?q=#y", Some("the request target holds a fragment")),
        (":path", "/x?q=\"", Some("the request target holds a double quote in its query")),
        (":path", "/<", Some("the request target holds a less-than sign")),
        (":path", "/?>", Some("the request target holds a greater-than sign")),
        (":path", "/`", Some("the request target holds a backtick in its path")),
        (":path", "/ ", Some("the request target holds a blank or a control character")),
        (":path", "http://api.example/", Some("the request target is not a path")),
        (":authority", "a@b", Some(AUTHORITY)),
        (":authority", "[::1]:80", None),
        (":method", "G T", Some(METHOD)),
        (":scheme", "ht\u{1}p", Some(SCHEME)),
        ("x-a", "a\u{1}", Some(VALUE)),
        ("x-a", "\u{7f}", Some(VALUE)),
        ("x-a", "\u{ff}\t", None),
        ("x a", "", Some(NAME)),
        ("X-A", "a", Some(NAME)),
        (":protocol", "a", Some(PSEUDO)),
        (REFUSED, "a", Some(OURS)),
    ] {
        let mut encoder = Encoder::default();
        let mut sent = head(1, &encoder.block(&request("/one", None)), 99, 1);
        let odd = encoder.block(&request("/two", Some(field(name, value))));
        sent.extend(head(3, &odd, 99, 1));
        // The same again, by the table.
        let again = request("/two", Some(field(name, value))).into_iter().map(|(field, _)| (field, 1));
        sent.extend(head(5, &encoder.block(&again.collect::<Vec<_>>()), 99, 1));
        sent.extend(head(7, &encoder.block(&request("/four", None)), 99, 1));
        let (requests, kinds) = serve_now(&sent, &[16_384]);
        let problems: Vec<_> = requests.iter().map(|(stream, seen)| (*stream, seen.problem)).collect();
        assert_eq!(problems, [(1, None), (3, expected), (5, expected), (7, None)], "{name} {kinds:?}");
        assert_eq!((&*requests[0].1.path, &*requests[3].1.path), ("/one", "/four"));
        assert!(requests.iter().all(|(_, seen)| seen.is_whole), "{name}");
    }
}

#[test]
fn bytes_that_are_no_text_in_a_path_are_named() {
    let block = Encoder::default().block(&request("/", Some(field(":path", b"/x?q=\xff"))));
    let (requests, _) = serve_now(&head(1, &block, 99, 1), &[7]);
    assert_eq!(requests[0].1.problem, Some("the request target holds bytes that are not UTF-8"));
}

// threat: One client of a shared connection ends it for all
#[test]
fn what_no_trailer_has_resets_its_stream_alone() {
    let mut encoder = Encoder::default();
    let sent = [
        head(1, &encoder.block(&request("/one", None)), 99, 0),
        head(3, &encoder.block(&request("/two", None)), 99, 0),
        head(1, &encoder.block(&[(field("x-a", "\u{1}"), 4)]), 99, 1),
        head(3, &encoder.block(&[(field("x-b", "b"), 4)]), 99, 1),
        head(7, &encoder.block(&request("/four", None)), 99, 1),
    ];
    let (requests, kinds) = serve_now(&sent.concat(), &[16_384]);
    assert_eq!(requests.len(), 3);
    let resets: Vec<u32> = kinds.iter().filter(|(kind, _)| *kind == 3).map(|(_, stream)| *stream).collect();
    assert_eq!((resets, kinds.iter().any(|(kind, _)| *kind == 7)), (vec![1], false));
}

#[test]
fn a_block_that_cannot_be_decoded_ends_the_connection() {
    for broken in
        [&[0xff, 0xff, 0xff][..], &[0x80], &[0xbf], &[0x40, 0x81, 0], &[0x3f, 0xe2, 0x1f], &[0, 0, 0]]
    {
        let (requests, kinds) = serve_now(&head(1, broken, 99, 1), &[16_384]);
        assert!(requests.is_empty() && kinds.iter().any(|(kind, _)| *kind == 7), "{broken:?} {kinds:?}");
    }
}

#[test]
fn a_table_that_is_full_to_the_byte_keeps_its_oldest_entry() {
    let mut encoder = Encoder::default();
    let usual = || request("/", None).into_iter().map(|(field, _)| (field, 1));
    let (oldest, odd) = (field("x-a", "a"), field("X", "b\u{1}"));
    let last = field("x-b", "c".repeat(4_096 - (3 + 1 + 32) - (1 + 2 + 32) - (3 + 32)));
    let filled: Vec<_> = usual().chain([(oldest.clone(), 4), (odd, 4), (last, 4)]).collect();
    let named: Vec<_> = usual().chain([(oldest, 1)]).collect();
    let again = request("/#", None);
    let blocks = [filled, named, again].map(|fields| encoder.block(&fields));
    let sent: Vec<u8> =
        (0..).zip(blocks).flat_map(|(at, block)| head(2 * at + 1, &block, 9_000, 1)).collect();
    let (requests, _) = serve_now(&sent, &[16_384]);
    let problems: Vec<_> = requests.iter().map(|(_, seen)| seen.problem).collect();
    assert_eq!(problems, [Some(NAME), None, Some("the request target holds a fragment")]);
    assert_eq!(requests[1].1.fields, [("x-a".to_owned(), b"a".to_vec())]);
}

#[test]
fn a_long_name_that_is_named_again_and_again_is_not_written_again() {
    let mut block = Encoder::default().block(&[(field("X".repeat(4_000), "a"), 4)]);
    (0..4_000).for_each(|_| block.extend([0x0f, 62 - 15, 1, b'a', 0x0f, 62 - 15, 0]));
    let (mut frames, mut ahead) = (Frames::new(), BytesMut::from(&head(1, &block, 16_000, 1)[..]));
    frames.shown(usize::MAX);
    let before = ahead.len();
    assert!(frames.next(&mut ahead) < before + 4_000);
}

/// A request with text in place of a client's own is refused or reset, or the connection ends.
#[test]
fn text_that_nobody_sent_is_in_no_request() {
    let usual = |path: &str| {
        let fields = request(path, None).into_iter().map(|(field, _)| (field, 0));
        Encoder::default().block(&fields.collect::<Vec<_>>())
    };
    let with = |more: &[u8]| [usual("/"), more.to_vec()].concat();
    let unnamed = head(1, &with(b"\x40\x00\x03abc"), 999, 1);
    let broken = head(1, &with(b"\x40\x01x\x01\x01"), 999, 1);
    let without_path = head(1, b"\x82\x86\x44\x00", 999, 1);
    let without_method = head(1, b"\x42\x00\x86\x84", 999, 1);
    let (name, whole) = (head(3, &with(b"\x0f\x2f\x00"), 999, 1), head(5, &with(b"\xbe"), 999, 1));
    let value = head(3, &with(b"\x0f\x2f\x02/x"), 999, 1);
    let push = frame(5, 4, 1, &[&[0, 0, 0, 2][..], b"\x40\x03x-a\x01b"].concat());
    let on_itself = frame(1, 0x25, 3, &[&[0, 0, 0, 3, 9][..], &with(b"\x40\x01y\x01b")].concat());
    let interrupted = [frame(1, 0x20, 3, &[0, 0, 0, 3, 9]), frame(6, 0, 0, &[0; 8])].concat();
    for sent in [
        vec![&unnamed, &name, &whole],
        vec![&broken, &on_itself, &whole],
        vec![&broken, &interrupted, &whole],
        vec![&broken, &push, &whole],
        vec![&push, &whole],
        vec![&without_path, &value],
        vec![&without_method, &value],
    ] {
        let sent: Vec<u8> = sent.into_iter().flatten().copied().collect();
        let (requests, kinds) = serve_now(&sent, &[16_384]);
        for (stream, seen) in requests.iter().filter(|(_, seen)| seen.problem.is_none()) {
            let odd = seen.fields.iter().any(|(name, value)| name.contains('a') || value.contains(&b'a'));
            assert!(!odd, "{} {stream} {seen:?} {kinds:?}", sent.escape_ascii());
        }
    }
}

#[test]
fn a_stream_that_depends_on_itself_is_reset_alone() {
    let mut encoder = Encoder::default();
    let first = [&[0, 0, 0, 1, 9][..], &encoder.block(&request("/one", None))].concat();
    let again: Vec<_> = request("/one", None).into_iter().map(|(field, _)| (field, 1)).collect();
    let sent = [frame(1, 0x25, 1, &first), head(3, &encoder.block(&again), 99, 1)];
    let (requests, kinds) = serve_now(&sent.concat(), &[16_384]);
    let paths: Vec<_> = requests.iter().map(|(stream, seen)| (*stream, &*seen.path)).collect();
    assert_eq!((paths, kinds.contains(&(3, 1))), (vec![(3, "/one")], true));
}

#[test]
fn a_header_block_is_waited_for_up_to_its_longest() {
    let (mut frames, mut ahead) = (Frames::new(), BytesMut::new());
    frames.shown(usize::MAX);
    ahead.extend_from_slice(&frame(1, 0, 1, &[0; 16_384]));
    for _ in 0..7 {
        assert_eq!(frames.next(&mut ahead), 0);
        ahead.extend_from_slice(&frame(9, 0, 1, &[0; 16_384]));
    }
    assert_eq!(frames.next(&mut ahead), ahead.len());
}

#[test]
fn every_byte_has_the_code_of_rfc_7541() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let code = encode(&all);
    let hex: String = code.iter().map(|octet| format!("{octet:02x}")).collect();
    assert!(hex.starts_with("ffc7fffd8fffffe2fffffe3f") && hex.ends_with("fffff0fffffbbf"), "{hex}");
    for text in [&all[..], b"", b"a", b"www.example.com", b"0000000", b"\xff\x00"] {
        let mut read = b"before".to_vec();
        decode(&encode(text), &mut read).unwrap();
        assert_eq!(read, [b"before", text].concat());
    }
    // A padding of eight bits, one with a zero, and the code that means the end.
    for code in [&[0x1f, 0xff][..], &[0xf8, 0xff], &[0x1c], &[0xff; 4], &[0xff, 0xff, 0xff, 0xfc]] {
        assert!(matches!(decode(code, &mut Vec::new()), Err(Broken)), "{code:?}");
    }
}
