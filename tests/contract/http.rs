//! HTTP itself: framing that two readers may read differently, slow and idle clients, kept-alive connections.

use std::time::Duration;

use serde_json::{Value, json};

use crate::heads::ambiguous;
use crate::support::client::{Connection, request_bytes};
use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::time::{Stopwatch, is_undelayed};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_body_that_stops_arriving_is_408_and_closed,
    ambiguous_requests_are_400_and_what_is_smuggled_behind_is_not_answered,
    what_is_no_http_is_refused_and_closed_without_harm,
    broken_chunks_are_400_and_closed,
    a_chunked_body_is_read_like_any_other_and_does_not_shift_the_next_request,
    a_chunked_body_beyond_16_kib_is_413,
    an_announced_body_beyond_16_kib_is_413_before_it_comes,
    a_connection_serves_many_requests_one_after_the_other,
    pipelined_requests_are_answered_in_order,
    slow_clients_do_not_delay_others,
    many_idle_connections_do_not_keep_others_out,
    a_connection_ends_when_the_client_says_so,
    upgrades_and_connect_open_nothing,
    headers_have_an_end,
    answers_are_json_and_not_to_be_stored,
    the_content_type_of_a_request_does_not_matter,
    a_client_that_waits_to_be_told_to_continue_is_told,
];

/// Answered only if somebody reads past the refused request.
const SMUGGLED: &str = "GET /keys/status?agentId=1 HTTP/1.1\r\nHost: a\r\n\r\n";

fn ambiguous_requests_are_400_and_what_is_smuggled_behind_is_not_answered(world: &World) {
    let service = world.service();
    let mut wrong = Vec::new();
    let heads = ambiguous("/livez");
    assert!(heads.len() > 80, "{} heads", heads.len());
    for head in heads {
        let mut connection = service.connect();
        connection.write(format!("{head}{SMUGGLED}").as_bytes()).unwrap();
        let answer = connection.read(false).unwrap_or_else(|error| panic!("{head:?}: {error}"));
        if answer.status != 400 {
            wrong.push(format!("{head:?}: {} {}", answer.status, answer.text()));
            continue;
        }
        answer.is_error(400, "VALIDATION_ERROR", json!({ "field": "request", "received": null }));
        let rest = connection.rest();
        if !rest.is_empty() {
            wrong.push(format!("{head:?}: 400 and {}", String::from_utf8_lossy(&rest)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn what_is_no_http_is_refused_and_closed_without_harm(world: &World) {
    let service = world.service();
    let tls_hello = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03".as_slice();
    let h2_preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    for bytes in [tls_hello, h2_preface, b"\r\n\r\n\r\n", b"\0\0\0\0", b"hello\r\n\r\n"] {
        let mut connection = service.connect();
        connection.write(&[bytes, SMUGGLED.as_bytes(), b"\r\n\r\n"].concat()).unwrap();
        let answer = connection.read(false).unwrap();
        answer.is_error(400, "VALIDATION_ERROR", json!({ "field": "request", "received": null }));
        assert_eq!(connection.rest(), b"");
    }
    service.get("/livez").success(200);
}

fn broken_chunks_are_400_and_closed(world: &World) {
    let service = world.service();
    let head = "POST /verify HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "x\r\n",
        "-1\r\n{}\r\n0\r\n\r\n",
        "+2\r\n{}\r\n0\r\n\r\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
    ] {
        let mut connection = service.connect();
        connection.write(format!("{head}{chunks}{SMUGGLED}").as_bytes()).unwrap();
        let said = String::from_utf8_lossy(&connection.rest()).into_owned();
        assert!(said.starts_with("HTTP/1.1 400"), "{chunks:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{chunks:?}: {said}");
        assert!(!said.contains("hasKey"), "{chunks:?}: {said}");
    }
}

/// A body in chunks of this many bytes.
fn chunked(service: &Service, path: &str, body: &str, chunk_bytes: usize) -> Vec<u8> {
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", service.api)
            .into_bytes();
    for chunk in body.as_bytes().chunks(chunk_bytes) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Chunk extensions and trailers are read leniently below us: what follows them is never taken for a request.
fn a_chunked_body_is_read_like_any_other_and_does_not_shift_the_next_request(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    for chunk_bytes in [1, 7, 1_000] {
        let mut connection = service.connect();
        let body = agent.signed().to_string();
        connection.write(&chunked(service, "/verify/signature", &body, chunk_bytes)).unwrap();
        connection.read(false).unwrap().success(200);
        connection.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(connection.read(false).unwrap().json(), json!({ "status": "ok" }));
    }
}

fn a_chunked_body_beyond_16_kib_is_413(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    for (bytes, status) in [(16_384, 200), (16_385, 413), (60_000, 413)] {
        let mut body = agent.signed();
        body["padding"] = json!("");
        body["padding"] = json!("x".repeat(bytes - body.to_string().len()));
        let mut connection = service.connect();
        let _ = connection.write(&chunked(service, "/verify/signature", &body.to_string(), 4_000));
        let answer = connection.read(false).unwrap();
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text());
    }
}

fn an_announced_body_beyond_16_kib_is_413_before_it_comes(world: &World) {
    let mut connection = world.service().connect();
    connection.write(b"POST /verify HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n{").unwrap();
    let answer = connection.read(false).unwrap();
    answer.is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
    let rest = connection.rest();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

fn a_connection_serves_many_requests_one_after_the_other(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let mut connection = service.connect();
    for _ in 0..50 {
        connection.post("/verify", &json!({ "apiKey": key })).unwrap().success(200);
        connection.post("/verify", &json!({})).unwrap().error(400, "VALIDATION_ERROR");
        connection.send("GET", "/nowhere", &[], None).unwrap().error(404, "NOT_FOUND");
        connection.send("GET", "/livez", &[], None).unwrap().success(200);
    }
}

fn pipelined_requests_are_answered_in_order(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let body = json!({ "apiKey": key }).to_string();
    let one = request_bytes(service.api, "POST", "/verify", &[], Some(body.as_bytes()));
    let other = request_bytes(service.api, "GET", "/livez", &[], None);
    let mut connection = service.connect();
    connection.write(&[one.as_slice(), &other, &one].concat()).unwrap();
    assert_eq!(connection.read(false).unwrap().success(200)["agentId"], json!(agent.text()));
    assert_eq!(connection.read(false).unwrap().success(200), json!({ "status": "ok" }));
    assert_eq!(connection.read(false).unwrap().success(200)["agentId"], json!(agent.text()));
}

fn slow_clients_do_not_delay_others(world: &World) {
    let service = Service::start(world.settings());
    let key = world.agent(4).generate(&service);
    let bytes = request_bytes(service.api, "GET", "/livez", &[], None);
    let other = || service.verify(&key).success(200);
    let calm = Stopwatch::of(|| drop(other()));
    let (all, watch) = (0..100, Stopwatch::start());
    let begin = |_| {
        let mut connection = service.connect();
        connection.write(&bytes[..30]).unwrap();
        connection
    };
    let mut slow: Vec<Connection> = all.map(begin).collect();
    is_undelayed(calm, Stopwatch::of(|| drop(other())));
    // Slow is not wrong: they are served when they finish within the ten seconds for a head.
    assert!(
        watch.elapsed() < Duration::from_secs(8),
        "the machine is slower than they are: {:?}",
        watch.elapsed()
    );
    for connection in &mut slow {
        connection.write(&bytes[30..]).unwrap();
        assert_eq!(connection.read(false).unwrap().status, 200);
    }
}

fn a_body_that_stops_arriving_is_408_and_closed(world: &World) {
    let service = world.service();
    let body = world.agent(4).signed().to_string();
    let bytes = request_bytes(service.api, "POST", "/verify/signature", &[], Some(body.as_bytes()));
    let mut connection = service.connect();
    connection.write(&bytes[..bytes.len() - 1]).unwrap();
    let answer = connection.read(false).unwrap();
    answer.is_error(408, "REQUEST_TIMEOUT", Value::Null);
    assert!(connection.rest().is_empty());
}

fn many_idle_connections_do_not_keep_others_out(world: &World) {
    let service = Service::start(world.settings());
    let mut idle: Vec<Connection> = (0..200).map(|_| service.connect()).collect();
    service.verify(&world.agent(4).generate(&service)).success(200);
    for connection in &mut idle {
        connection.send("GET", "/livez", &[], None).unwrap().success(200);
    }
}

fn a_connection_ends_when_the_client_says_so(world: &World) {
    for request in [
        "GET /livez HTTP/1.0\r\n\r\n",
        "GET /livez HTTP/1.0\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n",
        "POST /verify HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        let mut connection = world.service().connect();
        connection.write(request.as_bytes()).unwrap();
        let answer = connection.read(false).unwrap();
        assert_eq!(answer.status, if request.starts_with("GET") { 200 } else { 400 }, "{}", answer.text());
        assert_eq!(answer.header("connection"), Some("close"));
        // An idle connection is closed later than this waits.
        assert_eq!(connection.rest(), b"");
    }
}

fn upgrades_and_connect_open_nothing(world: &World) {
    let service = world.service();
    for upgrade in ["websocket", "h2c", "tls/1.3", "anything"] {
        let headers = [("Connection", "Upgrade"), ("Upgrade", upgrade)];
        let answer = service.request("POST", "/verify", &headers, Some(b"{}"));
        answer.is_invalid("apiKey", Value::Null);
    }
    // A protocol that is not switched to is ignored (RFC 9110, section 7.8).
    let mut connection = service.connect();
    for _ in 0..2 {
        let head =
            "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n";
        connection.write(head.as_bytes()).unwrap();
        assert_eq!(connection.read(false).unwrap().status, 200);
    }
    for request in ["CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut connection = service.connect();
        connection.write(request.as_bytes()).unwrap();
        connection.read(false).unwrap().error(404, "NOT_FOUND");
    }
}

fn headers_have_an_end(world: &World) {
    let service = world.service();
    let head = |bytes: usize| {
        let frame = "GET /livez HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".len();
        format!("GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(bytes - frame))
    };
    let with = |headers: usize| {
        let more: String = (1..headers).map(|number| format!("X-{number}: y\r\n")).collect();
        format!("GET /livez HTTP/1.1\r\nHost: a\r\n{more}\r\n")
    };
    for (head, status) in
        [(head(32 * 1024), 200), (head(32 * 1024 + 1), 431), (with(128), 200), (with(129), 431)]
    {
        let mut connection = service.connect();
        connection.write(head.as_bytes()).unwrap();
        assert_eq!(connection.read(false).unwrap().status, status, "{}", head.len());
    }
    service.get("/livez").success(200);
}

fn answers_are_json_and_not_to_be_stored(world: &World) {
    let service = world.service();
    for answer in [
        service.get("/livez"),
        service.get("/readyz"),
        service.status("1"),
        service.get("/nowhere"),
        service.post("/verify", &json!({})),
        service.get("/verify"),
    ] {
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer.json();
    }
}

fn the_content_type_of_a_request_does_not_matter(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    for content_type in ["", "Content-Type: text/plain\r\n", "Content-Type: application/json; charset=x\r\n"]
    {
        let body = agent.signed().to_string();
        let mut connection = service.connect();
        let head = format!("POST /verify/signature?x=1 HTTP/1.1\r\nHost: a\r\n{content_type}");
        connection.write(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        connection.read(false).unwrap().success(200);
    }
}

fn a_client_that_waits_to_be_told_to_continue_is_told(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let body = agent.signed().to_string();
    let head = "POST /verify/signature HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n";
    let mut connection = service.connect();
    connection.write(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
    assert_eq!(connection.read(true).unwrap().status, 100);
    connection.write(body.as_bytes()).unwrap();
    connection.read(false).unwrap().success(200);
}
