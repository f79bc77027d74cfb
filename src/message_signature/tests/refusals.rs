//! Each refusal by its name, from one request that is right.

use super::{ACCOUNT, MessageRefusal, Request, UNVERIFIED};
use crate::message_signature::{Content, ERC_8128, ERC_8128_UNTAGGED, Message, Terms};

#[test]
fn a_request_without_a_signature_is_told_from_one_that_lacks_a_part() {
    let bare = Request::signed().field("signature", "").field("signature-input", "");
    assert!(bare.read(&[&ERC_8128]).is_none());
    assert_eq!(Request::signed().field("signature", "").refusal(), "signature_missing");
    assert_eq!(Request::signed().field("signature-input", "").refusal(), "signature_missing");
}

#[test]
fn signature_fields_that_are_no_dictionaries_are_signature_input_invalid() {
    for (name, value) in [
        ("signature-input", "request=("),
        ("signature-input", "request=(\"a\"b)"),
        ("signature-input", "Request=()"),
        ("signature-input", "request=();created=1.."),
        ("signature", "request=:AA"),
        ("signature", "request=:A?:"),
        ("signature", "\u{e9}"),
    ] {
        assert_eq!(Request::signed().field(name, value).refusal(), "signature_input_invalid", "{value}");
    }
    for bytes in ["other=:AA==:", "request", "request=\"a\"", "request=(:AA==:)"] {
        assert_eq!(
            Request::signed().field("signature", bytes).refusal(),
            "signature_input_invalid",
            "{bytes}"
        );
    }
    for (bytes, refusal) in [
        (String::new(), MessageRefusal::BadSignature),
        (format!("{}==", "A".repeat(86)), MessageRefusal::Compact),
    ] {
        let request = Request::signed().field("signature", &format!("request=:{bytes}:"));
        assert_eq!(request.only().unwrap_err(), refusal, "shorter ones than a key's count nowhere");
    }
    for twice in ["\"@method\" \"@method\"", "@method", "1"] {
        let request = Request::signed().input("\"@method\"", twice);
        assert!(["signature_input_invalid"].contains(&request.refusal()), "{twice}");
    }
}

#[test]
fn what_is_too_long_is_signature_too_large() {
    let long = "a".repeat(16 * 1024);
    let too_large = [
        Request::signed().input("request=(", &format!("request=(\"{long}\" ")),
        Request::signed().edit("signature", "request", &format!("x=\"{long}\", request")),
        Request::signed().field("signature", &format!("request=:{}:", "AAAA".repeat(2_731))),
        Request::signed().input("\"@query\"", &(0..32).map(|n| format!("\"x-{n}\" ")).collect::<String>()),
        Request::signed()
            .input(";tag", &(0..16).map(|n| format!(";p{n}")).chain([";tag".into()]).collect::<String>()),
        Request::signed()
            .input("", &(0..8).map(|n| format!("s{n}=();tag=\"erc8128\", ")).collect::<String>()),
    ];
    for (at, request) in too_large.iter().enumerate() {
        assert_eq!(request.refusal(), "signature_too_large", "{at}");
    }
    // The greatest that pass.
    let parameters: String = (0..11).map(|n| format!(";p{n}")).collect();
    let components: String = (0..25).map(|n| format!("\"@x{n}\" ")).collect();
    for request in [
        Request::signed().field("signature", &format!("request=:{}:", "AAAA".repeat(2_730))),
        Request::signed().input(";tag", &format!("{parameters};tag")),
        Request::signed().input("\"@query\"", &format!("\"@query\" {components}")),
    ] {
        assert_ne!(request.only().err().map(|refusal| refusal.code()), Some("signature_too_large"));
    }
}

#[test]
fn a_signature_with_another_tag_is_no_acceptable_signature() {
    for tag in [";tag=\"erc8128-delegated\"", ";tag=erc8128", ";tag", "", ";tag=\"erc8128\";tag=\"other\""] {
        let request = Request::signed().input(";tag=\"erc8128\"", tag);
        assert_eq!(request.refusal(), "no_acceptable_signature", "{tag}");
    }
    assert_eq!(Request::signed().field("signature-input", "request=1").refusal(), "no_acceptable_signature");
    // The label means nothing.
    let relabelled = Request::signed().input("request", "x").edit("signature", "request", "x");
    assert!(relabelled.is_signed());
}

#[test]
fn an_account_is_named_in_one_form() {
    let name = format!("\"eip155:1:{ACCOUNT}\"");
    let capitals = ACCOUNT.to_uppercase().replace("0X", "0x");
    for other in [
        format!("\"eip155:01:{ACCOUNT}\""),
        format!("\"eip155::{ACCOUNT}\""),
        format!("\"eip155:0:{ACCOUNT}\""),
        format!("\"eip155:+1:{ACCOUNT}\""),
        format!("\"eip155:{}:{ACCOUNT}\"", "1".repeat(33)),
        format!("\"erc8128:1:{ACCOUNT}\""),
        format!("\"eip155:1:{ACCOUNT}0\""),
        format!("\"eip155:1:{capitals}\""),
        format!("\"eip155:1:{}\"", ACCOUNT.replace("0x", "0X")),
        format!("\"eip155:1:{}\"", ACCOUNT.replace("0x", "")),
        format!(":{}:", "AAAA"),
        "1".to_owned(),
    ] {
        assert_eq!(Request::signed().input(&name, &other).refusal(), "invalid_keyid", "{other}");
    }
    assert_eq!(Request::signed().input(&format!(";keyid={name}"), "").refusal(), "invalid_keyid");
    for chain in ["2", "10", "11155111", "18446744073709551617"] {
        let request = Request::signed().input(&name, &format!("\"eip155:{chain}:{ACCOUNT}\""));
        assert_eq!(request.refusal(), "unsupported_chain", "{chain}");
    }
}

#[test]
fn times_are_judged_at_their_edges() {
    for (from, to) in [
        ("created=1700000000", "other=1"),
        (";expires=1700000060", ""),
        ("created=1700000000", "created=\"1700000000\""),
        ("created=1700000000", "created=1700000000.0"),
        ("created=1700000000", "created=@1700000000"),
        ("created=1700000000", "created=-1"),
        ("expires=1700000060", "expires=1700000000"),
        ("expires=1700000060", "expires=1699999999"),
    ] {
        assert_eq!(Request::signed().input(from, to).refusal(), "invalid_time", "{to}");
    }
    let at = |now| Request { now, ..Request::signed() };
    assert_eq!(at(1_699_999_969).refusal(), "request_not_yet_valid");
    assert!(at(1_699_999_970).is_signed() && at(1_700_000_090).is_signed());
    assert_eq!(at(1_700_000_091).refusal(), "request_expired");
    let longer = Request::signed().input("expires=1700000060", "expires=1700000061");
    assert_eq!(longer.refusal(), "request_validity_too_long");
}

#[test]
fn a_nonce_is_a_text_and_must_be_there() {
    let nonce = "nonce=\"AAAAAAAAAAAAAAAAAAAAAQ\"";
    for other in ["nonce=AAAA", "nonce=1", "nonce", &format!("nonce=\"{}\"", "a".repeat(129))] {
        assert_eq!(Request::signed().input(nonce, other).refusal(), "invalid_nonce", "{other}");
    }
    let longest = Request::signed().input(nonce, &format!("nonce=\"{}\"", "a".repeat(128)));
    assert!(longest.only().is_ok());
    assert_eq!(Request::signed().input(&format!(";{nonce}"), "").refusal(), "nonce_required");
    let nonces = [Request::signed(), longest].map(|request| request.only().unwrap().claim.nonce);
    assert_ne!(nonces[0], nonces[1]);
    let of_other = Request::signed().input(ACCOUNT, &ACCOUNT.replace("7e5f", "7e5e")).only().unwrap();
    assert_ne!(of_other.claim.nonce, nonces[0], "each account has nonces of its own");
}

#[test]
fn each_part_that_must_be_signed_is_missed() {
    for part in ["@scheme", "@authority", "@method", "@path", "@query", "x-agent-id"] {
        let quoted = format!("\"{part}\"");
        for other in [
            "\"x\"",
            &format!("{quoted};req"),
            &format!("{quoted};sf"),
            &part.to_uppercase().replace('@', "@@"),
        ] {
            let other = if other.starts_with('"') { other.to_owned() } else { format!("\"{other}\"") };
            assert_eq!(
                Request::signed().input(&quoted, &other).refusal(),
                "insufficient_coverage",
                "{other}"
            );
        }
    }
    let typed = Request::signed().field("content-type", "text/plain");
    assert_eq!(typed.refusal(), "insufficient_coverage");
    let uncovered = Request::with_body().input(" \"content-digest\"", "");
    assert_eq!(uncovered.refusal(), "insufficient_coverage");
    // The upstream would not get what was signed.
    let of_one_hop = Request::with_body().field("connection", "keep-alive, Content-Digest");
    assert_eq!(of_one_hop.refusal(), "insufficient_coverage");
    assert!(Request::with_body().field("connection", "keep-alive, x-other").only().is_ok());
    assert!(Request::with_body().only().is_ok());
}

#[test]
fn a_body_needs_a_digest_that_can_be_right() {
    let without = Request::with_body().field("content-digest", "");
    assert_eq!(without.refusal(), "content_digest_required");
    let got = Request { content: Content::Follows, ..Request::signed() };
    assert_eq!(got.refusal(), "content_digest_required", "whatever the method is, if a body follows");
    let long = format!("x=\"{}\", sha-256=:{}=:", "a".repeat(16 * 1024), "A".repeat(43));
    assert_eq!(Request::with_body().field("content-digest", &long).refusal(), "bad_content_digest");
    for digest in ["md5=:AAAA:", "sha-256=:AAAA:", "sha-256=(", "sha-256=\"x\""] {
        assert_eq!(Request::with_body().field("content-digest", digest).refusal(), "bad_content_digest");
    }
    // Without a body the digest is that of no bytes.
    let empty = Request { content: Content::Empty, ..Request::with_body() };
    assert_eq!(empty.refusal(), "bad_content_digest");
    let of_nothing = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    assert!(empty.field("content-digest", of_nothing).only().is_ok());
    // A body that is not seen may be there, but where it means nothing.
    let unseen =
        |method: &str| Request { content: Content::Unseen, method: method.into(), ..Request::signed() };
    assert!(["GET", "HEAD", "DELETE"].iter().all(|method| unseen(method).only().is_ok()));
    for method in ["POST", "PUT", "PATCH", "OPTIONS", "get"] {
        assert_eq!(unseen(method).refusal(), "content_digest_required", "{method}");
    }
    assert!(Request { content: Content::Unseen, ..Request::with_body() }.only().is_ok());
}

#[test]
fn a_signature_names_no_algorithm() {
    for alg in [";alg=\"ecdsa-secp256k1\"", ";alg", ";alg=x"] {
        assert_eq!(Request::signed().input(";tag", &format!("{alg};tag")).refusal(), "unsupported_algorithm");
    }
}

#[test]
fn a_covered_part_that_is_not_there_or_not_read_is_bad_signature() {
    for more in [
        "\"x-lost\"",
        "\"@status\"",
        "\"@query-param\";name=\"a\"",
        "\"x-agent-id\";bs",
        "\"X-Agent-Id\"",
        "\"\"",
    ] {
        let request = Request::signed().input("\"@query\"", &format!("\"@query\" {more}"));
        assert_eq!(request.refusal(), "bad_signature", "{more}");
    }
    let unknown = Request { scheme: None, ..Request::signed() };
    assert_eq!(unknown.refusal(), "bad_signature");
}

#[test]
fn a_later_good_signature_counts_and_the_first_refusal_stands_for_all() {
    let good = Request::signed();
    let value = |name: &str| good.fields.iter().find(|(other, _)| other == name).unwrap().1.clone();
    let (input, signature) = (value("signature-input"), value("signature"));
    let bad = "a=(\"@method\");tag=\"erc8128\", b=();tag=\"erc8128\";alg, ";
    let both = good.clone().field("signature-input", &format!("{bad}{input}"));
    let both = both.field("signature", &format!("a=:{UNVERIFIED}:, b=:{UNVERIFIED}:, {signature}"));
    let (messages, first) = both.read(&[&ERC_8128]).unwrap().unwrap();
    assert_eq!((messages.len(), first.unwrap().code()), (1, "invalid_keyid"));
    // A signature without bytes is passed over too.
    let correlated = good.clone().field("signature-input", &format!("a=();tag=\"erc8128\", {input}"));
    let (messages, first) = correlated.read(&[&ERC_8128]).unwrap().unwrap();
    assert_eq!((messages.len(), first.unwrap().code()), (1, "signature_input_invalid"));
    // Of two with one label the last counts.
    let twice = good.field("signature-input", &format!("request=();tag=\"erc8128\", {input}"));
    assert!(twice.is_signed());
    let only_bad = both.field("signature-input", bad.trim_end_matches(", "));
    assert_eq!(only_bad.refusal(), "invalid_keyid");
}

#[test]
fn the_former_profile_counts_where_it_is_taken() {
    let covered = r#""@authority" "@method" "@path" "x-agent-id""#;
    let capitals = ACCOUNT.to_uppercase().replace("0X", "0x");
    let former = Request::signed().with_signature(covered, "n", UNVERIFIED);
    let former = former
        .input(";tag=\"erc8128\"", "")
        .input(&format!("eip155:1:{ACCOUNT}"), &format!("erc8128:1:{capitals}"));
    assert!(former.read(&[&ERC_8128_UNTAGGED]).unwrap().is_ok());
    assert_eq!(former.read(&[&ERC_8128]).unwrap().unwrap_err().code(), "no_acceptable_signature");
    let asking = Request { target: "/items?a=b".into(), ..former.clone() };
    assert_eq!(asking.refusal(), "insufficient_coverage");
    assert!(asking.input("\"@path\"", "\"@path\" \"@query\"").only().is_ok());
    let tagged = former.clone().input(";keyid", ";tag=\"other\";keyid");
    assert_eq!(tagged.refusal(), "no_acceptable_signature");
    assert_eq!(former.input("erc8128:1", "erc8128:2").refusal(), "unsupported_chain");
}

#[test]
fn a_request_is_told_what_to_sign() {
    let asked = |content, fields: &[(&'static str, &str)]| {
        let headers: http::HeaderMap = fields
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let message = Message {
            method: "POST",
            scheme: None,
            authority: "",
            hosts: None,
            target: b"/",
            fields: &headers,
            content,
        };
        ERC_8128.asked_for(&message)
    };
    let list = |more: &str| {
        format!(
            "request=(\"@scheme\" \"@authority\" \"@method\" \"@path\" \"@query\" \"x-agent-id\"{more});\
             created;expires;tag=\"erc8128\""
        )
    };
    assert_eq!(asked(Content::Empty, &[]), list(""));
    assert_eq!(asked(Content::Follows, &[]), list(" \"content-digest\""));
    assert_eq!(
        asked(Content::Unseen, &[("content-type", "a")]),
        list(" \"content-digest\" \"content-type\"")
    );
    assert_eq!(asked(Content::Empty, &[("content-digest", "a")]), list(" \"content-digest\""));
}

#[test]
fn no_signature_is_good_for_longer_than_its_nonce_is_kept() {
    let terms = |max_age, max_ahead, retention| {
        let Terms { validity_secs_max, ahead_secs_max, .. } = Terms::new(1, (max_age, max_ahead), retention);
        (validity_secs_max, ahead_secs_max)
    };
    assert_eq!(terms(300, 60, 900), (300, 30));
    assert_eq!(terms(10, 60, 900), (60, 30), "a minute is to be taken everywhere");
    assert_eq!(terms(300, 60, 360), (270, 30), "the nonce of the longest is kept");
    assert_eq!(terms(10, 5, 15), (0, 5), "the store expects nothing further ahead");
}
