//! Refusals in the language of the client: gRPC's statuses, answers to HEAD without a body, and pages of other origins.

use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::entry_points::{message, of_message};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{authz::Original, scripts, site::Site, tenants::Tenant, upstream::Then};
use crate::support::process::{free_port, own_ip};
use crate::support::{agents::unknown_key, client::Answer, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    grpc_clients_are_refused_with_a_status_and_no_body,
    grpc_clients_are_told_of_upstreams_that_fail_in_one_frame,
    head_is_refused_without_a_body_by_every_way,
    a_preflight_is_answered_without_credential_charge_or_upstream,
    a_page_of_an_allowed_origin_reads_answers_and_refusals_and_no_other_does,
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

// threat: A dead or broken upstream
fn grpc_clients_are_refused_with_a_status_and_no_body(stage: &Stage) {
    let (_, spent) = stage.agent(1);
    let (_, unstaked) = stage.agent(0);
    let site = stage.site();
    let path = agents_path();
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
    let first = Message::request(Method::POST, ACME, &agents_path()).with("x-api-key", &spent);
    assert_eq!(h2c::ask(site.gateway.address, &first).unwrap().status, 200);
    let limited = is_trailers_only(site, &call(ACME, &path).with("x-api-key", &spent), "8");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(limited.header("x-ratelimit-limit"), Some("1"));
    site.is_unseen(&path);
    // Another protocol with a similar name reads the usual errors.
    let mut web = call(ACME, &path);
    web.headers.insert("content-type", "application/grpc-web".parse().unwrap());
    assert_eq!(h2c::ask(site.gateway.address, &web).unwrap().status, 401);
}

// threat: A dead or broken upstream
fn grpc_clients_are_told_of_upstreams_that_fail_in_one_frame(stage: &Stage) {
    let gone = format!("h2c://{}", free_port(own_ip()));
    let site = Site::of(stage).tenant(|tenant| tenant.set("upstreams", vec![gone])).start();
    is_trailers_only(&site, &call(ACME, &public_path()), "14");
}

// threat: A dead or broken upstream
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

/// The origin of a page that may use the API, and of one that may not.
const PAGE: &str = "https://app.example";
const OTHER: &str = "https://evil.example";

/// All values of a header.
fn all<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let named = answer.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

/// How many headers are about pages.
fn about_pages(answer: &Answer) -> usize {
    answer.headers.iter().filter(|(name, _)| name.to_ascii_lowercase().starts_with("access-control-")).count()
}

/// A site whose API pages may use: by the relay at [`ACME`], by the library at `h2c.test`.
struct Pages {
    site: Site,
    h2: H2Upstream,
}

/// As upstreams answer that have rules of their own.
const OWN_RULES: [(&str, &str); 3] =
    [("Access-Control-Allow-Origin", "*"), ("Access-Control-Max-Age", "1"), ("Vary", "Accept")];

fn with_own_rules(_: &Message) -> Message {
    let answer = Message { status: 200, ..Message::default() }.body(b"ok");
    OWN_RULES.iter().fold(answer, |answer, (name, value)| answer.with(name, value))
}

impl Pages {
    fn start(stage: &Stage, origin: &str) -> Self {
        let h2 = H2Upstream::start(with_own_rules);
        let urls = vec![format!("h2c://{}", h2.address)];
        let site = Site::of(stage)
            .agent(1)
            .also(|upstream| Tenant::new("h2c", "h2c.test", upstream).public().set("upstreams", urls));
        let site = site.each(|tenant| {
            let tenant = tenant.route("/denied/*", r#"access = "deny""#);
            tenant.set("cors.origins", vec![origin]).set("cors.exposed_headers", vec!["X-Total"])
        });
        Self { site: site.start(), h2 }
    }

    /// What is told by each way: relay, library, HTTP/2.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> [Answer; 3] {
        let original = |host: &str| {
            headers
                .iter()
                .fold(Original::new(method, host, path), |original, (name, value)| original.with(name, value))
        };
        let gateway = &self.site.gateway;
        let by_http_2 = of_message(&h2c::ask(gateway.address, &message(&original(ACME))).unwrap());
        [gateway.ask(&original(ACME).direct()), gateway.ask(&original("h2c.test").direct()), by_http_2]
    }

    fn preflight(&self, path: &str, origin: &str, method: &str) -> [Answer; 3] {
        let asked = ("Access-Control-Request-Method", method);
        self.ask(
            "OPTIONS",
            path,
            &[("Origin", origin), asked, ("Access-Control-Request-Headers", "x-api-key")],
        )
    }
}

// threat: Pages of other origins
fn a_preflight_is_answered_without_credential_charge_or_upstream(stage: &Stage) {
    let pages = Pages::start(stage, PAGE);
    let path = agents_path();
    for answer in pages.preflight(&path, PAGE, "PUT") {
        assert_eq!((answer.status, answer.body.as_slice()), (204, b"".as_slice()));
        assert_eq!(all(&answer, "access-control-allow-origin"), [PAGE]);
        assert_eq!(all(&answer, "access-control-allow-methods"), ["GET, HEAD, POST, PUT, PATCH, DELETE"]);
        assert!(all(&answer, "access-control-allow-headers")[0].contains("X-API-Key"));
        assert_eq!(
            (all(&answer, "access-control-max-age"), all(&answer, "vary")),
            (vec!["600"], vec!["Origin"])
        );
        assert_eq!(all(&answer, "access-control-allow-credentials"), [""; 0]);
    }
    let denied = [pages.preflight(&path, OTHER, "PUT"), pages.preflight("/denied/x", PAGE, "PUT")];
    for answer in denied.into_iter().flatten() {
        assert_eq!((answer.status, about_pages(&answer), all(&answer, "vary")), (204, 0, vec!["Origin"]));
    }
    // An agent of one request a minute still has it, and other OPTIONS are requests like any.
    for answer in pages.ask("OPTIONS", &path, &[("Origin", PAGE)]) {
        assert_eq!(answer.status, 401);
    }
    let key = pages.site.key();
    let answer = pages.ask("GET", &agents_path(), &[("Origin", PAGE), ("X-API-Key", key)]);
    // HTTP/2 comes first, and spends the same tenant's budget as the relay.
    assert_eq!(answer.map(|answer| answer.status), [429, 200, 200]);
    pages.site.is_unseen(&path);
    assert!(pages.h2.seen().iter().all(|seen| seen.uri.path() != path));
}

// threat: Pages of other origins
fn a_page_of_an_allowed_origin_reads_answers_and_refusals_and_no_other_does(stage: &Stage) {
    let pages = Pages::start(stage, PAGE);
    for (path, status) in [(public_path(), 200), (agents_path(), 401), ("/denied/x".to_owned(), 403)] {
        let answer = scripts::answer("200 OK", &OWN_RULES, b"ok");
        pages.site.upstream.on(&path, scripts::bytes(answer, Then::Goes));
        for answer in pages.ask("GET", &path, &[("Origin", PAGE)]) {
            assert_eq!((answer.status, all(&answer, "access-control-allow-origin")), (status, vec![PAGE]));
            let exposed = all(&answer, "access-control-expose-headers");
            assert!(exposed[0].contains("Retry-After") && exposed[0].contains("X-Total"), "{exposed:?}");
            assert_eq!((all(&answer, "vary").contains(&"Accept"), about_pages(&answer)), (status == 200, 2));
            assert!(all(&answer, "vary").contains(&"Origin"));
        }
        for headers in [&[("Origin", OTHER)][..], &[("Origin", "null")], &[]] {
            for answer in pages.ask("GET", &path, headers) {
                assert_eq!((answer.status, about_pages(&answer)), (status, 0), "{headers:?}");
                assert!(all(&answer, "vary").contains(&"Origin"));
            }
        }
    }
    let open = Pages::start(stage, "*");
    for answer in open.ask("GET", &agents_path(), &[("Origin", OTHER)]) {
        assert_eq!((answer.status, all(&answer, "access-control-allow-origin")), (401, vec!["*"]));
        assert_eq!(all(&answer, "vary"), [""; 0]);
    }
}
