//! Errors that the contract's table does not have: unknown paths, wrong methods, bodies that are too large.

use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, status_of};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    an_unknown_path_is_404_with_the_same_body,
    a_wrong_method_is_405_with_what_is_allowed,
    a_body_of_16_kib_is_read_and_one_byte_more_is_413,
    the_api_describes_itself,
];

fn an_unknown_path_is_404_with_the_same_body(world: &World) {
    for path in [
        "/",
        "/verify/",
        "//verify",
        "/Verify",
        "/%76erify",
        "/verify;x",
        "/keys/",
        "/keys/../verify",
        "/./verify",
        "/keys/generate/x",
        "/metrics",
        "/keys%2Fstatus?agentId=1",
        "/v1/verify",
        // The contract has codes for relayed feedback and no endpoint that relays it.
        "/feedback",
        "/relay",
        "/feedback/relay",
    ] {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let body: Option<&[u8]> = (method == "POST").then_some(b"{}".as_slice());
            let answer = world.service().request(method, path, &[], body);
            answer.is_error(404, "NOT_FOUND", Value::Null);
        }
    }
}

fn a_wrong_method_is_405_with_what_is_allowed(world: &World) {
    for (path, allow, wrong) in [
        ("/verify", "POST", ["GET", "DELETE", "PUT", "HEAD"]),
        ("/verify/signature", "POST", ["GET", "DELETE", "PATCH", "HEAD"]),
        ("/keys/generate", "POST", ["GET", "DELETE", "PUT", "OPTIONS"]),
        ("/keys/rotate", "POST", ["GET", "DELETE", "PUT", "OPTIONS"]),
        ("/keys", "DELETE", ["GET", "POST", "PUT", "HEAD"]),
        ("/keys/status", "GET, HEAD", ["POST", "DELETE", "PUT", "OPTIONS"]),
        ("/livez", "GET, HEAD", ["POST", "DELETE", "PUT", "TRACE"]),
        ("/readyz", "GET, HEAD", ["POST", "DELETE", "PUT", "BREW"]),
        ("/.well-known/tiergate", "GET, HEAD", ["POST", "DELETE", "PUT", "OPTIONS"]),
        ("/.well-known/jwks.json", "GET, HEAD", ["POST", "DELETE", "PUT", "OPTIONS"]),
        ("/docs", "GET, HEAD", ["POST", "DELETE", "PUT", "OPTIONS"]),
    ] {
        for method in wrong {
            let answer = world.service().request(method, path, &[], None);
            assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
            if method != "HEAD" {
                answer.is_error(405, "METHOD_NOT_ALLOWED", Value::Null);
            }
        }
    }
}

fn a_body_of_16_kib_is_read_and_one_byte_more_is_413(world: &World) {
    let service = world.service();
    let agent = world.agent(4);
    let body_of = |bytes: usize| {
        let mut body = agent.signed();
        body["padding"] = json!("");
        let padding = bytes - body.to_string().len();
        body["padding"] = json!("x".repeat(padding));
        body.to_string()
    };
    for endpoint @ (method, path) in SIGNED_ENDPOINTS {
        let largest = body_of(16_384);
        assert_eq!(largest.len(), 16_384);
        let answer = service.request(method, path, &[], Some(largest.as_bytes()));
        assert_eq!(answer.status, status_of(endpoint), "{}", answer.text());
        let answer = service.request(method, path, &[], Some(body_of(16_385).as_bytes()));
        answer.is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
    }
    let answer = service.request("POST", "/verify", &[], Some(&vec![b' '; 16_385]));
    answer.is_error(413, "PAYLOAD_TOO_LARGE", Value::Null);
    let answer = service.request("POST", "/verify", &[], Some(&vec![b' '; 16_384]));
    answer.is_invalid("body", Value::Null);
}

fn the_api_describes_itself(world: &World) {
    let shipped: Value = serde_json::from_str(include_str!("../../src/api/openapi.json")).unwrap();
    assert_eq!(world.service().get("/openapi.json").success(200), shipped);
}
