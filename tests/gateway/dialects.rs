//! Refusals in the language of the client: gRPC's statuses, answers to HEAD without a body, and pages of other origins.

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::support::agents::unknown_key;
use crate::support::process::{free_port, own_ip};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    grpc_clients_are_refused_with_a_status_and_no_body,
    grpc_clients_are_told_of_upstreams_that_fail_in_one_frame,
    head_is_refused_without_a_body_by_every_way,
];

/// A call of gRPC.
fn call(host: &str, path: &str) -> Message {
    Message::request(Method::POST, host, path)
        .with("content-type", "application/grpc+proto")
        .with("te", "trailers")
        .body(b"\0\0\0\0\0")
}

/// The one frame that an answer has; the name of its status, and the header that says it.
#[track_caller]
fn is_trailers_only(site: &Site, request: &Message, code: &str) -> Message {
    let ends_with_its_head = h2c::run(async {
        let client = h2c::connect(site.gateway.address).await.unwrap();
        let mut client = client.ready().await.unwrap();
        let mut head = http::Request::post(request.uri.clone()).body(()).unwrap();
        *head.headers_mut() = request.headers.clone();
        let (answer, mut body) = client.send_request(head, false).unwrap();
        let _ = body.send_data(request.body.clone().into(), true);
        answer.await.unwrap().body().is_end_stream()
    });
    assert!(ends_with_its_head, "{request:?}");
    let answer = h2c::ask(site.gateway.address, request).unwrap();
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some(code)), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert!(answer.header("grpc-message").is_some() && answer.header("grpc-status-details-bin").is_some());
    assert!(answer.header("content-length").is_none() && answer.header("x-request-id").is_some());
    assert!(answer.body.is_empty() && answer.trailers.is_empty());
    answer
}

fn grpc_clients_are_refused_with_a_status_and_no_body(stage: &Stage) {
    let (_, spent) = stage.agent(1);
    let (_, unstaked) = stage.agent(0);
    let site = stage.site();
    let path = agents_path();
    let first = Message::request(Method::POST, ACME, &agents_path()).with("x-api-key", &spent);
    assert_eq!(h2c::ask(site.gateway.address, &first).unwrap().status, 200);
    for (request, code) in [
        (call(ACME, &path), "16"),
        (call(ACME, &path).with("x-api-key", &unknown_key(60)), "16"),
        (call(ACME, &path).with("x-agent-nonce", "1"), "3"),
        (call(ACME, &path).with("x-api-key", &unstaked), "7"),
        (call(ACME, "/denied/x"), "7"),
        (call("unknown.test", &path), "5"),
    ] {
        assert_eq!(is_trailers_only(site, &request, code).header("retry-after"), None);
    }
    let limited = is_trailers_only(site, &call(ACME, &path).with("x-api-key", &spent), "8");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(limited.header("x-ratelimit-limit"), Some("1"));
    site.is_unseen(&path);
    // Another protocol with a similar name reads the usual errors.
    let mut web = call(ACME, &path);
    web.headers.insert("content-type", "application/grpc-web".parse().unwrap());
    assert_eq!(h2c::ask(site.gateway.address, &web).unwrap().status, 401);
}

fn grpc_clients_are_told_of_upstreams_that_fail_in_one_frame(stage: &Stage) {
    let gone = format!("h2c://{}", free_port(own_ip()));
    let site = Site::of(stage).tenant(|tenant| tenant.set("upstreams", vec![gone])).start();
    is_trailers_only(&site, &call(ACME, &public_path()), "14");
}

fn head_is_refused_without_a_body_by_every_way(stage: &Stage) {
    let h2 = H2Upstream::start(H2Upstream::ok);
    let gone = free_port(own_ip()).to_string();
    let site = Site::of(stage).also(|_| {
        let by_library = Tenant::new("h2c", "h2c.test", h2.address).public();
        by_library.set("upstreams", vec![format!("h2c://{}", h2.address)])
    });
    let site = site.also(|_| Tenant::of("gone", &["gone.test"], &[&gone]).public());
    let site =
        site.also(|_| Tenant::of("gone-h2c", &["gone-h2c.test"], &[&format!("h2c://{gone}")]).public());
    let site = site.start();
    let closes = "Connection";
    for (host, path, status) in [
        (ACME, agents_path(), 401),
        ("h2c.test", agents_path(), 401),
        ("unknown.test", public_path(), 404),
        ("gone.test", public_path(), 502),
        ("gone-h2c.test", public_path(), 502),
        // A target that holds bytes which no URL has is refused before it is routed.
        (ACME, "/a<b".to_owned(), 400),
    ] {
        let mut wire = site.gateway.connect();
        wire.send(&Request::new("HEAD", host, &path).with(closes, "close").bytes());
        let head = wire.head().unwrap();
        assert_eq!(head.status, status, "{host} {path}");
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{host} {path}");
        assert_eq!(wire.rest(), b"", "{host} {path}");
        if status != 400 {
            let answer =
                h2c::ask(site.gateway.address, &Message::request(Method::HEAD, host, &path)).unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (status, b"".as_slice()), "{host} {path}");
        }
    }
}
