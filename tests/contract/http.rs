//! HTTP itself: framing that two readers may read differently, bodies, and connections that are kept behind a
//! refusal.

use serde_json::{Value, json};

use crate::support::client::{Answer, Connection, request_bytes};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service, status_of};
use crate::support::{agents::unknown_key, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_body_that_stops_arriving_is_408_and_closed,
    what_ends_a_connection_is_answered_once_and_closed_without_harm,
    whatever_is_refused_keeps_the_connection_for_the_next_request,
    a_small_body_where_none_belongs_keeps_the_connection_and_is_no_request,
    a_body_of_16_kib_is_read_and_one_byte_more_is_413,
    upgrades_and_connect_open_nothing,
    clients_are_told_to_continue_where_their_body_is_wanted,
];

/// Answered only if somebody reads past the refused request, or takes a body for one.
const SMUGGLED: &str = "GET /keys/status?agentId=1 HTTP/1.1\r\nHost: a\r\n\r\n";

/// A request that tells whether a connection goes on.
const NEXT: &[u8] = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";

/// Whether the answer is not the last, and the next request is answered as itself.
#[track_caller]
fn is_kept(connection: &mut Connection, answer: &Answer) {
    assert_eq!(answer.header("connection"), None, "{answer:?}");
    connection.write(NEXT).unwrap();
    assert_eq!(connection.read(false).unwrap().success(200), json!({ "status": "ok" }));
}

fn what_ends_a_connection_is_answered_once_and_closed_without_harm(world: &World) {
    let service = world.service();
    let post = |rest: &str| format!("POST /verify HTTP/1.1\r\nHost: a\r\n{rest}");
    let chunks = |chunks: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{chunks}"));
    let smuggling =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let to = |path: &str, rest: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}");
    let longer_head =
        format!("GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(32 * 1024 + 1 - 37));
    let headers: String = (1..129).map(|number| format!("X-{number}: y\r\n")).collect();
    let expects = "Expect: 100-continue\r\n\r\n";
    for (request, status) in [
        // No HTTP: TLS, HTTP/2 and others.
        ("\x16\x03\x01\0\u{5}\x01\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400),
        (chunks("2\r\n{}0\r\n\r\n"), 400),
        (longer_head, 431),
        (format!("GET /livez HTTP/1.1\r\nHost: a\r\n{headers}\r\n"), 431),
        (post("Content-Length: 1000000000\r\n\r\n{"), 413),
        (post("Content-Length: 65537\r\n\r\n"), 413),
        (to("/nowhere", "Content-Length: 65537\r\n\r\n"), 404),
        (to("/nowhere", &format!("Content-Length: 3\r\n{expects}")), 404),
        (post(&format!("Content-Length: 20000\r\n{expects}")), 413),
        (to("/nowhere", &smuggling), 404),
        (to("/livez", &smuggling), 405),
        // The client says so.
        ("GET /livez HTTP/1.0\r\n\r\n".to_owned(), 200),
        ("GET /livez HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n".to_owned(), 200),
        (post("Connection: close\r\nContent-Length: 2\r\n\r\n{}"), 400),
    ] {
        let mut connection = service.connect();
        // It need not read all of it.
        let _ = connection.write(format!("{request}{SMUGGLED}").as_bytes());
        let said = String::from_utf8_lossy(&connection.rest()).into_owned();
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.99?}: {said}");
        assert!(said.to_lowercase().contains("\r\nconnection: close\r\n"), "{request:.99?}: {said}");
        assert_eq!(said.matches("\r\nDate: ").count(), 1, "{request:.99?}: {said}");
    }
    service.get("/livez").success(200);
    // Whoever is still sending a body gets the answer, not a reset.
    let is_heard = |_| {
        let mut connection = service.connect();
        connection.write(post("Content-Length: 1\r\nContent-Length: 2\r\n\r\n").as_bytes()).unwrap();
        assert!(connection.rest().starts_with(b"HTTP/1.1 400 "));
        (0..2).all(|_| connection.write(b"x").is_ok())
    };
    // A busy machine may write the second one when the time for that is over.
    assert!((0..5).any(is_heard), "it is reset");
}

fn whatever_is_refused_keeps_the_connection_for_the_next_request(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let [unknown, own] =
        [unknown_key(13), agent.generate(service)].map(|key| json!({ "apiKey": key }).to_string());
    let head_bytes = |bytes: usize| vec![b' '; bytes];
    let mut connection = service.connect();
    for (method, path, body, status) in [
        ("POST", "/verify", unknown.as_bytes(), 401),
        ("POST", "/verify", b"[]", 400),
        ("POST", "/nowhere", b"[]", 404),
        ("PUT", "/verify", b"[]", 405),
        ("POST", "/verify", own.as_bytes(), 200),
        ("POST", "/verify", own.as_bytes(), 429),
        // Announced too long, and small enough to be read.
        ("POST", "/verify", &head_bytes(16 * 1024 + 1), 413),
        ("POST", "/verify", &head_bytes(64 * 1024), 413),
    ] {
        let answer = connection.send(method, path, &[], Some(body)).unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        is_kept(&mut connection, &answer);
    }
    // As long as they may be.
    let longest = format!("GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(32 * 1024 - 37));
    let most: String = (1..128).map(|number| format!("X-{number}: y\r\n")).collect();
    for head in [longest, format!("GET /livez HTTP/1.1\r\nHost: a\r\n{most}\r\n")] {
        connection.write(head.as_bytes()).unwrap();
        let answer = connection.read(false).unwrap();
        answer.success(200);
        is_kept(&mut connection, &answer);
    }
}

fn a_small_body_where_none_belongs_keeps_the_connection_and_is_no_request(world: &World) {
    let service = world.service();
    for (path, of_get, of_others) in
        [("/livez", 200, 405), ("/keys/status?agentId=2", 200, 405), ("/nowhere", 404, 404)]
    {
        for method in ["GET", "POST", "PUT"] {
            let body = SMUGGLED.repeat(20);
            let request = request_bytes(service.api, method, path, &[], Some(body.as_bytes()));
            let mut connection = service.connect();
            for cut in [request.len() - body.len(), request.len() - 1, request.len()] {
                connection.write(&request[..cut]).unwrap();
                let answer = connection.read(false).unwrap();
                let status = if method == "GET" { of_get } else { of_others };
                assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
                connection.write(&request[cut..]).unwrap();
                is_kept(&mut connection, &answer);
            }
        }
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

// threat: Huge or costly heads and bodies
fn a_body_of_16_kib_is_read_and_one_byte_more_is_413(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let body_of = |bytes: usize| {
        let mut body = agent.signed();
        body["padding"] = json!("");
        let padding = bytes - body.to_string().len();
        body["padding"] = json!("x".repeat(padding));
        body.to_string()
    };
    for endpoint @ (method, path) in SIGNED_ENDPOINTS {
        let answer = service.request(method, path, &[], Some(body_of(16_384).as_bytes()));
        assert_eq!(answer.status, status_of(endpoint), "{}", answer.text());
        let answer = service.request(method, path, &[], Some(body_of(16_385).as_bytes()));
        answer.is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
    }
    for (bytes, status) in [(16_384, 200), (16_385, 413), (60_000, 413)] {
        let mut connection = service.connect();
        let _ = connection.write(&chunked(service, "/verify/signature", &body_of(bytes), 4_000));
        let answer = connection.read(false).unwrap();
        assert_eq!(answer.status, status, "{bytes} in chunks: {}", answer.text());
    }
    let blank = service.request("POST", "/verify", &[], Some(&vec![b' '; 16_384]));
    blank.is_invalid("body", Value::Null);
}

// threat: Slow clients hold everything
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

// threat: An upgrade gets around the check
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

fn clients_are_told_to_continue_where_their_body_is_wanted(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let body = agent.signed().to_string();
    let head = "POST /verify/signature HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n";
    let mut connection = service.connect();
    connection.write(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
    assert_eq!(connection.read(true).unwrap().status, 100);
    connection.write(body.as_bytes()).unwrap();
    connection.read(false).unwrap().success(200);
    let expects = "Host: a\r\nExpect: 100-continue\r\nContent-Length";
    for (request, status) in [
        (format!("POST /nowhere HTTP/1.1\r\n{expects}: 2\r\n\r\n"), 404),
        (format!("GET /livez HTTP/1.1\r\n{expects}: 2\r\n\r\n"), 200),
        (format!("POST /verify HTTP/1.1\r\n{expects}: 16385\r\n\r\n"), 413),
        (format!("POST /verify HTTP/1.1\r\n{expects}: 0\r\n\r\n"), 400),
        (format!("POST /verify HTTP/1.0\r\n{expects}: 2\r\n\r\n{{}}"), 400),
    ] {
        let mut connection = service.connect();
        connection.write(request.as_bytes()).unwrap();
        // Interim answers are not passed over here.
        assert_eq!(connection.read(true).unwrap().status, status, "{request:?}");
    }
}
