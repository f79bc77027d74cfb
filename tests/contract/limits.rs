//! Rate limits: per agent by tier in a sliding minute, key management per client and agent in an hour.

use serde_json::{Value, json};

use crate::support::agents::{Agent, LIMITS};
use crate::support::client::{Answer, Connection, with};
use crate::support::harness::{Case, cases};
use crate::support::service::{KEY_ENDPOINTS, Service};
use crate::support::signing::BOB;
use crate::support::time::{SOON, Stopwatch, unix_seconds, until};
use crate::support::world::World;

/// Of clients, by their addresses.
pub(crate) const CASES: &[Case<World>] = cases![
    malformed_key_requests_do_not_count,
    forwarded_for_of_an_untrusted_peer_changes_nothing,
    forwarded_for_of_a_trusted_peer_names_the_client,
    the_proxy_protocol_of_a_trusted_peer_names_the_client,
    refused_credentials_are_limited_per_client,
    who_spends_an_addresss_budget_keeps_no_owner_behind_it_from_revoking,
    what_pages_of_other_sites_send_is_refused_before_it_counts,
    a_clients_good_requests_are_not_counted_as_failures,
];

/// Of agents, whose windows the store keeps.
pub(crate) const WINDOWS: &[Case<World>] = cases![
    who_waits_as_long_as_retry_after_says_passes_and_nobody_before,
    tiers_1_to_3_pass_1_16_and_166_times_a_minute,
    at_once_exactly_the_limit_passes,
    agents_do_not_share_a_budget,
    refused_requests_cost_nothing,
    keys_are_managed_ten_times_an_hour_and_the_owners_refusals_count,
    an_owner_revokes_ten_times_an_hour_whatever_else_was_asked_for,
    ten_unproven_requests_an_hour_are_answered_and_keep_no_owner_from_revoking,
    key_management_is_limited_per_agent,
    key_management_and_verification_have_budgets_of_their_own,
];

/// Many requests within a minute.
pub(crate) const FLOODS: &[Case<World>] = cases![tier_4_passes_2700_times_a_minute];

/// A time to wait is what is left of a window that began while `watch` ran, rounded up to whole seconds.
#[track_caller]
fn is_rest_of(window_secs: u64, watch: &Stopwatch, retry_after: u64) {
    let spent = watch.elapsed();
    let least = window_secs.saturating_sub(spent.as_secs() + 1);
    assert!((least..=window_secs).contains(&retry_after), "{retry_after} s after {spent:?}");
}

fn who_waits_as_long_as_retry_after_says_passes_and_nobody_before(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let key = agent.generate(service);
    // Begins before the service admits, so that no delay here can make a minute look short.
    let since_admitted = Stopwatch::start();
    service.verify(&key).success(200);
    let retry_after = service.verify(&key).is_limited(json!(agent.text()), json!(1), 1);
    is_rest_of(60, &since_admitted, retry_after);
    let since_told = Stopwatch::start();
    until("the window passes", 2 * SOON, || {
        let (asked, answer) = (since_told.elapsed(), service.verify(&key));
        if answer.status == 200 {
            assert_eq!(answer.allowance(), (1, 0));
            return Some(());
        }
        // A client that waited that long passes; refusals in between do not make the wait longer.
        assert!(asked.as_secs() < retry_after, "{retry_after} s were waited, and: {}", answer.text());
        None
    });
    let window = since_admitted.elapsed();
    assert!(window.as_millis() >= 59_999, "a minute lies between two that pass: {window:?}");
}

/// Uses up a whole budget and checks what is said on the way and at the end.
fn use_up(world: &World, tier: usize) {
    let limit = LIMITS[tier - 1];
    let (service, agent) = (world.service(), world.agent(tier));
    let key = agent.generate(service);
    let mut connection = service.connect();
    let body = json!({ "apiKey": key });
    let watch = Stopwatch::start();
    for left in (0..limit).rev() {
        let answer = connection.post("/verify", &body).unwrap();
        answer.success(200);
        assert_eq!(answer.allowance(), (limit, left));
    }
    let retry_after =
        connection.post("/verify", &body).unwrap().is_limited(json!(agent.text()), json!(tier), limit);
    is_rest_of(60, &watch, retry_after);
    let by_signature = service.verify_signature(&agent.signed());
    by_signature.is_limited(json!(agent.text()), json!(tier), limit);
}

fn tiers_1_to_3_pass_1_16_and_166_times_a_minute(world: &World) {
    (1..=3).for_each(|tier| use_up(world, tier));
}

fn tier_4_passes_2700_times_a_minute(world: &World) {
    use_up(world, 4);
}

fn at_once_exactly_the_limit_passes(world: &World) {
    let (service, agent) = (world.service(), world.agent(2));
    let body = json!({ "apiKey": agent.generate(service) });
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = service.connect();
                    (0..8).map(|_| connection.post("/verify", &body).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let (passed, limited): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    let mut left: Vec<u32> = passed.iter().map(|answer| answer.allowance().1).collect();
    left.sort_unstable();
    assert_eq!(left, (0..16).collect::<Vec<_>>(), "each that passes counts once");
    for answer in limited {
        answer.is_limited(json!(agent.text()), json!(2), 16);
    }
}

fn agents_do_not_share_a_budget(world: &World) {
    let (service, one, other) = (world.service(), world.agent(1), world.agent(1));
    service.verify_signature(&one.signed()).success(200);
    service.verify_signature(&one.signed()).error(429, "RATE_LIMITED");
    service.verify_signature(&other.signed()).success(200);
}

fn refused_requests_cost_nothing(world: &World) {
    let (service, agent, other) = (world.service(), world.agent(2), world.agent(2));
    let key = agent.generate(service);
    for _ in 0..20 {
        let foreign = json!({ "apiKey": key, "agentId": other.text() });
        service.post("/verify", &foreign).error(401, "INVALID_API_KEY");
        service.post("/verify", &json!({ "apiKey": key, "origin": "no URL" })).error(400, "VALIDATION_ERROR");
        service.verify_signature(&agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
        service.verify_signature(&agent.draft().timestamp(1).body()).error(400, "REPLAY_DETECTED");
    }
    assert_eq!(service.verify(&key).allowance(), (16, 15));
}

fn keys_are_managed_ten_times_an_hour_and_the_owners_refusals_count(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    // Ten requests: some pass, some are refused.
    let watch = Stopwatch::start();
    assert_eq!(service.generate(&agent.signed()).allowance(), (10, 9));
    service.generate(&agent.signed()).error(409, "KEY_ALREADY_EXISTS");
    let used = agent.signed();
    assert_eq!(service.rotate(&used).allowance(), (10, 7));
    service.rotate(&used).error(400, "REPLAY_DETECTED");
    for left in [5, 4, 3, 2] {
        assert_eq!(service.revoke(&agent.signed()).allowance(), (10, left));
    }
    assert_eq!(service.status(&agent.text()).allowance(), (10, 2), "asking does not count");
    assert_eq!(service.generate(&agent.signed()).allowance(), (10, 1));
    let tenth = service.revoke(&agent.signed());
    tenth.success(200);
    assert_eq!(tenth.allowance(), (10, 0));
    let body = agent.signed();
    for endpoint in KEY_ENDPOINTS.into_iter().filter(|(method, _)| *method == "POST") {
        let retry_after = service.signed(endpoint, &body).is_limited(json!(agent.text()), Value::Null, 10);
        is_rest_of(3_600, &watch, retry_after);
    }
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(false));
    assert_eq!(service.status(&agent.text()).allowance(), (10, 0));
    // The nonce of the refused request is still unused: its agent is only too low for it.
    service.verify_signature(&body).error(403, "TIER_BLOCKED");
}

fn an_owner_revokes_ten_times_an_hour_whatever_else_was_asked_for(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    for _ in 0..10 {
        service.rotate(&agent.signed()).success(200);
    }
    service.rotate(&agent.signed()).is_limited(json!(agent.text()), Value::Null, 10);
    for _ in 0..10 {
        assert_eq!(service.revoke(&agent.signed()).allowance(), (10, 0));
    }
    service.revoke(&agent.signed()).is_limited(json!(agent.text()), Value::Null, 10);
}

fn ten_unproven_requests_an_hour_are_answered_and_keep_no_owner_from_revoking(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    service.generate(&agent.signed()).success(201);
    let watch = Stopwatch::start();
    let unsigned = || with(&agent.signed(), "signature", json!(format!("0x{}", "00".repeat(65))));
    let stale = agent.draft().timestamp(unix_seconds() - 3_600).body();
    service.rotate(&stale).error(400, "REPLAY_DETECTED");
    for _ in 0..3 {
        service.rotate(&agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
        service.generate(&unsigned()).error(401, "SIGNATURE_INVALID");
        service.revoke(&unsigned()).error(401, "SIGNATURE_INVALID");
    }
    for endpoint in KEY_ENDPOINTS {
        for body in [unsigned(), stale.clone()] {
            let retry_after =
                service.signed(endpoint, &body).is_limited(json!(agent.text()), Value::Null, 10);
            is_rest_of(3_600, &watch, retry_after);
        }
    }
    assert_eq!(service.status(&agent.text()).allowance(), (10, 9), "none was the owner's");
    service.revoke(&agent.signed()).success(200);
    assert_eq!(service.generate(&agent.signed()).allowance(), (10, 7));
}

/// The owner has never been seen by this service, and somebody behind the same address has spent its budget.
fn who_spends_an_addresss_budget_keeps_no_owner_behind_it_from_revoking(world: &World) {
    let service = Service::start(world.settings().set("abuse.failures_per_minute", 5));
    let agent = world.agent(0);
    service.generate(&agent.signed()).success(201);
    for _ in 0..5 {
        service.revoke(&agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
    }
    for _ in 0..3 {
        service.revoke(&agent.draft().by(BOB).body()).is_limited(json!(agent.text()), Value::Null, 5);
    }
    service.rotate(&agent.signed()).is_limited(json!(agent.text()), Value::Null, 5);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let refused = service.revoke(&agent.draft().by(BOB).body());
                    refused.is_limited(json!(agent.text()), Value::Null, 5);
                }
            });
        }
        service.revoke(&agent.signed()).success(200);
    });
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(false));
}

fn what_pages_of_other_sites_send_is_refused_before_it_counts(world: &World) {
    let service = Service::start(world.settings().set("abuse.failures_per_minute", 5));
    let agent = world.agent(1);
    let host = service.api.to_string();
    let own = format!("http://{host}");
    let send = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let body = agent.draft().by(BOB).body().to_string();
        service.request(method, path, headers, Some(body.as_bytes()))
    };
    let paths = ["/verify", "/verify/signature", "/profile", "/keys/generate", "/keys/rotate"];
    for (method, path) in paths.map(|path| ("POST", path)).into_iter().chain([("DELETE", "/keys")]) {
        for headers in [
            &[("Origin", "https://page.example"), ("Content-Type", "text/plain;charset=UTF-8")][..],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-origin"), ("Content-Type", "text/plain")],
            &[("Origin", &own), ("Content-Type", "text/plain")],
        ] {
            for _ in 0..3 {
                send(method, path, headers).is_error(403, "FORBIDDEN", Value::Null);
            }
        }
    }
    send("DELETE", "/keys", &[("Origin", &own)]).error(401, "SIGNATURE_INVALID");
    send("DELETE", "/keys", &[]).error(401, "SIGNATURE_INVALID");
    let signed = agent.signed().to_string();
    let page = [("Origin", "https://shown.example"), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(service.request("DELETE", "/keys", &page, Some(signed.as_bytes())).allowance(), (10, 9));
    let navigated = [("Sec-Fetch-Site", "cross-site")];
    assert_eq!(service.request("GET", "/docs", &navigated, None).status, 200, "a link from elsewhere");
}

fn malformed_key_requests_do_not_count(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    for endpoint in KEY_ENDPOINTS {
        for _ in 0..5 {
            service
                .signed(endpoint, &with(&agent.signed(), "nonce", json!(7)))
                .error(400, "VALIDATION_ERROR");
        }
    }
    assert_eq!(service.generate(&agent.signed()).allowance(), (10, 9));
}

/// Uses up what is left of an agent's key management for the hour.
fn spend(service: &Service, agent: &Agent, times: u32) {
    for _ in 0..times {
        service.revoke(&agent.signed()).success(200);
    }
    service.revoke(&agent.signed()).is_limited(json!(agent.text()), Value::Null, 10);
}

fn key_management_is_limited_per_agent(world: &World) {
    let (service, one, other) = (world.service(), world.agent(0), world.agent(0));
    spend(service, &one, 10);
    let zeros = with(&one.signed(), "agentId", json!(format!("00{}", one.id)));
    service.revoke(&zeros).is_limited(json!(one.text()), Value::Null, 10);
    service.revoke(&other.signed()).success(200);
}

fn key_management_and_verification_have_budgets_of_their_own(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let key = agent.generate(service);
    spend(service, &agent, 10);
    service.verify(&key).error(401, "INVALID_API_KEY");
    service.verify_signature(&agent.signed()).success(200);
}

fn revoke_via(service: &Service, agent: &Agent, forwarded: &[&str]) -> Answer {
    let headers: Vec<_> = forwarded.iter().map(|chain| ("X-Forwarded-For", *chain)).collect();
    let body = agent.signed().to_string();
    service.request("DELETE", "/keys", &headers, Some(body.as_bytes()))
}

fn forwarded_for_of_an_untrusted_peer_changes_nothing(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    for client in 0..10 {
        revoke_via(service, &agent, &[&format!("203.0.113.{client}")]).success(200);
    }
    for header in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP"] {
        let body = agent.signed().to_string();
        let answer = service.request("DELETE", "/keys", &[(header, "203.0.113.99")], Some(body.as_bytes()));
        answer.is_limited(json!(agent.text()), Value::Null, 10);
    }
}

fn forwarded_for_of_a_trusted_peer_names_the_client(world: &World) {
    let trusted: Vec<toml::Value> = vec!["127.0.0.0/8".into(), "10.0.0.0/8".into()];
    let service = Service::start(world.settings().set("listen.trusted_proxies", trusted));
    let agent = world.agent(0);
    let via = |forwarded: &[&str]| revoke_via(&service, &agent, forwarded);
    for left in (0..10).rev() {
        // Anybody may have written the part left of the first untrusted hop.
        let forged = format!("198.51.100.{left}, 203.0.113.1, 10.0.0.{left}");
        assert_eq!(via(&[&forged]).allowance(), (10, left));
    }
    via(&["203.0.113.1"]).is_limited(json!(agent.text()), Value::Null, 10);
    via(&["192.0.2.77", "203.0.113.1, 10.9.9.9"]).is_limited(json!(agent.text()), Value::Null, 10);
    assert_eq!(via(&["203.0.113.2"]).allowance(), (10, 9), "another client");
    assert_eq!(via(&["2001:db8::1"]).allowance(), (10, 9));
    assert_eq!(via(&["2001:db8::2"]).allowance(), (10, 8), "an IPv6 client is its /64");
    assert_eq!(via(&["2001:db8:0:1::1"]).allowance(), (10, 9));
    assert_eq!(via(&[]).allowance(), (10, 9), "the proxy itself");
    assert_eq!(via(&["203.0.113.1, garbage"]).allowance(), (10, 8), "what can't be read means the peer");
}

fn the_proxy_protocol_of_a_trusted_peer_names_the_client(world: &World) {
    let settings = world.settings().set("listen.proxy_protocol", vec!["api"]);
    let settings = settings.set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let service = Service::start_behind(b"PROXY TCP4 203.0.113.1 192.0.2.1 4711 80\r\n", settings);
    let agent = world.agent(0);
    for left in (0..10).rev() {
        // The client is no trusted proxy.
        assert_eq!(revoke_via(&service, &agent, &["198.51.100.1"]).allowance(), (10, left));
    }
    revoke_via(&service, &agent, &[]).is_limited(json!(agent.text()), Value::Null, 10);
    let behind = |header: &[u8]| {
        let body = agent.signed().to_string();
        let mut connection = Connection::open(service.api).unwrap();
        connection.write(header).unwrap();
        connection.send("DELETE", "/keys", &[], Some(body.as_bytes()))
    };
    let other = behind(b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 80\r\n").unwrap();
    assert_eq!(other.allowance(), (10, 9), "another client");
    let of_the_balancer = behind(b"PROXY UNKNOWN\r\n").unwrap();
    assert_eq!(of_the_balancer.allowance(), (10, 9), "the balancer itself");
    for no_header in [b"".as_slice(), b"PROXY TCP4 203.0.113.1 192.0.2.1 4711\r\n"] {
        assert!(behind(no_header).is_err(), "closed without an answer");
    }
}

fn refused_credentials_are_limited_per_client(world: &World) {
    let trusted: Vec<toml::Value> = vec!["127.0.0.0/8".into()];
    let settings =
        world.settings().set("abuse.failures_per_minute", 4).set("listen.trusted_proxies", trusted);
    let service = Service::start(settings);
    let agent = world.agent(4);
    let key = agent.generate(&service);
    let from = |client: &str, path: &str, body: &Value| {
        let headers = [("X-Forwarded-For", client)];
        service.request("POST", path, &headers, Some(body.to_string().as_bytes()))
    };
    let bad = |client: &str| {
        let unknown = json!({ "apiKey": crate::support::agents::unknown_key(2) });
        from(client, "/verify", &unknown).error(401, "INVALID_API_KEY");
        let stranger = agent.draft().by(BOB).body();
        from(client, "/verify/signature", &stranger).error(401, "SIGNATURE_INVALID");
        let missing = world.known_agent(777_777_777_u64.try_into().unwrap(), BOB).signed();
        from(client, "/verify/signature", &missing).error(404, "AGENT_NOT_FOUND");
        from(client, "/keys/rotate", &agent.draft().timestamp(1).body()).error(400, "REPLAY_DETECTED");
    };
    let watch = Stopwatch::start();
    bad("203.0.113.1");
    let unknown = json!({ "apiKey": crate::support::agents::unknown_key(2) });
    let retry_after = from("203.0.113.1", "/verify", &unknown).is_limited(Value::Null, Value::Null, 4);
    is_rest_of(60, &watch, retry_after);
    let foreign = agent.draft().by(BOB).body();
    from("203.0.113.1", "/verify/signature", &foreign).is_limited(json!(agent.text()), Value::Null, 4);
    from("203.0.113.1", "/keys/rotate", &foreign).is_limited(json!(agent.text()), Value::Null, 4);
    // A neighbour with a good credential is not refused.
    let good = json!({ "apiKey": key });
    from("203.0.113.1", "/verify", &good).success(200);
    from("203.0.113.1", "/verify/signature", &agent.signed()).success(200);
    from("203.0.113.2", "/verify", &good).success(200);
    bad("203.0.113.2");
}

fn a_clients_good_requests_are_not_counted_as_failures(world: &World) {
    let service = Service::start(world.settings().set("abuse.failures_per_minute", 1));
    let (agent, blocked) = (world.agent(4), world.agent(0));
    let key = agent.generate(&service);
    let mut connection: Connection = service.connect();
    for _ in 0..20 {
        connection.post("/verify", &json!({ "apiKey": key })).unwrap().success(200);
        service.verify_signature(&blocked.signed()).error(403, "TIER_BLOCKED");
        service.verify("no key").error(400, "VALIDATION_ERROR");
    }
    service.generate(&agent.signed()).error(409, "KEY_ALREADY_EXISTS");
    service.verify(&key).success(200);
}
