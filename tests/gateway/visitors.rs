//! The limit of a public route for each client network: charged to nobody who is refused for another reason, and closed when the
//! store fails. That it is one whoever asks is in `entry points`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::scripts::{self, Cue};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, TRUSTED, public_path, unique};
use crate::rig::{gateway::Gateway, tenants::Tenant, upstream::Then};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::support::{client::Answer, redis::Redis};

pub(crate) const CASES: &[Case] = cases![
    a_public_route_takes_exactly_its_limit_of_each_client_network,
    a_visitor_who_finds_no_place_or_no_route_is_charged_nothing,
    a_budget_of_visitors_outlives_a_reload_that_leaves_its_route,
];

pub(crate) const OF_REDIS: &[Case] = cases![a_redis_that_fails_lets_no_visitor_of_a_limited_route_pass];

/// How many requests a client may make on the limited route.
const LIMIT: u32 = 6;

/// A site whose tenant has that route beside one without a limit.
fn limited(stage: &Stage) -> SiteBuilder<'_> {
    let site = Site::of(stage).set("listen.trusted_proxies", vec![TRUSTED]);
    site.tenant(|tenant| tenant.route("/limited/*", &rules(LIMIT)))
}

fn rules(limit: u32) -> String {
    format!("access = \"public\"\nrequests_per_minute = {limit}")
}

/// A path of its own on that route.
fn path() -> String {
    format!("/limited/{}", unique())
}

/// A connection of a proxy that is believed.
fn proxied(gateway: &Gateway) -> Wire {
    Wire::open_from("127.0.0.2".parse().unwrap(), gateway.address)
}

fn of(client: &str, path: &str) -> Request {
    Request::get(ACME, path).with("X-Forwarded-For", client)
}

/// One that passed, with so many left.
#[track_caller]
fn passed(answer: &Answer, left: u32) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.allowance(), (LIMIT, left));
    assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"client\";q={LIMIT};w=60").as_str()));
    assert_eq!(answer.header("ratelimit"), Some(format!("\"client\";r={left}").as_str()));
}

#[track_caller]
fn refused(answer: &Answer) {
    let seconds = answer.is_limited(Value::Null, Value::Null, LIMIT);
    assert!(seconds <= 60, "{seconds}");
    assert_eq!(answer.header("ratelimit"), Some(format!("\"client\";r=0;t={seconds}").as_str()));
}

// threat: One visitor takes a public route
fn a_public_route_takes_exactly_its_limit_of_each_client_network(stage: &Stage) {
    let site = limited(stage).start();
    let path = path();
    let mut wire = proxied(&site.gateway);
    for network in ["2001:db8:1:2::", "2001:db8:1:3:ffff::"] {
        for left in (0..LIMIT).rev() {
            passed(&of(&format!("{network}{left}"), &path).ask_on(&mut wire), left);
        }
        refused(&of(&format!("{network}ff"), &path).ask_on(&mut wire));
    }
    for (left, client) in [(LIMIT - 1, "192.0.2.1"), (LIMIT - 1, "192.0.2.2"), (LIMIT - 2, "192.0.2.1")] {
        passed(&of(client, &path).ask_on(&mut wire), left);
    }
    assert_eq!(site.upstream.count_at(&path), usize::try_from(2 * LIMIT + 3).unwrap());
    // The route beside it has no limit.
    let answer = of("2001:db8:1:2::1", &public_path()).ask_on(&mut wire);
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    let denials = "tiergate_denials_total{error_type=\"RATE_LIMITED\",listener=\"gateway\"}";
    assert_eq!(site.gateway.service.samples().get(denials), 2.0);
}

// threat: One visitor takes a public route
fn a_visitor_who_finds_no_place_or_no_route_is_charged_nothing(stage: &Stage) {
    let full = |tenant: Tenant| tenant.set("limits.max_in_flight_public", 1).set("limits.max_queued", 0);
    let preflights = |tenant: Tenant| tenant.set("cors.origins", vec!["https://page.example"]);
    let site =
        limited(stage).tenant(full).tenant(preflights).tenant(|tenant| tenant.set("max_body_bytes", 4));
    let site = site.start();
    let (path, cue) = (path(), Cue::new());
    let asked = Arc::clone(&cue);
    site.upstream.on(
        &path,
        scripts::script(move |exchange| {
            asked.wait()?;
            exchange.write(&scripts::answer("200 OK", &[], b""))?;
            Ok(Then::Goes)
        }),
    );
    let request = Request::get(ACME, &path);
    let mut held = site.gateway.connect();
    held.send(&request.bytes());
    until("it is under way", SOON, || (site.upstream.count_at(&path) == 1).then_some(()));
    for _ in 0..3 {
        let answer = site.gateway.ask(&request);
        assert_eq!((answer.status, &answer.json()["errorType"]), (503, &json!("OVERLOADED")));
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
    let preflight = Request::new("OPTIONS", ACME, &path).with("Origin", "https://page.example");
    let preflight = preflight.with("Access-Control-Request-Method", "GET");
    assert_eq!(site.gateway.ask(&preflight).status, 204);
    assert_eq!(site.gateway.ask(&Request::new("POST", ACME, &path).body(b"12345")).status, 413);
    assert_eq!(site.gateway.ask(&Request::get(ACME, "/limited/../x")).status, 401);
    cue.give();
    passed(&held.answer(), LIMIT - 1);
    let next = until("there is room", SOON, || {
        Some(site.gateway.ask(&request)).filter(|answer| answer.status != 503)
    });
    passed(&next, LIMIT - 2);
}

// threat: One visitor takes a public route
fn a_budget_of_visitors_outlives_a_reload_that_leaves_its_route(stage: &Stage) {
    let site = limited(stage).in_files().start();
    let request = Request::get(ACME, &path());
    for left in (2..LIMIT).rev() {
        passed(&site.gateway.ask(&request), left);
    }
    // Its place is another one, and so is its limit.
    let tenant = Tenant::new("t", ACME, site.upstream.address).route("/first", "access = \"public\"");
    let tenant = tenant.route("/limited/*", &rules(LIMIT - 1));
    site.gateway.put("t.toml", &tenant.text());
    site.gateway.reread("applied");
    assert_eq!(site.gateway.ask(&request).allowance(), (LIMIT - 1, 0));
    site.gateway.ask(&request).is_limited(Value::Null, Value::Null, LIMIT - 1);
    // Other methods are another route, and the same ones in another order are not, nor is a final slash.
    for (path, methods, left) in [
        ("/limited", r#"["GET", "POST"]"#, LIMIT - 1),
        ("/limited", r#"["POST", "GET"]"#, LIMIT - 2),
        ("/limited/", r#"["POST", "GET"]"#, LIMIT - 3),
        ("/limited", r#"["GET"]"#, LIMIT - 1),
    ] {
        let tenant = Tenant::new("t", ACME, site.upstream.address);
        let tenant = tenant.route(path, &format!("methods = {methods}\n{}", rules(LIMIT)));
        site.gateway.put("t.toml", &tenant.text());
        site.gateway.reread("applied");
        passed(&site.gateway.ask(&request), left);
    }
}

// threat: One visitor takes a public route
fn a_redis_that_fails_lets_no_visitor_of_a_limited_route_pass(stage: &Stage) {
    let redis = Redis::start(&[]);
    let site =
        limited(stage).set("store.redis.url", redis.database()).set("store.redis.timeout", "500ms").start();
    let request = Request::get(ACME, &path());
    passed(&site.gateway.ask(&request), LIMIT - 1);
    redis.freeze(true);
    for _ in 0..3 {
        site.gateway.ask(&request).is_error(500, "INTERNAL_ERROR", Value::Null);
        assert_eq!(site.status(), 200, "a route without a limit needs no store");
    }
    redis.freeze(false);
    until("visitors pass", SOON, || (site.gateway.ask(&request).status == 200).then_some(()));
}
