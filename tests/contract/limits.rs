//! Rate limits: what is left of an agent's minute, key management per client and agent in an hour, and refused credentials. How many
//! requests pass is in the table of `gateway/entry_points.rs`.

use serde_json::{Value, json};

use crate::support::agents::{Agent, unknown_key};
use crate::support::client::{Answer, Connection, with};
use crate::support::harness::{Case, cases};
use crate::support::service::{KEY_ENDPOINTS, Service};
use crate::support::time::{Stopwatch, unix_seconds};
use crate::support::{signing::BOB, world::World};

/// Of clients, by their addresses.
pub(crate) const CASES: &[Case<World>] = cases![
    forwarded_for_of_a_trusted_peer_names_the_client,
    the_proxy_protocol_of_a_trusted_peer_names_the_client,
    refused_credentials_are_limited_per_client_and_keep_no_owner_from_revoking,
    what_pages_of_other_sites_send_is_refused_before_it_counts,
];

/// Of agents, whose windows the store keeps.
pub(crate) const WINDOWS: &[Case<World>] =
    cases![keys_are_managed_ten_times_an_hour_and_nobody_keeps_an_owner_from_revoking,];

/// A time to wait is what is left of a window that began while `watch` ran, rounded up to whole seconds.
#[track_caller]
fn is_rest_of(window_secs: u64, watch: &Stopwatch, retry_after: u64) {
    let spent = watch.elapsed();
    let least = window_secs.saturating_sub(spent.as_secs() + 1);
    assert!((least..=window_secs).contains(&retry_after), "{retry_after} s after {spent:?}");
}

// threat: An owner is kept from revoking
fn keys_are_managed_ten_times_an_hour_and_nobody_keeps_an_owner_from_revoking(world: &World) {
    let (service, agent) = (world.service(), world.agent(1));
    let limited = |answer: Answer| answer.is_limited(json!(agent.text()), Value::Null, 10);
    // Nothing malformed counts. Of what proves nothing ten an hour are answered, and none is the owner's.
    let watch = Stopwatch::start();
    let unsigned = || with(&agent.signed(), "signature", json!(format!("0x{}", "00".repeat(65))));
    let stale = agent.draft().timestamp(unix_seconds() - 3_600).body();
    service.rotate(&stale).error(400, "REPLAY_DETECTED");
    for endpoint in KEY_ENDPOINTS {
        service.signed(endpoint, &with(&agent.signed(), "nonce", json!(7))).error(400, "VALIDATION_ERROR");
        for body in [unsigned(), unsigned(), agent.draft().by(BOB).body()] {
            service.signed(endpoint, &body).error(401, "SIGNATURE_INVALID");
        }
    }
    for endpoint in KEY_ENDPOINTS {
        for body in [unsigned(), stale.clone()] {
            is_rest_of(3_600, &watch, limited(service.signed(endpoint, &body)));
        }
    }
    // The owner's ten: some pass, some are refused.
    let watch = Stopwatch::start();
    assert_eq!(service.generate(&agent.signed()).allowance(), (10, 9));
    service.generate(&agent.signed()).error(409, "KEY_ALREADY_EXISTS");
    let used = agent.signed();
    assert_eq!(service.rotate(&used).allowance(), (10, 7));
    // A used one proves nothing.
    limited(service.rotate(&used));
    for left in [6, 5] {
        assert_eq!(service.revoke(&agent.signed()).allowance(), (10, left));
    }
    assert_eq!(service.status(&agent.text()).allowance(), (10, 5), "asking does not count");
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(service.rotate(&agent.signed()).allowance(), (10, left));
    }
    let body = agent.signed();
    for endpoint in [("POST", "/keys/generate"), ("POST", "/keys/rotate")] {
        is_rest_of(3_600, &watch, limited(service.signed(endpoint, &body)));
    }
    // Revocations have ten of their own, of which two are gone; agents are told apart by their numbers.
    for _ in 0..8 {
        assert_eq!(service.revoke(&agent.signed()).allowance(), (10, 0));
    }
    is_rest_of(3_600, &watch, limited(service.revoke(&agent.signed())));
    limited(service.revoke(&with(&agent.signed(), "agentId", json!(format!("00{}", agent.id)))));
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(false));
    let other = world.agent(0);
    assert_eq!(service.revoke(&other.signed()).allowance(), (10, 9));
    // The nonce of a refused request is still unused, and the budget of verifications is another one.
    assert_eq!(service.verify_signature(&body).allowance(), (1, 0));
}

// threat: An owner is kept from revoking
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

fn revoke_via(service: &Service, agent: &Agent, forwarded: &[&str]) -> Answer {
    let headers: Vec<_> = forwarded.iter().map(|chain| ("X-Forwarded-For", *chain)).collect();
    let body = agent.signed().to_string();
    service.request("DELETE", "/keys", &headers, Some(body.as_bytes()))
}

/// How chains are read is in the tests of `wire::client_ip` and `domain::client`.
// threat: Forged identity or forwarding headers
fn forwarded_for_of_a_trusted_peer_names_the_client(world: &World) {
    let settings = world.settings().set("listen.trusted_proxies", vec!["127.0.0.0/8", "10.0.0.0/8"]);
    let (service, agent) = (Service::start(settings), world.agent(0));
    for (forwarded, left) in [
        // Anybody may have written the part left of the first untrusted hop.
        (&["198.51.100.1, 203.0.113.1, 10.0.0.1"][..], 9),
        (&["192.0.2.77", "203.0.113.1, 10.9.9.9"], 8),
        (&["203.0.113.1"], 7),
        (&["203.0.113.2"], 9),
        (&["2001:db8::1"], 9),
        (&["2001:db8::2"], 8),
        (&["2001:db8:0:1::1"], 9),
        // The proxy itself, also where the chain can't be read.
        (&[], 9),
        (&["203.0.113.1, garbage"], 8),
    ] {
        assert_eq!(revoke_via(&service, &agent, forwarded).allowance(), (10, left), "{forwarded:?}");
    }
}

// threat: Forged PROXY headers
fn the_proxy_protocol_of_a_trusted_peer_names_the_client(world: &World) {
    let settings = world.settings().set("listen.proxy_protocol", vec!["api"]);
    let settings = settings.set("listen.trusted_proxies", vec!["127.0.0.0/8"]);
    let service = Service::start_behind(b"PROXY TCP4 203.0.113.1 192.0.2.1 4711 80\r\n", settings);
    let agent = world.agent(0);
    let behind = |header: &[u8]| {
        let body = agent.signed().to_string();
        let mut connection = Connection::open(service.api).unwrap();
        connection.write(header).unwrap();
        connection.send("DELETE", "/keys", &[], Some(body.as_bytes()))
    };
    // The client is no trusted proxy.
    assert_eq!(revoke_via(&service, &agent, &["198.51.100.1"]).allowance(), (10, 9));
    for (header, left) in [
        (&b"PROXY TCP4 203.0.113.1 192.0.2.1 99 80\r\n"[..], 8),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 80\r\n", 9),
        // The balancer itself.
        (b"PROXY UNKNOWN\r\n", 9),
    ] {
        assert_eq!(behind(header).unwrap().allowance(), (10, left), "{header:?}");
    }
    for no_header in [b"".as_slice(), b"PROXY TCP4 203.0.113.1 192.0.2.1 4711\r\n"] {
        assert!(behind(no_header).is_err(), "closed without an answer");
    }
}

// threat: Bad signatures cause work
// threat: A neighbour's bad keys
// threat: An owner is kept from revoking
fn refused_credentials_are_limited_per_client_and_keep_no_owner_from_revoking(world: &World) {
    let settings = world.settings().set("abuse.failures_per_minute", 4);
    let service = Service::start(settings.set("listen.trusted_proxies", vec!["127.0.0.0/8"]));
    let agent = world.agent(4);
    let key = agent.generate(&service);
    let [client, neighbour] = ["203.0.113.1", "203.0.113.2"];
    let from = |client: &str, path: &str, body: &Value| {
        let method = if path == "/keys" { "DELETE" } else { "POST" };
        service.request(method, path, &[("X-Forwarded-For", client)], Some(body.to_string().as_bytes()))
    };
    let (unknown, good) = (json!({ "apiKey": unknown_key(2) }), json!({ "apiKey": key }));
    let bad = |client: &str| {
        from(client, "/verify", &unknown).error(401, "INVALID_API_KEY");
        from(client, "/verify/signature", &agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
        let missing = world.known_agent(777_777_777_u64.try_into().unwrap(), BOB).signed();
        from(client, "/verify/signature", &missing).error(404, "AGENT_NOT_FOUND");
        from(client, "/keys/rotate", &agent.draft().timestamp(1).body()).error(400, "REPLAY_DETECTED");
    };
    let watch = Stopwatch::start();
    bad(client);
    is_rest_of(60, &watch, from(client, "/verify", &unknown).is_limited(Value::Null, Value::Null, 4));
    let limited = |path: &str, body: Value| {
        from(client, path, &body).is_limited(body["agentId"].clone(), Value::Null, 4);
    };
    limited("/verify/signature", agent.draft().by(BOB).body());
    limited("/keys/rotate", agent.draft().by(BOB).body());
    // Who has a good credential is not refused.
    from(client, "/verify", &good).success(200);
    from(client, "/verify/signature", &agent.signed()).success(200);
    from(neighbour, "/verify", &good).success(200);
    bad(neighbour);
    // Nor is an owner behind the same address who revokes, though the service has never seen it.
    let unseen = world.agent(0);
    limited("/keys/rotate", unseen.signed());
    limited("/keys", unseen.draft().by(BOB).body());
    from(client, "/keys", &unseen.signed()).success(200);
}
