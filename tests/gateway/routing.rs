//! Which tenant a host belongs to, which route a path and a method take, and who may pass there.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_malformed, is_unauthenticated, refused};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::Upstream;
use crate::support::agents::{THRESHOLDS, unknown_key};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    the_exact_host_comes_before_the_longest_wildcard_and_that_before_any,
    an_unknown_host_is_404_whatever_the_credential,
    what_is_no_host_is_refused,
    a_denied_route_is_403_whatever_the_credential,
    methods_belong_to_the_route,
    a_method_that_is_denied_where_others_pass_is_405_with_them_and_costs_nothing,
    methods_in_small_letters_are_refused_before_any_rule,
    a_public_route_needs_no_credential_and_spends_no_budget,
    without_a_route_the_tenant_wants_a_credential,
    the_lowest_tier_of_a_tenant_holds_where_no_route_has_its_own,
    the_lowest_tier_of_a_route_replaces_the_tenants,
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
    let tenants = vec![
        Tenant::new("any", "*", any.address).public(),
        Tenant::new("short", "*.wild.test", short.address).public(),
        Tenant::new("exact", "a.deep.wild.test", exact.address).public(),
        Tenant::new("long", "*.deep.wild.test", long.address).public(),
    ];
    let Site { gateway, .. } = &Site::of(stage).only(tenants).start();
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

fn an_unknown_host_is_404_whatever_the_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let path = public_path();
    for host in ["unknown.test", "sub.acme.test", "acme.test.unknown.test", "acme", "127.0.0.1"] {
        let request = Request::get(host, &path);
        site.gateway.ask(&request).error(404, "NOT_FOUND");
        site.gateway.ask(&request.key(&key)).error(404, "NOT_FOUND");
    }
    site.is_unseen(&path);
}

fn what_is_no_host_is_refused(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    for host in ["acme.test@other.test", "other.test@acme.test"] {
        is_malformed(&site.gateway.ask(&Request::get(host, &path)));
    }
    for host in [
        "",
        " ",
        "acme.test/",
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
        site.gateway.ask(&Request::get(host, &path)).error(404, "NOT_FOUND");
    }
    site.is_unseen(&path);
}

fn a_denied_route_is_403_whatever_the_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let path = format!("/denied/{}", unique());
    for method in ["GET", "HEAD", "POST", "OPTIONS", "DELETE", "FOO"] {
        for request in [Request::new(method, ACME, &path), Request::new(method, ACME, &path).key(&key)] {
            let answer = site.gateway.ask(&request);
            if method == "HEAD" {
                assert_eq!(answer.status, 403);
            } else {
                refused(&answer, 403);
            }
        }
    }
    site.is_unseen(&path);
}

fn methods_belong_to_the_route(stage: &Stage) {
    let site = stage.site();
    let (path, other) = (format!("/read/{}", unique()), format!("/read/{}", unique()));
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
    assert_eq!(site.gateway.ask(&Request::new("HEAD", ACME, &path)).status, 200);
    assert_eq!(site.upstream.seen_at(&path).len(), 2);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "GETS"] {
        is_unauthenticated(&site.gateway.ask(&Request::new(method, ACME, &other).body(b"")));
    }
    site.is_unseen(&other);
}

fn a_method_that_is_denied_where_others_pass_is_405_with_them_and_costs_nothing(stage: &Stage) {
    let routes = |tenant: Tenant| {
        let tenant = tenant.route("/mcp/closed", "access = \"deny\"\nmethods = [\"PUT\"]");
        let tenant = tenant.route("/mcp", "methods = [\"POST\"]");
        tenant.route("/mcp", "methods = [\"PUT\", \"POST\"]").route("/", "access = \"deny\"")
    };
    // Its agent may send one request a minute.
    let site = &Site::of(stage).agent(1).tenant(routes).start();
    for (path, allow) in [
        ("/mcp", Some("POST, PUT")),
        ("/mcp/closed", Some("POST")),
        ("/mcp%2fx", None),
        ("/mcp//x", None),
        ("/other", None),
    ] {
        for method in ["GET", "DELETE", "OPTIONS"] {
            let request = Request::new(method, ACME, path);
            for request in [request.clone(), request.clone().key(site.key()), request.key(&unknown_key(40))] {
                let answer = site.gateway.ask(&request);
                let wanted = if allow.is_some() { (405, "METHOD_NOT_ALLOWED") } else { (403, "FORBIDDEN") };
                answer.error(wanted.0, wanted.1);
                assert_eq!(answer.header("allow"), allow, "{method} {path}");
            }
        }
    }
    let posted = Request::new("POST", ACME, "/mcp").key(site.key()).body(b"");
    assert_eq!(site.gateway.ask(&posted).status, 200, "nothing was spent");
    assert_eq!(site.upstream.count_at("/mcp"), 1);
}

fn methods_in_small_letters_are_refused_before_any_rule(stage: &Stage) {
    let routes = |tenant: Tenant| {
        let tenant = tenant.route("/admin", "access = \"deny\"\nmethods = [\"POST\"]");
        tenant.route("/", "access = \"public\"")
    };
    let Site { gateway, upstream, .. } = &Site::of(stage).tenant(routes).start();
    assert_eq!(gateway.ask(&Request::new("POST", ACME, "/admin").body(b"")).status, 403);
    assert_eq!(gateway.ask(&Request::new("GET", ACME, "/admin")).status, 200);
    for method in ["post", "Post", "pOST"] {
        let answer = gateway.ask(&Request::new(method, ACME, "/admin").body(b""));
        assert_eq!(answer.status, 405, "{method}: {}", answer.text());
    }
    assert_eq!(upstream.count_at("/admin"), 1);
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
        assert_eq!(site.gateway.ask(&Request::get(ACME, &path)).status, 200);
    }
    let answer = site.gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
    assert_eq!((answer.status, answer.allowance()), (200, (1, 0)));
}

fn without_a_route_the_tenant_wants_a_credential(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    for path in ["/", "/publi", "/public", "/publicity/", "/agents", "/v1/a?b=/public/", "/a/public/b"] {
        let path = path.replace("agents", &unique());
        is_unauthenticated(&site.gateway.ask(&Request::get(ACME, &path)));
        assert_eq!(site.gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200, "{path}");
    }
}

fn the_lowest_tier_of_a_tenant_holds_where_no_route_has_its_own(stage: &Stage) {
    let site = stage.site();
    for tier in 0..=4 {
        let (agent, key) = stage.agent(tier);
        let path = agents_path();
        let answer = site.gateway.ask(&Request::get("golden.test", &path).key(&key));
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
        site.is_unseen(&path);
        let answer = site.gateway.ask(&Request::get(ACME, &path).key(&key));
        assert_eq!(answer.status, if tier == 0 { 403 } else { 200 }, "nothing was spent");
    }
}

fn the_lowest_tier_of_a_route_replaces_the_tenants(stage: &Stage) {
    let (silver, key) = stage.agent(2);
    let site = stage.site();
    let path = format!("/silver/{}", unique());
    assert_eq!(site.gateway.ask(&Request::get("golden.test", &path).key(&key)).status, 200);
    let path = format!("/gold/{}", unique());
    let details = json!({
        "agentId": silver.text(),
        "currentTier": 2,
        "requiredTier": 3,
        "requiredStake": THRESHOLDS[2].to_string(),
    });
    site.gateway.ask(&Request::get(ACME, &path).key(&key)).is_error(403, "TIER_BLOCKED", details);
    site.is_unseen(&path);
    let (_, key) = stage.agent(3);
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path).key(&key)).status, 200);
}

fn the_gateway_does_not_answer_the_api_and_the_api_does_not_forward(stage: &Stage) {
    let site = stage.site();
    for path in
        ["/livez", "/readyz", "/verify", "/keys/status?agentId=1", "/openapi.json", "/docs", "/metrics"]
    {
        is_unauthenticated(&site.gateway.ask(&Request::get(ACME, path)));
        site.gateway.ask(&Request::get("unknown.test", path)).error(404, "NOT_FOUND");
    }
    let path = public_path();
    Request::get(ACME, &path).ask(site.gateway.service.api).error(404, "NOT_FOUND");
    site.is_unseen(&path);
}

fn the_target_goes_through_byte_for_byte(stage: &Stage) {
    let site = stage.site();
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
        let answer = site.gateway.ask(&Request::get(ACME, &target));
        let line = format!("GET {target} HTTP/1.1\r\n");
        let came = site.upstream.seen_with(&word).iter().any(|seen| seen.head.starts_with(line.as_bytes()));
        if answer.status != 200 || !came {
            wrong.push(format!("{target}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The status of a target with this byte behind `/public/word?`, `/public/word` or `/publicword`.
const fn status_with(byte: u8, in_query: bool, is_public: bool) -> u16 {
    match byte {
        0..=b' ' | b'#' | b'<' | b'>' | 0x7f.. => 400,
        b'"' if in_query => 400,
        b'`' if !in_query => 400,
        _ if in_query => 200,
        // Half an escape may be any path, a denied one too.
        b'%' => 403,
        // Some server reads another path than one below `/public`.
        b'.' | b';' | b'\\' => 401,
        _ if is_public => 200,
        _ => 401,
    }
}

fn every_byte_of_a_target_passes_as_it_is_or_is_refused_with_the_error_body(stage: &Stage) {
    let site = stage.site();
    let (mut wrong, mut unseen) = (Vec::new(), Vec::new());
    for byte in 0..=255_u8 {
        for (before, after) in [("/public/", ""), ("/public/?", ""), ("/public", "/x")] {
            let word = unique();
            let target = [format!("{before}{word}").as_bytes(), &[byte], after.as_bytes()].concat();
            let head = [b"GET ".as_slice(), &target, b" HTTP/1.1\r\n"].concat();
            let mut wire = site.gateway.connect();
            wire.send(&[&head, format!("Host: {ACME}\r\n\r\n").as_bytes()].concat());
            let answer = wire.answer();
            let status = status_with(byte, before.ends_with('?'), before.ends_with('/'));
            if answer.status != status {
                wrong.push(format!("{byte:#x} in {before}: {}", answer.status));
            } else if status == 200 {
                let seen = site.upstream.seen_with(&word);
                let as_sent = seen.iter().any(|seen| seen.head.starts_with(&head));
                wrong.extend((!as_sent).then(|| format!("{byte:#x} in {before}: came as {seen:?}")));
            } else {
                refused(&answer, status);
                unseen.push(word);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    site.are_unseen(&unseen);
}
