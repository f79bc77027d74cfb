//! Requests that are signed themselves (ERC-8128): once, by who may act for the agent, and with the body that was signed.

use base64::Engine;
use std::{collections::BTreeSet, future::poll_fn, io::Write as _, net::TcpStream};

use alloy::primitives::U256;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::rig::authz::{Asked, DIALECTS, Dialect, Original};
use crate::rig::case::{Case, cases};
use crate::rig::entry_points::{BY_HEADERS, EntryPoint, EntryPoints, OURS};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path};
use crate::rig::{gateway::Gateway, messages::Signing, tenants::Tenant};
use crate::support::agents::{Agent, unknown_key};
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER, wrapped};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::support::{client::Answer, metrics::Samples, redis::Redis, relay::Relay};

pub(crate) const CASES: &[Case] = cases![
    each_refusal_has_its_name_and_status_and_reaches_no_upstream,
    a_401_says_what_to_sign_and_the_terms_are_published,
    other_credentials_beside_a_signed_request_are_400_and_other_signatures_are_nothing,
    the_scheme_that_is_signed_is_the_one_that_the_client_used,
    a_body_that_lies_never_arrives_whole,
    a_body_that_is_held_reaches_the_upstream_right_or_not_at_all,
    a_body_that_lies_never_arrives_whole_over_http_2,
    a_message_of_mcp_that_lies_reaches_no_upstream_over_http_2,
    no_upstream_waits_for_a_body_that_is_held,
    no_upstream_waits_for_a_body_that_is_held_over_http_2,
    one_agent_holds_three_quarters_of_the_memory_for_bodies,
    a_lack_of_memory_spends_no_refused_credential,
    every_dialect_that_carries_the_request_judges_its_signature,
    a_signed_request_counts_for_a_host_that_its_tenant_names_at_every_seat,
    signatures_without_a_tag_pass_where_they_are_taken,
];

/// Cases that the store has a part in.
pub(crate) const STORED: &[Case] = cases![a_signed_request_passes_once_at_all_replicas];

pub(crate) const OF_REDIS: &[Case] =
    cases![a_signed_request_that_passed_before_a_failover_passes_nowhere_after_it];

/// A tenant that takes signed requests alone.
fn signed_only(stage: &Stage) -> SiteBuilder<'_> {
    Site::of(stage).tenant(takes)
}

fn takes(tenant: Tenant) -> Tenant {
    tenant.set("credentials", vec!["erc8128"])
}

fn get(stage: &Stage, agent: &Agent, target: &str) -> Signing {
    Signing::get(agent, stage.world().chain().contracts.chain_id, target)
}

/// Checks an error by its status and the name of its reason.
#[track_caller]
fn is_refused(answer: &Answer, status: u16, reason: &str) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &body["reason"]), (status, &json!(reason)), "{}", answer.text());
    let challenge = answer
        .headers
        .iter()
        .find(|(name, value)| name.eq_ignore_ascii_case("www-authenticate") && value.starts_with("ERC8128 "));
    let expected = (status == 401).then(|| format!("error=\"{reason}\""));
    assert_eq!(challenge.is_some(), expected.is_some(), "{answer:?}");
    assert!(
        challenge.zip(expected).is_none_or(|((_, value), expected)| value.contains(&expected)),
        "{answer:?}"
    );
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_signed_request_passes_once_at_all_replicas(stage: &Stage) {
    let site = signed_only(stage).start();
    let agent = stage.world().agent(3);
    let path = agents_path();
    // The twin starts before the signature is made, which is good for a minute.
    let twin = stage.world().is(crate::support::world::Kind::Redis).then(|| site.gateway.twin(|same| same));
    let signing = get(stage, &agent, &format!("{path}?a=b"));
    let answer = site.gateway.ask(&signing.request());
    assert_eq!((answer.status, answer.allowance()), (200, (166, 165)), "{}", answer.text());
    assert!(answer.header("vary").unwrap().contains("Signature"), "{answer:?}");
    let seen = site.upstream.only(&path);
    assert_eq!(seen.all("x-agent-id"), [agent.text()]);
    assert_eq!(seen.all("x-agent-owner"), [ALICE.address.to_checksum(None)]);
    let again = site.gateway.ask(&signing.request());
    is_refused(&again, 401, "nonce_reused");
    assert_eq!(again.json()["errorType"], json!("REPLAY_DETECTED"));
    if let Some(twin) = twin {
        is_refused(&twin.ask(&signing.request()), 401, "nonce_reused");
        let other = get(stage, &agent, &path);
        assert_eq!(twin.ask(&other.request()).status, 200);
        is_refused(&site.gateway.ask(&other.request()), 401, "nonce_reused");
    }
    // A nonce is its account's and agent's own.
    let sibling = stage.world().agent(3);
    let same = Signing { nonce: signing.nonce.clone(), ..get(stage, &sibling, &path) };
    assert_eq!(site.gateway.ask(&same.request()).status, 200);
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_signed_request_that_passed_before_a_failover_passes_nowhere_after_it(stage: &Stage) {
    let [mut master, _replica, sentinel] = Redis::start_watched();
    let url = format!("redis-sentinel://{sentinel}/service/0");
    // Signatures are refused for two seconds after a start and after a failover.
    let site = signed_only(stage).set("store.redis.url", url).set("signature.max_ahead", "1s").start();
    let gateways = [&site.gateway, &site.gateway.twin(|settings| settings)];
    let (agent, path) = (stage.world().agent(3), agents_path());
    let passes = |gateway: &Gateway| {
        until("a request that is signed anew passes", SOON, || {
            let signing = Signing { lasts: 300, ..get(stage, &agent, &path) };
            let answer = gateway.ask(&signing.request());
            if answer.status != 200 {
                is_refused(&answer, 503, "signature_verification_unavailable");
            }
            (answer.status == 200).then_some(signing)
        })
    };
    let used = gateways.map(passes);
    let is_refused_everywhere = |status, reason| {
        for gateway in gateways {
            used.iter().for_each(|used| is_refused(&gateway.ask(&used.request()), status, reason));
        }
    };
    is_refused_everywhere(401, "nonce_reused");
    until("both are replicated", SOON, || (master.acknowledged() > 0).then_some(()));
    master.kill();
    for gateway in gateways {
        until("the gateway has found the new master", SOON, || {
            let status = gateway.ask(&used[0].request()).status;
            assert!(matches!(status, 500 | 503), "{status}");
            (status == 503).then_some(())
        });
    }
    for gateway in gateways {
        passes(gateway);
    }
    is_refused_everywhere(503, "signature_verification_unavailable");
    assert_eq!(site.upstream.seen_at(&path).len(), 4);
}

/// `replayable_not_allowed`, the 22nd of the text, is for services that take signatures without a nonce somewhere.
// threat: A signed request is altered or sent again, or its body exchanged
fn each_refusal_has_its_name_and_status_and_reaches_no_upstream(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let site = signed_only(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]).start();
    let agent = stage.world().agent(4);
    let path = agents_path();
    let signing = get(stage, &agent, &path);
    let posted = signing.clone().post(b"hello");
    let with = |signing: &Signing, name: &str, change: &dyn Fn(&str) -> Option<String>| {
        let headers = signing.headers().into_iter().filter_map(|(header, value)| {
            let value = if header == name { change(&value)? } else { value };
            Some((header, value))
        });
        let headers: Vec<_> = headers.collect();
        let request = Request::new(&signing.method, ACME, &signing.target).with_all(&headers);
        signing.body.iter().fold(request, |request, body| request.body(body))
    };
    let input = |from: &str, to: &str| {
        with(&signing, "Signature-Input", &|text| {
            assert!(text.contains(from), "{text}");
            Some(text.replacen(from, to, 1))
        })
    };
    let bytes = |bytes: &[u8]| {
        let text = format!("s=:{}:", BASE64_STANDARD.encode(bytes));
        with(&signing, "Signature", &|_| Some(text.clone()))
    };
    let change = |change: &dyn Fn(Signing) -> Signing| change(signing.clone()).request();
    let bobs = signing.account.rsplit_once(':').unwrap().0.to_owned()
        + ":"
        + &BOB.address.to_string().to_lowercase();
    let refusals = [
        (401, "signature_missing", with(&signing, "Signature", &|_| None)),
        (400, "signature_input_invalid", input("s=(", "s=((")),
        (400, "signature_too_large", bytes(&[1; 8_193])),
        (401, "no_acceptable_signature", input("tag=\"erc8128\"", "tag=\"other\"")),
        (401, "invalid_keyid", input(":0x", ":0X")),
        (401, "unsupported_chain", input("eip155:", "eip155:1")),
        (401, "unsupported_account", bytes(&wrapped(&[1; 65]))),
        (401, "bad_signature", bytes(&[1; 64])),
        (401, "bad_signature", bytes(&[])),
        (401, "invalid_time", input("expires=", "expires=-")),
        (401, "request_not_yet_valid", change(&|it| Signing { created: it.created + 60, ..it })),
        (401, "request_expired", change(&|it| Signing { created: it.created - 100, ..it })),
        (401, "request_validity_too_long", change(&|it| Signing { lasts: 301, ..it })),
        (401, "invalid_nonce", change(&|it| Signing { nonce: "n".repeat(129), ..it })),
        (401, "insufficient_coverage", input("\"@query\" ", "")),
        (401, "content_digest_required", with(&posted, "Content-Digest", &|_| None)),
        (401, "bad_content_digest", with(&posted, "Content-Digest", &|_| Some("sha-256=:AAAA:".to_owned()))),
        (401, "nonce_required", input(";nonce=", ";other=")),
        (401, "unsupported_algorithm", input(";tag=", ";alg=\"eip191\";tag=")),
        (401, "bad_signature", change(&|it| Signing { signer: BOB, ..it })),
        (401, "principal_not_allowed", change(&|it| Signing { signer: BOB, account: bobs.clone(), ..it })),
    ];
    for (status, reason, request) in &refusals {
        is_refused(&site.gateway.ask(request), *status, reason);
    }
    change(&|it| Signing { agent: U256::from(987_654_321), ..it })
        .ask(site.gateway.address)
        .error(404, "AGENT_NOT_FOUND");
    site.is_unseen(&path);
    assert_eq!(site.gateway.ask(&signing.request()).status, 200, "its nonce was used up by none of them");
    is_refused(&site.gateway.ask(&signing.request()), 401, "nonce_reused");
    relay.close();
    let signing = get(stage, &agent, &path);
    let unread = site.gateway.ask(&signing.request());
    is_refused(&unread, 503, "signature_verification_unavailable");
    assert_eq!(unread.json()["errorType"], json!("RPC_ERROR"));
    relay.reopen();
    until("the chain is read again", SOON, || {
        (site.gateway.ask(&signing.request()).status == 200).then_some(())
    });
    let names: BTreeSet<&str> = refusals.iter().map(|(_, reason, _)| *reason).collect();
    assert_eq!(names.len() + 3, 22);
    assert_eq!(site.upstream.count_at(&path), 2);
}

fn a_401_says_what_to_sign_and_the_terms_are_published(stage: &Stage) {
    let site = signed_only(stage).start();
    let chain = stage.world().chain().contracts.chain_id;
    let bare =
        site.gateway.ask(&Request::new("POST", ACME, &agents_path()).with("Content-Type", "a/b").body(b"x"));
    is_refused(&bare, 401, "signature_missing");
    let challenge =
        format!("ERC8128 error=\"signature_missing\", chains=\"eip155:{chain}\", account=\"eoa-only\"");
    assert!(bare.headers.iter().any(|(_, value)| *value == challenge), "{bare:?}");
    let asked = "request=(\"@scheme\" \"@authority\" \"@method\" \"@path\" \"@query\" \"x-agent-id\" \"content-digest\" \"content-type\");created;expires;tag=\"erc8128\"";
    assert_eq!(bare.header("accept-signature"), Some(asked));
    let terms = site.gateway.ask(&Request::get(ACME, "/.well-known/erc8128")).success(200);
    let expected = json!({
        "max_validity_sec": 300,
        "chains": [format!("eip155:{chain}")],
        "account_verification": "eoa-only",
        "route_policies": {"default": {
            "required_components": ["x-agent-id"], "replay": "non-replayable", "content_digest": "request-body",
        }},
    });
    assert_eq!(terms, expected);
    let rules = site.gateway.ask(&Request::get(ACME, "/.well-known/tiergate")).success(200);
    assert_eq!(rules["signedRequests"], json!("/.well-known/erc8128"));
    // Elsewhere none of that is said.
    let other = stage.site().gateway.ask(&Request::get(ACME, &agents_path()));
    assert_eq!((other.status, other.header("accept-signature")), (401, None));
    assert_eq!(stage.site().gateway.ask(&Request::get(ACME, "/.well-known/erc8128")).status, 401);
}

fn other_credentials_beside_a_signed_request_are_400_and_other_signatures_are_nothing(stage: &Stage) {
    let site = Site::of(stage)
        .agent(4)
        .tenant(|tenant| tenant.set("credentials", vec!["api_key", "erc8128"]))
        .start();
    let (agent, path) = (site.agent().clone(), agents_path());
    let signing = get(stage, &agent, &path);
    let both = signing.request().key(site.key());
    both.ask(site.gateway.address).error(400, "VALIDATION_ERROR");
    signing.request().key(&unknown_key(9)).ask(site.gateway.address).error(400, "VALIDATION_ERROR");
    let foreign = Request::get(ACME, &agents_path()).key(site.key());
    let foreign = foreign.with("Signature-Input", "x=(\"date\");keyid=\"k\"").with("Signature", "x=:AA==:");
    assert_eq!(site.gateway.ask(&foreign).status, 200);
    let old = Request::get(ACME, &agents_path()).key(site.key()).with("Signature", "keyId=\"a\"");
    assert_eq!(site.gateway.ask(&old).status, 200);
    assert_eq!(site.gateway.ask(&old.with("Signature-Input", "keyId=\"a\"")).status, 200, "no dictionary");
    site.is_unseen(&path);
    assert_eq!(site.gateway.ask(&signing.request()).status, 200);
    let bare = site.gateway.ask(&Request::get(ACME, &agents_path()));
    assert_eq!(bare.error(401, "INVALID_API_KEY"), json!({ "agentId": null }));
    let challenges = bare.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
    let challenges: Vec<&str> = challenges.map(|(_, value)| value.split(' ').next().unwrap()).collect();
    assert_eq!(challenges, ["Bearer", "ERC8128"], "{bare:?}");
}

/// A proxy that is trusted says it.
fn the_scheme_that_is_signed_is_the_one_that_the_client_used(stage: &Stage) {
    let direct = signed_only(stage).start();
    let behind = signed_only(stage).set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let behind = behind.set("listen.trusted_headers", vec!["X-Forwarded-Proto"]).start();
    let agent = stage.world().agent(4);
    let ask = |site: &Site, scheme| {
        let signing = Signing { scheme, ..get(stage, &agent, &agents_path()) };
        site.gateway.ask(&signing.request().with("X-Forwarded-Proto", "https"))
    };
    assert_eq!(ask(&behind, "https").status, 200);
    is_refused(&ask(&behind, "http"), 401, "bad_signature");
    assert_eq!(ask(&direct, "http").status, 200);
    is_refused(&ask(&direct, "https"), 401, "bad_signature");
}

/// A request whose body is framed by chunks.
fn chunked(signing: &Signing) -> Vec<u8> {
    let headers: String =
        signing.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\n{headers}\r\n",
        signing.target
    );
    let chunks = signing.body.iter().flat_map(|body| body.chunks(1_000));
    let chunks =
        chunks.flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    [head.as_bytes(), &chunks.collect::<Vec<u8>>(), b"0\r\n\r\n"].concat()
}

/// Sends a body that is right and one that is not, each with its length and in chunks.
fn send_bodies(stage: &Stage, site: &Site, arrives: impl Fn(&Site, &str)) {
    let agent = stage.world().agent(4);
    let right: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let mut wrong = right.clone();
    wrong[199_999] ^= 1;
    for (length, is_chunked) in [(3, false), (3, true), (200_000, false), (200_000, true)] {
        let path = agents_path();
        let signing = get(stage, &agent, &path).post(&right[200_000 - length..]);
        let bytes = |signing: &Signing| if is_chunked { chunked(signing) } else { signing.request().bytes() };
        let mut wire = site.gateway.connect();
        wire.send(&bytes(&signing));
        assert_eq!(wire.answer().status, 200, "{length} {is_chunked}");
        assert_eq!(site.upstream.whole(&path).body_bytes, length);
        let path = agents_path();
        let signing = get(stage, &agent, &path).post(&right[200_000 - length..]);
        let lie = Signing { body: Some(wrong[200_000 - length..].to_vec()), ..signing };
        let mut wire = site.gateway.connect();
        let _ = wire.write(&bytes(&lie));
        is_refused(&wire.answer(), 401, "bad_content_digest");
        arrives(site, &path);
    }
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_body_that_lies_never_arrives_whole(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = signed_only(stage).way(way).unlimited().start();
        send_bodies(stage, &site, |site, path| {
            assert!(site.upstream.seen_at(path).iter().all(|seen| !seen.whole), "{way}");
        });
    }
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_body_that_is_held_reaches_the_upstream_right_or_not_at_all(stage: &Stage) {
    let held = |tenant: Tenant| tenant.set("max_body_bytes", 200_000).set("digest", "before");
    let site = signed_only(stage).tenant(held).unlimited().start();
    send_bodies(stage, &site, |site, path| site.is_unseen(path));
    let agent = stage.world().agent(4);
    let longer = get(stage, &agent, &agents_path()).post(&[7; 200_001]);
    let mut wire = site.gateway.connect();
    wire.send(&chunked(&longer));
    assert_eq!(wire.answer().status, 413);
    site.is_unseen(&longer.target);
    // A client that waits for leave is given it, since no upstream can.
    let signing = get(stage, &agent, &agents_path()).post(b"hello");
    let request = Signing { body: None, ..signing.clone() }.request();
    let mut wire = site.gateway.connect();
    wire.send(&request.with("Content-Length", "5").with("Expect", "100-continue").bytes());
    assert_eq!(wire.head().unwrap().status, 100);
    wire.send(b"hello");
    assert_eq!(wire.answer().status, 200);
    assert_eq!(site.upstream.whole(&signing.target).body, b"hello");
    let site = signed_only(stage).tenant(held).way("library").unlimited().start();
    send_bodies(stage, &site, |site, path| {
        assert!(site.upstream.seen_at(path).iter().all(|seen| !seen.whole && seen.body_bytes == 0));
    });
}

fn post_over_http_2(gateway: &Gateway, signing: &Signing) -> Message {
    let request = Message::request(Method::POST, ACME, &signing.target);
    let headers = signing.headers();
    let request =
        headers.iter().fold(request, |request, (name, value)| request.with(&name.to_lowercase(), value));
    h2c::ask(gateway.address, &request.body(signing.body.as_ref().unwrap())).unwrap()
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_message_of_mcp_that_lies_reaches_no_upstream_over_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let mcp = |tenant: Tenant| holds(tenant).set("mcp", true);
    let to_http2 = signed_only(stage).tenant(mcp).h2c(&upstream).start();
    let to_http1 = signed_only(stage).tenant(mcp).start();
    let agent = stage.world().agent(4);
    let message = |tool: &str| {
        json!({ "id": 1, "method": "tools/call", "params": { "name": tool } }).to_string().into_bytes()
    };
    let signed = |tool: &str| {
        let signing = get(stage, &agent, &agents_path()).post(&message(tool));
        Signing { content_type: Some("application/json".into()), ..signing }
    };
    for site in [&to_http2, &to_http1] {
        let signing = signed("search");
        assert_eq!(post_over_http_2(&site.gateway, &signing).status, 200);
        let is_whole = upstream.seen().iter().any(|seen| seen.body == message("search"));
        assert!(is_whole, "the first goes to the upstream of HTTP/2");
        if std::ptr::eq(site, &to_http1) {
            assert_eq!(to_http1.upstream.whole(&signing.target).body, message("search"));
        }
        let lie = Signing { body: Some(message("delete")), ..signed("search") };
        let answer = post_over_http_2(&site.gateway, &lie);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["error"]["data"]["reason"]), (401, &json!("bad_content_digest")));
        to_http1.is_unseen(&lie.target);
        assert!(upstream.seen().iter().all(|seen| seen.uri.path() != lie.target));
    }
}

// threat: A signed request is altered or sent again, or its body exchanged
fn a_body_that_lies_never_arrives_whole_over_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = signed_only(stage).h2c(&upstream).start();
    let to_http1 = signed_only(stage).start();
    let agent = stage.world().agent(4);
    for (gateway, is_to_http_1) in [(&site.gateway, false), (&to_http1.gateway, true)] {
        let ask = |signing: &Signing| post_over_http_2(gateway, signing);
        let signing = get(stage, &agent, &agents_path()).post(b"hello");
        assert_eq!(ask(&signing).status, 200, "{is_to_http_1}");
        let lie = get(stage, &agent, &agents_path()).post(b"hello");
        let lie = Signing { body: Some(b"hellO".to_vec()), ..lie };
        let answer = ask(&lie);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["reason"]), (401, &json!("bad_content_digest")));
        assert!(to_http1.upstream.seen_at(&lie.target).iter().all(|seen| !seen.whole));
        let whole = upstream.seen().iter().any(|seen| seen.uri.path() == lie.target && seen.body == b"hellO");
        assert!(!whole);
    }
}

/// Holds bodies of up to 8 MiB.
fn holds(tenant: Tenant) -> Tenant {
    tenant.set("max_body_bytes", 8 * 1024 * 1024).set("digest", "before")
}

/// Does as a server that has waited too long for a request.
fn idle(mut stream: TcpStream) {
    let _ =
        stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

/// The head of a signed request whose body is so long, sent; and the leave to send its body, read.
fn begun(site: &Site, signing: &Signing, length: usize) -> Wire {
    let request = Signing { body: None, ..signing.clone() }.request();
    let mut wire = site.gateway.connect();
    wire.send(&request.with("Content-Length", &length.to_string()).with("Expect", "100-continue").bytes());
    assert_eq!(wire.head().unwrap().status, 100);
    wire
}

/// Uploads that hold all that one agent may. Each moves on until the last has begun: a silent one is ended.
fn all_begun(site: &Site, signing: impl Fn() -> Signing) -> Vec<Wire> {
    let mut open: Vec<Wire> = Vec::new();
    for _ in 0..12 {
        open.iter_mut().for_each(|wire| wire.send(b"7"));
        open.push(begun(site, &signing(), 8 * 1024 * 1024));
    }
    open
}

// threat: A signed request is altered or sent again, or its body exchanged
fn no_upstream_waits_for_a_body_that_is_held(stage: &Stage) {
    let agent = stage.world().agent(4);
    for way in ["library", "relay"] {
        let site = signed_only(stage).tenant(holds).way(way).unlimited().start();
        for length in [5, 65_536, 65_537, 200_000] {
            site.upstream.greet(Some(idle));
            let signing = get(stage, &agent, &agents_path()).post(&vec![7; length]);
            let mut wire = begun(&site, &signing, length);
            wire.send(&[7; 4]);
            let terms = site.gateway.ask(&Request::get(ACME, "/.well-known/erc8128"));
            assert_eq!(terms.status, 200);
            site.upstream.greet(None);
            wire.send(&vec![7; length - 4]);
            assert_eq!(wire.answer().status, 200, "{way} {length}");
            assert_eq!(site.upstream.whole(&signing.target).body_bytes, length);
            site.upstream.hang_up();
        }
    }
}

// threat: A signed request is altered or sent again, or its body exchanged
fn no_upstream_waits_for_a_body_that_is_held_over_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let to_http2 = signed_only(stage).tenant(holds).unlimited().h2c(&upstream).start();
    let to_http1 = signed_only(stage).tenant(holds).unlimited().start();
    let agent = stage.world().agent(4);
    let ask = |site: &Site, length: usize, is_announced: bool| {
        let signing = get(stage, &agent, &agents_path()).post(&vec![7; length]);
        let fold = |head: http::request::Builder, (name, value): (String, String)| head.header(name, value);
        let head = http::Request::builder().method("POST").uri(format!("http://{ACME}{}", signing.target));
        let head = signing.headers().into_iter().fold(head, fold);
        let head = if is_announced { head.header("content-length", length) } else { head };
        site.upstream.greet(Some(idle));
        let status = h2c::run(async {
            let client = h2c::connect(site.gateway.address).await.unwrap();
            let mut ready = client.clone().ready().await.unwrap();
            let (answer, mut body) = ready.send_request(head.body(()).unwrap(), false).unwrap();
            // The gateway has read some of it when there is room for more.
            let first = (length - 1).min(256 * 1024);
            body.send_data(vec![7; first].into(), false).unwrap();
            if first == 256 * 1024 {
                body.reserve_capacity(1);
                poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
            }
            let terms = Message::request(Method::GET, ACME, "/.well-known/erc8128");
            assert_eq!(h2c::exchange(client, &terms).await.unwrap().status, 200);
            site.upstream.greet(None);
            body.send_data(vec![7; length - first].into(), true).unwrap();
            answer.await.unwrap().status()
        });
        assert_eq!(status, 200, "{length} {is_announced}");
        site.upstream.hang_up();
        signing.target
    };
    for (length, is_announced) in [(400_000, true), (5, true), (5, false), (48_000, false), (65_537, true)] {
        let path = ask(&to_http1, length, is_announced);
        assert_eq!(to_http1.upstream.whole(&path).body_bytes, length);
        let path = ask(&to_http2, length, is_announced);
        assert_eq!(upstream.only(&path).body, vec![7; length]);
    }
    // The beginning of a longer one without a length is all that is read before.
    to_http1.upstream.greet(None);
    let longer = [49_153, 65_536, 65_537, 70_000, 81_920, 200_000].map(|length| vec![7; length]);
    for (site, body) in
        [&to_http1, &to_http2].iter().flat_map(|site| longer.iter().map(move |body| (site, body)))
    {
        let signing = get(stage, &agent, &agents_path()).post(body);
        let request = Message::request(Method::POST, ACME, &signing.target);
        let with =
            |request: Message, (name, value): (String, String)| request.with(&name.to_lowercase(), &value);
        let request = signing.headers().into_iter().fold(request, with).body(body);
        assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200, "{}", body.len());
    }
}

// threat: Huge or costly heads and bodies
fn one_agent_holds_three_quarters_of_the_memory_for_bodies(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = signed_only(stage).tenant(holds).way(way).unlimited().start();
        let (greedy, other) = (stage.world().agent(4), stage.world().agent(4));
        let hello = |agent: &Agent| get(stage, agent, &agents_path()).post(b"hello");
        let mut open = all_begun(&site, || hello(&greedy));
        let one_more = hello(&greedy);
        let refused = site.gateway.ask(&one_more.request());
        assert_eq!((refused.status, &refused.json()["errorType"]), (503, &json!("OVERLOADED")), "{way}");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(site.gateway.ask(&hello(&other).request()).status, 200);
        // Nor is there room for one that grows beyond what is left.
        let endless = chunked(&get(stage, &greedy, &agents_path()).post(b"hello"));
        assert_eq!(site.gateway.ask_raw(&endless).status, 503);
        let label = "tiergate_overload_total{limit=\"bodies\",tenant=\"t\"}";
        assert_eq!(Samples::parse(&site.gateway.service.metrics()).get(label), 2.0);
        // Nothing was charged for it, and its nonce is good.
        open.pop();
        until("the room of a client that has left is free", SOON, || {
            (site.gateway.ask(&one_more.request()).status == 200).then_some(())
        });
    }
}

fn a_lack_of_memory_spends_no_refused_credential(stage: &Stage) {
    let world = stage.world();
    let site = signed_only(stage).tenant(holds).unlimited();
    let site = site.set("signature.contracts", true).set("abuse.failures_per_minute", 1).start();
    let wallet = Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key };
    let id = world.agent(4).id;
    world.chain().transfer(ALICE, wallet, id);
    let agent = world.known_agent(id, wallet);
    let hello = || get(stage, &agent, &agents_path()).post(b"hello");
    let held = all_begun(&site, hello);
    assert_eq!(site.gateway.ask(&hello().request()).status, 503);
    drop(held);
    let answer = until("there is memory again", SOON, || {
        Some(site.gateway.ask(&hello().request())).filter(|answer| answer.status != 503)
    });
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn every_dialect_that_carries_the_request_judges_its_signature(stage: &Stage) {
    let site = Site::of(stage).unlimited();
    let asked = Asked::start(site.tenant(|tenant| takes(tenant.set("id", "acme"))));
    let agent = stage.world().agent(3);
    for dialect in DIALECTS {
        let signing = get(stage, &agent, &format!("{}?a=b", agents_path()));
        let decision = asked.ask(dialect, &signing.original());
        assert!(decision.passes, "{dialect:?}: {}", decision.answer.text());
        let again = asked.ask(dialect, &signing.original());
        is_refused(&again.answer, 401, "nonce_reused");
        let mut other = get(stage, &agent, &agents_path()).original();
        other.target.push('x');
        is_refused(&asked.ask(dialect, &other).answer, 401, "bad_signature");
        // The scheme is the one that the gateway tells, and http where it tells none.
        let secure = Signing { scheme: "https", ..get(stage, &agent, &agents_path()) };
        is_refused(&asked.ask(dialect, &secure.original()).answer, 401, "bad_signature");
        let original = match dialect {
            Dialect::Forward | Dialect::Grpc => Original { scheme: "https".into(), ..secure.original() },
            Dialect::Nginx | Dialect::Envoy => secure.original().with("X-Forwarded-Proto", "https"),
        };
        assert!(asked.ask(dialect, &original).passes, "{dialect:?}");
        // Nobody sees the body here, so its digest is signed and goes on.
        let bodiless = Signing { method: "POST".into(), ..get(stage, &agent, &agents_path()) };
        is_refused(&asked.ask(dialect, &bodiless.original()).answer, 401, "content_digest_required");
        let posted = get(stage, &agent, &agents_path()).post(b"hello");
        assert!(asked.ask(dialect, &posted.original()).passes, "{dialect:?}");
    }
}

/// Tenants of every host that name some for signatures, and one that other gateways alone ask for; and one that names its own.
pub(crate) fn naming(upstream: &str) -> [Tenant; 3] {
    let named = |tenant: Tenant| tenant.set("signed_hosts", vec!["named.test", "*.below.test"]);
    let any = named(Tenant::of("any", &["*"], &[upstream]));
    [any, named(Tenant::asked("asked")), Tenant::of("own", &["own.test", "*.below.own.test"], &[upstream])]
}

/// The tenants of [`naming`], a host that is signed and written, and whether signatures count for it.
pub(crate) const NAMED: [(&str, &str, &str, bool); 16] = [
    ("any", "named.test", "named.test", true),
    ("any", "named.test", "NAMED.test", true),
    ("any", "named.test:8443", "named.test:8443", true),
    ("any", "a.below.test", "a.below.test", true),
    ("any", "below.test", "below.test", false),
    ("any", "evil.test", "evil.test", false),
    ("any", "evil.test", "EVIL.test", false),
    ("any", "evil.test:8443", "evil.test:8443", false),
    ("any", "named.test.evil.test", "named.test.evil.test", false),
    ("any", "evil.test", "named.test", false),
    ("asked", "named.test", "NAMED.test", true),
    ("asked", "evil.test", "evil.test", false),
    ("own", "own.test", "OWN.test", true),
    ("own", "a.below.own.test:8443", "a.below.own.test:8443", true),
    ("own", "evil.test", "evil.test", false),
    ("own", "named.test", "named.test", false),
];

/// The entry points that lead to a tenant of [`NAMED`]: a host that no other tenant has is the first one's at our gateway.
fn seats(tenant: &str, counts: bool) -> impl Iterator<Item = EntryPoint> {
    let is_others = tenant == "asked" || (tenant == "own" && !counts);
    BY_HEADERS.into_iter().skip(if is_others { OURS } else { 0 })
}

// threat: What is signed for another service is sent on to us
fn a_signed_request_counts_for_a_host_that_its_tenant_names_at_every_seat(stage: &Stage) {
    let site = Site::of(stage).unlimited();
    let tenants = naming(&site.upstream().address.to_string()).map(takes);
    let site = site.set("listen.trusted_headers", vec!["X-Forwarded-For", "X-Forwarded-Proto"]);
    let asked = Asked::start(site.only(tenants.into()));
    let agent = stage.world().agent(3);
    for (tenant, signed, written, counts) in NAMED {
        let entries = EntryPoints::of(&asked, tenant, written);
        for entry in seats(tenant, counts) {
            let signing = Signing { host: signed.into(), ..get(stage, &agent, &agents_path()) };
            let original = Original { host: written.into(), ..signing.original().of_tenant(tenant) };
            // Our gateway trusts who asks to say how the client came.
            let is_ours = matches!(entry, EntryPoint::Gateway | EntryPoint::Http2);
            let said = entries
                .ask(entry, &if is_ours { original.with("X-Forwarded-Proto", "http") } else { original });
            assert_eq!(said.passes, counts, "{tenant} {written}: {said:?}");
            if !counts {
                is_refused(&said.answer, 401, "bad_signature");
            }
        }
    }
}

fn signatures_without_a_tag_pass_where_they_are_taken(stage: &Stage) {
    let site =
        signed_only(stage).tenant(|tenant| tenant.set("credentials", vec!["erc8128_untagged"])).start();
    let agent = stage.world().agent(3);
    let tagged = get(stage, &agent, &agents_path());
    is_refused(&site.gateway.ask(&tagged.request()), 401, "no_acceptable_signature");
    let account = tagged.account.replace("eip155", "erc8128");
    let untagged = Signing { tag: "", account, ..tagged };
    assert_eq!(site.gateway.ask(&untagged.request()).status, 200);
    is_refused(&site.gateway.ask(&untagged.request()), 401, "nonce_reused");
    let elsewhere = signed_only(stage).start();
    is_refused(&elsewhere.gateway.ask(&untagged.request()), 401, "no_acceptable_signature");
}
