//! The access log answers why a request was refused: each kind of refusal names the route, the agent and the tier, as far as
//! they are known.

use std::collections::BTreeMap;

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::h2c::{self, Message};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, unique};
use crate::rig::tenants::Tenant;
use crate::support::agents::unknown_key;
use crate::support::process::{free_port, own_ip};
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![each_kind_of_refusal_says_why_in_the_log];

/// Hosts of a tenant whose upstream is not there, and of one that takes declared origins only.
const GONE: &str = "gone.test";
const DECLARED: &str = "declared.test";

/// The fields of a line about a request that follow from the decision.
fn decided(line: &str) -> BTreeMap<&str, &str> {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    let fields = fields.map(|(name, value)| (name, value.trim_matches('"')));
    let of_the_request = ["request_id", "method", "path", "status", "sent", "micros"];
    fields.filter(|(name, _)| !of_the_request.contains(name)).collect()
}

fn each_kind_of_refusal_says_why_in_the_log(stage: &Stage) {
    let gone = free_port(own_ip());
    let site = Site::of(stage)
        .tenant(|tenant| {
            tenant
                .route("/denied/*", "access = \"deny\"")
                .route("/gold/*", "min_tier = 3")
                .route("/few/*", "access = \"public\"\nrequests_per_minute = 1")
        })
        .also(|upstream| Tenant::new("declared", DECLARED, upstream).set("on_endpoint_mismatch", "deny"))
        .also(|_| Tenant::new("gone", GONE, gone).public())
        .under("export TIERGATE_LOG=info,access=info,tiergate=debug")
        .start();
    let gateway = &site.gateway;
    let [bronze, silver, nobodys] = [1, 2, 2].map(|tier| stage.world().agent(tier));
    let [of_bronze, of_silver] = [&bronze, &silver].map(|agent| agent.generate(&gateway.service));
    let elsewhere = nobodys.generate_for(&gateway.service, "https://app.test/agent");
    let unminted = stage.world().known_agent(alloy::primitives::U256::from(4_000_000), ALICE);
    let (bronze, silver, nobodys) = (bronze.text(), silver.text(), nobodys.text());
    let by = |draft| Request::get(ACME, "/x").with_all(&signed(&draft));
    let silver_agent = stage.world().known_agent(silver.parse().unwrap(), ALICE);
    let twice = by(silver_agent.draft());
    let acme = |path: &str| Request::get(ACME, path);
    let agents = "credential=api_key min_tier=1";
    for (request, status, expected) in [
        (
            Request::get("unknown.test", "/x"),
            404,
            "tenant=(none) credential=none error_type=NOT_FOUND".to_owned(),
        ),
        (Request::new("TRACE", ACME, "/x"), 405, "credential=none error_type=METHOD_NOT_ALLOWED".to_owned()),
        (acme("/denied/x"), 403, "route=/denied/* credential=none error_type=FORBIDDEN".to_owned()),
        (acme("/x"), 401, "credential=none min_tier=1 error_type=INVALID_API_KEY".to_owned()),
        (acme("/x").key(&unknown_key(1)), 401, format!("{agents} error_type=INVALID_API_KEY")),
        (
            acme("/x").key("svc_live_v1_short"),
            400,
            "credential=none min_tier=1 error_type=VALIDATION_ERROR".to_owned(),
        ),
        (
            acme("/gold/x").key(&of_bronze),
            403,
            format!(
                "route=/gold/* credential=api_key agent={bronze} tier=1 min_tier=3 error_type=TIER_BLOCKED"
            ),
        ),
        (
            acme("/x").key(&of_bronze),
            200,
            format!("{agents} agent={bronze} tier=1 limit=1 remaining=0 decision=admitted"),
        ),
        (
            acme("/x").key(&of_bronze),
            429,
            format!("{agents} agent={bronze} tier=1 limit=1 remaining=0 error_type=RATE_LIMITED"),
        ),
        (
            by(silver_agent.draft().by(BOB)),
            401,
            format!("credential=signature agent={silver} min_tier=1 error_type=SIGNATURE_INVALID"),
        ),
        (
            twice.clone(),
            200,
            format!(
                "credential=signature agent={silver} tier=2 min_tier=1 limit=16 remaining=15 decision=admitted"
            ),
        ),
        (twice, 400, format!("credential=signature agent={silver} min_tier=1 error_type=REPLAY_DETECTED")),
        (
            by(unminted.draft()),
            404,
            "credential=signature agent=4000000 min_tier=1 error_type=AGENT_NOT_FOUND".to_owned(),
        ),
        (
            Request::get(DECLARED, "/x").key(&elsewhere).with("Origin", "https://evil.test"),
            403,
            format!("tenant=declared {agents} agent={nobodys} error_type=ENDPOINT_MISMATCH"),
        ),
        (
            acme("/public/x").key(&of_silver),
            200,
            "route=/public/* credential=none decision=public".to_owned(),
        ),
        (acme("/few/x"), 200, "route=/few/* credential=none limit=1 remaining=0 decision=public".to_owned()),
        (
            acme("/few/x"),
            429,
            "route=/few/* credential=none limit=1 remaining=0 error_type=RATE_LIMITED".to_owned(),
        ),
        (
            Request::get(GONE, "/public/x"),
            502,
            "tenant=gone route=/public/* credential=none decision=public error_type=UPSTREAM_ERROR"
                .to_owned(),
        ),
        (
            Request::get(GONE, "/x").key(&of_silver),
            502,
            format!(
                "tenant=gone {agents} agent={silver} tier=2 limit=16 remaining=15 decision=admitted \
                 error_type=UPSTREAM_ERROR"
            ),
        ),
    ] {
        let id = unique();
        let answer = gateway.ask(&request.with("X-Request-Id", &id));
        assert_eq!(answer.status, status, "{expected}: {}", answer.text());
        check(&site, &id, &expected);
    }
    // The other way out of the corridor.
    let id = unique();
    let request = Message::request(Method::GET, ACME, "/gold/x").with("x-api-key", &of_silver);
    assert_eq!(h2c::ask(gateway.address, &request.with("x-request-id", &id)).unwrap().status, 403);
    let expected = "route=/gold/* credential=api_key tier=2 min_tier=3 error_type=TIER_BLOCKED";
    check(&site, &id, &format!("{expected} agent={silver}"));
}

/// Checks the access log's line of a request, and the line of its denial, if it was refused.
#[track_caller]
fn check(site: &Site, id: &str, expected: &str) {
    let mut expected = decided(expected);
    expected.entry("tenant").or_insert("t");
    expected.entry("decision").or_insert("refused");
    let log = until("the request is in the access log", SOON, || {
        let log = site.gateway.service.log();
        log.lines().any(|line| line.contains(" access: ") && line.contains(id)).then_some(log)
    });
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains(&format!("request_id=\"{id}\""))).collect();
    let (access, others): (Vec<&str>, Vec<&str>) =
        lines.into_iter().partition(|line| line.contains(" access: "));
    assert_eq!(decided(access[0]), expected, "{log}");
    if expected["decision"] == "refused" {
        for name in ["decision", "limit", "remaining"] {
            expected.remove(name);
        }
        assert!(others.len() == 1 && others[0].contains("DEBUG"), "{others:?}");
        assert_eq!(decided(others[0]), expected, "{others:?}");
    }
}
