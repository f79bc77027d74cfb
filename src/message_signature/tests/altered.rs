//! Requests that were altered after they were signed.

use http::HeaderMap;
use proptest::prelude::{any, prop, prop_assert, prop_assume, proptest};

use super::Request;
use crate::domain::{HostPattern, MessageRefusal, UnixSeconds};
use crate::message_signature::{ERC_8128, ERC_8128_UNTAGGED, Message, digest::BodyDigest};

/// Pieces of structured fields, of which a parser may make something.
const PIECES: [&str; 22] = [
    "request=",
    "a=",
    "(",
    ")",
    "\"@method\"",
    "\"@path\"",
    " ",
    ";",
    ",",
    "tag=\"erc8128\"",
    "created=1700000000",
    "expires=1700000060",
    "nonce=\"n\"",
    "keyid=\"eip155:1:0x7e5f4552091a69125d5dfcb7b8c2659029395bdf\"",
    ":AA==:",
    "?1",
    "1.5",
    "@1",
    "\"",
    "\\",
    "%\"%c3",
    "\u{e9}",
];

#[test]
fn the_request_itself_is_signed_whatever_order_its_fields_have() {
    assert!(Request::signed().is_signed());
    let mut other = Request::signed();
    other.fields.reverse();
    other.fields.push(("x-other".into(), "not signed".into()));
    assert!(other.is_signed());
    let twice = Request {
        fields: [Request::signed().fields, vec![("x-agent-id".into(), "7".into())]].concat(),
        ..Request::signed()
    };
    assert!(!twice.is_signed(), "a second line of a signed field is another value");
    let digest = |lines: [&str; 2]| {
        let lines = lines.map(|line| ("x-agent-id".to_owned(), line.to_owned()));
        let signed = Request::signed().field("x-agent-id", "");
        Request { fields: [&lines[..], &signed.fields].concat(), ..signed }.only().unwrap().digest
    };
    assert_ne!(digest(["b", "a"]), digest(["a", "b"]), "so are its lines in another order");
}

#[test]
fn the_port_of_the_scheme_and_capitals_are_no_other_authority() {
    let digest = |scheme: &str, authority: &str| {
        let request =
            Request { scheme: Some(scheme.into()), authority: authority.into(), ..Request::signed() };
        request.only().unwrap().digest
    };
    for (scheme, own, other) in [("https", ":443", ":80"), ("http", ":80", ":443")] {
        let right = digest(scheme, "api.example");
        for same in ["API.Example".to_owned(), format!("api.example{own}"), format!("API.example{own}")] {
            assert_eq!(digest(scheme, &same), right, "{scheme} {same}");
        }
        assert_ne!(digest(scheme, &format!("api.example{other}")), right, "{scheme}");
    }
    let padded = Request::signed().field("x-agent-id", "  7  ");
    assert!(padded.is_signed(), "blanks around a value are none of it");
    let spelled = Request { authority: "API.example:443".into(), ..Request::signed() };
    assert!(spelled.is_signed(), "so are capitals of a host and the scheme's own port");
}

// threat: What is signed for another service is sent on to us
#[test]
fn a_signature_counts_for_a_host_that_is_named_alone() {
    for (hosts, counts) in [
        ("api.example", true),
        ("other.example api.example", true),
        ("*.example", true),
        ("other.example", false),
        ("*.api.example", false),
        ("*.other.example", false),
        ("", false),
    ] {
        let hosts: Vec<_> =
            hosts.split_terminator(' ').map(|host| HostPattern::parse(host).unwrap()).collect();
        for authority in ["api.example", "API.Example", "api.example:443", "api.example:8443", "api.example."]
        {
            let request = Request { authority: authority.into(), ..Request::signed() };
            let fields = request.headers();
            let message = Message { hosts: Some(&hosts), ..request.message(&fields) };
            let found = message.candidates(&[&ERC_8128], &request.terms, UnixSeconds(request.now)).unwrap();
            assert_eq!(
                found.err(),
                (!counts).then_some(MessageRefusal::BadSignature),
                "{hosts:?} {authority}"
            );
        }
    }
}

/// The body of [`posted`].
const BODY: &str = r#"{"hello":"world"}"#;

/// A request with a body, of which each part is signed: a vector of `clients/erc8128.json`.
fn posted() -> Request {
    let covered =
        r#""@scheme" "@authority" "@method" "@path" "@query" "x-agent-id" "content-digest" "content-type""#;
    let signature =
        "acUTT56ibmfJVMukIOfST05DUAYYen+XXKk8a/U2XRtABeCh30wZfwJVplm+tVEI3Cr8lR2PHLn9NbvPgFeM0hs=";
    let request = Request { target: "/items?view=full".into(), ..Request::with_body() };
    let request = request.field("content-type", "application/json");
    request.with_signature(covered, "Dxb8JfJlxqAT0uaA9Ztj3A", signature)
}

/// True if this request with this body is what its account has signed.
fn is_signed_with(request: &Request, body: &str) -> bool {
    let digest = request.fields.iter().find(|(name, _)| name == "content-digest").unwrap();
    let headers = HeaderMap::from_iter([("content-digest".parse().unwrap(), digest.1.parse().unwrap())]);
    let Some(Ok(mut digest)) = BodyDigest::of(&headers) else { return false };
    digest.update(body.as_bytes());
    digest.matches() && request.is_signed()
}

/// The text with one byte changed to another printable one.
fn changed(text: &str, at: usize, to: u8) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    let place = at % bytes.len();
    bytes[place] = b'!' + to % 94;
    let other = String::from_utf8(bytes).unwrap();
    (other != text).then_some(other)
}

proptest! {
    // threat: A signed request is altered or sent again, or its body exchanged
    #[test]
    fn one_byte_that_differs_in_any_part_is_refused(part in 0_usize..10, at in any::<usize>(), to in any::<u8>()) {
        let (mut request, mut body) = (posted(), BODY.to_owned());
        prop_assert!(is_signed_with(&request, &body));
        let scheme = request.scheme.clone().unwrap();
        let other = |text: &str| changed(text, at, to);
        let is_changed = match part {
            0 => other(&request.method).map(|text| request.method = text),
            1 => other(&scheme).map(|text| request.scheme = Some(text)),
            // Capitals of a host are its letters.
            2 => other(&request.authority).filter(|text| !text.eq_ignore_ascii_case("api.example")).map(|text| request.authority = text),
            3 => other(&request.target).map(|text| request.target = text),
            4 => other(&body).map(|text| body = text),
            _ => {
                let (_, value) = &mut request.fields[part - 5];
                other(value).map(|text| *value = text)
            }
        };
        prop_assume!(is_changed.is_some());
        // Two texts may stand for one signature: the last bits of base64 are none of it, and labels mean nothing.
        prop_assume!(request.fields[part.saturating_sub(5)].0 != "signature" || part < 5 || !request.is_signed() || !same_bytes(&request, &posted()));
        prop_assert!(!is_signed_with(&request, &body), "{request:?} {body}");
    }

    #[test]
    fn whatever_stands_in_the_fields_is_judged_and_never_taken_for_signed(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..24),
        raw in "[ -~]{0,64}",
        field in 0_usize..3,
    ) {
        let name = ["signature-input", "signature", "content-digest"][field];
        for text in [pieces.concat(), raw] {
            let request = Request::signed().field(name, &text);
            if let Some(Ok((messages, _))) = request.read(&[&ERC_8128, &ERC_8128_UNTAGGED]) {
                prop_assert!(!messages.is_empty() && messages.len() <= 8);
                let is_signed = messages.iter().any(|one| one.signature.recover(&one.digest) == Some(one.account));
                let is_same = text.is_empty() || (name == "signature" && same_bytes(&request, &Request::signed()));
                prop_assert!(!is_signed || is_same, "{text}");
            }
        }
    }

    #[test]
    fn bytes_that_are_longer_or_shorter_are_refused(part in 0_usize..4, more in "[!-~]{1,8}", cut in 0_usize..8) {
        for is_longer in [true, false] {
            let mut request = Request::signed();
            let text = match part {
                0 => &mut request.method,
                1 => &mut request.authority,
                2 => &mut request.target,
                _ => &mut request.fields[0].1,
            };
            let original = text.clone();
            if is_longer { text.push_str(&more) } else { text.truncate(text.len().saturating_sub(cut + 1)) }
            // A port that is the scheme's own, and an empty query, are no other request.
            prop_assume!(*text != original && !["api.example:443", "/items?"].contains(&text.as_str()));
            prop_assert!(!request.is_signed(), "{request:?}");
        }
    }
}

/// True if `Signature` holds the same bytes.
fn same_bytes(request: &Request, other: &Request) -> bool {
    let bytes = |request: &Request| request.only().map(|message| message.signature.as_bytes().to_vec()).ok();
    bytes(request) == bytes(other)
}
