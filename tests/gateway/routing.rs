//! Which tenant a host belongs to, which route a path and a method take, and who may pass there. The rules themselves are held
//! by `domain::host_map` and `domain::routing`.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_malformed, is_unauthenticated, refused};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::support::agents::{THRESHOLDS, unknown_key};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_host_that_is_unknown_or_none_is_refused_whatever_the_credential,
    a_route_decides_by_path_method_and_tier,
    a_method_that_is_denied_where_others_pass_is_405_with_them_and_costs_nothing,
    a_public_route_needs_no_credential_and_spends_no_budget,
    an_agent_below_the_lowest_tier_is_told_which_one_it_is_and_spends_nothing,
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

fn a_route_decides_by_path_method_and_tier(stage: &Stage) {
    let ([(_, silver), (_, gold)], site) = ([stage.agent(2), stage.agent(3)], stage.site());
    for (host, method, path, statuses) in [
        (ACME, "GET", "/denied/{}", [403; 3]),
        (ACME, "FOO", "/denied/{}", [403; 3]),
        (ACME, "GET", "/read/{}", [200; 3]),
        (ACME, "HEAD", "/read/{}", [200; 3]),
        (ACME, "POST", "/read/{}", [401, 200, 200]),
        (ACME, "OPTIONS", "/read/{}", [401, 200, 200]),
        // No spelling of a method is another one.
        (ACME, "post", "/public/{}", [405; 3]),
        (ACME, "GET", "/public{}", [401, 200, 200]),
        (ACME, "GET", "/{}/public/b", [401, 200, 200]),
        (ACME, "GET", "/{}?b=/public/", [401, 200, 200]),
        (ACME, "GET", "/gold/{}", [401, 403, 200]),
        ("golden.test", "GET", "/{}", [401, 403, 200]),
        ("golden.test", "GET", "/silver/{}", [401, 200, 200]),
    ] {
        let word = unique();
        let request = Request::new(method, host, &path.replace("{}", &word));
        let by = [request.clone(), request.clone().key(&silver), request.key(&gold)];
        let answers = by.map(|request| site.gateway.ask(&request));
        assert_eq!(answers.each_ref().map(|answer| answer.status), statuses, "{method} {host}{path}");
        for answer in answers.iter().filter(|answer| answer.status > 200 && method != "HEAD") {
            refused(answer, answer.status);
        }
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(site.upstream.seen_with(&word).len(), passed, "{method} {host}{path}");
    }
}

fn a_method_that_is_denied_where_others_pass_is_405_with_them_and_costs_nothing(stage: &Stage) {
    let routes = |tenant: Tenant| {
        let tenant = tenant.route("/mcp/closed", "access = \"deny\"\nmethods = [\"PUT\"]");
        let tenant = tenant.route("/mcp", "methods = [\"POST\"]");
        tenant.route("/mcp", "methods = [\"PUT\", \"POST\"]").route("/", "access = \"deny\"")
    };
    // Its agent may send one request a minute.
    let site = &Site::of(stage).agent(1).tenant(routes).start();
    for (path, allow) in
        [("/mcp", Some("POST, PUT")), ("/mcp/closed", Some("POST")), ("/mcp%2fx", None), ("/other", None)]
    {
        let request = Request::get(ACME, path);
        for request in [request.clone(), request.clone().key(site.key()), request.key(&unknown_key(40))] {
            let answer = site.gateway.ask(&request);
            let wanted = if allow.is_some() { (405, "METHOD_NOT_ALLOWED") } else { (403, "FORBIDDEN") };
            answer.error(wanted.0, wanted.1);
            assert_eq!(answer.header("allow"), allow, "{path}");
        }
    }
    let posted = Request::new("POST", ACME, "/mcp").key(site.key()).body(b"");
    assert_eq!(site.gateway.ask(&posted).status, 200, "nothing was spent");
    assert_eq!(site.upstream.count_at("/mcp"), 1);
}

fn a_public_route_needs_no_credential_and_spends_no_budget(stage: &Stage) {
    let (_, key) = stage.agent(1);
    let site = stage.site();
    let path = public_path();
    for _ in 0..3 {
        let answer = site.gateway.ask(&Request::get(ACME, &path).key(&key));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["target"], json!(path));
        assert_eq!(answer.header("x-ratelimit-limit"), None, "there is no budget");
    }
    let answer = site.gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
    assert_eq!((answer.status, answer.allowance()), (200, (1, 0)));
}

fn an_agent_below_the_lowest_tier_is_told_which_one_it_is_and_spends_nothing(stage: &Stage) {
    let site = stage.site();
    for (tier, host, path) in
        [(0, "golden.test", "/x/{}"), (1, "golden.test", "/x/{}"), (2, ACME, "/gold/{}")]
    {
        let (agent, key) = stage.agent(tier);
        let path = path.replace("{}", &unique());
        let details = json!({
            "agentId": agent.text(),
            "currentTier": tier,
            "requiredTier": 3,
            "requiredStake": THRESHOLDS[2].to_string(),
        });
        site.gateway.ask(&Request::get(host, &path).key(&key)).is_error(403, "TIER_BLOCKED", details);
        site.is_unseen(&path);
        let answer = site.gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
        assert_eq!(answer.status, if tier == 0 { 403 } else { 200 }, "nothing was spent");
    }
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
