//! VALIDATION_ERROR at each endpoint. What each field may be, and what is echoed of it, is in the tests of `wire/bodies`.

use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::{agents::unknown_key, client::with, service::SIGNED_ENDPOINTS, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    each_endpoint_names_what_is_wrong_and_shows_no_secret,
    deep_nesting_is_ignored_or_refused_and_never_a_failure,
];

fn each_endpoint_names_what_is_wrong_and_shows_no_secret(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let (signed, reading, key) = (agent.signed(), agent.draft().profile_body(), agent.generate(service));
    let by_key = json!({ "apiKey": key });
    let secret = format!("Bearer {}", unknown_key(4));
    let (verify, generate, rotate) = (("POST", "/verify"), SIGNED_ENDPOINTS[1], SIGNED_ENDPOINTS[2]);
    let endpoints = || [verify, ("POST", "/profile")].into_iter().chain(SIGNED_ENDPOINTS);
    let of_all = SIGNED_ENDPOINTS.into_iter().flat_map(|endpoint| {
        ["agentId", "signature", "nonce", "timestamp"].map(|field| (endpoint, &signed, field))
    });
    let others = [(verify, &by_key, "apiKey"), (verify, &by_key, "agentId"), (verify, &by_key, "origin")];
    let declared = [generate, rotate].map(|endpoint| (endpoint, &signed, "declaredEndpoint"));
    let profile = ["agentId", "signature", "timestamp"].map(|field| (("POST", "/profile"), &reading, field));
    for (endpoint, body, field) in of_all.chain(others).chain(declared).chain(profile) {
        service.signed(endpoint, &with(body, field, json!(7.5))).is_invalid(field, json!(7.5));
        // The client looks for secrets in all errors.
        let answer = service.signed(endpoint, &with(body, field, json!(secret)));
        assert_eq!(answer.error(400, "VALIDATION_ERROR")["field"], json!(field));
    }
    for (method, path) in endpoints() {
        for body in [None, Some(&b"[{}]"[..]), Some(b"{\"agentId\":\"\xff\"}")] {
            service.request(method, path, &[], body).is_invalid("body", Value::Null);
        }
    }
    assert_eq!(service.post("/verify", &by_key).allowance(), (166, 165), "none of them cost anything");
}

// threat: Huge or costly heads and bodies
fn deep_nesting_is_ignored_or_refused_and_never_a_failure(world: &World) {
    let (service, agent) = (world.service(), world.agent(3));
    let key = agent.generate(service);
    for nesting in [
        format!("{}{}", "[".repeat(8_000), "]".repeat(8_000)),
        format!("{}1{}", "{\"a\":".repeat(2_500), "}".repeat(2_500)),
    ] {
        let ignored = format!("{{\"apiKey\":\"{key}\",\"other\":{nesting}}}");
        service.request("POST", "/verify", &[], Some(ignored.as_bytes())).success(200);
        let field = format!("{{\"apiKey\":{nesting}}}");
        let answer = service.request("POST", "/verify", &[], Some(field.as_bytes()));
        answer.error(400, "VALIDATION_ERROR");
        let whole = service.request("POST", "/verify", &[], Some(nesting.as_bytes()));
        whole.error(400, "VALIDATION_ERROR");
        let open = service.request("POST", "/verify", &[], Some("[".repeat(16_000).as_bytes()));
        open.is_invalid("body", Value::Null);
    }
}
