//! Errors that the contract's table does not have: unknown paths and wrong methods.

use serde_json::Value;

use crate::support::harness::{Case, cases};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    an_unknown_path_is_404_with_the_same_body,
    a_wrong_method_is_405_with_what_is_allowed,
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
        ("/profile", "POST", ["GET", "DELETE", "PUT", "HEAD"]),
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

fn the_api_describes_itself(world: &World) {
    let shipped: Value = serde_json::from_str(include_str!("../../src/api/openapi.json")).unwrap();
    assert_eq!(world.service().get("/openapi.json").success(200), shipped);
}
