//! Signatures of bots: published vectors, and what is none of a domain's.

use std::cell::Cell;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::HeaderMap;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

use super::{Request, TERMS, UNVERIFIED};
use crate::domain::{BotSignature, MessageRefusal, UnixSeconds};
use crate::http1::{Fields, name::Name};
use crate::message_signature::{Content, ERC_8128, Message, OF_BOTS, Terms};

/// The key for Ed25519 of RFC 9421, section B.1.4, which the vectors of `cloudflare/web-bot-auth` are signed with.
const KEY: &str = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";
const SEED: &str = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU";
const KEY_ID: &str = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";

const CREATED: u64 = 1_735_689_600;

/// A request of the vectors, with these fields.
fn request(input: &str, signature: &str, agent: &str) -> Request {
    let request = Request {
        method: "GET".into(),
        scheme: Some("https".into()),
        authority: "example.com".into(),
        target: "/path/to/resource".into(),
        fields: Vec::new(),
        content: Content::Empty,
        now: CREATED + 60,
        terms: OF_BOTS,
    };
    let request = request.field("signature-input", input).field("signature", signature);
    request.field("signature-agent", agent)
}

/// `web_bot_auth_architecture_v2.json`: its signature is good for a hundred years.
fn vector() -> Request {
    let request = request(
        r#"sig2=("@authority" "signature-agent";key="agent2");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth""#,
        "sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
        r#"agent2="https://signature-agent.test""#,
    );
    Request { terms: Terms { validity_secs_max: u64::MAX, ..OF_BOTS }, ..request }
}

/// `web_bot_auth_architecture_v1.json`: one text for a dictionary.
fn former_vector() -> Request {
    request(
        r#"sig2=("@authority" "signature-agent");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=1735693200;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";tag="web-bot-auth""#,
        "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
        r#""https://signature-agent.test""#,
    )
}

/// The second vector's request with the usual times, so that only what a test changes is wrong with it.
fn current() -> Request {
    let request = Request { terms: OF_BOTS, ..vector() };
    request.input("expires=4889289600", "expires=1735693200")
}

impl Request {
    fn bots(&self) -> Option<Vec<BotSignature>> {
        let fields = self.headers();
        self.message(&fields).bot_signatures(&self.terms, UnixSeconds(self.now))
    }

    /// The domain of the only signature.
    fn domain(&self) -> Option<String> {
        let signed = self.bots().unwrap();
        assert!(signed.len() <= 1, "{signed:?}");
        signed.first().map(|signed| signed.domain.to_string())
    }

    fn is_by_the_key(&self) -> bool {
        let key = BASE64_URL_SAFE_NO_PAD.decode(KEY).unwrap();
        self.bots().unwrap().iter().any(|signed| {
            assert_eq!(&*signed.key_id, KEY_ID);
            UnparsedPublicKey::new(&ED25519, &key).verify(&signed.base, &signed.signature).is_ok()
        })
    }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[test]
fn the_published_vectors_are_signed_by_their_key_for_their_domain() {
    for request in [vector(), former_vector()] {
        assert_eq!(request.domain().as_deref(), Some("signature-agent.test"));
        assert!(request.is_by_the_key());
    }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[test]
fn each_part_of_a_signed_request_that_is_altered_is_not_signed() {
    for (request, is_signed) in [
        (vector(), true),
        (Request { authority: "EXAMPLE.com:443".into(), ..vector() }, true),
        (Request { method: "POST".into(), target: "/other".into(), ..vector() }, true),
        (Request { authority: "other.example".into(), ..vector() }, false),
        (vector().field("signature-agent", r#"agent2="https://signature-agent.test/""#), false),
        (vector().field("signature-agent", r#"agent2="https://signature-agent.test";type=directory"#), false),
        (vector().field("signature-agent", r#"agent2="https://other.test""#), false),
        (
            vector()
                .field("signature-agent", r#"a="https://other.test", agent2="https://signature-agent.test""#),
            true,
        ),
        (vector().input("created=1735689600", "created=1735689601"), false),
        (vector().input("expires=4889289600", "expires=4889289599"), false),
        (vector().input(r#";alg="ed25519""#, ""), false),
        (vector().edit("signature", "RdNF", "RdNG"), false),
        (former_vector().field("signature-agent", r#""https://other.test""#), false),
    ] {
        assert_eq!(request.is_by_the_key(), is_signed, "{request:?}");
    }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[test]
fn a_signature_that_lacks_what_it_needs_names_no_domain() {
    assert_eq!(current().domain().as_deref(), Some("signature-agent.test"));
    for more in [";type=directory", ";type=directory;more", ";more=1"] {
        let value = format!(r#"agent2="https://signature-agent.test"{more}"#);
        let request = current().field("signature-agent", &value);
        assert_eq!(request.domain().as_deref(), Some("signature-agent.test"), "{more}");
    }
    let agent = |value: &str| current().field("signature-agent", value);
    let at = |now| Request { now, ..current() };
    for request in [
        current().input("\"@authority\" ", ""),
        current().input("\"@authority\"", "\"@path\""),
        current().input("\"@authority\"", "\"@authority\";req"),
        current().input(r#" "signature-agent";key="agent2""#, ""),
        current().input(r#";key="agent2""#, ""),
        current().input(r#";key="agent2""#, r#";key="agent3""#),
        current().input(r#";key="agent2""#, r#";key="agent2";sf"#),
        current().input(r#""signature-agent";key"#, r#""@query-param";name="x" "signature-agent";key"#),
        current().input(r#""signature-agent";key"#, r#""@authority" "signature-agent";key"#),
        current().input("keyid", "keyidx"),
        current().input("created=1735689600;", ""),
        current().input(";expires=1735693200", ""),
        current().input("expires=1735693200", "expires=1735776001"),
        current().input(r#"alg="ed25519""#, r#"alg="rsa-pss-sha512""#),
        current().input(r#"alg="ed25519""#, "alg=1"),
        current().input("sig2=", "sig2"),
        current().input("sig2=", "other="),
        current().field("signature", "sig2=\"text\""),
        current().field("signature", ""),
        current().field("connection", "Signature-Agent"),
        at(CREATED - 31),
        at(CREATED + 3_631),
        agent(""),
        agent(r#""https://signature-agent.test""#),
        agent(r#"agent2="http://signature-agent.test""#),
        agent(r#"agent2="https://signature-agent.test/user/keys""#),
        agent(r#"agent2="https://10.0.0.1""#),
        agent(r#"agent2="https://signature-agent.test";type=x"#),
        agent(r#"agent2=("https://signature-agent.test")"#),
        agent("agent2=https"),
        agent(&format!(r#"agent2="https://signature-agent.test", a="{}""#, "x".repeat(2_048))),
    ] {
        assert_eq!(request.domain(), None, "{request:?}");
    }
    let day = current().input("expires=1735693200", "expires=1735776000");
    assert!(
        day.domain().is_some()
            && at(CREATED - 30).domain().is_some()
            && at(CREATED + 3_630).domain().is_some()
    );
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[test]
fn the_domain_under_the_signatures_label_counts_of_several() {
    let covered = r#""signature-agent";key="a" "signature-agent";key="sig2""#;
    let both = current().input(r#""signature-agent";key="agent2""#, covered);
    let agents = r#"a="https://a.test", sig2="https://sig2.test""#;
    assert_eq!(both.clone().field("signature-agent", agents).domain().as_deref(), Some("sig2.test"));
    let neither = current().input(r#""signature-agent";key="agent2""#, &covered.replace("sig2", "b"));
    assert_eq!(neither.field("signature-agent", &agents.replace("sig2=", "b=")).domain(), None);
}

#[test]
fn other_signatures_are_no_bots() {
    assert_eq!(Request::signed().bots(), None);
    assert_eq!(Request::signed().field("signature", "").field("signature-input", "").bots(), None);
    assert_eq!(current().input("web-bot-auth", "agent-browser-auth").bots(), None);
}

#[test]
fn a_target_uri_alone_is_enough_and_binds_path_and_query() {
    let input = current().input("\"@authority\"", "\"@target-uri\"");
    let fields = input.headers();
    let message = Message { target: b"/a?b", ..input.message(&fields) };
    let base = |message: &Message<'_, _>| {
        message.bot_signatures(&OF_BOTS, UnixSeconds(input.now)).unwrap().remove(0).base
    };
    let unnamed = Message { hosts: Some(&[]), ..Message { target: b"/a?b", ..input.message(&fields) } };
    assert_eq!(
        unnamed.bot_signatures(&OF_BOTS, UnixSeconds(input.now)),
        Some(Vec::new()),
        "it binds the host too"
    );
    let seed = BASE64_URL_SAFE_NO_PAD.decode(SEED).unwrap();
    let signed = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap().sign(&base(&message));
    let signature = format!("sig2=:{}:", BASE64_STANDARD.encode(signed));
    let request =
        |target: &str| Request { target: target.into(), ..input.clone() }.field("signature", &signature);
    assert!(
        request("/a?b").is_by_the_key()
            && !request("/a?c").is_by_the_key()
            && !request("/b?b").is_by_the_key()
    );
}

/// A head that counts how often it is gone through.
struct Counting(HeaderMap, Cell<usize>);

impl Fields for Counting {
    fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]> {
        Fields::values(&self.0, name)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.1.set(self.1.get() + 1);
        self.0.all()
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn signature_agent_is_read_once_for_however_many_signatures_and_members() {
    let list = |count: usize, form: fn(usize) -> String| (0..count).map(form).collect::<Vec<_>>();
    let agents = list(26, |number| format!("a{number}=\"https://a{number}.test\"")).join(", ");
    let members = list(26, |number| format!("\"signature-agent\";key=\"a{number}\"")).join(" ");
    let signatures = list(8, |number| format!("a{number}=:{UNVERIFIED}:")).join(", ");
    let account = format!("eip155:1:{}", super::ACCOUNT);
    for (tag, keyid, is_bots) in [("web-bot-auth", "k", true), ("erc8128", &*account, false)] {
        let covered = format!(r#""@scheme" "@authority" "@method" "@path" "@query" "x-agent-id" {members}"#);
        let parameters =
            format!(r#"created=1735689600;expires=1735689660;nonce="n";keyid="{keyid}";tag="{tag}""#);
        let input = (0..8).map(|number| format!("a{number}=({covered});{parameters}")).collect::<Vec<_>>();
        let request = request(&input.join(", "), &signatures, &agents).field("x-agent-id", "7");
        let fields = Counting(request.headers(), Cell::new(0));
        let Message { method, scheme, authority, hosts, target, content, .. } = request.message(&fields.0);
        let message = Message { method, scheme, authority, hosts, target, fields: &fields, content };
        let now = UnixSeconds(CREATED);
        if is_bots {
            let read = message.bot_signatures(&OF_BOTS, now).unwrap();
            assert_eq!((read.len(), &*read[7].domain), (8, "a7.test"));
        } else {
            let read = message.candidates(&[&ERC_8128], &TERMS, now).unwrap();
            assert_eq!(read.unwrap_err(), MessageRefusal::BadSignature, "a component has parameters");
        }
        let passes = fields.1.get();
        assert!(passes < 100, "{passes} for {tag}");
    }
}
