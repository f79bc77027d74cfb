//! Which patterns take which paths, and how far apart the readings of a path are found to lie.

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};

use super::{DECODINGS_MAX, PATH_BYTES_MAX, PATTERN_BYTES_MAX, PathForm, PathPattern, read};

fn takes(pattern: &str, path: &str) -> bool {
    PathPattern::parse(pattern).unwrap().matches(path.as_bytes())
}

#[test]
fn a_pattern_without_a_star_takes_whole_segments() {
    for (pattern, taken, left) in [
        ("/v1", ["/v1", "/v1/", "/v1/x"], ["/v10", "/v", "/x/v1"]),
        ("/v1/", ["/v1", "/v1/", "/v1/x"], ["/v10", "/", "/V1"]),
        ("/", ["/", "/x", "/x/y"], ["", "x", "*"]),
        ("/a/b", ["/a/b", "/a/b/", "/a/b/c"], ["/a", "/a/", "/a/bc"]),
    ] {
        assert!(taken.into_iter().all(|path| takes(pattern, path)), "{pattern}");
        assert!(!left.into_iter().any(|path| takes(pattern, path)), "{pattern}");
    }
}

#[test]
fn a_star_stays_in_its_segment_unless_it_is_the_last_one() {
    for (pattern, taken, left) in [
        ("/public/*", ["/public/", "/public/x", "/public/x/y"], ["/public", "/publicx", "/x/public/"]),
        ("/*", ["/", "/x", "/x/y"], ["", "x", "*"]),
        ("/a/*/c", ["/a/b/c", "/a//c", "/a/xyz/c"], ["/a/c", "/a/b/c/d", "/a/b/x/c"]),
        ("/a*", ["/a", "/ab", "/a%2fb"], ["/a/", "/a/b", "/b"]),
        ("/*.js", ["/.js", "/a.js", "/a.js.js"], ["/a.jsx", "/a/b.js", "/a.js/"]),
        ("/*a*b", ["/ab", "/xaxb", "/aabab"], ["/ba", "/a/b", "/abx"]),
        ("/v*/x/*", ["/v1/x/", "/v/x/y", "/v2/x/y/z"], ["/v1/x", "/v1/y/x/", "/v1//x/"]),
        ("/a*0", ["/a0", "/a%200", "/a00"], ["/a%20", "/a%2", "/a%40"]),
    ] {
        assert!(taken.into_iter().all(|path| takes(pattern, path)), "{pattern}");
        assert!(!left.into_iter().any(|path| takes(pattern, path)), "{pattern}");
    }
}

#[test]
fn what_only_an_ambiguous_path_could_match_is_not_a_pattern() {
    let long = format!("/{}", "a".repeat(PATTERN_BYTES_MAX));
    for pattern in [
        "", "a", "*", "a/b", "//", "/a//b", "/.", "/..", "/a/../b", "/a./b", "/a.", "/*.", "/a;b", "/a%20b",
        "/a\\b", "/a b", "/a?b", "/a#b", "/\u{fc}", "/a\0", &long,
    ] {
        assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
    }
    for pattern in ["/", "/*", "/.well-known/*", "/v1/models/*:predict", "/@scope", "/a..b", "/~me/(x)"] {
        assert!(PathPattern::parse(pattern).is_ok(), "{pattern}");
    }
}

#[test]
fn what_every_server_reads_the_same_is_plain() {
    for path in
        ["/", "/a", "/a/", "/.well-known/x", "/a..b/c", "/..a", "/me@example.com", "/a*b", "/{id}", "/a=b&c"]
    {
        assert_eq!(read(path.as_bytes()), PathForm::Plain, "{path}");
    }
}

#[test]
fn needless_escapes_and_text_beyond_ascii_change_no_segment() {
    for (path, decoded) in [
        ("/me%40example.com", "/me@example.com"),
        ("/did%3Aweb%3ax", "/did:web:x"),
        ("/%61%62", "/ab"),
        ("/%7Eme", "/~me"),
        ("/a%20b", "/a b"),
        ("/J%C3%BCrgen", "/J\u{fc}rgen"),
        ("/J\u{fc}rgen", "/J\u{fc}rgen"),
        ("/a%2Eb", "/a.b"),
    ] {
        assert_eq!(read(path.as_bytes()), PathForm::Escaped(decoded.into()), "{path}");
    }
}

#[test]
fn other_segments_for_other_servers_are_ambiguous() {
    for (path, normal) in [
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a/b//", "/a/b/"),
        ("/a%2fb", "/a/b"),
        ("/a%2Fb", "/a/b"),
        ("/a%252fb", "/a/b"),
        ("/a%25252fb", "/a/b"),
        ("/a%5cb", "/a/b"),
        ("/a\\b", "/a/b"),
        ("/a;x=1/b", "/a/b"),
        ("/a%3bx/b", "/a/b"),
        ("/;x/a", "/a"),
        ("/a/;x", "/a/"),
        ("/a%3fx/b", "/a"),
        ("/a%23/b", "/a"),
        ("/a./b.", "/a/b"),
        ("/a%2e/b", "/a/b"),
        ("/%20a%20/b", "/a/b"),
        ("/100%25", "/100%"),
        ("/a%2541", "/aA"),
    ] {
        assert_eq!(read(path.as_bytes()), PathForm::Ambiguous(normal.into()), "{path}");
    }
}

#[test]
fn dot_segments_in_any_disguise_lead_anywhere() {
    for path in [
        "/a/../b",
        "/a/./b",
        "/..",
        "/.",
        "/../a",
        "/a/..",
        "/%2e%2e/b",
        "/%2E%2e",
        "/.%2e/b",
        "/%252e%252e/b",
        "/%25%32%65%2e/b",
        "/a%2f..%2fb",
        "/a%2f%2e%2e%2fb",
        "/a%5c..%5cb",
        "/a\\..\\b",
        "/a/..;/b",
        "/a/..;x=1/b",
        "/a;../b",
        "/a/%2e%2e%3b/b",
        "/a/..%3fx",
        "/a/..%23x",
        "/a/...",
        "/a/..%20/b",
        "/a/%20../b",
        "/a/. ./b",
    ] {
        let path = path.replace(' ', "%20");
        assert_eq!(read(path.as_bytes()), PathForm::Anywhere, "{path}");
    }
}

#[test]
fn overlong_forms_and_unclear_parameters_lead_anywhere() {
    for path in [
        "/%c0%ae%c0%ae/b",
        "/a%c0%afb",
        "/a%e0%80%afb",
        "/%ff",
        "/a%25c0%25af",
        "/J%FCrgen",
        "/a;x%2fb/c",
        "/a;x%3f/c",
        "/a;x%5cb/c",
        "/a;x\\b/c",
        "/a%253bx/c",
    ] {
        assert_eq!(read(path.as_bytes()), PathForm::Anywhere, "{path}");
    }
    assert_eq!(read(b"/a\xc0\xafb"), PathForm::Anywhere);
}

#[test]
fn what_is_no_path_is_refused() {
    for path in [
        "",
        "*",
        "a",
        "http://a/b",
        "/a b",
        "/a\0",
        "/a\tb",
        "/a%00",
        "/a%00.js",
        "/a%2500",
        "/a%0d%0ab",
        "/a%7f",
        "/a?b",
        "/a#b",
        "/public#/../admin",
        "/a%",
        "/a%2",
        "/a%zz",
        "/%u002e",
        "/%2%65",
        "/a%%41",
    ] {
        assert_eq!(read(path.as_bytes()), PathForm::Invalid, "{path:?}");
    }
}

// threat: Huge or costly heads and bodies
#[test]
fn paths_at_their_limits_are_read_and_beyond_them_refused() {
    let path = |bytes: usize| format!("/{}", "a".repeat(bytes - 1));
    assert_eq!(read(path(PATH_BYTES_MAX).as_bytes()), PathForm::Plain);
    assert_eq!(read(path(PATH_BYTES_MAX + 1).as_bytes()), PathForm::Invalid);

    let layers = |rounds: usize| format!("/%{}41", "25".repeat(rounds - 1));
    assert_eq!(read(layers(DECODINGS_MAX).as_bytes()), PathForm::Ambiguous(b"/A".into()));
    assert_eq!(read(layers(DECODINGS_MAX + 1).as_bytes()), PathForm::Invalid);
}

/// Tries every length of every star.
fn reference(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        b"*" if path.is_empty() => true,
        [b'*', rest @ ..] => {
            reference(rest, path)
                || match path {
                    [b'/', ..] | [] => false,
                    [b'%', _, _, others @ ..] => reference(pattern, others),
                    [_, others @ ..] => reference(pattern, others),
                }
        }
        [wanted, rest @ ..] => {
            matches!(path, [first, others @ ..] if first == wanted && reference(rest, others))
        }
    }
}

/// The same for a whole pattern, with what a final `/*` and the lack of a `*` mean.
fn reference_matches(pattern: &str, path: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let heads = (0..=path.len()).map(|end| path.split_at(end));
    if let Some(folder) = pattern.strip_suffix(b"/*") {
        let folder = [folder, b"/"].concat();
        return heads.into_iter().any(|(head, _)| reference(&folder, head));
    }
    if pattern.contains(&b'*') {
        return reference(pattern, path);
    }
    let prefix = pattern.strip_suffix(b"/").unwrap_or(pattern);
    heads
        .into_iter()
        .any(|(head, rest)| head == prefix && (rest.starts_with(b"/") || (rest.is_empty() && prefix != b"")))
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("/"), Just("%41"), Just("."), Just("4"), Just("1")]
}

proptest! {
    #[test]
    fn a_pattern_agrees_with_trying_every_length_of_every_star(
        pattern in "(/[ab41*]{0,4}){1,4}",
        pieces in vec(piece(), 0..12),
    ) {
        let path = format!("/{}", pieces.concat());
        if let Ok(parsed) = PathPattern::parse(&pattern) {
            prop_assert_eq!(parsed.matches(path.as_bytes()), reference_matches(&pattern, path.as_bytes()));
        }
    }

    #[test]
    fn no_path_is_too_strange_to_be_read(path in vec(any::<u8>(), 0..64), pattern in any::<String>()) {
        let path = [b"/", path.as_slice()].concat();
        let _ = read(&path);
        if let Ok(pattern) = PathPattern::parse(&pattern) {
            let _ = pattern.matches(&path);
            let _ = pattern.may_match(&path);
        }
    }

    #[test]
    fn a_normal_form_is_its_own_normal_form(pieces in vec(prop_oneof![piece(), Just("//"), Just(";"), Just("%2f")], 0..12)) {
        let path = format!("/{}", pieces.concat());
        if let PathForm::Ambiguous(normal) = read(path.as_bytes()) {
            prop_assert!(matches!(read(&normal), PathForm::Plain));
        }
    }
}
