//! Request heads.

use proptest::prelude::{any, proptest};

use crate::http1::fields::{FIELDS_MAX, Problem, Spans, TOO_MANY_FIELDS};
use crate::http1::head::{end_of_head, read_answer, read_request};
use crate::http1::{Body, RequestHead, name::Name, tests::heads};

fn read(head: &str) -> Result<(RequestHead, Spans), Problem> {
    let mut fields = Spans::default();
    read_request(head.as_bytes(), &mut fields).map(|read| (read, fields))
}

fn with(header: &str) -> RequestHead {
    read(&format!("POST / HTTP/1.1\r\nHost: a\r\n{header}\r\n")).unwrap().0
}

#[test]
fn heads_that_mean_one_thing_pass() {
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /verify HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
        "POST /verify HTTP/1.1\r\nhost:a\r\nTRANSFER-ENCODING: Chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Tab: a\tb\r\nX-Utf8: \u{e9}\r\n\r\n",
    ] {
        assert!(read(head).is_ok(), "{head:?}");
    }
}

// threat: Request smuggling
#[test]
fn heads_that_two_readers_may_read_differently_are_refused() {
    for request in heads::ambiguous("/").iter().map(String::as_str).chain([""]) {
        let head = request.strip_suffix(heads::NO_CHUNKS).unwrap_or(request);
        assert!(read(head).is_err(), "{head:?}");
    }
}

#[test]
fn a_refusal_names_the_problem() {
    for (head, problem) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n", "the head does not end with an empty line"),
        ("GET /\r\n\r\n", "the request line does not have three parts"),
        ("GET\r\n\r\n", "the request line does not have three parts"),
        ("GET / HTTP/1.1 \r\n\r\n", "the request line does not have three parts"),
        ("G(T / HTTP/1.1\r\n\r\n", "the method is not a token"),
        ("GET  / HTTP/1.1\r\n\r\n", "the request target is empty or has blanks"),
        ("GET /\tx HTTP/1.1\r\n\r\n", "the request target is empty or has blanks"),
        ("GET a HTTP/1.1\r\n\r\n", "the request target is not a path"),
        ("OPTIONS *a HTTP/1.1\r\n\r\n", "the request target is not a path"),
        ("GET /#a HTTP/1.1\r\n\r\n", "the request target holds a fragment"),
        ("GET / HTTP/1.2\r\n\r\n", "the version is neither HTTP/1.1 nor HTTP/1.0"),
        ("GET / HTTP/1.1x\r\n\r\n", "the version is neither HTTP/1.1 nor HTTP/1.0"),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "a line ends with a bare LF"),
        ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", "a line ends with a bare LF"),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "there is a control character, or a bare CR"),
        ("GET / HTTP/1.1\r\nHost: a\x7f\r\n\r\n", "there is a control character, or a bare CR"),
        ("GET / HTTP/1.1\r\nX\0: a\r\n\r\n", "there is a control character, or a bare CR"),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "a header line is folded"),
        ("GET / HTTP/1.1\r\nHost\r\n\r\n", "a header line has no colon"),
        ("GET / HTTP/1.1\r\n\r\nHost: a\r\n\r\n", "a header line has no colon"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "a header name is not a token"),
        ("GET / HTTP/1.1\r\n: a\r\n\r\n", "a header name is not a token"),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "the Host header holds user info"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "there is more than one Host header"),
        ("GET / HTTP/1.1\r\n\r\n", "there is no Host header"),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 has no Transfer-Encoding"),
    ] {
        assert_eq!(read(head).unwrap_err(), problem, "{head:?}");
    }
}

#[test]
fn a_head_says_what_follows_it() {
    assert_eq!(with("").body, Body::Length(0));
    assert_eq!(with("content-length: 0012\r\n").body, Body::Length(12));
    assert_eq!(with("content-length: 9999999999999999999\r\n").body, Body::Length(9_999_999_999_999_999_999));
    assert_eq!(with("Transfer-Encoding: chunked\r\n").body, Body::Chunked);
    assert!(with("upgrade: h2c, WebSocket\r\n").upgrades && !with("upgrade: h2c\r\n").upgrades);
    let has_odd_target =
        |target: &str| read(&format!("GET {target} HTTP/1.0\r\n\r\n")).unwrap().0.has_odd_target;
    assert!(has_odd_target("/a\"b") && has_odd_target("/\u{e9}") && !has_odd_target("/a?b=%20"));
}

#[test]
fn a_connection_closes_with_http_1_0_or_the_option_close_in_any_line_and_spelling() {
    assert!(!with("").closes && !with("Connection: keep-alive, x-close\r\nX: close\r\n").closes);
    assert!(with("Connection: close\r\n").closes);
    assert!(with("Connection: te\r\ncOnnection: a ,, cLose\r\n").closes);
    assert!(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap().0.closes);
}

// threat: Huge or costly heads and bodies
#[test]
fn more_than_nine_options_of_connection_are_refused_empty_ones_too() {
    let head = |options: &str| {
        format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: a,b\r\nConnection: {options}\r\n\r\n")
    };
    for (commas, is_read) in [(6, true), (7, false), (30_000, false)] {
        for option in ["", "c", " "] {
            let options = vec![option; commas + 1].join(",");
            assert_eq!(read(&head(&options)).is_ok(), is_read, "{commas} commas and {option:?}");
        }
    }
}

#[test]
fn spans_point_at_names_and_values_without_the_blanks_around_them() {
    let head = "PUT /a?b HTTP/1.1\r\nhOST:a\r\nX-Empty: \t\r\nX-Two:\t a b \t \r\nx-api-KEY: k\r\n\r\n";
    let (read, fields) = read(head).unwrap();
    assert_eq!((&head[read.method], &head[read.target]), ("PUT", "/a?b"));
    let text = |range: &std::ops::Range<usize>| &head[range.clone()];
    let fields: Vec<_> =
        fields.iter().map(|field| (field.id, text(&field.name), text(&field.value))).collect();
    let expected = [
        (Name::Host, "hOST", "a"),
        (Name::Other, "X-Empty", ""),
        (Name::Other, "X-Two", "a b"),
        (Name::ApiKey, "x-api-KEY", "k"),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn more_fields_than_the_limit_are_refused() {
    let head = |fields: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(fields - 1));
    assert_eq!(read(&head(FIELDS_MAX)).unwrap().1.len(), FIELDS_MAX);
    assert_eq!(read(&head(FIELDS_MAX + 1)).unwrap_err(), TOO_MANY_FIELDS);
}

#[test]
fn the_fields_of_the_head_before_are_gone() {
    let mut fields = Spans::default();
    for _ in 0..2 {
        read_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut fields).unwrap();
        assert_eq!(fields.len(), 1);
    }
}

#[test]
fn a_method_and_a_name_are_tokens_and_a_target_has_no_blanks() {
    for byte in 0..=u8::MAX {
        let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_odd = byte >= 0x80 || b"\"<>[\\]^`{|}".contains(&byte);
        for length in 1..20 {
            for at in 0..length {
                let mut word = b"Ab-zZ0_y".repeat(3);
                word.truncate(length);
                word[at] = byte;
                let read = |parts: [&[u8]; 3]| read_request(&parts.concat(), &mut Spans::default());
                let method = read([b"", &word, b" / HTTP/1.0\r\n\r\n"]);
                assert_eq!(method.is_ok(), is_token, "method {}", word.escape_ascii());
                let name = read([b"GET / HTTP/1.0\r\n", &word, b": b\r\n\r\n"]);
                assert_eq!(
                    name.is_ok(),
                    is_token || (byte == b':' && at > 0),
                    "name {}",
                    word.escape_ascii()
                );
                let target = read([b"GET /", &word, b" HTTP/1.0\r\n\r\n"]);
                let is_refused = byte <= b' ' || byte == b'#' || byte == 0x7f;
                let expected = (!is_refused).then_some(is_odd);
                assert_eq!(target.ok().map(|read| read.has_odd_target), expected, "target {byte}");
            }
        }
    }
}

#[test]
fn control_characters_are_found_wherever_they_stand_in_a_value() {
    for byte in 0..=u8::MAX {
        let is_refused = byte != b'\t' && (byte < b' ' || byte == 0x7f);
        for length in 1..40 {
            for at in 0..length {
                // The neighbours are those that a wrong search of eight bytes at once mistakes.
                let mut value = [b" \x80\xff~\t!".as_slice(); 7].concat();
                value.truncate(length);
                value[at] = byte;
                let head = [b"GET / HTTP/1.0\r\nX:".as_slice(), &value, b"\r\n\r\n"].concat();
                assert_eq!(
                    read_request(&head, &mut Spans::default()).is_err(),
                    is_refused,
                    "{byte} {length} {at}"
                );
            }
        }
    }
}

#[test]
fn a_head_ends_at_its_first_empty_line_wherever_the_pieces_were_cut() {
    for (text, end) in [("a\r\n\r\nb", 5), ("a\n\nb\r\n\r\n", 3), ("a\r\nb\n\r\nc", 7)] {
        for searched in 0..end {
            assert_eq!(end_of_head(text.as_bytes(), searched), Some(end), "{text:?} {searched}");
        }
    }
    assert_eq!(end_of_head(b"a\r\nb\r\n\r", 0), None);
    for length in 0..100 {
        let text = format!("{}\r\n\r\n{}", "a\r".repeat(length / 2), "b".repeat(length));
        let end = length / 2 * 2 + 4;
        assert_eq!(end_of_head(text.as_bytes(), 0), Some(end));
        assert_eq!(end_of_head(&text.as_bytes()[..end - 1], 0), None);
    }
    assert_eq!(end_of_head(b"", 9), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(head in any::<Vec<u8>>(), searched in 0_usize..99, is_to_head in any::<bool>()) {
        let mut fields = Spans::default();
        let begins: [&[u8]; 3] = [b"", b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"];
        for head in begins.map(|begin| [begin, &head, b"\r\n\r\n"].concat()).into_iter().chain([head]) {
            let _ = read_request(&head, &mut fields);
            let _ = read_answer(&head, is_to_head, &mut fields);
            let _ = end_of_head(&head, searched);
        }
    }
}
