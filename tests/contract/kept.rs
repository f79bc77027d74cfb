//! Connections that are kept behind a refusal, and what follows on them.

use serde_json::{Value, json};

use crate::support::agents::unknown_key;
use crate::support::client::{Answer, Connection, request_bytes};
use crate::support::harness::{Case, cases};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_refused_post_keeps_the_connection_for_the_next_request,
    a_post_over_its_limit_keeps_the_connection_for_the_next_request,
    a_small_body_where_none_belongs_keeps_the_connection_and_is_no_request,
    a_body_that_was_announced_too_long_and_is_small_keeps_the_connection,
    a_refused_body_that_is_long_or_may_not_come_ends_the_connection,
    pipelined_posts_are_answered_in_order,
    a_body_cut_anywhere_is_read_like_a_whole_one,
    no_client_is_told_to_continue_whose_body_is_not_wanted_or_that_speaks_http_1_0,
    an_answer_to_head_has_no_body_and_the_length_of_that_to_get,
];

/// Answered only if somebody takes a body for a request.
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

fn a_refused_post_keeps_the_connection_for_the_next_request(world: &World) {
    let service = world.service();
    let unknown = json!({ "apiKey": unknown_key(13) });
    let mut connection = service.connect();
    let answer = connection.post("/verify", &unknown).unwrap();
    answer.error(401, "INVALID_API_KEY");
    is_kept(&mut connection, &answer);
    for (method, path, status) in
        [("POST", "/verify", 400), ("POST", "/nowhere", 404), ("PUT", "/verify", 405)]
    {
        let answer = connection.send(method, path, &[], Some(b"[]")).unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
        is_kept(&mut connection, &answer);
    }
}

fn a_post_over_its_limit_keeps_the_connection_for_the_next_request(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let body = json!({ "apiKey": agent.generate(service) });
    let mut connection = service.connect();
    connection.post("/verify", &body).unwrap().success(200);
    for _ in 0..2 {
        let answer = connection.post("/verify", &body).unwrap();
        answer.is_limited(json!(agent.text()), json!(1), 1);
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

fn a_body_that_was_announced_too_long_and_is_small_keeps_the_connection(world: &World) {
    let service = world.service();
    let mut connection = service.connect();
    for bytes in [16 * 1024 + 1, 64 * 1024] {
        let answer = connection.send("POST", "/verify", &[], Some(&vec![b' '; bytes])).unwrap();
        answer.is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
        is_kept(&mut connection, &answer);
    }
}

fn a_refused_body_that_is_long_or_may_not_come_ends_the_connection(world: &World) {
    let chunks = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    for (path, rest, status) in [
        ("/verify", "Content-Length: 65537\r\n\r\n", 413),
        ("/nowhere", "Content-Length: 65537\r\n\r\n", 404),
        ("/nowhere", "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", 404),
        ("/verify", "Content-Length: 20000\r\nExpect: 100-continue\r\n\r\n", 413),
        ("/nowhere", &chunks, 404),
        ("/livez", &chunks, 405),
    ] {
        let mut connection = world.service().connect();
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}{SMUGGLED}");
        connection.write(request.as_bytes()).unwrap();
        let answer = connection.read(false).unwrap();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path} {rest:?}");
        assert_eq!(connection.rest(), b"", "{path} {rest:?}");
    }
}

fn pipelined_posts_are_answered_in_order(world: &World) {
    let (service, agents) = (world.service(), [2, 3, 4].map(|tier| world.agent(tier)));
    let keys = agents.each_ref().map(|agent| agent.generate(service));
    let post = |key: &str| {
        let body = json!({ "apiKey": key }).to_string();
        request_bytes(service.api, "POST", "/verify", &[], Some(body.as_bytes()))
    };
    let mut connection = service.connect();
    connection.write(&[post(&keys[0]), post("no key"), post(&keys[1]), post(&keys[2])].concat()).unwrap();
    assert_eq!(connection.read(false).unwrap().success(200)["agentId"], json!(agents[0].text()));
    connection.read(false).unwrap().error(400, "VALIDATION_ERROR");
    for agent in &agents[1..] {
        assert_eq!(connection.read(false).unwrap().success(200)["agentId"], json!(agent.text()));
    }
}

fn a_body_cut_anywhere_is_read_like_a_whole_one(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let body = json!({ "apiKey": agent.generate(service) }).to_string();
    let whole = request_bytes(service.api, "POST", "/verify", &[], Some(body.as_bytes()));
    let mut chunks = b"POST /verify HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.as_bytes().chunks(30) {
        chunks.extend(format!("{:X};x=y\r\n", chunk.len()).as_bytes());
        chunks.extend([chunk, b"\r\n"].concat());
    }
    chunks.extend(b"0\r\nX-Trailer: GET / HTTP/1.1\r\n\r\n");
    let mut connection = service.connect();
    for request in [whole, chunks] {
        // Behind the first cut there is the beginning of the next request too.
        connection.write(&request[..1]).unwrap();
        for cut in 2..request.len() {
            connection.write(&request[1..cut]).unwrap();
            connection.write(&[&request[cut..], &request[..1]].concat()).unwrap();
            let answer = connection.read(false).unwrap();
            assert_eq!(answer.success(200)["agentId"], json!(agent.text()), "cut at {cut}");
        }
        connection.write(&request[1..]).unwrap();
        connection.read(false).unwrap().success(200);
    }
}

fn no_client_is_told_to_continue_whose_body_is_not_wanted_or_that_speaks_http_1_0(world: &World) {
    let expects = "Host: a\r\nExpect: 100-continue\r\nContent-Length";
    for (request, status) in [
        (format!("POST /nowhere HTTP/1.1\r\n{expects}: 2\r\n\r\n"), 404),
        (format!("GET /livez HTTP/1.1\r\n{expects}: 2\r\n\r\n"), 200),
        (format!("POST /verify HTTP/1.1\r\n{expects}: 16385\r\n\r\n"), 413),
        (format!("POST /verify HTTP/1.1\r\n{expects}: 0\r\n\r\n"), 400),
        (format!("POST /verify HTTP/1.0\r\n{expects}: 2\r\n\r\n{{}}"), 400),
    ] {
        let mut connection = world.service().connect();
        connection.write(request.as_bytes()).unwrap();
        // Interim answers are not passed over here.
        assert_eq!(connection.read(true).unwrap().status, status, "{request:?}");
    }
}

fn an_answer_to_head_has_no_body_and_the_length_of_that_to_get(world: &World) {
    let service = world.service();
    let mut connection = service.connect();
    for path in ["/livez", "/keys/status?agentId=2", "/openapi.json", "/nowhere", "/verify"] {
        let get = connection.send("GET", path, &[], None).unwrap();
        let head = connection.send("HEAD", path, &[], None).unwrap();
        let shown = |answer: &Answer| (answer.status, answer.header("content-length").map(str::to_owned));
        assert_eq!(shown(&head), shown(&get), "{path}");
        is_kept(&mut connection, &head);
    }
}
