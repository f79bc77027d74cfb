//! The files in `conf/behind`, line by line: every program that they configure upgrades WebSockets alone, shows signatures, says
//! of a request that can never pass that it can't, and forwards no client's word of where it comes from. Each line that this
//! takes is broken once, and is missed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bots::{Bot, Bots};
use crate::rig::behind::{Asks, Behind, Change, Other, PAGE, PATIENT};
use crate::rig::case::{Case, cases};
use crate::rig::messages::Signing;
use crate::rig::scripts::{self, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::upstream::{Exchange, Script, Then};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};
use crate::support::{client::Answer, process::own_ip};
use crate::upgrades::{KINDS, Kind, WEBSOCKET, with_kind};

pub(crate) const CASES: &[Case] = cases![
    only_a_websocket_is_upgraded_by_another_gateway_and_only_where_its_route_allows_it,
    a_request_that_is_no_websocket_passes_from_any_page_where_its_route_upgrades,
    signed_requests_and_bots_are_judged_behind_every_gateway,
    a_request_that_can_never_pass_is_told_so_and_ends_no_gateway,
    no_client_says_where_it_comes_from_behind_another_gateway,
    each_line_of_the_files_of_nginx_caddy_haproxy_and_traefik_is_needed,
    each_line_of_the_files_of_envoy_is_needed,
];

/// Tiergate with all kinds of credentials, programs that ask it, and a bot.
pub(crate) struct Ground {
    // Dropped before what it leads to.
    traefik: Option<Other>,
    behind: Behind,
    bot: Bot,
    chain_id: i64,
    _bots: Bots,
}

impl Ground {
    pub(crate) fn start(stage: &Stage) -> Self {
        let bots = Bots::new();
        let bot = bots.bot();
        let behind = Behind::start(stage, PATIENT, |site| {
            let site = site.unlimited().set("web_bot_auth.private_domains", vec![bot.domain()]);
            let site = site.under(bots.environment.clone().leak());
            let limits = "access = \"public\"\nrequests_per_minute = 9999\nbot_requests_per_minute = 999";
            site.tenant(|tenant| {
                tenant.set("credentials", vec!["api_key", "signature", "erc8128"]).route("/bots/*", limits)
            })
        });
        // It is unknown until its directory has been read.
        until("the bot is known", 3 * SOON, || {
            let path = format!("/bots/{}", unique());
            behind.site.gateway.ask(&Request::get(ACME, &path).with_all(&bot.signs()));
            let seen = behind.site.upstream.seen_at(&path);
            seen.iter().any(|seen| seen.header("x-agent-domain").is_some()).then_some(())
        });
        let traefik = Other::traefik(&behind);
        Self { traefik, behind, bot, chain_id: stage.world().chain().contracts.chain_id, _bots: bots }
    }
}

/// Checks something of one program.
type Check = fn(&Ground, &Other);

fn each(stage: &Stage, check: Check) {
    let ground = stage.files();
    ground.behind.others.iter().chain(&ground.traefik).for_each(|other| check(ground, other));
}

/// Agrees to every upgrade.
fn switches() -> Script {
    script(|exchange: &mut Exchange| {
        let Some(protocol) = exchange.seen.header("upgrade").map(str::to_owned) else {
            return (scripts::echo())(exchange);
        };
        let key = exchange.seen.header("sec-websocket-key").unwrap_or_default();
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let lines = format!("Upgrade: {protocol}\r\nSec-WebSocket-Accept: {accept}\r\n");
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n");
        exchange.write(head.as_bytes())?;
        Ok(Then::Closes)
    })
}

/// A WebSocket, and another protocol beside it.
const LISTED: Kind = &[
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket, h2c"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

fn upgrades_websockets_alone(ground: &Ground, other: &Other) {
    let site = &ground.behind.site;
    for kind in KINDS.iter().chain([&LISTED]) {
        for folder in ["public", "agents", "open-socket", "socket"] {
            let path = format!("/{folder}/{}", unique());
            site.upstream.on(&path, switches());
            let request = with_kind(Request::get(ACME, &path).key(site.key()), kind);
            let answer = other.ask(&request);
            let about = format!("{}: {path} {kind:?} {answer:?}", other.name);
            let seen = site.upstream.seen_at(&path);
            let is_allowed = folder.ends_with("socket");
            if *kind == WEBSOCKET {
                let (status, count) = if is_allowed { (101, 1) } else { (403, 0) };
                assert_eq!((answer.status, seen.len()), (status, count), "{about}");
            }
            // Envoy refuses what it does not upgrade. The others pass it as a request like any other, as we do.
            let names = |protocol| {
                kind.iter().any(|(name, value)| *name == "Upgrade" && value.to_lowercase().contains(protocol))
            };
            let is_envoy = matches!(other.asks, Asks::EnvoyHttp | Asks::EnvoyGrpc);
            assert!(is_envoy || *kind != LISTED && names("websocket") || answer.status == 200, "{about}");
            assert!(seen.len() == 1 || matches!(answer.status, 400 | 403), "{about}");
            for seen in seen {
                let [upgrade, connection] = ["upgrade", "connection"].map(|name| seen.all(name).join(","));
                let is_socket = upgrade.eq_ignore_ascii_case("websocket");
                assert!(is_socket && is_allowed || upgrade.is_empty(), "{about} {seen:?}");
                assert_eq!(connection.to_lowercase().contains("upgrade"), is_socket, "{about} {seen:?}");
                assert!(is_socket || answer.status == 200, "{about}");
            }
        }
    }
    // The gateway's own word is not the client's. Over gRPC it has none, and the client would refuse itself.
    let forged = Request::get(ACME, &public_path()).with("X-Authz-Upgrade", "websocket");
    let status = if other.asks == Asks::EnvoyGrpc { 403 } else { 200 };
    assert_eq!(other.ask(&forged).status, status, "{}", other.name);
}

fn takes_only_sockets_for_sockets(ground: &Ground, other: &Other) {
    let site = &ground.behind.site;
    for (folder, origin) in ["socket", "open-socket"]
        .into_iter()
        .flat_map(|folder| [PAGE, "https://evil.example", "null"].map(|origin| (folder, origin)))
    {
        let request = |method| {
            let path = format!("/{folder}/{}", unique());
            site.upstream.on(&path, switches());
            Request::new(method, ACME, &path).key(site.key()).with("Origin", origin)
        };
        for request in [request("GET"), request("POST").body(b"body")] {
            let answer = other.ask(&request);
            assert_eq!(answer.status, 200, "{}: {folder} {origin} {}", other.name, answer.text());
        }
        let answer = other.ask(&with_kind(request("GET"), WEBSOCKET));
        let status = if origin == PAGE { 101 } else { 403 };
        assert_eq!(answer.status, status, "{}: {folder} {origin} {}", other.name, answer.text());
    }
}

fn shows_signatures(ground: &Ground, other: &Other) {
    let (site, agent) = (&ground.behind.site, ground.behind.site.agent());
    let signing = |path: &str| {
        let signing = Signing::get(agent, ground.chain_id, &format!("{path}?a=%2F&b"));
        Signing { content_type: Some("text/plain".into()), ..signing }
    };
    // On a busy machine a program may not wait for the answer, and nobody passes.
    let ask = |request: &Request| {
        until("it is answered", SOON, || Some(other.ask(request)).filter(|answer| answer.status != 503))
    };
    let is_refused = |request: Request| {
        let answer = ask(&request);
        assert_eq!(answer.status, 401, "{}: {}", other.name, answer.text());
        let asked_for = answer.header("accept-signature");
        assert!(asked_for.is_some_and(|asked| asked.contains("erc8128")), "{}: {answer:?}", other.name);
    };
    for body in [None, Some(b"a body")] {
        // Or HAProxy asks once more for a request that was admitted meanwhile, which is 401: the same is signed anew.
        let mut tries = 0;
        let (path, signing, answer) = until("a signed request passes", SOON, || {
            let path = agents_path();
            let signing = body.iter().fold(signing(&path), |signing, body| signing.post(*body));
            let answer = other.ask(&signing.request());
            tries += 1;
            let is_late = answer.status == 503 || answer.status == 401 && other.asks == Asks::HaProxy;
            (!is_late || tries == 3).then_some((path, signing, answer))
        });
        assert_eq!(answer.status, 200, "{}: {} {}", other.name, answer.text(), other.log());
        let seen = site.upstream.only(&path);
        assert_eq!(seen.header("x-agent-id"), Some(&*agent.text()), "{}", other.name);
        // Once, and for this host and target alone.
        is_refused(signing.request());
    }
    is_refused(Request::get(ACME, &agents_path()));
    let elsewhere = Signing { host: "other.test".into(), ..signing(&agents_path()) };
    is_refused(Request::get(ACME, &elsewhere.target).with_all(&elsewhere.headers()));
    if other.asks == Asks::Traefik {
        assert_eq!(other.ask(&elsewhere.request()).status, 404, "it has no router for that host");
    } else {
        is_refused(elsewhere.request());
    }

    let domain_of = |headers: &[(String, String)]| {
        let path = format!("/bots/{}", unique());
        let answer = ask(&Request::get(ACME, &path).with_all(headers));
        assert_eq!(answer.status, 200, "{}: {}", other.name, answer.text());
        site.upstream.only(&path).header("x-agent-domain").map(str::to_owned)
    };
    assert_eq!(domain_of(&ground.bot.signs()), Some(ground.bot.domain()), "{}", other.name);
    assert_eq!(domain_of(&ground.bot.signs_for("other.test")), None, "{}", other.name);
}

/// The answer to a request that may be refused before it was read whole; none if that reset the connection.
fn early(other: &Other, request: &Request) -> Option<Answer> {
    let mut wire = Wire::open(other.address);
    let _ = wire.write(&request.bytes());
    wire.try_answer().ok()
}

fn tells_what_can_never_pass(ground: &Ground, other: &Other) {
    const COUNTS: [usize; 16] = [70, 79, 93, 94, 95, 96, 97, 98, 99, 100, 110, 121, 123, 128, 150, 250];
    let key = ground.behind.site.key();
    let public = |count| {
        (0..count)
            .fold(Request::get(ACME, &public_path()), |request, at| request.with(&format!("a{at}"), "b"))
    };
    let of_agent = |count| {
        (0..count).fold(Request::get(ACME, &agents_path()).key(key), |request, at| {
            request.with(&format!("a{at}"), "b")
        })
    };
    let never = |request: &Request, about: &str| {
        let Some(answer) = early(other, request) else { return };
        let about = format!("{}: {about} {} {}", other.name, answer.status, answer.text());
        assert!(matches!(answer.status, 200 | 400 | 431), "{about}");
        assert!(answer.status == 200 || answer.header("retry-after").is_none(), "{about}");
        // The programs answer some by themselves.
        if answer.status == 431
            && !matches!(other.asks, Asks::Caddy | Asks::Traefik)
            && answer.header("content-type") != Some("text/plain")
        {
            assert_eq!(answer.json()["errorType"], "REQUEST_HEADER_FIELDS_TOO_LARGE", "{about}");
        }
    };
    for count in COUNTS {
        for request in [public(count), of_agent(count)] {
            never(&request, &format!("{count} headers"));
        }
        // It runs still, and knows what is not too much.
        let answer = early(other, &public(70));
        assert!(answer.is_some_and(|answer| answer.status == 200), "{}: behind {count} headers", other.name);
    }
    for (lines, bytes) in [(4, 8150), (10, 1_350), (10, 1_450), (2, 7_000)] {
        let request = (0..lines).fold(Request::get(ACME, &public_path()), |request, at| {
            request.with(&format!("a{at}"), &"x".repeat(bytes))
        });
        never(&request, &format!("{lines} lines of {bytes} bytes"));
    }
    let answer = other.ask(&Request::get(ACME, "/posted/x"));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{}", other.name);
    for byte in ["\u{1}", "\u{7f}"] {
        let answer = other.ask(&Request::get(ACME, &public_path()).with("X-Note", &format!("a{byte}b")));
        assert_eq!(answer.status, 400, "{}: {byte:?} {}", other.name, answer.text());
        if matches!(other.asks, Asks::Nginx | Asks::HaProxy) {
            assert_eq!(answer.json()["errorType"], "VALIDATION_ERROR", "{}", other.name);
        }
    }
}

/// The headers by which gateways say where a request comes from, and how.
const OF_GATEWAYS: [&str; 16] = [
    "Forwarded",
    "X-Forwarded-Host",
    "X-Forwarded-Method",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-Uri",
    "X-Forwarded-Client-Cert",
    "X-Real-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
];

fn forwards_no_word_of_a_client(ground: &Ground, other: &Other) {
    let path = public_path();
    let request =
        OF_GATEWAYS.iter().fold(Request::get(ACME, &path), |request, name| request.with(name, "forged"));
    let request = request.with("X-Forwarded-For", "203.0.113.9").with("X-Forwarded-Proto", "https");
    let client = own_ip();
    let answer = request.ask_on(&mut Wire::open_from(client, other.address));
    assert_eq!(answer.status, 200, "{}: {}", other.name, answer.text());
    let seen = ground.behind.site.upstream.only(&path);
    let forged: Vec<_> = seen.headers.iter().filter(|(_, value)| value.contains("forged")).collect();
    assert!(forged.is_empty(), "{}: {forged:?}", other.name);
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "{}: {seen:?}", other.name);
    let shown = seen.header("x-forwarded-for").unwrap();
    match other.asks {
        // Envoy appends to what it got.
        Asks::EnvoyHttp | Asks::EnvoyGrpc => {
            assert!(!shown.ends_with("203.0.113.9"), "{}: {shown}", other.name)
        }
        Asks::Nginx | Asks::Caddy | Asks::HaProxy | Asks::Traefik => {
            assert_eq!(shown, client.to_string(), "{}", other.name)
        }
    }
}

// threat: An upgrade behind another gateway tunnels past the check
fn only_a_websocket_is_upgraded_by_another_gateway_and_only_where_its_route_allows_it(stage: &Stage) {
    each(stage, upgrades_websockets_alone);
}

// threat: An upgrade behind another gateway tunnels past the check
fn a_request_that_is_no_websocket_passes_from_any_page_where_its_route_upgrades(stage: &Stage) {
    each(stage, takes_only_sockets_for_sockets);
}

fn signed_requests_and_bots_are_judged_behind_every_gateway(stage: &Stage) {
    each(stage, shows_signatures);
}

// threat: Many headers end the HAProxy that asks
fn a_request_that_can_never_pass_is_told_so_and_ends_no_gateway(stage: &Stage) {
    each(stage, tells_what_can_never_pass);
}

fn no_client_says_where_it_comes_from_behind_another_gateway(stage: &Stage) {
    each(stage, forwards_no_word_of_a_client);
}

/// A line of a file, the same broken, and the check that then fails.
type Mutation = (Asks, Change<'static>, Check);

const MUTATIONS: &[Mutation] = &[
    (
        Asks::Nginx,
        (
            "Upgrade $upgrade;\n            proxy_set_header Connection",
            "Upgrade $http_upgrade;\n            proxy_set_header Connection",
        ),
        upgrades_websockets_alone,
    ),
    (Asks::Nginx, ("X-Authz-Upgrade $upgrade", "X-Authz-Upgrade \"\""), upgrades_websockets_alone),
    (Asks::Nginx, ("X-Authz-Upgrade $upgrade", "X-Authz-Upgrade websocket"), takes_only_sockets_for_sockets),
    (Asks::Nginx, ("websocket upgrade;", "websocket \"\";"), upgrades_websockets_alone),
    (Asks::Nginx, ("add_header Accept-Signature $authz_signature always;", ""), shows_signatures),
    (Asks::Nginx, ("add_header Allow $authz_allow always;", ""), tells_what_can_never_pass),
    (Asks::Nginx, ("if ($authz_status = 431) { return 431 $authz_body; }", ""), tells_what_can_never_pass),
    (Asks::Nginx, ("if ($authz_status = 400) { return 400 $authz_body; }", ""), tells_what_can_never_pass),
    (
        Asks::Nginx,
        ("X-Forwarded-For $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for"),
        forwards_no_word_of_a_client,
    ),
    (Asks::Caddy, ("request_header @plain -Upgrade", ""), upgrades_websockets_alone),
    (Asks::Caddy, ("(?i)^websocket$", "(?i)^websocket"), upgrades_websockets_alone),
    (Asks::Caddy, ("header_up X-Authz-Upgrade {header.Upgrade}", ""), upgrades_websockets_alone),
    (
        Asks::Caddy,
        ("X-Authz-Upgrade {header.Upgrade}", "X-Authz-Upgrade websocket"),
        takes_only_sockets_for_sockets,
    ),
    (Asks::Caddy, ("X-Forwarded-Uri {uri}", "X-Forwarded-Uri {path}"), shows_signatures),
    (Asks::Caddy, ("@unknown status 2xx", "@unknown status 4xx"), tells_what_can_never_pass),
    (Asks::Caddy, ("request_header -X-Forwarded-*", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -Forwarded", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -X-Real-Ip", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -X-Client-Ip", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -X-Cluster-Client-Ip", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -True-Client-Ip", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -Cf-Connecting-Ip", ""), forwards_no_word_of_a_client),
    (Asks::Caddy, ("request_header -Fastly-Client-Ip", ""), forwards_no_word_of_a_client),
    (
        Asks::HaProxy,
        ("http-request del-header Upgrade", "http-request del-header X-None"),
        upgrades_websockets_alone,
    ),
    (Asks::HaProxy, ("-i -m str websocket", "-i -m beg websocket"), upgrades_websockets_alone),
    (Asks::HaProxy, ("headers[\"x-authz-upgrade\"] =", "local _ ="), upgrades_websockets_alone),
    (Asks::HaProxy, ("connection keep-alive", "signature connection keep-alive"), shows_signatures),
    (Asks::HaProxy, ("HEADERS_MAX = 80", "HEADERS_MAX = 200"), tells_what_can_never_pass),
    (Asks::HaProxy, ("or plain:find(\"^x%-forwarded%-\")", ""), forwards_no_word_of_a_client),
    (
        Asks::HaProxy,
        ("x-rewrite-url forwarded x-real-ip", "x-rewrite-url x-real-ip"),
        forwards_no_word_of_a_client,
    ),
    (
        Asks::HaProxy,
        ("forwarded x-real-ip x-client-ip", "forwarded x-client-ip"),
        forwards_no_word_of_a_client,
    ),
    (Asks::HaProxy, ("x-client-ip x-cluster-client-ip", "x-cluster-client-ip"), forwards_no_word_of_a_client),
    (Asks::HaProxy, ("x-client-ip x-cluster-client-ip", "x-client-ip"), forwards_no_word_of_a_client),
    (Asks::HaProxy, ("true-client-ip", ""), forwards_no_word_of_a_client),
    (Asks::HaProxy, ("cf-connecting-ip", ""), forwards_no_word_of_a_client),
    (Asks::HaProxy, ("fastly-client-ip", ""), forwards_no_word_of_a_client),
    (Asks::Traefik, ("          Upgrade: \"\"", "          X-None: \"\""), upgrades_websockets_alone),
    (
        Asks::Traefik,
        ("          X-Authz-Upgrade: websocket", "          X-None: a"),
        upgrades_websockets_alone,
    ),
    (Asks::Traefik, ("(?i)^websocket$", "(?i)websocket"), upgrades_websockets_alone),
    (Asks::Traefik, ("trustForwardHeader: false", HIDES_FROM_TIERGATE), shows_signatures),
    (Asks::EnvoyHttp, ("upgrade_configs: [{ upgrade_type: websocket }]", ""), upgrades_websockets_alone),
    (Asks::EnvoyHttp, ("- { exact: connection }", "- { exact: upgrade }"), upgrades_websockets_alone),
    (Asks::EnvoyHttp, ("- { prefix: x-authz- }", ""), upgrades_websockets_alone),
    (Asks::EnvoyHttp, ("regex: \".*\"", "regex: \"x-.*|content-type\""), shows_signatures),
    (Asks::EnvoyHttp, (", max_headers_count: 160", ""), tells_what_can_never_pass),
    (Asks::EnvoyHttp, ("- { exact: connection }", "- { exact: forwarded }"), forwards_no_word_of_a_client),
    (Asks::EnvoyGrpc, ("upgrade_configs: [{ upgrade_type: websocket }]", ""), upgrades_websockets_alone),
    (Asks::EnvoyGrpc, (HIDES_NOTHING, HIDES_SIGNATURES), shows_signatures),
    (Asks::EnvoyGrpc, (", max_headers_count: 160", ""), tells_what_can_never_pass),
    (Asks::EnvoyGrpc, (HIDES_NOTHING, HIDES_FORWARDED), forwards_no_word_of_a_client),
];

const HIDES_FROM_TIERGATE: &str =
    "trustForwardHeader: false\n        authRequestHeaders: [Authorization, X-API-Key, X-Agent-Id]";
const HIDES_NOTHING: &str = "encode_raw_headers: true\n";
const HIDES_SIGNATURES: &str =
    "encode_raw_headers: true\n              disallowed_headers: { patterns: [{ exact: signature }] }\n";
const HIDES_FORWARDED: &str =
    "encode_raw_headers: true\n              disallowed_headers: { patterns: [{ exact: forwarded }] }\n";

fn are_needed<'a>(ground: &Ground, mutations: impl Iterator<Item = (Asks, Change<'a>, Check)>) {
    let mut unneeded = Vec::new();
    for (asks, change, check) in mutations {
        let Some(other) = Other::broken(asks, &ground.behind, change) else { continue };
        if catch_unwind(AssertUnwindSafe(|| check(ground, &other))).is_ok() {
            unneeded.push(format!("{asks:?} {change:?}"));
        }
    }
    assert!(unneeded.is_empty(), "nothing misses {unneeded:#?}");
}

// threat: Many headers end the HAProxy that asks
fn each_line_of_the_files_of_nginx_caddy_haproxy_and_traefik_is_needed(stage: &Stage) {
    // Traefik writes or removes these without a line of its file.
    let writes =
        ["-Host", "-Method", "-Port", "-Prefix", "-Server", "-Uri"].map(|end| format!("X-Forwarded{end}"));
    let of_nginx = OF_GATEWAYS.map(|name| (Asks::Nginx, format!("proxy_set_header {name} \"\";")));
    let of_traefik =
        OF_GATEWAYS.into_iter().filter(|name| *name != "X-Real-IP" && !writes.contains(&(*name).to_owned()));
    let of_traefik = of_traefik.map(|name| (Asks::Traefik, format!("          {name}: \"\"")));
    let removing: Vec<_> = of_nginx.into_iter().chain(of_traefik).collect();
    let removing = removing
        .iter()
        .map(|(asks, line)| (*asks, (line.as_str(), ""), forwards_no_word_of_a_client as Check));
    let is_envoy = |asks: Asks| matches!(asks, Asks::EnvoyHttp | Asks::EnvoyGrpc);
    are_needed(
        stage.files(),
        removing.chain(MUTATIONS.iter().copied().filter(|(asks, ..)| !is_envoy(*asks))),
    );
}

fn each_line_of_the_files_of_envoy_is_needed(stage: &Stage) {
    let is_envoy = |asks: Asks| matches!(asks, Asks::EnvoyHttp | Asks::EnvoyGrpc);
    are_needed(stage.files(), MUTATIONS.iter().copied().filter(|(asks, ..)| is_envoy(*asks)));
}
