//! Requests that are given part by part.

use proptest::prelude::{ProptestConfig as Config, any, prop, proptest};

use crate::http1::fields::{Fields, SpanFields, Spans};
use crate::http1::head::head_from_parts;

type Part = (&'static str, &'static str);

fn is_read(line: [&str; 3], fields: &[Part]) -> bool {
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    head_from_parts(line.map(str::as_bytes), fields, &mut Spans::default()).is_ok()
}

// threat: The target that is judged is not the one that is forwarded
#[test]
fn a_part_holds_no_other_part() {
    assert!(is_read(["GET", "/a?b", "a.test"], &[("x-note", " y\tz ")]));
    for line in [
        ["", "/a", "a.test"],
        ["GET /b", "/a", "a.test"],
        ["GET /b HTTP/1.1\r\nX:", "/a", "a.test"],
        ["GET", "", "a.test"],
        ["GET", "a", "a.test"],
        ["GET", "/a b", "a.test"],
        ["GET", "/a#b", "a.test"],
        ["GET", "http://a.test/a", "a.test"],
        ["GET", "/a HTTP/1.1", "a.test"],
        ["GET", "/a HTTP/1.1\r\nX: y", "a.test"],
        ["GET", "/a HTTP/1.1\r\nHost: b\r\n\r\n", "a.test"],
        ["GET", "/a", "a.test\r\nX: y"],
        ["GET", "/a", "a.test\r\n\r\n"],
        ["GET", "/a", "b@a.test"],
        ["GET", "/a", "a.test\0"],
    ] {
        assert!(!is_read(line, &[]) && !is_read(line, &[("x", "y")]), "{line:?}");
    }
    for part in [
        ("", "y"),
        (" x", "y"),
        ("x ", "y"),
        ("x:", "y"),
        ("x: y\r\nz", "y"),
        ("x", "y\r\nz: y"),
        ("x", "y\r\n z"),
        ("x", "y\nz: y"),
        ("x", "y\r\n\r\n"),
        ("x", "\r\n"),
        ("x", "y\0"),
        ("Host", "b.test"),
        ("Content-Length", "1, 1"),
        ("Transfer-Encoding", "gzip"),
    ] {
        assert!(!is_read(["GET", "/a", "a.test"], &[part]), "{part:?}");
        assert!(!is_read(["GET", "/a", "a.test"], &[part, ("x-other", "y")]), "{part:?}");
    }
}

proptest! {
    #![proptest_config(Config::with_cases(2_000))]

    #[test]
    fn a_request_that_is_read_has_the_parts_that_were_told(
        line in any::<[String; 3]>(),
        target in "/[ -~\r\n]{0,8}",
        fields in prop::collection::vec(("[-a-z:\r\n ]{1,8}", "[ -~\r\n\0]{0,8}"), 0..4),
    ) {
        for line in [&line, &["GET".to_owned(), target, "a.test".to_owned()]] {
            let given = line.each_ref().map(String::as_bytes);
            let parts = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let mut spans = Spans::default();
            let Ok((text, head)) = head_from_parts(given, parts, &mut spans) else { continue };
            assert_eq!((&text[head.method], &text[head.target]), (given[0], given[1]));
            let read = SpanFields { head: &text, spans: &spans };
            let read: Vec<_> = read.all().skip(1).collect();
            let parts = fields.iter().map(|(name, value)| (name.as_bytes(), value.trim_matches([' ', '\t']).as_bytes()));
            assert_eq!(read, parts.collect::<Vec<_>>());
        }
    }
}
