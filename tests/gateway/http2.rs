//! HTTP/2 in the clear on both sides: gRPC with its trailers, many streams, and headers that must not get through.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::frames::{End, Frames};
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::refusals::is_unseen;
use crate::rig::scripts::{self, Cue};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::support::agents::unknown_key;

pub(crate) const CASES: &[Case] = cases![
    a_request_of_http_2_reaches_an_upstream_of_http_1,
    grpc_goes_through_with_its_trailers,
    grpc_errors_without_a_body_go_through,
    refusals_are_the_same_over_http_2,
    the_same_credential_twice_is_401_over_http_2,
    many_streams_of_one_connection_get_their_own_answers,
    events_arrive_one_by_one_over_http_2,
    an_authority_and_a_host_that_differ_are_not_routed_apart,
    headers_that_http_2_forbids_reach_no_upstream,
    a_body_of_another_length_than_announced_is_never_whole,
    ambiguous_paths_of_http_2_are_not_public,
];

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
}

fn grpc_stage(stage: &Stage) -> (Gateway, H2Upstream, String) {
    let upstream = H2Upstream::start(grpc);
    let tenant = Tenant::of("t", &[ACME], &[&format!("h2c://{}", upstream.address)]).public();
    let gateway = Gateway::start(stage, &[tenant]);
    let key = stage.world().agent(4).generate(&gateway.service);
    (gateway, upstream, key)
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
    let house = stage.house();
    let path = agents_path();
    let request = Message::request(Method::POST, ACME, &format!("{path}?a=%20b"))
        .with("x-api-key", &key)
        .with("x-many", "1")
        .with("x-many", "2")
        .body(b"hello");
    let answer = h2c::ask(house.gateway.address, &request).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let echoed: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(echoed["bodyBytes"], json!(5));
    assert_eq!(
        (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining")),
        (Some("166"), Some("165"))
    );
    assert_eq!(answer.header("ratelimit"), Some("\"agent\";r=165"));
    let seen = house.upstream.only(&path);
    assert_eq!((seen.method.as_str(), seen.target), ("POST", format!("{path}?a=%20b")));
    let head = String::from_utf8_lossy(&seen.head).to_lowercase();
    assert!(!head.contains("\r\n:") && head.matches("\r\nhost:").count() == 1, "{head}");
    assert!(seen.body == b"hello" && !head.contains(&key), "{head}");
    assert!(
        head.contains("\r\nhost: acme.test\r\n")
            && head.contains(&format!("\r\nx-agent-id: {}\r\n", agent.text()))
    );
}

fn grpc_goes_through_with_its_trailers(stage: &Stage) {
    let (gateway, upstream, key) = grpc_stage(stage);
    let path = "/echo.Echo/Say";
    let request = call(path).with("x-api-key", &key).trailer("x-sum", "1").trailer("x-agent-id", "forged");
    let answer = h2c::ask(gateway.address, &request).unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"\0\0\0\0\x05hello".as_slice()));
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert_eq!(answer.trailers.get("grpc-status").unwrap(), "0");
    assert_eq!(answer.trailers.get("x-checksum").unwrap(), "abc");
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
    let (gateway, _upstream, key) = grpc_stage(stage);
    let answer = h2c::ask(gateway.address, &call("/echo.Echo/fail").with("x-api-key", &key)).unwrap();
    assert_eq!((answer.status, answer.header("grpc-status"), answer.text().as_str()), (200, Some("5"), ""));
}

fn refusals_are_the_same_over_http_2(stage: &Stage) {
    let (_, spent) = stage.agent(1);
    let (_, unstaked) = stage.agent(0);
    let house = stage.house();
    let path = agents_path();
    let at = |host: &str, path: &str| Message::request(Method::POST, host, path).body(b"body");
    let ask = |request: &Message| h2c::ask(house.gateway.address, request).unwrap();
    assert_eq!(ask(&at(ACME, &agents_path()).with("x-api-key", &spent)).status, 200);
    for (request, status, error_type) in [
        (at(ACME, &path), 401, "INVALID_API_KEY"),
        (at(ACME, &path).with("x-api-key", &unknown_key(40)), 401, "INVALID_API_KEY"),
        (at(ACME, &path).with("authorization", "Bearer svc_live_v1_x"), 400, "VALIDATION_ERROR"),
        (at(ACME, &path).with("x-agent-nonce", "1"), 400, "VALIDATION_ERROR"),
        (at(ACME, &path).with("x-api-key", &unstaked), 403, "TIER_BLOCKED"),
        (at(ACME, &path).with("x-api-key", &spent), 429, "RATE_LIMITED"),
        (at("unknown.test", &path), 404, "NOT_FOUND"),
    ] {
        let answer = ask(&request);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &body["errorType"]), (status, &json!(error_type)), "{request:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
    }
    assert_eq!(ask(&at(ACME, "/denied/x")).status, 403);
    is_unseen(&house.upstream, &path);
}

fn the_same_credential_twice_is_401_over_http_2(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    let path = agents_path();
    let request = Message::request(Method::GET, ACME, &path);
    let bearer = format!("Bearer {key}");
    for request in [
        request.clone().with("x-api-key", &key).with("x-api-key", &key),
        request.clone().with("authorization", &bearer).with("authorization", &bearer),
        request.clone().with("authorization", &bearer).with("x-api-key", &key),
        request.with("authorization", "Basic eDp5").with("authorization", &bearer),
    ] {
        assert_eq!(h2c::ask(house.gateway.address, &request).unwrap().status, 401, "{request:?}");
    }
    is_unseen(&house.upstream, &path);
}

fn many_streams_of_one_connection_get_their_own_answers(stage: &Stage) {
    let house = stage.house();
    let address = house.gateway.address;
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
    let house = stage.house();
    let path = public_path();
    let cue = Cue::new();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    house
        .upstream
        .on(&path, scripts::chunks_on_cue(head, &["data: one\n\n", "data: two\n\n"], &[Arc::clone(&cue)]));
    let address = house.gateway.address;
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

/// What must stand first, for a path of acme.test.
fn pseudo(path: &str) -> [(&str, &str); 4] {
    [(":method", "POST"), (":scheme", "http"), (":authority", ACME), (":path", path)]
}

fn an_authority_and_a_host_that_differ_are_not_routed_apart(stage: &Stage) {
    let house = stage.house();
    for (authority, host) in
        [(ACME, "golden.test"), ("golden.test", ACME), ("unknown.test", ACME), (ACME, "unknown.test")]
    {
        let path = public_path();
        let mut frames = Frames::open(house.gateway.address);
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", &path),
            ("host", host),
        ];
        frames.headers(&fields, true);
        frames.end();
        for seen in house.upstream.seen_at(&path) {
            assert_eq!(seen.all("host"), [authority], "who was routed by one name is forwarded under it");
            assert_ne!(authority, "unknown.test");
        }
    }
}

fn headers_that_http_2_forbids_reach_no_upstream(stage: &Stage) {
    let house = stage.house();
    let odd: &[&[(&str, &str)]] = &[
        &[("X-Upper", "x")],
        &[("X-Agent-Id", "1")],
        &[("connection", "close")],
        &[("keep-alive", "x")],
        &[("proxy-connection", "x")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "websocket")],
        &[("te", "gzip")],
        &[("", "x")],
        &[("x y", "x")],
        &[("x:y", "x")],
        &[("x\r\nx-agent-id", "1")],
        &[("x\0", "x")],
        &[("x", "a\r\nx-agent-id: 1")],
        &[("x", "a\nb")],
        &[("x", "a\rb")],
        &[("x", "a\0b")],
        &[("host", "a"), ("host", "b")],
        &[(":path", "/public/other")],
        &[(":agent", "x")],
        &[("x", "1"), (":method", "GET")],
        &[("content-length", "x")],
        &[("content-length", "0"), ("content-length", "4")],
    ];
    for fields in odd {
        let path = public_path();
        let mut frames = Frames::open(house.gateway.address);
        frames.headers(&[pseudo(&path).as_slice(), fields].concat(), true);
        frames.end();
        is_unseen(&house.upstream, &path);
    }
    for missing in [":method", ":path", ":scheme"] {
        let path = public_path();
        let mut frames = Frames::open(house.gateway.address);
        let fields: Vec<_> = pseudo(&path).into_iter().filter(|(name, _)| *name != missing).collect();
        frames.headers(&fields, true);
        frames.end();
        is_unseen(&house.upstream, &path);
    }
    let path = public_path();
    let mut frames = Frames::open(house.gateway.address);
    frames.headers(&[pseudo(&path).as_slice(), &[("x-plain", "x")]].concat(), true);
    assert_eq!(frames.end(), End::Answered, "the frames are well made");
    house.upstream.only(&path);
    assert!(house.upstream.broken().is_empty(), "{:?}", house.upstream.broken());
}

fn a_body_of_another_length_than_announced_is_never_whole(stage: &Stage) {
    let house = stage.house();
    for (announced, sent) in [("4", "hello"), ("6", "hello"), ("0", "hello"), ("5", "")] {
        let path = public_path();
        let mut frames = Frames::open(house.gateway.address);
        frames
            .headers(&[pseudo(&path).as_slice(), &[("content-length", announced)]].concat(), sent.is_empty());
        if !sent.is_empty() {
            frames.data(sent.as_bytes(), true);
        }
        frames.end();
        for seen in house.upstream.seen_at(&path) {
            // A head that announces nothing is a whole request before anything else is seen of it.
            let as_announced = announced == "0" && seen.body.is_empty();
            assert!(!seen.whole || as_announced, "{announced} announced, {sent:?} sent: {seen:?}");
        }
    }
    assert!(house.upstream.broken().is_empty(), "{:?}", house.upstream.broken());
}

fn ambiguous_paths_of_http_2_are_not_public(stage: &Stage) {
    let house = stage.house();
    let mut wrong = Vec::new();
    for pattern in [
        "/public/../{}",
        "/public/%2e%2e/{}",
        "/public//{}",
        "/public/..%2f{}",
        "/public/\\..\\{}",
        "/public/..;/{}",
        "public/{}",
        "http://acme.test/public/{}",
        "/public/{} HTTP/1.1\r\nX-Agent-Id: 1\r\nX: ",
        "/public/{}\0",
        "/public/{} x",
        "*",
        "",
    ] {
        let word = unique();
        let path = pattern.replace("{}", &word);
        let mut frames = Frames::open(house.gateway.address);
        frames.headers(&pseudo(&path), true);
        frames.end();
        for seen in house.upstream.seen_with(&word) {
            wrong.push(format!("{path:?} came as {}", seen.target));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(house.upstream.broken().is_empty(), "{:?}", house.upstream.broken());
}
