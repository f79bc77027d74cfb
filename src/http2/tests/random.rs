//! Random requests.

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue, Method};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;

use crate::http2::tests::{Field, Seen, field, head, serve_now};
use crate::http2::{REFUSED, tests::encoder::Encoder};

/// True if the types of the library's take a field.
fn is_taken((name, value): &Field) -> bool {
    let value_text = std::str::from_utf8(value);
    match &name[..] {
        b":path" => {
            value_text.is_ok_and(|path| path.parse::<PathAndQuery>().is_ok_and(|read| read.as_str() == path))
        }
        b":authority" => {
            value_text.is_ok_and(|text| !text.contains('@') && text.parse::<Authority>().is_ok())
        }
        b":method" => Method::from_bytes(value).is_ok(),
        b":scheme" => *value == b"http",
        _ => {
            name != REFUSED.as_bytes()
                && HeaderName::from_lowercase(name).is_ok()
                && HeaderValue::from_bytes(value).is_ok()
        }
    }
}

fn odd_field() -> impl Strategy<Value = Field> {
    let names =
        vec!["x-a", "x-bc", "cookie", "user-agent", "X-A", "x y", "x\u{7f}", ":status", ":odd", REFUSED];
    let values = prop_oneof![
        8 => select(vec!["", "a", "longer than most", "\u{ff}"]).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..9),
        1 => (0..3_000_usize).prop_map(|length| vec![b'l'; length]),
    ];
    (select(names), values).prop_map(|(name, value)| field(name, value))
}

fn odd_request() -> impl Strategy<Value = Vec<(Field, u8)>> {
    let path = prop_oneof![
        4 => select(vec!["/", "/a", "/a?b=c"]).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..5).prop_map(|rest| [b"/", &rest[..]].concat()),
        1 => vec(any::<u8>(), 0..5).prop_map(|rest| [b"/?", &rest[..]].concat()),
    ];
    let method = select(vec!["GET", "GET", "PUT", "G T"]);
    let authority = select(vec!["api.example", "api.example", "a@b", "a<", "b:80"]);
    let others = (vec(odd_field(), 0..5), vec(any::<u8>(), 9));
    (path, method, authority, others).prop_map(|(path, method, authority, (others, how))| {
        let first = [field(":method", method), field(":scheme", "http"), field(":authority", authority)];
        // A pseudo-header may not stand behind others.
        let mut fields = first.to_vec();
        fields.push(field(":path", path));
        fields.extend(others);
        fields.into_iter().zip(how).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // threat: One client of a shared connection ends it for all
    #[test]
    fn requests_arrive_as_they_were_sent_or_are_refused_and_the_connection_goes_on(
        requests in vec((odd_request(), select(vec![1_u8, 0x29]), 20..20_000_usize), 1..9),
        pieces in vec(1..5_000_usize, 1..5),
    ) {
        let (mut encoder, mut sent, mut stream) = (Encoder::default(), Vec::new(), 1);
        for (fields, flags, longest) in &requests {
            if *flags == 1 && *longest < 10_000 {
                encoder.shrink();
            }
            sent.extend(head(stream, &encoder.block(fields), (*longest).min(16_000), *flags));
            stream += 2;
        }
        let (served, kinds) = serve_now(&sent, &pieces);
        prop_assert!(!kinds.iter().any(|(kind, _)| *kind == 7), "the connection ended: {kinds:?} {:?}", requests.iter().map(|(fields, ..)| fields.iter().map(|((name, value), how)| format!("{}: {} {how}", name.escape_ascii(), value.escape_ascii())).collect::<Vec<_>>()).collect::<Vec<_>>());
        let mut served = served.into_iter().peekable();
        for ((fields, ..), stream) in requests.into_iter().zip((1..).step_by(2)) {
            let seen = served.next_if(|(of, _)| *of == stream).map(|(_, seen)| seen);
            if fields.iter().all(|(field, _)| is_taken(field)) {
                let (_, path) = &fields[3].0;
                let mut expected: Vec<(String, Vec<u8>)> = fields[4..].iter()
                    .map(|((name, value), _)| (String::from_utf8(name.clone()).unwrap(), value.clone())).collect();
                prop_assert!(seen.is_some(), "no request on {stream}: {kinds:?}, {fields:?}");
 let mut seen = seen.unwrap();
                // A map of headers keeps the order of each name's values alone.
                expected.sort_by(|one, other| one.0.cmp(&other.0));
                seen.fields.sort_by(|one, other| one.0.cmp(&other.0));
                prop_assert_eq!(seen, Seen { path: String::from_utf8(path.clone()).unwrap(), fields: expected, problem: None, is_whole: true });
            } else {
                let is_reset = kinds.contains(&(3, stream));
                prop_assert!(seen.map_or(is_reset, |seen| seen.problem.is_some()), "{fields:?}");
            }
        }
    }
}
