//! HTTP/2 in the clear on both sides: gRPC with its trailers, many streams, and headers that must not get through.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::frames::{
    CALM, DATA, END_HEADERS, END_STREAM, End, Frames, HEADERS, REFUSED, RST_STREAM, WINDOW_UPDATE, block,
    frame,
};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{behind::Other, site::Site, upstream::Then};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_request_of_http_2_reaches_an_upstream_of_http_1,
    grpc_goes_through_with_its_trailers,
    grpc_errors_without_a_body_go_through,
    many_streams_of_one_connection_get_their_own_answers,
    events_arrive_one_by_one_over_http_2,
    an_authority_and_a_host_that_differ_are_not_routed_apart,
    connect_and_trace_are_405_over_http_2,
    headers_that_http_2_forbids_reach_no_upstream_and_end_their_stream_alone,
    targets_that_no_url_has_are_400_over_http_1_and_http_2,
    a_clients_bytes_end_no_other_clients_requests_behind_a_proxy_that_speaks_http_2,
    a_body_of_another_length_than_announced_is_never_whole,
    headers_below_32_kib_pass_and_those_of_32_kib_are_431,
    one_hundred_and_twenty_eight_streams_are_served_and_one_more_is_refused,
    sixty_four_pending_resets_are_borne_and_one_more_ends_the_connection,
    sixty_four_provoked_resets_are_borne_and_one_more_ends_the_connection,
    no_number_of_provoked_resets_ends_the_connection_of_a_trusted_proxy,
    a_grpc_stream_that_its_upstream_cuts_ends_unavailable,
    a_client_that_waits_to_be_told_to_continue_is_told_where_the_upstream_speaks_http_2,
];

/// `PROTOCOL_ERROR` (RFC 9113, section 7).
const PROTOCOL_ERROR: u32 = 1;

/// How many bytes and headers a head may have.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 128;

/// How many streams one connection may have at a time, and how many resets of each kind.
const STREAMS_MAX: u32 = 128;
const RESETS_MAX: u32 = 64;

/// As gRPC servers answer, with what the request said.
fn grpc(request: &Message) -> Message {
    if request.uri.path().contains("fail") {
        let answer = Message { status: 200, ..Message::default() };
        return answer
            .with("content-type", "application/grpc")
            .with("grpc-status", "5")
            .with("grpc-message", "no");
    }
    let answer = Message { status: 200, ..Message::default() };
    answer
        .with("content-type", "application/grpc")
        .body(&request.body)
        .trailer("grpc-status", "0")
        .trailer("x-checksum", "abc")
        .trailer("x-ratelimit-limit", "0")
}

fn grpc_site(stage: &Stage) -> (Site, H2Upstream) {
    let upstream = H2Upstream::start(grpc);
    (Site::of(stage).h2c(&upstream).agent(4).start(), upstream)
}

fn call(path: &str) -> Message {
    Message::request(Method::POST, ACME, path)
        .with("content-type", "application/grpc")
        .with("te", "trailers")
        .with("grpc-timeout", "10S")
        .body(b"\0\0\0\0\x05hello")
}

fn a_request_of_http_2_reaches_an_upstream_of_http_1(stage: &Stage) {
    let (agent, key) = stage.agent(3);
    let site = stage.site();
    let path = agents_path();
    let request = Message::request(Method::POST, ACME, &format!("{path}?a=%20b"))
        .with("x-api-key", &key)
        .with("x-many", "1")
        .with("x-many", "2")
        .body(b"hello");
    let answer = h2c::ask(site.gateway.address, &request).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let echoed: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(echoed["bodyBytes"], json!(5));
    assert_eq!(
        (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining")),
        (Some("166"), Some("165"))
    );
    assert_eq!(answer.header("ratelimit"), Some("\"agent\";r=165"));
    let seen = site.upstream.only(&path);
    assert_eq!((seen.method.as_str(), seen.target), ("POST", format!("{path}?a=%20b")));
    let head = String::from_utf8_lossy(&seen.head).to_lowercase();
    assert!(!head.contains("\r\n:") && head.matches("\r\nhost:").count() == 1, "{head}");
    assert!(seen.body == b"hello" && !head.contains(&key), "{head}");
    assert!(
        head.contains("\r\nhost: acme.test\r\n")
            && head.contains(&format!("\r\nx-agent-id: {}\r\n", agent.text()))
    );
}

// threat: An upstream's own limit headers
fn grpc_goes_through_with_its_trailers(stage: &Stage) {
    let (site, upstream) = grpc_site(stage);
    let path = "/echo.Echo/Say";
    let request =
        call(path).with("x-api-key", site.key()).trailer("x-sum", "1").trailer("x-agent-id", "forged");
    let answer = h2c::ask(site.gateway.address, &request).unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"\0\0\0\0\x05hello".as_slice()));
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert_eq!(answer.trailers.get("grpc-status").unwrap(), "0");
    assert_eq!(answer.trailers.get("x-checksum").unwrap(), "abc");
    assert_eq!(answer.trailers.get("x-ratelimit-limit"), None, "limits are the gateway's to tell");
    let seen = upstream.only(path);
    assert_eq!(seen.body, b"\0\0\0\0\x05hello");
    assert_eq!(
        (seen.header("te"), seen.header("grpc-timeout")),
        (Some("trailers"), Some("10S")),
        "gRPC needs them"
    );
    assert_eq!(seen.headers.get_all("x-agent-id").iter().count(), 1);
    assert_eq!(seen.trailers.get("x-agent-id"), None);
    assert_eq!(seen.uri.authority().map(http::uri::Authority::as_str), Some(ACME));
}

fn grpc_errors_without_a_body_go_through(stage: &Stage) {
    let (site, _upstream) = grpc_site(stage);
    let request = call("/echo.Echo/fail").with("x-api-key", site.key());
    let answer = h2c::ask(site.gateway.address, &request).unwrap();
    assert_eq!((answer.status, answer.header("grpc-status"), answer.text().as_str()), (200, Some("5"), ""));
}

// threat: Answers of others, requests that run twice
fn many_streams_of_one_connection_get_their_own_answers(stage: &Stage) {
    let site = stage.site();
    let address = site.gateway.address;
    h2c::run(async {
        let client = h2c::connect(address).await.unwrap();
        let exchanges: Vec<_> = (0..60)
            .map(|_| {
                let (client, path) = (client.clone(), public_path());
                tokio::spawn(async move {
                    let request = Message::request(Method::POST, ACME, &path).body(&vec![b'x'; 3_000]);
                    (path, h2c::exchange(client, &request).await.unwrap())
                })
            })
            .collect();
        for exchange in exchanges {
            let (path, answer) = exchange.await.unwrap();
            let echoed: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status, echoed), (200, json!({ "target": path, "bodyBytes": 3_000 })));
        }
    });
}

fn events_arrive_one_by_one_over_http_2(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let cue = Cue::new();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    site.upstream
        .on(&path, scripts::chunks_on_cue(head, &["data: one\n\n", "data: two\n\n"], &[Arc::clone(&cue)]));
    let address = site.gateway.address;
    h2c::run(async move {
        let client = h2c::connect(address).await.unwrap();
        let mut client = client.ready().await.unwrap();
        let request = http::Request::get(format!("http://{ACME}{path}")).body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        let mut next = async || loop {
            let piece = body.data().await.unwrap().unwrap();
            if !piece.is_empty() {
                break piece;
            }
        };
        assert_eq!(next().await, "data: one\n\n");
        cue.give();
        assert_eq!(next().await, "data: two\n\n");
    });
}

/// The pseudo-headers of a request for a path of acme.test.
fn pseudo(path: &str) -> [(&str, &str); 4] {
    [(":method", "POST"), (":scheme", "http"), (":authority", ACME), (":path", path)]
}

// threat: Gate and upstream see different paths or hosts
fn an_authority_and_a_host_that_differ_are_not_routed_apart(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let ask = |authority: &str, host: &str, path: &str| {
        let request = Message::request(Method::GET, authority, path).with("host", host);
        h2c::ask(site.gateway.address, &request).unwrap().status
    };
    for (authority, host) in [
        (ACME, "golden.test"),
        ("golden.test", ACME),
        ("unknown.test", ACME),
        (ACME, "unknown.test"),
        (ACME, "ACME.test"),
        (ACME, "acme.test:80"),
    ] {
        assert_eq!(ask(authority, host, &path), 400, "{authority} and {host}");
    }
    site.is_unseen(&path);
    assert_eq!(ask(ACME, ACME, &path), 200);
    assert_eq!(site.upstream.only(&path).all("host"), [ACME]);
}

// threat: An upgrade gets around the check
fn connect_and_trace_are_405_over_http_2(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let path = public_path();
    let ask = |request: &Message| h2c::ask(site.gateway.address, request).unwrap();
    let mut connect = Message::request(Method::CONNECT, ACME, "");
    connect.uri = ACME.parse().unwrap();
    for request in [Message::request(Method::TRACE, ACME, &path), connect] {
        for request in [request.clone(), request.with("x-api-key", &key)] {
            let answer = ask(&request);
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(
                (answer.status, &body["errorType"]),
                (405, &json!("METHOD_NOT_ALLOWED")),
                "{request:?}"
            );
        }
    }
    let mut frames = Frames::open(site.gateway.address);
    let mut extended = pseudo(&path).to_vec();
    extended[0].1 = "CONNECT";
    extended.insert(1, (":protocol", "websocket"));
    frames.headers(&extended, true);
    assert_eq!(frames.end(), End::Reset(PROTOCOL_ERROR), "no setting allows an extended CONNECT");
    site.is_unseen(&path);
}

/// All on one connection, on which another request is under way.
// threat: Two ends of one request over HTTP/2
// threat: One client of a shared connection ends it for all
// threat: HTTP/2 abuse
fn headers_that_http_2_forbids_reach_no_upstream_and_end_their_stream_alone(stage: &Stage) {
    let site = stage.site();
    let malformed = End::Reset(PROTOCOL_ERROR);
    let odd: &[(&[(&str, &str)], End)] = &[
        (&[("X-Upper", "x")], End::Answered),
        (&[("X-Agent-Id", "1")], End::Answered),
        (&[("connection", "close")], malformed),
        (&[("keep-alive", "x")], malformed),
        (&[("proxy-connection", "x")], malformed),
        (&[("transfer-encoding", "chunked")], malformed),
        (&[("upgrade", "websocket")], malformed),
        (&[("te", "gzip")], malformed),
        (&[("", "x")], End::Answered),
        (&[("x y", "x")], End::Answered),
        (&[("x:y", "x")], End::Answered),
        (&[("x\r\nx-agent-id", "1")], End::Answered),
        (&[("x\0", "x")], End::Answered),
        (&[("x", "a\r\nx-agent-id: 1")], End::Answered),
        (&[("x", "a\nb")], End::Answered),
        (&[("x", "a\rb")], End::Answered),
        (&[("x", "a\0b")], End::Answered),
        (&[("host", "a"), ("host", "b")], End::Answered),
        (&[("x", " a")], End::Answered),
        (&[("x", "a\t")], End::Answered),
        (&[("x-agent-id", "1 ")], End::Answered),
        (&[("tiergate-refused", "a")], End::Answered),
        (&[(":path", "/public/other")], malformed),
        (&[(":agent", "x")], End::Answered),
        (&[("x", "1"), (":method", "GET")], malformed),
        (&[("content-length", "x")], malformed),
        (&[("content-length", "0"), ("content-length", "4")], malformed),
    ];
    let (path, under_way, next) = (public_path(), public_path(), public_path());
    let mut frames = Frames::open(site.gateway.address);
    frames.write(&frame(HEADERS, END_HEADERS, stream(0), &block(&pseudo(&under_way))));
    let mut at = 0;
    let mut ends = |fields: &[(&str, &str)]| {
        at += 1;
        frames.headers_of(stream(at), fields, true);
        frames.end_of(stream(at))
    };
    let mut wrong = Vec::new();
    for (fields, end) in odd {
        let ended = ends(&[pseudo(&path).as_slice(), fields].concat());
        wrong.extend((ended != *end).then(|| format!("{fields:?}: {ended:?}, not {end:?}")));
    }
    for missing in [":method", ":path", ":scheme"] {
        let fields: Vec<_> = pseudo(&path).into_iter().filter(|(name, _)| *name != missing).collect();
        let ended = ends(&fields);
        wrong.extend((ended != malformed).then(|| format!("without {missing}: {ended:?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    site.is_unseen(&path);
    assert_eq!(ends(&[pseudo(&next).as_slice(), &[("x-plain", "x")]].concat()), End::Answered);
    site.upstream.only(&next);
    frames.data(b"", true);
    assert_eq!(frames.end(), End::Answered);
    site.upstream.only(&under_way);
}

/// Names the byte that no URL has.
fn targets_that_no_url_has_are_400_over_http_1_and_http_2(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    for (rest, byte) in [
        ("?q=#y", "a fragment"),
        ("#x", "a fragment"),
        ("?q=\"", "a double quote"),
        ("<", "a less-than sign"),
        ("?q=>", "a greater-than sign"),
        ("`", "a backtick"),
    ] {
        let target = format!("{path}{rest}");
        let mut frames = Frames::open(site.gateway.address);
        frames.headers(&pseudo(&target), true);
        assert_eq!(frames.end(), End::Answered);
        let echo: Value = serde_json::from_slice(&frames.body).unwrap();
        let answer = Request::get(ACME, &target).ask(site.gateway.address);
        assert_eq!(answer.status, 400, "{target}");
        assert_eq!(answer.json()["error"], echo["error"], "{target}");
        assert!(echo["error"].as_str().unwrap().contains(byte), "{echo}");
    }
    site.is_unseen(&path);
}

// threat: One client of a shared connection ends it for all
fn a_clients_bytes_end_no_other_clients_requests_behind_a_proxy_that_speaks_http_2(stage: &Stage) {
    let site = stage.site();
    let Some(caddy) = Other::caddy_before(site.gateway.address) else { return };
    let (path, odd) = (public_path(), public_path());
    let cue = Cue::new();
    let awaited = Arc::clone(&cue);
    let waits = script(move |exchange| {
        awaited.wait()?;
        exchange.write(&scripts::answer("200 OK", &[], b""))?;
        Ok(Then::Goes)
    });
    site.upstream.on(&path, waits);
    std::thread::scope(|threads| {
        let asked: Vec<_> =
            (0..20).map(|_| threads.spawn(|| caddy.ask(&Request::get(ACME, &path)))).collect();
        until("all are under way", SOON, || (site.upstream.seen_at(&path).len() == 20).then_some(()));
        let mut wire = Wire::open(caddy.address);
        let target =
            [format!("GET {odd}?q=").as_bytes(), b"\xff HTTP/1.1\r\nHost: acme.test\r\n\r\n"].concat();
        wire.send(&target);
        assert_eq!(wire.answer().status, 400);
        cue.give();
        for answer in asked {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
    site.is_unseen(&odd);
}

// threat: Two ends of one request over HTTP/2
// threat: HTTP/2 abuse
fn a_body_of_another_length_than_announced_is_never_whole(stage: &Stage) {
    let site = stage.site();
    let send = |path: &str, announced: &str, sent: &str| {
        let mut frames = Frames::open(site.gateway.address);
        frames
            .headers(&[pseudo(path).as_slice(), &[("content-length", announced)]].concat(), sent.is_empty());
        if !sent.is_empty() {
            frames.data(sent.as_bytes(), true);
        }
        frames.end()
    };
    let wrong = [("4", "hello"), ("6", "hello"), ("0", "hello"), ("00", "hello"), ("5", "")];
    let paths = wrong.map(|(announced, sent)| {
        let path = public_path();
        assert_eq!(send(&path, announced, sent), End::Reset(PROTOCOL_ERROR), "{announced}: {sent:?}");
        path
    });
    let path = public_path();
    assert_eq!(send(&path, "5", "hello"), End::Answered);
    assert_eq!(site.upstream.whole(&path).body, b"hello");
    for (path, (announced, sent)) in paths.iter().zip(wrong) {
        for seen in site.upstream.seen_at(path) {
            assert!(!seen.whole, "{announced} announced, {sent:?} sent: {seen:?}");
        }
    }
    // An end that comes behind its head is as good.
    let path = public_path();
    let mut frames = Frames::open(site.gateway.address);
    frames.headers(&[pseudo(&path).as_slice(), &[("content-length", "0")]].concat(), false);
    frames.data(b"", true);
    assert_eq!(frames.end(), End::Answered);
    site.upstream.whole(&path);
    site.are_unseen(&[]);
}

/// RFC 9113, section 6.5.2: names and values, and 32 bytes for each field.
// threat: HTTP/2 abuse
fn headers_below_32_kib_pass_and_those_of_32_kib_are_431(stage: &Stage) {
    let site = stage.site();
    let (path, next) = (public_path(), public_path());
    let size = |fields: &[(&str, &str)]| -> usize {
        fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    };
    let ask = |path: &str, bytes: usize| {
        let head = size(&[(":method", "GET"), (":scheme", "http"), (":authority", ACME), (":path", path)]);
        let rest = bytes - head - size(&[("x-long", "")]);
        let request = Message::request(Method::GET, ACME, path).with("x-long", &"x".repeat(rest));
        h2c::ask(site.gateway.address, &request).unwrap().status
    };
    assert_eq!(ask(&path, HEAD_BYTES_MAX - 1), 200);
    assert_eq!(ask(&next, HEAD_BYTES_MAX), 431);
    site.is_unseen(&next);
    let many = |count: usize| {
        let request = Message::request(Method::GET, ACME, &next);
        (0..count).fold(request, |request, at| request.with(&format!("x-{at}"), "x"))
    };
    assert_eq!(h2c::ask(site.gateway.address, &many(HEADERS_MAX + 1)).unwrap().status, 431);
    site.is_unseen(&next);
    assert_eq!(h2c::ask(site.gateway.address, &many(HEADERS_MAX)).unwrap().status, 200);
}

/// A proxy shares its connection among its clients: none of them ends it for the others.
// threat: One client of a shared connection ends it for all
fn no_number_of_provoked_resets_ends_the_connection_of_a_trusted_proxy(stage: &Stage) {
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.0/8"]).start();
    let overflown = |stream: u32| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(ends_behind(&site, STREAMS_MAX - 1, 0, overflown), End::Answered);
}

// threat: Our bytes in another's stream
fn a_grpc_stream_that_its_upstream_cuts_ends_unavailable(stage: &Stage) {
    let begun =
        frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "200"), ("content-type", "application/grpc")]));
    let reset = frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    let upstream = H2Upstream::that_first_says([begun, frame(DATA, 0, 1, b"\0\0\0\0\x05he"), reset].concat());
    let site = Site::of(stage).h2c(&upstream).start();
    let answer = h2c::ask(site.gateway.address, &call("/public/Say")).unwrap();
    assert_eq!(
        (answer.status, answer.trailers.get("grpc-status").unwrap().as_bytes()),
        (200, b"14".as_slice())
    );
}

fn a_client_that_waits_to_be_told_to_continue_is_told_where_the_upstream_speaks_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let site = Site::of(stage).h2c(&upstream).start();
    let path = public_path();
    let mut wire = site.gateway.connect();
    let request =
        Request::new("POST", ACME, &path).with("Expect", "100-continue").with("Content-Length", "5");
    wire.send(&request.bytes());
    assert_eq!(wire.head().unwrap().status, 100);
    wire.send(b"hello");
    assert_eq!(wire.answer().status, 200);
    let seen = upstream.only(&path);
    assert_eq!((seen.body.as_slice(), seen.header("expect")), (b"hello".as_slice(), None));
}

/// The number of the stream that a client opens as its `at`-th, from 0.
fn stream(at: u32) -> u32 {
    2 * at + 1
}

/// The frame of a request without a body.
fn opened(at: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream(at), &block(&pseudo(path)))
}

// threat: HTTP/2 abuse
fn one_hundred_and_twenty_eight_streams_are_served_and_one_more_is_refused(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let cue = Cue::new();
    let awaited = Arc::clone(&cue);
    site.upstream.on(
        &path,
        script(move |exchange| {
            awaited.wait()?;
            exchange.write(&scripts::answer("200 OK", &[], b""))?;
            Ok(Then::Goes)
        }),
    );
    let mut frames = Frames::open(site.gateway.address);
    frames.write(&(0..=STREAMS_MAX).flat_map(|at| opened(at, &path)).collect::<Vec<u8>>());
    assert_eq!(frames.end_of(stream(STREAMS_MAX)), End::Reset(REFUSED));
    cue.give();
    for at in 0..STREAMS_MAX {
        assert_eq!(frames.end_of(stream(at)), End::Answered);
    }
    assert_eq!(site.upstream.seen_at(&path).len(), 128);
    frames.write(&opened(STREAMS_MAX + 1, &path));
    assert_eq!(frames.end_of(stream(STREAMS_MAX + 1)), End::Answered, "there is room again");
}

/// Sends `count` streams, `then` behind each, and one stream more in one piece. Returns how the last one ends.
fn ends_behind(site: &Site, count: u32, flags: u8, then: impl Fn(u32) -> Vec<u8>) -> End {
    let path = public_path();
    let headers = block(&pseudo(&path));
    let spoilt = (0..count).flat_map(|at| {
        [frame(HEADERS, END_HEADERS | flags, stream(at), &headers), then(stream(at))].concat()
    });
    let mut frames = Frames::open(site.gateway.address);
    frames.write(&[spoilt.collect(), opened(count, &path)].concat());
    frames.end_of(stream(count))
}

// threat: HTTP/2 abuse
fn sixty_four_pending_resets_are_borne_and_one_more_ends_the_connection(stage: &Stage) {
    let cancelled = |stream: u32| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    assert_eq!(ends_behind(stage.site(), RESETS_MAX, END_STREAM, cancelled), End::Answered);
    assert_eq!(ends_behind(stage.site(), RESETS_MAX + 1, END_STREAM, cancelled), End::Closed(Some(CALM)));
}

/// The client breaks a rule on each stream, so that the gateway is the one who resets it.
// threat: HTTP/2 abuse
fn sixty_four_provoked_resets_are_borne_and_one_more_ends_the_connection(stage: &Stage) {
    let overflown = |stream: u32| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(ends_behind(stage.site(), RESETS_MAX, 0, overflown), End::Answered);
    assert_eq!(ends_behind(stage.site(), RESETS_MAX + 1, 0, overflown), End::Closed(Some(CALM)));
}
