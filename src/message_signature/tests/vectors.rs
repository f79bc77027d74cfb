//! Vectors that others have published: of ERC-8128, RFC 9421 and RFC 9530.

use alloy::primitives::{Address, b256};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use sfv::{Dictionary, ListEntry, Parser};

use super::{ACCOUNT, NOW, Request, TERMS};
use crate::domain::UnixSeconds;
use crate::message_signature::{
    Content, ERC_8128, Message, Profile, candidates::Components, digest::BodyDigest,
};

/// The base of the signature with the label `sig`, for a request of RFC 9421's own tests.
fn base(input: &str, fields: &[(&'static str, &str)]) -> String {
    let headers: HeaderMap =
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let message = Message {
        method: "POST",
        scheme: Some("https"),
        authority: "EXAMPLE.com:443",
        hosts: None,
        target: b"/foo?param=Value&Pet=dog",
        fields: &headers,
        content: Content::Follows,
    };
    let inputs: Dictionary = Parser::new(input).parse().unwrap();
    let ListEntry::InnerList(covered) = &inputs["sig"] else { panic!("{input}") };
    String::from_utf8(Components::of(&message).base(covered).unwrap()).unwrap()
}

/// Section B.2 of RFC 9421.
const FIELDS: [(&str, &str); 4] = [
    ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
    ("content-type", "application/json"),
    (
        "content-digest",
        "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
    ),
    ("content-length", "18"),
];

#[test]
fn a_base_is_the_one_that_rfc_9421_signs_with_its_shared_secret() {
    let input = r#"sig=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#;
    let secret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &BASE64_STANDARD.decode(secret).unwrap());
    let signature = BASE64_STANDARD.decode("pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=").unwrap();
    ring::hmac::verify(&key, base(input, &FIELDS).as_bytes(), &signature).unwrap();
}

#[test]
fn a_base_of_all_components_is_that_of_rfc_9421() {
    let input = r#"sig=("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss""#;
    let expected = [
        r#""date": Tue, 20 Apr 2021 02:07:55 GMT"#,
        r#""@method": POST"#,
        r#""@path": /foo"#,
        r#""@query": ?param=Value&Pet=dog"#,
        r#""@authority": example.com"#,
        r#""content-type": application/json"#,
        r#""content-digest": sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"#,
        r#""content-length": 18"#,
        r#""@signature-params": ("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss""#,
    ];
    assert_eq!(base(input, &FIELDS), expected.join("\n"));
    // What stands between the parts is no part of the base: it is written anew.
    let spread = input.replace(" \"@path\"", "   \"@path\"").replace(";created", "; created");
    assert_eq!(base(&spread, &FIELDS), expected.join("\n"));
}

#[test]
fn lines_of_one_field_are_joined_and_lose_the_blanks_around_them() {
    let fields = [
        ("x-ows", "  Leading and trailing whitespace.  "),
        ("cache-control", "max-age=60"),
        ("cache-control", "   must-revalidate"),
        ("example-dict", " a=1,    b=2;x=1;y=2,   c=(a   b   c)"),
        ("x-empty", ""),
    ];
    let input = r#"sig=("x-ows" "cache-control" "example-dict" "x-empty" "@target-uri" "@scheme")"#;
    let expected = [
        r#""x-ows": Leading and trailing whitespace."#,
        r#""cache-control": max-age=60, must-revalidate"#,
        r#""example-dict": a=1,    b=2;x=1;y=2,   c=(a   b   c)"#,
        r#""x-empty": "#,
        r#""@target-uri": https://example.com/foo?param=Value&Pet=dog"#,
        r#""@scheme": https"#,
        r#""@signature-params": ("x-ows" "cache-control" "example-dict" "x-empty" "@target-uri" "@scheme")"#,
    ];
    assert_eq!(base(input, &fields), expected.join("\n"));
}

/// Without the field that names the agent, as ERC-8128 has it.
fn plain() -> Profile {
    Profile { always: &["@scheme", "@authority", "@method", "@path", "@query"], ..ERC_8128 }
}

#[test]
fn the_vectors_of_erc_8128_are_signed_by_their_account() {
    let base = r#""@scheme" "@authority" "@method" "@path" "@query""#;
    let with_body = format!(r#"{base} "content-digest" "content-type""#);
    let posted = Request {
        method: "POST".into(),
        target: "/items?view=full".into(),
        content: Content::Follows,
        ..Request::signed()
    };
    let posted = posted
        .field("content-type", "application/json")
        .field("content-digest", "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:")
        .with_signature(
            &with_body,
            "EjRWeJCrze8BI0VniavN7w",
            "/BpEToskxkMJ65uRmaNUPiBwbwwg6z3CxEDJJwEYREIx1Hwn85Z1L8XlRpILGx4q80yeiNugYzaUsVPWiPcB0Bs=",
        );
    let bare = Request::signed().field("x-agent-id", "").with_signature(
        base,
        "AAAAAAAAAAAAAAAAAAAAAA",
        "lQourqdn3yEK4M7sO9Dvguh/2AfaNOtnx9NgfUfKSkgyBQqwZyQifk3IEkbF2SrwwdEUxYVtssqYXOyFubviehw=",
    );
    for (request, profile, digest) in [
        (posted, &plain(), b256!("a7a6074cd2ab23379c04a8839a3566e98689326367a0ad9cd8ef389a961f96de")),
        (bare, &plain(), b256!("315dece7c9b06123e9e6fb6273829c10507e422d644d5cd20986d72def2d2cc1")),
        (
            Request::signed(),
            &ERC_8128,
            b256!("0fbf105585e9378bf3f2ce61e17a97f33b0459ff7ffdb4b04db1b603920b35fe"),
        ),
    ] {
        let (messages, _) = request.read(&[profile]).unwrap().unwrap();
        let [message] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(message.digest, digest);
        assert_eq!(message.account, ACCOUNT.parse::<Address>().unwrap());
        assert_eq!(message.signature.recover(&digest), Some(message.account));
        assert_eq!(message.claim.signed_at, UnixSeconds(1_700_000_000));
    }
    assert_eq!((TERMS.chain_id, NOW), (1, 1_700_000_001));
}

#[test]
fn a_body_is_told_from_others_by_the_digests_of_rfc_9530_and_rfc_9421() {
    let digests = |value: &str| {
        let headers = HeaderMap::from_iter([("content-digest".parse().unwrap(), value.parse().unwrap())]);
        BodyDigest::of(&headers).unwrap()
    };
    let matches = |value: &str, body: &str| {
        let mut digest = digests(value).unwrap();
        body.as_bytes().chunks(5).for_each(|piece| digest.update(piece));
        digest.matches()
    };
    let of_9530 = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
    let of_9421 = FIELDS[2].1;
    assert!(matches(of_9530, "{\"hello\": \"world\"}\n") && matches(of_9421, "{\"hello\": \"world\"}"));
    assert!(!matches(of_9530, "{\"hello\": \"world\"}") && !matches(of_9421, "{\"hello\": \"world\"}\n"));
    // Each digest that is known has to match, and others are passed over.
    assert!(!matches(&format!("{of_9530}, {of_9421}"), "{\"hello\": \"world\"}\n"));
    assert!(matches(&format!("md5=:AAAA:, {of_9421}, unixsum=1"), "{\"hello\": \"world\"}"));
    for unusable in
        ["", "md5=:AAAA:", "sha-256=:AAAA:", "sha-256=1", "sha-256=(:AAAA:)", "sha-256", "=", "a=\""]
    {
        assert!(digests(unusable).is_err(), "{unusable}");
    }
    assert!(digests(&format!("{of_9530}, sha-512=:AAAA:")).is_err());
    assert!(BodyDigest::of(&HeaderMap::new()).is_none());
}
