//! Other gateways that ask about their requests: a call that does not say what it asks about, each part once and well-formed,
//! lets nobody pass, and neither does a part of another dialect, which the client may have written.

use http::Method;

use crate::rig::authz::{Asked, DIALECTS, Dialect, Original, SERVICE, decision};
use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::{checks::Check, site::Site};
use crate::support::client::Answer;
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_part_that_is_missing_repeated_or_malformed_is_refused,
    a_target_that_our_gateway_refuses_is_refused,
    nothing_is_smuggled_through_a_check,
    a_path_that_names_no_dialect_or_tenant_lets_nobody_pass,
    http_1_0_is_answered_and_closed,
    a_call_over_http_2_that_is_no_check_lets_nobody_pass,
    an_upgrade_is_refused_in_every_dialect_unless_it_is_a_websocket_that_its_route_allows,
    a_call_that_can_not_be_read_is_refused_with_its_status_and_body_in_headers_too,
    headers_that_tell_how_a_request_came_are_stripped_but_for_those_that_gateways_set,
];

/// Its parts that say what is asked, of a request that would pass.
const FORWARD: [(&str, &str); 4] = [
    ("X-Forwarded-Method", "GET"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", ACME),
    ("X-Forwarded-Uri", "/public/x"),
];

const NGINX: [(&str, &str); 3] =
    [("Host", ACME), ("X-Original-Method", "GET"), ("X-Original-URI", "/public/x")];

/// A call over HTTP/1 as bytes.
fn call(path: &str, parts: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("GET {path} HTTP/1.1\r\n");
    parts.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    (head + "\r\n").into_bytes()
}

fn forward(parts: &[(&str, &str)]) -> Vec<u8> {
    call("/forward/acme", &[&[("Host", SERVICE)], parts].concat())
}

fn nginx(parts: &[(&str, &str)]) -> Vec<u8> {
    call("/nginx/acme", parts)
}

#[track_caller]
fn send(asked: &Asked, bytes: &[u8]) -> Answer {
    let mut wire = Wire::open(asked.authz);
    wire.send(bytes);
    wire.answer()
}

/// Checks that a call whose parts are wrong is 400, in the words of its dialect.
#[track_caller]
fn is_untold(asked: &Asked, dialect: Dialect, bytes: &[u8]) {
    let said = decision(dialect, "acme", send(asked, bytes));
    assert!(!said.passes, "{}", String::from_utf8_lossy(bytes));
    assert_eq!(said.error(), (400, "VALIDATION_ERROR".to_owned()), "{}", String::from_utf8_lossy(bytes));
}

/// How each part may be missing, repeated and malformed is in the tests of the readers of calls.
// threat: The client writes what is judged
// threat: Two hosts in one line
fn a_part_that_is_missing_repeated_or_malformed_is_refused(stage: &Stage) {
    let asked = stage.asked();
    assert_eq!(send(asked, &forward(&FORWARD)).status, 200);
    assert_eq!(send(asked, &nginx(&NGINX)).status, 200);
    is_untold(asked, Dialect::Forward, &forward(&FORWARD[..3]));
    is_untold(asked, Dialect::Nginx, &nginx(&NGINX[..2]));
    let by_url = |url| nginx(&[("Host", SERVICE), NGINX[1], ("X-Original-URL", url)]);
    assert_eq!(send(asked, &by_url("https://acme.test:8443/public/x")).status, 200);
    let closed = decision(Dialect::Nginx, "acme", send(asked, &by_url("http://acme.test/agents/x?/public/")));
    assert_eq!(closed.error().0, 401);

    // Over gRPC a library of gRPC tells no scheme.
    let original = Original::get(ACME, &public_path()).of_tenant("acme");
    Original { scheme: String::new(), ..original.clone() }.check().ask(asked.authz).decision().passes();
    let two = Original { host: "acme.test, beta.test".to_owned(), ..original };
    assert_eq!(two.check().ask(asked.authz).decision().error(), (400, "VALIDATION_ERROR".to_owned()));
    let with_nul = forward(&[&FORWARD[..3], &[("X-Authz", "\0")], &FORWARD[3..]].concat());
    assert_eq!(send(asked, &with_nul).status, 400);
}

// threat: An upgrade behind another gateway tunnels past the check
fn an_upgrade_is_refused_in_every_dialect_unless_it_is_a_websocket_that_its_route_allows(stage: &Stage) {
    let asked = stage.asked();
    for (folder, is_allowed) in [("public", false), ("open-socket", true)] {
        for dialect in DIALECTS {
            for name in ["Upgrade", "X-Authz-Upgrade"] {
                for (protocol, passes) in [
                    ("", true),
                    ("websocket", is_allowed),
                    ("WebSocket", is_allowed),
                    ("h2c", false),
                    ("websocket, h2c", false),
                    ("websocket/13", false),
                ] {
                    let original =
                        Original::get(ACME, &format!("/{folder}/{}", unique())).with(name, protocol);
                    let said = asked.ask(dialect, &original);
                    let about = format!("{dialect:?} {folder} {name}: {protocol}");
                    assert_eq!(said.passes, passes, "{about}");
                    assert!(passes || said.error() == (403, "FORBIDDEN".to_owned()), "{about}");
                    if !protocol.is_empty() && passes {
                        let both = original.with(name, "h2c");
                        assert_eq!(asked.ask(dialect, &both).error().0, 403, "{about}");
                    }
                }
            }
        }
    }
}

/// The dialect is not known then: nginx shows its client nothing but headers.
fn a_call_that_can_not_be_read_is_refused_with_its_status_and_body_in_headers_too(stage: &Stage) {
    let asked = stage.asked();
    let long = "x".repeat(40_000);
    let many: Vec<(&str, &str)> = NGINX.into_iter().chain([("a", "b"); 130]).collect();
    for (bytes, status, error_type) in [
        (nginx(&many), 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (nginx(&[&NGINX[..], &[("a", long.as_str())]].concat()), 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (nginx(&[&NGINX[..], &[("a", "b\u{1}")]].concat()), 400, "VALIDATION_ERROR"),
        (nginx(&[&NGINX[..], &[("a", "b\u{7f}")]].concat()), 400, "VALIDATION_ERROR"),
    ] {
        let answer = send(asked, &bytes);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-authz-status"), Some(&*status.to_string()), "{answer:?}");
        let body: serde_json::Value = serde_json::from_str(answer.header("x-authz-body").unwrap()).unwrap();
        assert_eq!((&body, &body["errorType"]), (&answer.json(), &error_type.into()));
    }
    let many = (0..130)
        .fold(Original::get(ACME, &public_path()), |original, at| original.with(&format!("a{at}"), "b"));
    assert_eq!(asked.ask(Dialect::Grpc, &many).error().0, 431);
    let unread = asked.site.gateway.ask(&Request::get(ACME, &public_path()).with("a", "b\u{1}"));
    assert_eq!(
        (unread.status, unread.header("x-authz-status")),
        (400, None),
        "clients of ours are told as before"
    );
}

fn headers_that_tell_how_a_request_came_are_stripped_but_for_those_that_gateways_set(stage: &Stage) {
    let asked = Asked::start(Site::of(stage).set("listen.trusted_headers", vec!["X-Forwarded-Port"]));
    let foreign = [
        "Forwarded",
        "X-Forwarded-Host",
        "X-Forwarded-Any",
        "X.Forwarded.For",
        "X-Real-IP",
        "CF-Connecting-IP",
    ];
    let of_gateways = ["X-Forwarded-Client-Cert", "X-Request-Id", "X-Forwarded-Port", "X-Note"];
    for dialect in [Dialect::Envoy, Dialect::Grpc] {
        let original = Original::get(ACME, &public_path()).of_tenant("t").from("192.0.2.1".parse().unwrap());
        let original =
            foreign.iter().chain(&of_gateways).fold(original, |original, name| original.with(name, "1"));
        let said = asked.ask(dialect, &original);
        let is_stripped = |name: &str| said.passes().stripped.contains(&name.to_lowercase());
        assert_eq!(foreign.iter().find(|name| !is_stripped(name)), None, "{dialect:?} {said:?}");
        let kept = of_gateways.iter().chain(&["X-Forwarded-For", "X-Forwarded-Proto"]);
        assert_eq!(kept.into_iter().find(|name| is_stripped(name)), None, "{dialect:?} {said:?}");
    }
}

// threat: The target that is judged is not the one that is forwarded
fn a_target_that_our_gateway_refuses_is_refused(stage: &Stage) {
    let asked = stage.asked();
    let word = unique();
    for target in [
        format!("/public/{word}#/x"),
        format!("http://{ACME}/public/{word}"),
        format!("//{ACME}\\/public/{word}"),
        format!("public/{word}"),
        format!("/public/{word} x"),
        format!("?/public/{word}"),
        String::new(),
    ] {
        let original = Original::get(ACME, &target);
        for dialect in [Dialect::Forward, Dialect::Nginx, Dialect::Grpc] {
            let said = asked.ask(dialect, &original);
            let is_odd = target.starts_with("//");
            assert!(said.error().0 == 400 || is_odd, "{dialect:?} {target:?}: {said:?}");
        }
        let bytes = original.call(Dialect::Envoy).bytes();
        let answer = send(asked, &bytes);
        assert!(answer.status >= 400, "{target:?}: {answer:?}");
    }
    // Neither way of writing them leads out of the closed folder.
    for path in ["/public/../agents/x", "/public/%2e%2e/agents/x", "/public/..;/agents/x", "//public/x"] {
        let ours = asked.site.gateway.ask(&Request::get(ACME, path)).status;
        for dialect in DIALECTS {
            let said = asked.ask(dialect, &Original::get(ACME, path));
            assert_eq!(if said.passes { 200 } else { said.answer.status }, ours, "{dialect:?} {path}");
        }
    }
}

/// A text in protobuf may hold line ends and NUL.
// threat: The target that is judged is not the one that is forwarded
fn nothing_is_smuggled_through_a_check(stage: &Stage) {
    let asked = stage.asked();
    let (_, key) = stage.asked_agent(4);
    let whole = Original::get(ACME, &agents_path());
    let smuggled = format!("X-API-Key: {key}");
    // All that a part may not hold is in the tests of `http1::head`.
    let texts = [
        format!("x\r\n{smuggled}"),
        format!("x\n{smuggled}"),
        format!("x HTTP/1.1\r\nHost: {ACME}\r\n{smuggled}\r\n\r\nGET /public/x"),
        "x\0".to_owned(),
        "\r\n\r\n".to_owned(),
    ];
    for text in &texts {
        for original in [
            Original { method: format!("GET{text}"), ..whole.clone() },
            Original { target: format!("/public/{text}"), ..whole.clone() },
            Original { host: format!("{ACME}{text}"), ..whole.clone() },
            Original { scheme: format!("http{text}"), ..whole.clone() },
            whole.clone().with("x-note", text).with("x-other", "y"),
            whole.clone().with(&format!("x-note{text}"), "y"),
            whole.clone().with(text, "y"),
        ] {
            for check in [Check::of(&original), Check::raw(&original)] {
                let said = check.ask(asked.authz).decision();
                assert_eq!(said.error(), (400, "VALIDATION_ERROR".to_owned()), "{original:?}");
            }
        }
    }
    for name in ["", " x-note", "x-note ", "x note"] {
        let said = Check::of(&whole.clone().with(name, "y")).ask(asked.authz).decision();
        assert_eq!(said.error().0, 400, "{name:?}");
    }
    // Its own fields say them; a header that says something else changes nothing.
    let public = public_path();
    for (name, value) in
        [(":path", public.as_str()), (":method", "OPTIONS"), (":authority", "beta.test"), ("host", "a")]
    {
        let said = Check::of(&whole.clone().with(name, value)).ask(asked.authz).decision();
        assert_eq!(said.error().0, 401, "{name}");
    }
    // Fields that no version of Envoy writes are passed over, and a message that is cut is refused.
    let mut unknown = Check::of(&Original::get(ACME, &public));
    unknown.message.extend(crate::rig::checks::bytes(99, b"x"));
    unknown.ask(asked.authz).decision().passes();
    for cut in 1..unknown.message.len() {
        let said = Check::of_bytes(unknown.message[..cut].to_vec()).ask(asked.authz).decision();
        assert!(!said.passes || cut > unknown.message.len() - 8, "{cut}");
    }
}

// threat: Something is exempt from the verdict
fn a_path_that_names_no_dialect_or_tenant_lets_nobody_pass(stage: &Stage) {
    let asked = stage.asked();
    let parts = [&[("Host", ACME)], &FORWARD[..], &NGINX[1..]].concat();
    // All that is no such path is in a test of the reader of paths.
    let paths = "/ /forward/nobody /forward/acme/x /nginx/nobody /envoy/acme /envoy/nobody/public/x /public/x /verify \
                 /livez /metrics /.well-known/tiergate /envoy.service.auth.v3.Authorization/Check";
    for path in paths.split_whitespace() {
        let answer = send(asked, &call(path, &parts));
        assert!(answer.status >= 400, "{path}: {answer:?}");
    }
    for dialect in DIALECTS {
        for tenant in ["nobody", "ACME", "", "acme.test"] {
            let original = Original::get(ACME, &public_path()).of_tenant(tenant);
            let said = match dialect {
                Dialect::Grpc => asked.ask(dialect, &original).error().0,
                Dialect::Forward | Dialect::Nginx | Dialect::Envoy => {
                    send(asked, &original.call(dialect).bytes()).status
                }
            };
            assert!(
                said == 404 || (dialect == Dialect::Nginx && said == 403),
                "{dialect:?} {tenant}: {said}"
            );
        }
        let said = asked.ask(dialect, &Original::get(ACME, &public_path()).of_tenant("nobody"));
        assert_eq!(said.error(), (404, "NOT_FOUND".to_owned()));
    }
}

fn http_1_0_is_answered_and_closed(stage: &Stage) {
    let asked = stage.asked();
    for further in ["", "Connection: close\r\n", "Connection: keep-alive\r\n"] {
        for (target, status) in [("/public/x", 200), ("/agents/x", 403)] {
            let mut wire = Wire::open(asked.authz);
            wire.send(
                format!(
                    "GET /nginx/acme HTTP/1.0\r\nHost: {ACME}\r\n{further}X-Original-Method: GET\r\n\
                     X-Original-URI: {target}\r\n\r\n"
                )
                .as_bytes(),
            );
            let answer = wire.answer();
            assert_eq!(answer.status, status, "{further}");
            decision(Dialect::Nginx, "acme", answer);
            assert_eq!(wire.rest(), b"", "it ends with its answer");
        }
    }
}

/// gRPC says errors with 200 too, which gateways of other dialects take for leave.
// threat: A gateway takes a refusal for leave
fn a_call_over_http_2_that_is_no_check_lets_nobody_pass(stage: &Stage) {
    let asked = stage.asked();
    let original = Original::get(ACME, &public_path());
    let check = original.check();
    assert_eq!(h2c::ask(asked.authz, &check.call()).unwrap().status, 200);
    for kind in ["application/grpc", "application/grpc+proto", "application/json", "application/grpc-web", ""]
    {
        for path in [
            "/forward/acme",
            "/nginx/acme",
            "/envoy/acme/public/x",
            "/",
            "/envoy.service.auth.v3.Authorization/check",
            "/envoy.service.auth.v3.Authorization/Check/",
            "/envoy.service.auth.v2.Authorization/Check",
            "/grpc.health.v1.Health/Check",
            crate::rig::checks::CHECK,
        ] {
            for method in [Method::GET, Method::POST] {
                let is_check = path == crate::rig::checks::CHECK && method == Method::POST;
                if is_check && matches!(kind, "application/grpc" | "application/grpc+proto") {
                    continue;
                }
                let call = Message::request(method.clone(), ACME, path).body(&check.framed());
                let call = FORWARD
                    .iter()
                    .chain(&NGINX[1..])
                    .fold(call, |call, (name, value)| call.with(name, value));
                let answer = h2c::ask(asked.authz, &call.with("content-type", kind)).unwrap();
                assert!(answer.status >= 400, "{method} {path} {kind}: {answer:?}");
            }
        }
    }
}
