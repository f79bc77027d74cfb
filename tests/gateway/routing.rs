//! Which tenant a host belongs to, which route a path and a method take, and who may pass there. The rules themselves are held
//! by `domain::host_map` and `domain::routing`.

use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_malformed, is_unauthenticated};
use crate::rig::stage::{ACME, Stage, public_path, unique};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_host_that_is_unknown_or_none_is_refused_whatever_the_credential,
    the_gateway_does_not_answer_the_api_and_the_api_does_not_forward,
    the_target_goes_through_byte_for_byte,
];

// threat: Gate and upstream see different paths or hosts
fn a_host_that_is_unknown_or_none_is_refused_whatever_the_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let path = public_path();
    for host in ["acme.test@other.test", "other.test@acme.test"] {
        is_malformed(&site.gateway.ask(&Request::get(host, &path)));
    }
    for host in [
        "unknown.test",
        "sub.acme.test",
        "127.0.0.1",
        "",
        "acme.test:x",
        "acme.test, acme.test",
        "acme%2etest",
    ] {
        let request = Request::get(host, &path);
        site.gateway.ask(&request).error(404, "NOT_FOUND");
        site.gateway.ask(&request.key(&key)).error(404, "NOT_FOUND");
    }
    site.is_unseen(&path);
}

fn the_gateway_does_not_answer_the_api_and_the_api_does_not_forward(stage: &Stage) {
    let site = stage.site();
    for path in ["/livez", "/verify", "/keys/status?agentId=1", "/openapi.json", "/metrics"] {
        is_unauthenticated(&site.gateway.ask(&Request::get(ACME, path)));
        site.gateway.ask(&Request::get("unknown.test", path)).error(404, "NOT_FOUND");
    }
    let path = public_path();
    Request::get(ACME, &path).ask(site.gateway.service.api).error(404, "NOT_FOUND");
    site.is_unseen(&path);
}

// threat: Gate and upstream see different paths or hosts
fn the_target_goes_through_byte_for_byte(stage: &Stage) {
    let site = stage.site();
    let word = unique();
    let long = "y".repeat(4_000);
    let mut wrong = Vec::new();
    let pass = [
        "",
        "/",
        "??",
        "?a=%20%2F..%2e//&a=2&b",
        "?../../denied",
        "?;a[]=1{a|b}^`\\'()*%zz%",
        "?\u{e9}%00%0d%0a",
        "/a-b.c_d~e!$&'()+,=:@[]{}|^",
        "/%C3%A9%c3%a9",
        "/\u{e9}",
        "/..a",
        &long,
    ];
    // Readers that are common take these for no target.
    let refused = ["<", ">", "`", "?\"", "?<"];
    for (rest, status) in pass.map(|rest| (rest, 200)).into_iter().chain(refused.map(|rest| (rest, 400))) {
        let target = format!("/public/{word}{rest}");
        let answer = site.gateway.ask(&Request::get(ACME, &target));
        let line = format!("GET {target} HTTP/1.1\r\n");
        let came = site.upstream.seen_with(&word).iter().any(|seen| seen.head.starts_with(line.as_bytes()));
        if (answer.status, came) != (status, status == 200) {
            wrong.push(format!("{target}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
