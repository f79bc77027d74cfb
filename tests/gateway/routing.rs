//! Which tenant a host belongs to, which route a path and a method take, and who may pass there.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::refusals::{is_unauthenticated, is_unseen, refused};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::agents::THRESHOLDS;
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    the_exact_host_comes_before_the_longest_wildcard_and_that_before_any,
    hosts_are_compared_without_case_port_and_final_dot,
    a_wildcard_does_not_take_the_host_itself,
    an_unknown_host_is_404_whatever_the_credential,
    what_is_no_host_is_refused,
    a_denied_route_is_403_whatever_the_credential,
    the_first_route_that_matches_counts,
    methods_belong_to_the_route,
    a_route_may_have_upstreams_of_its_own,
    a_public_route_needs_no_credential_and_spends_no_budget,
    without_a_route_the_tenant_wants_a_credential,
    the_lowest_tier_of_a_tenant_holds_where_no_route_has_its_own,
    the_lowest_tier_of_a_route_replaces_the_tenants,
    a_path_pattern_ends_at_a_segment,
    the_gateway_does_not_answer_the_api_and_the_api_does_not_forward,
    the_target_goes_through_byte_for_byte,
    every_byte_of_a_target_passes_as_it_is_or_is_refused_with_the_error_body,
];

/// Upstreams that are told apart by where a request arrives.
fn arrives(upstreams: &[(&str, &Upstream)], path: &str) -> Vec<String> {
    let there = upstreams.iter().filter(|(_, upstream)| !upstream.seen_at(path).is_empty());
    there.map(|(name, _)| (*name).to_owned()).collect()
}

fn the_exact_host_comes_before_the_longest_wildcard_and_that_before_any(stage: &Stage) {
    let [exact, long, short, any] = std::array::from_fn(|_| Upstream::start());
    let gateway = Gateway::start(
        stage,
        &[
            Tenant::new("any", "*", any.address).public(),
            Tenant::new("short", "*.wild.test", short.address).public(),
            Tenant::new("exact", "a.deep.wild.test", exact.address).public(),
            Tenant::new("long", "*.deep.wild.test", long.address).public(),
        ],
    );
    let all = [("exact", &exact), ("long", &long), ("short", &short), ("any", &any)];
    for (host, tenant) in [
        ("a.deep.wild.test", "exact"),
        ("b.deep.wild.test", "long"),
        ("x.y.deep.wild.test", "long"),
        ("x.a.deep.wild.test", "long"),
        ("deep.wild.test", "short"),
        ("a.wild.test", "short"),
        ("x.y.wild.test", "short"),
        ("wild.test", "any"),
        ("awild.test", "any"),
        ("other.test", "any"),
        ("127.0.0.1", "any"),
        ("[::1]", "any"),
        ("[::1]:8000", "any"),
        ("localhost", "any"),
    ] {
        let path = public_path();
        assert_eq!(gateway.ask(&Request::get(host, &path)).status, 200, "{host}");
        assert_eq!(arrives(&all, &path), [tenant], "{host}");
    }
}

fn hosts_are_compared_without_case_port_and_final_dot(stage: &Stage) {
    let house = stage.house();
    for host in ["acme.test", "ACME.test", "Acme.Test.", "acme.test:80", "acme.test.:65535", "acme.test:"] {
        let path = public_path();
        assert_eq!(house.gateway.ask(&Request::get(host, &path)).status, 200, "{host}");
        assert_eq!(house.upstream.only(&path).all("host"), [host], "as the client wrote it");
    }
}

fn a_wildcard_does_not_take_the_host_itself(stage: &Stage) {
    let upstream = Upstream::start();
    let gateway = Gateway::start(stage, &[Tenant::new("wild", "*.wild.test", upstream.address).public()]);
    let path = public_path();
    for host in ["wild.test", "notwild.test", ".wild.test", "a..wild.test", "*.wild.test"] {
        let status = gateway.ask(&Request::get(host, &path)).status;
        assert!(matches!(status, 400 | 404), "{host}: {status}");
    }
    is_unseen(&upstream, &path);
    assert_eq!(gateway.ask(&Request::get("a.wild.test", &path)).status, 200);
}

fn an_unknown_host_is_404_whatever_the_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    let path = public_path();
    for host in ["unknown.test", "sub.acme.test", "acme.test.unknown.test", "acme", "127.0.0.1"] {
        let request = Request::get(host, &path);
        house.gateway.ask(&request).error(404, "NOT_FOUND");
        house.gateway.ask(&request.key(&key)).error(404, "NOT_FOUND");
    }
    is_unseen(&house.upstream, &path);
}

fn what_is_no_host_is_refused(stage: &Stage) {
    let house = stage.house();
    let path = public_path();
    for host in [
        "",
        " ",
        "acme.test/",
        "acme.test@other.test",
        "other.test@acme.test",
        "acme.test:x",
        "acme.test:80:80",
        "acme.test, acme.test",
        "acme.test acme.test",
        "acme.test?",
        "acme.test#",
        "[acme.test]",
        "acme%2etest",
        "acme.test:123456",
    ] {
        let answer = house.gateway.ask(&Request::get(host, &path));
        assert!(
            matches!(refused(&answer, answer.status).as_str(), "NOT_FOUND" | "VALIDATION_ERROR"),
            "{host:?}"
        );
        assert!(matches!(answer.status, 400 | 404), "{host:?}: {}", answer.status);
    }
    is_unseen(&house.upstream, &path);
}

fn a_denied_route_is_403_whatever_the_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    let path = format!("/denied/{}", unique());
    for method in ["GET", "HEAD", "POST", "OPTIONS", "DELETE", "FOO"] {
        for request in [Request::new(method, ACME, &path), Request::new(method, ACME, &path).key(&key)] {
            let answer = house.gateway.ask(&request);
            if method == "HEAD" {
                assert_eq!(answer.status, 403);
            } else {
                refused(&answer, 403);
            }
        }
    }
    is_unseen(&house.upstream, &path);
}

fn the_first_route_that_matches_counts(stage: &Stage) {
    let upstream = Upstream::start();
    let first = |id: &str| Tenant::new(id, &format!("{id}.test"), upstream.address);
    let gateway = Gateway::start(
        stage,
        &[
            first("loose").public().route("/*", r#"access = "deny""#),
            first("tight").route("/public/secret", r#"access = "deny""#).public(),
        ],
    );
    let path = "/public/secret";
    assert_eq!(gateway.ask(&Request::get("loose.test", path)).status, 200);
    refused(&gateway.ask(&Request::get("loose.test", "/other")), 403);
    assert_eq!(upstream.only(path).all("host"), ["loose.test"]);
    refused(&gateway.ask(&Request::get("tight.test", path)), 403);
    refused(&gateway.ask(&Request::get("tight.test", "/public/secret/below")), 403);
    assert_eq!(gateway.ask(&Request::get("tight.test", "/public/secrets")).status, 200);
    upstream.only(path);
}

fn methods_belong_to_the_route(stage: &Stage) {
    let house = stage.house();
    let path = format!("/read/{}", unique());
    assert_eq!(house.gateway.ask(&Request::get(ACME, &path)).status, 200);
    assert_eq!(house.gateway.ask(&Request::new("HEAD", ACME, &path)).status, 200);
    assert_eq!(house.upstream.seen_at(&path).len(), 2);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "Get", "GETS", "TRACE"] {
        let answer = house.gateway.ask(&Request::new(method, ACME, &path).body(b""));
        assert!(matches!(answer.status, 400 | 401 | 405), "{method}: {}", answer.text());
    }
    assert_eq!(house.upstream.seen_at(&path).len(), 2, "no other method is public");
}

fn a_route_may_have_upstreams_of_its_own(stage: &Stage) {
    let [own, tenants] = std::array::from_fn(|_| Upstream::start());
    let rest = format!("access = \"public\"\nupstreams = [\"{}\"]", own.address);
    let gateway =
        Gateway::start(stage, &[Tenant::new("t", "t.test", tenants.address).route("/own/*", &rest).public()]);
    let all = [("own", &own), ("tenants", &tenants)];
    for (path, upstream) in [(format!("/own/{}", unique()), "own"), (public_path(), "tenants")] {
        assert_eq!(gateway.ask(&Request::get("t.test", &path)).status, 200);
        assert_eq!(arrives(&all, &path), [upstream]);
    }
}

fn a_public_route_needs_no_credential_and_spends_no_budget(stage: &Stage) {
    let (_, key) = stage.agent(1);
    let house = stage.house();
    let path = public_path();
    for _ in 0..3 {
        let answer = house.gateway.ask(&Request::get(ACME, &path).key(&key));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["target"], json!(path));
        assert_eq!(answer.header("x-ratelimit-limit"), None, "there is no budget");
        assert_eq!(house.gateway.ask(&Request::get(ACME, &path)).status, 200);
    }
    let answer = house.gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
    assert_eq!((answer.status, answer.allowance()), (200, (1, 0)));
}

fn without_a_route_the_tenant_wants_a_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let house = stage.house();
    for path in ["/", "/publi", "/public", "/publicity/", "/agents", "/v1/a?b=/public/", "/a/public/b"] {
        let path = path.replace("agents", &unique());
        is_unauthenticated(&house.gateway.ask(&Request::get(ACME, &path)));
        assert_eq!(house.gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200, "{path}");
    }
}

fn the_lowest_tier_of_a_tenant_holds_where_no_route_has_its_own(stage: &Stage) {
    let house = stage.house();
    for tier in 0..=4 {
        let (agent, key) = stage.agent(tier);
        let path = agents_path();
        let answer = house.gateway.ask(&Request::get("golden.test", &path).key(&key));
        if tier >= 3 {
            assert_eq!(answer.status, 200);
            continue;
        }
        let details = json!({
            "agentId": agent.text(),
            "currentTier": tier,
            "requiredTier": 3,
            "requiredStake": THRESHOLDS[2].to_string(),
        });
        answer.is_error(403, "TIER_BLOCKED", details);
        is_unseen(&house.upstream, &path);
        let answer = house.gateway.ask(&Request::get(ACME, &path).key(&key));
        assert_eq!(answer.status, if tier == 0 { 403 } else { 200 }, "nothing was spent");
    }
}

fn the_lowest_tier_of_a_route_replaces_the_tenants(stage: &Stage) {
    let (silver, key) = stage.agent(2);
    let house = stage.house();
    let path = format!("/silver/{}", unique());
    assert_eq!(house.gateway.ask(&Request::get("golden.test", &path).key(&key)).status, 200);
    let path = format!("/gold/{}", unique());
    let details = json!({
        "agentId": silver.text(),
        "currentTier": 2,
        "requiredTier": 3,
        "requiredStake": THRESHOLDS[2].to_string(),
    });
    house.gateway.ask(&Request::get(ACME, &path).key(&key)).is_error(403, "TIER_BLOCKED", details);
    is_unseen(&house.upstream, &path);
    let (_, key) = stage.agent(3);
    assert_eq!(house.gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200);
}

fn a_path_pattern_ends_at_a_segment(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = Tenant::new("t", "t.test", upstream.address)
        .route("/v1", r#"access = "public""#)
        .route("/glob/*.json", r#"access = "public""#)
        .route("/one/*/two", r#"access = "public""#);
    let gateway = Gateway::start(stage, &[tenant]);
    for path in ["/v1", "/v1/", "/v1/x", "/v1?x", "/glob/a.json", "/glob/.json", "/one/x/two", "/one//two"] {
        let status = gateway.ask(&Request::get("t.test", path)).status;
        let ambiguous = path.contains("//");
        assert_eq!(status, if ambiguous { 401 } else { 200 }, "{path}");
    }
    for path in
        ["/v10", "/v", "/V1", "/v1.", "/glob/a/b.json", "/glob/a.jsonx", "/one/x/y/two", "/one/x/two/three"]
    {
        is_unauthenticated(&gateway.ask(&Request::get("t.test", path)));
    }
}

fn the_gateway_does_not_answer_the_api_and_the_api_does_not_forward(stage: &Stage) {
    let house = stage.house();
    for path in ["/livez", "/readyz", "/verify", "/keys/status?agentId=1", "/openapi.json", "/metrics"] {
        is_unauthenticated(&house.gateway.ask(&Request::get(ACME, path)));
        house.gateway.ask(&Request::get("unknown.test", path)).error(404, "NOT_FOUND");
    }
    let path = public_path();
    Request::get(ACME, &path).ask(house.gateway.service.api).error(404, "NOT_FOUND");
    is_unseen(&house.upstream, &path);
}

fn the_target_goes_through_byte_for_byte(stage: &Stage) {
    let house = stage.house();
    let word = unique();
    let long = "y".repeat(4_000);
    let mut wrong = Vec::new();
    for rest in [
        "",
        "/",
        "?",
        "??",
        "?a=1&a=2&b",
        "?a=%20%2F..%2e//",
        "?../../denied",
        "?a=b/c?d",
        "?;a;b",
        "?a[]=1",
        "?{a|b}",
        "?^`\\",
        "?'()*",
        "?\u{e9}",
        "?%00%0d%0a",
        "?%zz%",
        "/a-b.c_d~e!$&'()+,=:@",
        "/%C3%A9",
        "/%c3%a9",
        "/a%20b",
        "/\u{e9}",
        "/.well-known",
        "/..a",
        &long,
    ] {
        let target = format!("/public/{word}{rest}");
        let answer = house.gateway.ask(&Request::get(ACME, &target));
        let seen = house.upstream.seen();
        let line = format!("GET {target} HTTP/1.1\r\n");
        if answer.status != 200 || !seen.iter().any(|seen| seen.head.starts_with(line.as_bytes())) {
            wrong.push(format!("{target}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn every_byte_of_a_target_passes_as_it_is_or_is_refused_with_the_error_body(stage: &Stage) {
    let house = stage.house();
    let mut wrong = Vec::new();
    for byte in 0..=255_u8 {
        for (before, after) in [("/public/", ""), ("/public/?", ""), ("/public", "/x")] {
            let word = unique();
            let target = [format!("{before}{word}").as_bytes(), &[byte], after.as_bytes()].concat();
            let head = [b"GET ".as_slice(), &target, b" HTTP/1.1\r\n"].concat();
            let mut wire = house.gateway.connect();
            wire.send(&[&head, format!("Host: {ACME}\r\n\r\n").as_bytes()].concat());
            let seen = house.upstream.seen_with(&word);
            match wire.try_answer() {
                Ok(answer) if answer.status == 200 => {
                    let as_sent =
                        house.upstream.seen_with(&word).iter().any(|seen| seen.head.starts_with(&head));
                    wrong.extend((!as_sent).then(|| format!("{byte:#x} in {before}: came as {seen:?}")));
                }
                Ok(answer) if answer.body.starts_with(b"{") => {
                    assert!((400..500).contains(&answer.status), "{byte:#x}: {}", answer.text());
                    assert!(seen.is_empty(), "{byte:#x}: {seen:?}");
                }
                Ok(answer) => {
                    wrong.push(format!("{byte:#x} in {before}: {} without the error body", answer.status));
                }
                Err(error) => wrong.push(format!("{byte:#x} in {before}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
