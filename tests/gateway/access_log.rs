//! The access log answers why a request was refused: each kind of refusal names the route, the agent and the tier, as far as
//! they are known.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::stage::{ACME, Stage, unique};
use crate::rig::{credentials::signed, gateway::Gateway, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, signing::ALICE, wire::Request};
use crate::upgrades::{open_socket, talks, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    each_kind_of_refusal_says_why_in_the_log,
    a_line_says_all_of_a_request_whichever_way_it_leaves,
    each_request_has_exactly_one_line_whichever_way_it_leaves,
];

/// Hosts of a tenant whose upstream is not there, and of one that takes declared origins only.
const GONE: &str = "gone.test";
const DECLARED: &str = "declared.test";

/// The fields of a line about a request that follow from the decision.
fn decided(line: &str) -> BTreeMap<&str, &str> {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    let fields = fields.map(|(name, value)| (name, value.trim_matches('"')));
    let decided = [
        "tenant",
        "route",
        "credential",
        "agent",
        "tier",
        "min_tier",
        "limit",
        "remaining",
        "decision",
        "error_type",
    ];
    fields.filter(|(name, _)| decided.contains(name)).collect()
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
        .under("export TIERGATE__LOG__LEVEL=info,access=info,tiergate=debug")
        .start();
    let gateway = &site.gateway;
    let [bronze, silver, nobodys] = [1, 2, 2].map(|tier| stage.world().agent(tier));
    let [of_bronze, of_silver] = [&bronze, &silver].map(|agent| agent.generate(&gateway.service));
    let elsewhere = nobodys.generate_for(&gateway.service, "https://app.test/agent");
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
        (acme("/denied/x"), 403, "route=/denied/* credential=none error_type=FORBIDDEN".to_owned()),
        (acme("/x"), 401, "credential=none min_tier=1 error_type=INVALID_API_KEY".to_owned()),
        (acme("/x").key(&unknown_key(1)), 401, format!("{agents} error_type=INVALID_API_KEY")),
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
            twice.clone(),
            200,
            format!(
                "credential=signature agent={silver} tier=2 min_tier=1 limit=16 remaining=15 decision=admitted"
            ),
        ),
        (twice, 400, format!("credential=signature agent={silver} min_tier=1 error_type=REPLAY_DETECTED")),
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
    // The other way out.
    let id = unique();
    let request = Message::request(Method::GET, ACME, "/gold/x").with("x-api-key", &of_silver);
    assert_eq!(h2c::ask(gateway.address, &request.with("x-request-id", &id)).unwrap().status, 403);
    let expected = "route=/gold/* credential=api_key tier=2 min_tier=3 error_type=TIER_BLOCKED";
    check(&site, &id, &format!("{expected} agent={silver}"));
}

/// The fields of a line of the access log in JSON that has this value in this field.
pub(crate) fn line_of(gateway: &Gateway, name: &str, value: &str) -> Value {
    until("the request is in the access log", SOON, || {
        let log = gateway.service.log();
        // The last one may be on its way.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.find(|line| line["target"] == "access" && line[name] == value)
    })
}

fn a_line_says_all_of_a_request_whichever_way_it_leaves(stage: &Stage) {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for way in ["relay", "library", "HTTP/2"] {
        let settings = Site::of(stage).set("log.access", true).set("log.format", "json");
        let site = settings.way(way).set("listen.trusted_proxies", vec!["127.0.0.0/8"]).agent(4).start();
        let (gateway, id) = (&site.gateway, unique());
        let fields = [
            ("x-api-key", site.key()),
            ("x-request-id", &id),
            ("traceparent", &traceparent),
            ("x-forwarded-for", "192.0.2.7"),
        ];
        if way == "HTTP/2" {
            let request = Message::request(Method::POST, ACME, "/agents/x?secret").body(b"hello");
            let request = fields.iter().fold(request, |request, (name, value)| request.with(name, value));
            assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 200);
        } else {
            let request = Request::new("POST", ACME, "/agents/x?secret").body(b"hello");
            let request = fields.iter().fold(request, |request, (name, value)| request.with(name, value));
            assert_eq!(gateway.ask(&request).status, 200);
        }
        let line = line_of(gateway, "request_id", &id);
        let expected = json!({
            "level": "INFO", "target": "access", "listener": "gateway", "trace_id": TRACE, "client": "192.0.2.7",
            "tenant": "t", "host": ACME, "credential": "api_key", "agent": site.agent().text(), "tier": 4, "min_tier": 1,
            "decision": "admitted", "method": "POST", "path": "/agents/x", "status": 200, "received": 5,
            "protocol": if way == "HTTP/2" { "HTTP/2" } else { "HTTP/1.1" },
            "upstream": format!("http://{}", site.upstream.address),
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&line[name], value, "{way}: {name} in {line}");
        }
        let [own, upstream, all] =
            ["own_micros", "upstream_micros", "micros"].map(|name| line[name].as_u64().unwrap());
        assert!(
            own + upstream <= all && own > 0 && upstream > 0 && line["sent"].as_u64().unwrap() > 0,
            "{way}: {line}"
        );
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "RFC 3339: {time}");
    }
}

fn each_request_has_exactly_one_line_whichever_way_it_leaves(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = Site::of(stage).set("log.access", true).set("log.format", "json").way(way);
        let sockets = "access = \"public\"\nupgrades = true";
        let site = site.tenant(|tenant| tenant.route("/socket", sockets)).start();
        let (gateway, [forwarded, refused, upgraded, forwarded_2, refused_2, last]) =
            (&site.gateway, [(); 6].map(|()| unique()));
        let get = |path: &str, id: &str| Request::get(ACME, path).with("X-Request-Id", id);
        assert_eq!(gateway.ask(&get("/public/x", &forwarded)).status, 200);
        assert_eq!(gateway.ask(&get("/x", &refused)).status, 401);
        site.upstream.on("/socket", websocket_echo());
        talks(&mut open_socket(&mut gateway.connect(), &get("/socket", &upgraded)));
        for (path, id, status) in [("/public/x", &forwarded_2, 200), ("/x", &refused_2, 401)] {
            let request = Message::request(Method::GET, ACME, path).with("x-request-id", id);
            assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, status);
        }
        assert_eq!(gateway.ask_raw(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
        let ids = [&forwarded, &refused, &upgraded, &forwarded_2, &refused_2];
        for id in ids {
            line_of(gateway, "request_id", id);
        }
        line_of(gateway, "error_type", "VALIDATION_ERROR");
        assert_eq!(gateway.ask(&get("/public/x", &last)).status, 200);
        line_of(gateway, "request_id", &last);
        let log = gateway.service.log();
        let count = |text: &str| {
            log.lines().filter(|line| line.contains("\"target\":\"access\"") && line.contains(text)).count()
        };
        assert_eq!(ids.map(|id| count(&format!("\"request_id\":\"{id}\""))), [1; 5], "{way}: {log}");
        assert_eq!(count("VALIDATION_ERROR"), 1, "{way}: {log}");
    }
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
