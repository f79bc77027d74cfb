//! Other gateways, the real programs, with the configurations that ship in `conf/behind`: they forward what Tiergate admits, as it
//! says, and nothing else, whatever becomes of Tiergate.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use socket2::SockRef;

use crate::access_log::line_of;
use crate::identity::FORGED;
use crate::rig::behind::{Asks, Behind, Other, PAGE};
use crate::rig::case::{Case, cases};
use crate::rig::identity::{expected, identity, identity_headers, normal};
use crate::rig::scripts::{self, Cue};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::{credentials::signed, upstream::Then};
use crate::support::process::{own_ip, stop_listening};
use crate::support::relay::{Behaviour, Relay};
use crate::support::time::{SOON, Stopwatch, until};
use crate::support::wire::{Request, Wire};
use crate::support::{agents::unknown_key, client::Answer};
use crate::upgrades::{WEBSOCKET, open_socket, talks, websocket_echo, with_kind};

pub(crate) const CASES: &[Case] = cases![
    nobody_passes_when_tiergate_its_chain_or_its_store_fails,
    an_agent_arrives_with_its_identity_and_without_its_credential,
    forged_identity_reaches_no_upstream_behind_another_gateway,
    no_header_overrides_the_path_that_was_judged_behind_another_gateway,
    forged_identity_in_trailers_reaches_none_but_the_upstream_of_haproxy,
    no_client_has_its_identity_removed_by_naming_it_in_connection,
    each_tells_who_its_client_is_and_believes_no_client,
    two_hosts_in_one_line_reach_no_upstream,
    an_api_says_nothing_to_caches_and_pages_that_tiergate_would_not_over_grpc,
    every_refusal_arrives_whole_and_reaches_no_upstream,
    a_preflight_is_answered_where_the_dialect_can_and_a_document_nowhere,
    websockets_long_bodies_and_event_streams_pass,
    a_page_of_another_origin_opens_no_websocket_behind_another_gateway,
    nginx_asks_200_times_over_one_connection,
];

/// The longest that a Tiergate that hangs may hold a client: the two seconds that the programs wait, HAProxy's four tries, and the
/// rest for a busy machine.
const FAULT_WITHIN: Duration = Duration::from_secs(30);

fn an_agent_arrives_with_its_identity_and_without_its_credential(stage: &Stage) {
    let behind = stage.behind();
    let (site, agent) = (&behind.site, behind.site.agent());
    for other in &behind.others {
        let bearer = format!("Bearer {}", site.key());
        let credentials = [
            vec![("X-API-Key".to_owned(), site.key().to_owned())],
            vec![("Authorization".to_owned(), bearer)],
            signed(&agent.draft()),
        ];
        for credential in credentials {
            let path = format!("{}?q=%2F&q=a+b", agents_path());
            // The client's own secret is not the gateway's.
            let request = Request::get(ACME, &path).with_all(&credential).with("X-Authz-Secret", "guessed");
            let answer = other.ask(&request);
            assert_eq!(answer.status, 200, "{}: {} {}", other.name, answer.text(), other.log());
            for name in ["x-ratelimit-limit", "x-ratelimit-remaining"] {
                assert!(
                    answer.header(name).is_some_and(|value| value.parse::<u32>().is_ok()),
                    "{}",
                    other.name
                );
            }
            let seen = site.upstream.only(path.split('?').next().unwrap());
            assert_eq!(
                (identity_headers(&seen), &*seen.target),
                (expected(agent, 4), &*path),
                "{}",
                other.name
            );
            let head = String::from_utf8_lossy(&seen.head).into_owned();
            for (name, value) in &credential[credential.len() - 1..] {
                assert!(!head.contains(value), "{}: {name}", other.name);
            }
        }
        // Credentials of other services are none of ours.
        let path = public_path();
        let answer = other.ask(&Request::get(ACME, &path).with("Authorization", "Bearer of-another"));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None), "{}", other.name);
        let seen = site.upstream.only(&path);
        assert_eq!((identity(&seen), seen.header("authorization")), (vec![], Some("Bearer of-another")));
    }
}

/// Asks with a forged header: it is gone, or the request is refused. `wanted` is the identity that arrives.
#[track_caller]
fn is_gone(
    behind: &Behind,
    other: &Other,
    request: Request,
    path: &str,
    name: &str,
    wanted: &[(String, String)],
) {
    let answer = other.ask(&request.with(name, "forged"));
    let seen = behind.site.upstream.seen_at(path);
    let about = format!("{}: {name} {path}", other.name);
    let is_spelled_as_we_do = name.to_ascii_lowercase().starts_with("x-agent-");
    if answer.status == 400 && !is_spelled_as_we_do {
        assert!(seen.is_empty(), "{about}");
        return;
    }
    assert_eq!((answer.status, seen.len()), (200, 1), "{about}: {}", answer.text());
    // nginx strips by whole names alone.
    let is_left = |left: &str| {
        other.asks == Asks::Nginx && ["X-Agent-Anything", "X-Agent-"].contains(&left) && left == name
    };
    let mut identity_headers = identity_headers(&seen[0]);
    identity_headers.retain(|(_, value)| !(is_left(name) && value == "forged"));
    assert_eq!(identity_headers, wanted, "{about}");
}

fn forged_identity_reaches_no_upstream_behind_another_gateway(stage: &Stage) {
    let behind = stage.behind();
    let site = &behind.site;
    let of_strangers = ["X-Agent-Id", "X_Agent_Id", "x.agent.id", "X-Agent-Signature", "X-Agent-Assertion"];
    for other in &behind.others {
        for name in FORGED {
            let path = agents_path();
            let request = Request::get(ACME, &path).key(site.key());
            is_gone(behind, other, request, &path, name, &expected(site.agent(), 4));
        }
        for name in FORGED.iter().chain(&of_strangers) {
            let path = public_path();
            is_gone(behind, other, Request::get(ACME, &path), &path, name, &[]);
        }
    }
    assert!(FORGED.iter().all(|name| normal(name).starts_with("x-agent-")));
}

fn forged_identity_in_trailers_reaches_none_but_the_upstream_of_haproxy(stage: &Stage) {
    let behind = stage.behind();
    for other in &behind.others {
        let path = public_path();
        let trailers = "Trailer: X-Agent-Owner\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Agent-Owner: forged\r\n\r\n";
        let mut wire = Wire::open(other.address);
        wire.send(format!("POST {path} HTTP/1.1\r\nHost: {ACME}\r\n{trailers}").as_bytes());
        assert_eq!(wire.answer().status, 200, "{}", other.name);
        let seen = behind.site.upstream.whole(&path);
        assert_eq!(&seen.body, b"hello", "{}", other.name);
        assert_eq!(
            identity(&seen).len(),
            usize::from(other.asks == Asks::HaProxy),
            "{}: {seen:?}",
            other.name
        );
    }
}

fn no_client_has_its_identity_removed_by_naming_it_in_connection(stage: &Stage) {
    let behind = stage.behind();
    let site = &behind.site;
    for other in &behind.others {
        let (path, named) =
            (agents_path(), "keep-alive, X-Agent-Tier, x-agent-id, x-agent-endpoint-mismatch");
        let answer = other.ask(&Request::get(ACME, &path).key(site.key()).with("Connection", named));
        assert_eq!(answer.status, 200, "{}: {}", other.name, answer.text());
        let seen = site.upstream.only(&path);
        assert_eq!(identity_headers(&seen), expected(site.agent(), 4), "{}", other.name);
        assert!(
            !seen.all("connection").concat().to_lowercase().contains("agent"),
            "{}: {seen:?}",
            other.name
        );
    }
}

/// Servers that obey them would serve what nobody judged.
// threat: The target that is judged is not the one that is forwarded
fn no_header_overrides_the_path_that_was_judged_behind_another_gateway(stage: &Stage) {
    let behind = stage.behind();
    let names =
        ["X-Original-URL", "x_original_url", "X.Original.URL", "X-Original-URI", "X-Rewrite-URL", "Proxy"];
    for other in &behind.others {
        for name in names {
            let path = public_path();
            let answer = other.ask(&Request::get(ACME, &path).with(name, "/agents/forged"));
            let seen = behind.site.upstream.seen_at(&path);
            let about = format!("{}: {name} {}", other.name, answer.text());
            if answer.status == 400 {
                assert!(seen.is_empty() && name.contains(['.', '_']), "{about}");
                continue;
            }
            assert_eq!((answer.status, seen.len()), (200, 1), "{about}");
            assert!(!String::from_utf8_lossy(&seen[0].head).contains("/agents/forged"), "{about}");
        }
    }
}

fn each_tells_who_its_client_is_and_believes_no_client(stage: &Stage) {
    let behind = stage.behind();
    for other in &behind.others {
        let (path, client) = (public_path(), own_ip());
        let forged = [
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Forwarded-Method", "DELETE"),
            ("X-Forwarded-Uri", "/public/forged"),
            ("X-Forwarded-Host", "forged.test"),
            ("X-Original-Method", "DELETE"),
            ("X-Original-URI", "/public/forged"),
            ("X-Original-URL", "http://forged.test/public/forged"),
        ];
        let forge = |request: Request| {
            forged.iter().fold(request, |request, (name, value)| request.with(name, value))
        };
        let answer = forge(Request::get(ACME, &path)).ask_on(&mut Wire::open_from(client, other.address));
        assert_eq!(answer.status, 200, "{}: {}", other.name, answer.text());
        let line = line_of(&behind.site.gateway, "path", &path);
        assert_eq!((&line["method"], &line["host"]), (&json!("GET"), &json!(ACME)), "{}: {line}", other.name);
        // Envoy has another name for clients of its own machine.
        let client = json!(client.to_string());
        assert!(line["client"] == client || other.asks == Asks::EnvoyHttp, "{}: {line}", other.name);
        assert_ne!(line["client"], "203.0.113.9", "{}", other.name);
        // No client's word makes a path public.
        let path = agents_path();
        let answer = other.ask(&forge(Request::get(ACME, &path)));
        is_told(other, &answer, 401, "INVALID_API_KEY");
        assert_eq!(behind.site.upstream.count_at(&path), 0, "{}", other.name);
    }
}

/// A server behind may take the first, where Tiergate judged the last.
// threat: Two hosts in one line
fn two_hosts_in_one_line_reach_no_upstream(stage: &Stage) {
    let behind = stage.behind();
    for other in &behind.others {
        for host in [format!("evil.test,{ACME}"), format!("evil.test, {ACME}"), format!("{ACME},evil.test")] {
            let path = public_path();
            let answer = other.ask(&Request::get(&host, &path));
            assert!((400..500).contains(&answer.status), "{}: {host}: {}", other.name, answer.text());
            assert_eq!(behind.site.upstream.count_at(&path), 0, "{}: {host}", other.name);
        }
    }
}

fn an_api_says_nothing_to_caches_and_pages_that_tiergate_would_not_over_grpc(stage: &Stage) {
    let behind = stage.behind();
    for other in behind.others.iter().filter(|other| other.asks == Asks::EnvoyGrpc) {
        let path = agents_path();
        let said = "Cache-Control: max-age=60\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n";
        let answer = format!("HTTP/1.1 200 OK\r\n{said}Content-Length: 0\r\n\r\n");
        behind.site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
        for origin in [PAGE, "https://evil.example"] {
            let answer = other.ask(&Request::get(ACME, &path).key(behind.site.key()).with("Origin", origin));
            assert_eq!(answer.status, 200, "{}: {}", other.name, answer.text());
            let all = |name: &str| {
                let named = answer.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
                named.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
            };
            let directives = all("cache-control").replace(' ', "");
            assert!(
                directives.split(',').any(|directive| directive == "private"),
                "{}: {directives}",
                other.name
            );
            assert_eq!(
                all("access-control-allow-origin"),
                if origin == PAGE { PAGE } else { "" },
                "{}",
                other.name
            );
            assert_eq!(all("access-control-allow-credentials"), "", "{}", other.name);
        }
    }
}

/// Checks that a client was told of an error. Envoy shows none of those from 500 on that it got over HTTP.
#[track_caller]
fn is_told(other: &Other, answer: &Answer, status: u16, error_type: &str) {
    if other.asks == Asks::EnvoyHttp && status >= 500 {
        is_fault_without_a_body(other, answer);
        return;
    }
    assert_eq!(answer.status, status, "{}: {}", other.name, answer.text());
    match error_type {
        "OVERLOADED" => {
            assert_eq!(answer.json()["errorType"], "OVERLOADED", "{}", other.name);
            assert_eq!(answer.header("retry-after"), Some("1"), "{}", other.name);
        }
        _ => drop(answer.error(status, error_type)),
    }
}

#[track_caller]
fn is_fault_without_a_body(other: &Other, answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (503, String::new()), "{}", other.name);
}

fn every_refusal_arrives_whole_and_reaches_no_upstream(stage: &Stage) {
    let behind = stage.behind();
    let site = &behind.site;
    let word = unique();
    let at = |folder: &str| Request::get(ACME, &format!("/{folder}/{word}"));
    let world = stage.world();
    let (unstaked, small) = (world.agent(0), world.agent(1));
    let no_tier = unstaked.generate(&site.gateway.service);
    let spent = small.generate(&site.gateway.service);
    let nobody = world.known_agent(alloy::primitives::U256::from(999_999_999), site.agent().draft().signer);
    for other in &behind.others {
        // It has one request in a minute.
        let last = site.gateway.ask(&Request::get(ACME, &agents_path()).key(&spent));
        assert!(matches!(last.status, 200 | 429), "{last:?}");
        let refusals = [
            (at("agents").key(&spent), 429, "RATE_LIMITED"),
            (at("agents").key("svc_live_v1_short"), 400, "VALIDATION_ERROR"),
            (at("agents").key(site.key()).with_all(&signed(&small.draft())), 400, "VALIDATION_ERROR"),
            (at("agents"), 401, "INVALID_API_KEY"),
            (at("agents").key(&unknown_key(71)), 401, "INVALID_API_KEY"),
            (at("agents").key(site.key()).key(site.key()), 401, "INVALID_API_KEY"),
            (at("agents").key(&no_tier), 403, "TIER_BLOCKED"),
            (at("denied"), 403, "FORBIDDEN"),
            (at("agents").with_all(&signed(&nobody.draft())), 404, "AGENT_NOT_FOUND"),
            (at(".well-known/openid-configuration").key(&unknown_key(71)), 404, "NOT_FOUND"),
            (at("posted"), 405, "METHOD_NOT_ALLOWED"),
        ];
        for (request, status, error_type) in refusals {
            let answer = other.ask(&request);
            assert_eq!(answer.status, status, "{}: {request:?} {}", other.name, answer.text());
            let is_limit = status == 429;
            if !is_limit {
                is_told(other, &answer, status, error_type);
            }
            let body = answer.json();
            assert_eq!(body["errorType"], error_type, "{}: {body}", other.name);
            let wait = body["details"]["retryAfter"].as_u64().map(|seconds| seconds.to_string());
            assert_eq!(
                (is_limit, answer.header("retry-after")),
                (wait.is_some(), wait.as_deref()),
                "{}",
                other.name
            );
            let limits = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| answer.header(name));
            assert_eq!(limits, if is_limit { [Some("1"), Some("0")] } else { [None; 2] }, "{}", other.name);
            let allow = answer.header("allow");
            assert_eq!(allow, (status == 405).then_some("POST"), "{}", other.name);
            let challenge = answer.header("www-authenticate");
            let is_challenge = challenge.is_some_and(|value| value.starts_with("Bearer realm="));
            assert_eq!(is_challenge, status == 401, "{}: {challenge:?}", other.name);
            assert!(answer.header("cache-control") == Some("no-store"), "{}: {answer:?}", other.name);
            let ours = answer.headers.iter().find(|(name, _)| normal(name).starts_with("x-agent-"));
            assert_eq!(ours, None, "{}", other.name);
        }
    }
    site.is_unseen(&word);
}

fn a_preflight_is_answered_where_the_dialect_can_and_a_document_nowhere(stage: &Stage) {
    let behind = stage.behind();
    let word = unique();
    for other in &behind.others {
        let preflight = Request::new("OPTIONS", ACME, &format!("/agents/{word}")).with("Origin", PAGE);
        let answer = other.ask(&preflight.with("Access-Control-Request-Method", "PUT"));
        let document = other.ask(&Request::get(ACME, "/.well-known/tiergate"));
        let allowed = answer.header("access-control-allow-origin");
        let statuses = (answer.status, document.status);
        match other.asks {
            Asks::EnvoyGrpc => {
                assert_eq!((statuses, allowed), ((204, 401), Some(PAGE)), "{}", other.name);
                assert_eq!(
                    answer.header("vary"),
                    Some("Origin"),
                    "{}: no other page is told this",
                    other.name
                );
            }
            Asks::Nginx | Asks::Caddy | Asks::HaProxy | Asks::EnvoyHttp | Asks::Traefik => {
                assert_eq!(statuses, (403, 401), "{}", other.name);
            }
        }
    }
    behind.site.are_unseen(&[word, ".well-known".to_owned()]);
}

fn websockets_long_bodies_and_event_streams_pass(stage: &Stage) {
    let behind = stage.behind();
    let site = &behind.site;
    for other in &behind.others {
        let path = format!("/socket/{}", unique());
        site.upstream.on(&path, websocket_echo());
        talks(&mut open_socket(&mut Wire::open(other.address), &Request::get(ACME, &path).key(site.key())));

        let path = agents_path();
        let request = Request::new("POST", ACME, &path).key(site.key()).body(&vec![b'x'; 1 << 20]);
        assert_eq!(other.ask(&request).json()["bodyBytes"], 1 << 20, "{}", other.name);

        let (path, cue) = (agents_path(), Cue::new());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        let events = ["data: one\n\n", "data: two\n\n"];
        site.upstream.on(&path, scripts::chunks_on_cue(head, &events, &[Arc::clone(&cue)]));
        let mut wire = Wire::open(other.address);
        wire.send(&Request::get(ACME, &path).key(site.key()).bytes());
        assert_eq!(wire.head().unwrap().status, 200, "{}", other.name);
        assert_eq!(wire.chunk().unwrap().as_deref(), Some(events[0].as_bytes()), "{}", other.name);
        cue.give();
        assert_eq!(wire.chunk().unwrap().as_deref(), Some(events[1].as_bytes()), "{}", other.name);
        assert_eq!(wire.chunk().unwrap(), None);
    }
}

fn a_page_of_another_origin_opens_no_websocket_behind_another_gateway(stage: &Stage) {
    let behind = stage.behind();
    for other in &behind.others {
        let path = format!("/socket/{}", unique());
        behind.site.upstream.on(&path, websocket_echo());
        let request = Request::get(ACME, &path).key(behind.site.key());
        let answer = other.ask(&with_kind(request.clone(), WEBSOCKET).with("Origin", "https://evil.example"));
        is_told(other, &answer, 403, "FORBIDDEN");
        assert_eq!(behind.site.upstream.count_at(&path), 0, "{}", other.name);
        talks(&mut open_socket(&mut Wire::open(other.address), &request.with("Origin", PAGE)));
    }
}

/// Leads connections to an address, and counts them.
fn counted(to: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((own_ip(), 0)).unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::SeqCst);
            let Ok(server) = TcpStream::connect(to) else { continue };
            for (mut from, mut into) in [(&client, &server), (&server, &client)]
                .map(|(from, into)| (from.try_clone().unwrap(), into.try_clone().unwrap()))
            {
                std::thread::spawn(move || io::copy(&mut from, &mut into));
            }
        }
    });
    (address, count)
}

fn nginx_asks_200_times_over_one_connection(stage: &Stage) {
    let behind = stage.behind();
    let site = &behind.site;
    let (address, connections) = counted(behind.authz);
    let Some(nginx) = Other::nginx(address, site.upstream.address) else { return };
    let mut wire = Wire::open(nginx.address);
    for round in 0..200 {
        let request = Request::get(ACME, &agents_path());
        let (request, status) = if round % 2 == 0 { (request.key(site.key()), 200) } else { (request, 401) };
        assert_eq!(request.ask_on(&mut wire).status, status, "{round}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Asks all programs at once.
fn all_asked<'a>(behind: &'a Behind, request: &Request) -> Vec<(&'a Other, Answer)> {
    std::thread::scope(|scope| {
        let ask = |other: &'a Other| scope.spawn(move || (other, other.ask(request)));
        let threads: Vec<_> = behind.others.iter().map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Checks that all show Tiergate's word that it can't verify. Where that comes too late, Envoy shows none, and is asked again.
fn all_are_told(behind: &Behind, request: &Request) {
    let is_told_in_time =
        |(other, answer): &(&Other, Answer)| other.asks != Asks::EnvoyGrpc || !answer.body.is_empty();
    let answers = until("all are told", SOON, || {
        Some(all_asked(behind, request)).filter(|answers| answers.iter().all(is_told_in_time))
    });
    answers.iter().for_each(|(other, answer)| is_told(other, answer, 503, "OVERLOADED"));
}

/// Ends an impostor, also when its case fails.
struct Over<'a>(&'a AtomicBool, SocketAddr);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.1);
    }
}

/// A server at Tiergate's address that is not Tiergate: it answers each connection with these bytes, or resets it.
fn with_impostor(at: SocketAddr, bytes: Option<&'static [u8]>, case: impl FnOnce()) {
    let listener = until("the address is free", SOON, || TcpListener::bind(at).ok());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for mut stream in listener.incoming().flatten() {
                if is_over.load(Ordering::SeqCst) {
                    return stop_listening(&listener);
                }
                let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                let _ = stream.read(&mut [0; 65_536]);
                match bytes {
                    Some(bytes) => drop(stream.write_all(bytes)),
                    None => SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap(),
                }
            }
        });
        let _over = Over(&is_over, at);
        case();
    });
}

const IMPOSTORS: [Option<&[u8]>; 5] = [
    None,
    Some(b""),
    Some(b"nonsense\r\n\r\n"),
    Some(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-Agent-Id: 7\r\n\r\nwelcome"),
    Some(b"HTTP/1.1 204 No Content\r\n\r\n"),
];

fn nobody_passes_when_tiergate_its_chain_or_its_store_fails(stage: &Stage) {
    let mut relay = Relay::new(stage.world().chain().node);
    let node = format!("http://{}", relay.address);
    let mut behind = Behind::start(stage, "1s", |site| {
        let site = site.set("chain.rpc_urls", vec![node]).set("chain.max_staleness", "500ms");
        site.unlimited().under("trap '' XFSZ")
    });
    let word = unique();
    let path = format!("/agents/{word}");
    let key = behind.site.key().to_owned();
    let by_key = Request::get(ACME, &path).key(&key);
    let pass = |behind: &Behind| {
        for other in &behind.others {
            let request = || Request::get(ACME, &agents_path()).key(&key);
            until("requests pass again", SOON, || (other.ask(&request()).status == 200).then_some(()));
        }
    };
    let missed = |behind: &Behind| {
        let passes = || behind.site.gateway.ask(&behind.site.by_key()).status == 200;
        until("the chain is missed", SOON, || (!passes()).then_some(()));
    };
    pass(&behind);

    relay.close();
    missed(&behind);
    // Reads wait for a node that is away, and Tiergate gives up before the other gateways do.
    all_are_told(&behind, &by_key);
    relay.reopen();
    pass(&behind);

    relay.behave(Behaviour::Hang);
    missed(&behind);
    all_are_told(&behind, &by_key);
    relay.behave(Behaviour::Honest);
    pass(&behind);

    behind.site.gateway.limit("fsize", "0");
    for other in &behind.others {
        // A verdict that is late is 503.
        let answer = until("a fault is told", SOON, || {
            let request = Request::get(ACME, &path).with_all(&signed(&behind.site.agent().draft()));
            Some(other.ask(&request)).filter(|answer| answer.status != 503 || other.asks == Asks::EnvoyHttp)
        });
        is_told(other, &answer, 500, "INTERNAL_ERROR");
    }
    behind.site.gateway.limit("fsize", "unlimited");
    pass(&behind);

    // Without an answer of Tiergate nginx, Caddy and HAProxy have one of their own, and Envoy an empty one.
    let is_unasked = |(other, answer): (&Other, Answer), about: &str| match other.asks {
        Asks::Nginx | Asks::Caddy | Asks::HaProxy | Asks::Traefik => {
            assert_eq!(answer.status, 503, "{about} {}: {}", other.name, answer.text());
            is_told(other, &answer, 503, "OVERLOADED");
        }
        Asks::EnvoyHttp | Asks::EnvoyGrpc => is_fault_without_a_body(other, &answer),
    };
    behind.site.gateway.freeze();
    let watch = Stopwatch::start();
    let answers = all_asked(&behind, &by_key);
    let frozen = watch.elapsed();
    behind.site.gateway.signal(Signal::CONT);
    answers.into_iter().for_each(|answer| is_unasked(answer, "frozen"));
    assert!(frozen < FAULT_WITHIN, "{frozen:?}");
    pass(&behind);

    behind.site.gateway.service.kill();
    all_asked(&behind, &by_key).into_iter().for_each(|answer| is_unasked(answer, "dead"));
    assert_eq!(behind.site.upstream.count_at(&path), 0);
    for bytes in IMPOSTORS {
        let about = format!("{:?}", bytes.map(String::from_utf8_lossy));
        with_impostor(behind.authz, bytes, || {
            for answer in all_asked(&behind, &by_key) {
                // Envoy takes each 200 over HTTP, whoever says it, and shows its client any other status.
                if answer.0.asks != Asks::EnvoyHttp || !about.contains("HTTP/1.1") {
                    is_unasked(answer, &about);
                }
            }
        });
    }
    let is_ours = |other: &Other| other.asks != Asks::EnvoyHttp;
    assert!(behind.others.iter().any(is_ours) || behind.others.is_empty());
    behind.site.gateway.launch("");
    pass(&behind);
    let of_envoy = behind.others.iter().filter(|other| !is_ours(other)).count();
    assert!(behind.site.upstream.count_at(&path) <= of_envoy, "only those of the impostor's 200");
}
