//! Calls of MCP that fall under routes by their tools: told by headers and messages in every form, by both ways out.

use http::Method;
use serde_json::{Value, json};

use crate::rig::authz::{Asked, DIALECTS, Original};
use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::{scripts, stage::Stage, tenants::Tenant, upstream::Then};
use crate::support::client::Answer;
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_call_is_held_to_the_rule_of_its_tool_in_whatever_form_it_comes,
    a_refusal_is_an_error_of_json_rpc_with_the_id_of_its_request,
    a_list_shows_what_its_agent_may_call,
    a_list_that_ends_with_trailers_shows_what_its_agent_may_call,
    a_listen_takes_the_place_of_a_stream_and_a_call_does_not,
    a_message_is_read_within_bounds_before_anybody_is_asked,
    pages_of_others_and_methods_that_no_revision_has_are_refused_for_nothing,
    another_gateway_is_judged_by_headers_and_an_operator_is_told_the_route,
];

const HOST: &str = "mcp.example";

const NEW: [(&str, &str); 2] = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call")];

/// Silver tools, one that nobody may call, and the endpoint for everybody with a key; other paths are no endpoints.
fn server(stage: &Stage) -> SiteBuilder<'_> {
    let site = Site::of(stage).unlimited().agent(1);
    let tenant = Tenant::new("mcp", HOST, site.upstream().address);
    let tenant = tenant
        .route("/mcp", "tools = ['billing_*']\nmin_tier = 2")
        .route("/mcp", "methods = ['prompts/get', 'resources/*']\nmin_tier = 2")
        .route("/mcp", "tools = ['drop']\naccess = 'deny'")
        .route("/mcp", "tools = ['help']\naccess = 'public'")
        .route("/mcp", "mcp = true");
    site.only(vec![tenant])
}

fn call(name: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": name, "arguments": {} } })
        .to_string()
}

fn post(site: &Site, headers: &[(&str, &str)]) -> Request {
    let request = Request::new("POST", HOST, "/mcp").key(site.key()).with("Content-Type", "application/json");
    headers.iter().fold(request, |request, (name, value)| request.with(name, value))
}

/// The body in chunks of so many bytes.
fn chunked(request: &Request, body: &str, size: usize) -> Vec<u8> {
    let mut bytes = request.clone().with("Transfer-Encoding", "chunked").bytes();
    for chunk in body.as_bytes().chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    [&bytes[..], b"0\r\n\r\n"].concat()
}

/// Headers beside those of each message, the message, and the status that it gets.
type Sent<'a> = (&'a [(&'a str, &'a str)], String, u16);

// threat: MCP: a tool by another name
// threat: MCP: headers that say another call than the message
// threat: MCP: several calls in one request
fn a_call_is_held_to_the_rule_of_its_tool_in_whatever_form_it_comes(stage: &Stage) {
    let name = |name| [NEW[0], NEW[1], ("Mcp-Name", name)];
    let meta = |name: &str| {
        json!({ "id": 1, "method": "tools/call", "params": { "name": name, "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } } }).to_string()
    };
    let escaped = r#"{"id":1,"m\u0065thod":"to\u006fls/call","params":{"n\u0061me":"billin\u0067_pay"}}"#;
    let (search, pay) = (call("search"), call("billing_pay"));
    let in_batch = |one: &str| format!(r#"[{{"method":"notifications/initialized"}},{one}]"#);
    let cases: Vec<Sent<'_>> = vec![
        (&[], search.clone(), 200),
        (&[], call("unknown"), 200),
        (&[], pay.clone(), 403),
        (&[], call("drop"), 403),
        (&[], escaped.to_owned(), 403),
        (&[], r#"{"id":1,"method":"resources/read","params":{"uri":"a"}}"#.to_owned(), 403),
        (&[], r#"{"id":1,"method":"prompts/get","params":{"name":"a"}}"#.to_owned(), 403),
        (&[], r#"{"id":1,"result":{}}"#.to_owned(), 200),
        (&[], in_batch(&search), 200),
        (&[], in_batch(&pay), 403),
        (&[], format!("[{search},{search}]"), 400),
        (&[("MCP-Protocol-Version", "2025-06-18")], in_batch(&search), 400),
        (
            &[],
            r#"{"id":1,"method":"ping","method":"tools/call","params":{"name":"billing_pay"}}"#.to_owned(),
            400,
        ),
        (
            &[],
            r#"{"id":1,"method":"tools/call","params":{"name":"search","Name":"billing_pay"}}"#.to_owned(),
            400,
        ),
        (&[("Content-Type", "application/json")], search.clone(), 400),
        (&[("Content-Encoding", "gzip")], search.clone(), 400),
        (&[], "no JSON".to_owned(), 400),
        (&[], String::new(), 400),
    ];
    let of_headers = [
        (name("search"), meta("search"), 200),
        (name("=?base64?c2VhcmNo?="), meta("search"), 200),
        (name("search"), meta("billing_pay"), 400),
        (name("billing_pay"), meta("search"), 400),
        (name("=?base64?YmlsbGluZ19wYXk=?="), meta("billing_pay"), 403),
        ([NEW[0], NEW[1], NEW[1]], meta("search"), 400),
        ([NEW[0], NEW[0], NEW[1]], meta("search"), 400),
    ];
    for way in ["relay", "library"] {
        let site = server(stage).way(way).start();
        let of_headers = of_headers.iter().map(|(headers, body, status)| (&headers[..], body, status));
        for (headers, body, status) in
            cases.iter().map(|(headers, body, status)| (*headers, body, status)).chain(of_headers)
        {
            let request = post(&site, headers);
            let before = site.upstream.seen().len();
            let mut answers = vec![site.gateway.ask(&request.clone().body(body.as_bytes()))];
            for size in [1, 7, 4096] {
                answers.push(site.gateway.ask_raw(&chunked(&request, body, size)));
            }
            for answer in &answers {
                assert_eq!(answer.status, *status, "{way} {headers:?} {body}: {}", answer.text());
            }
            let passed = if *status == 200 { answers.len() } else { 0 };
            assert_eq!(site.upstream.seen().len() - before, passed, "{way} {headers:?} {body}");
            let seen = site.upstream.seen();
            assert!(
                seen[before..].iter().all(|seen| seen.body == body.as_bytes()),
                "as it was sent: {way} {body}"
            );
        }
        // In pieces, and two on one connection.
        let bytes = post(&site, &[]).body(pay.as_bytes()).bytes();
        let mut wire = site.gateway.connect();
        for piece in bytes.chunks(bytes.len() / 9) {
            wire.send(piece);
        }
        assert_eq!(wire.answer().status, 403);
        wire.send(&post(&site, &[]).body(search.as_bytes()).bytes());
        assert_eq!(wire.answer().status, 200);
        // A public tool needs no key, and no other path is read.
        let stranger = Request::new("POST", HOST, "/mcp").with("Content-Type", "application/json");
        assert_eq!(site.gateway.ask(&stranger.clone().body(call("help").as_bytes())).status, 200);
        assert_eq!(site.gateway.ask(&stranger.body(search.as_bytes())).status, 401);
        let other = Request::new("POST", HOST, "/files").key(site.key()).body(b"no JSON");
        assert_eq!(site.gateway.ask(&other).status, 200);
        for path in ["/mcp/", "/%6dcp", "//mcp", "/mcp;a", "/x/%2e%2e/mcp"] {
            let request = Request::new("POST", HOST, path).key(site.key()).body(pay.as_bytes());
            assert!(matches!(site.gateway.ask(&request).status, 400 | 403), "{path}");
        }
    }
}

/// The error in a refusal, whose data is the contract's body.
#[track_caller]
fn error(answer: &Answer, status: u16, code: i32, id: &Value) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json();
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), id), "{body}");
    let error = &body["error"];
    assert_eq!(error["code"], json!(code), "{body}");
    let advice = if status == 401 { ". Ask the agent's owner for a key" } else { "" };
    let message = format!("{}{advice}", error["data"]["error"].as_str().unwrap());
    assert_eq!(error["message"], json!(message), "{body}");
    assert!(error["data"]["errorType"].is_string() && error["data"]["timestamp"].is_u64(), "{body}");
    error["data"].clone()
}

fn a_refusal_is_an_error_of_json_rpc_with_the_id_of_its_request(stage: &Stage) {
    for way in ["relay", "library"] {
        let site = server(stage).way(way).set("tiers.requests_per_minute", vec![1; 4]).start();
        let ask = |request: Request, id: &str| {
            site.gateway
                .ask(&request.body(call("search").replace("\"id\":7", &format!("\"id\":{id}")).as_bytes()))
        };
        let stranger = || Request::new("POST", HOST, "/mcp").with("Content-Type", "application/json");
        let answer = ask(stranger(), "\"a\\u0041\"");
        assert!(answer.header("www-authenticate").is_some());
        assert_eq!(error(&answer, 401, 401, &json!("aA"))["errorType"], json!("INVALID_API_KEY"));
        assert_eq!(ask(post(&site, &[]), "1").status, 200);
        let answer = ask(post(&site, &[]), "12345678901234567890");
        let data = error(&answer, 429, 429, &json!(12_345_678_901_234_567_890_u64));
        assert_eq!(answer.header("retry-after"), Some(&*data["details"]["retryAfter"].to_string()));
        error(&ask(post(&site, &NEW), "1"), 400, -32020, &json!(1));
        error(&site.gateway.ask(&stranger().body(b"{")), 400, -32020, &Value::Null);
        let answer = ask(stranger().with("Origin", "https://evil.example"), "1");
        error(&answer, 403, 403, &Value::Null);
        // A stream of an older client has no message.
        let listens = Request::get(HOST, "/mcp").with("Accept", "text/event-stream");
        error(&site.gateway.ask(&listens), 401, 401, &Value::Null);
        // Everything else is said as ever.
        site.gateway.ask(&Request::get(HOST, "/mcp")).error(401, "INVALID_API_KEY");
        site.gateway.ask(&Request::new("POST", HOST, "/files").body(b"{}")).error(401, "INVALID_API_KEY");
    }
}

fn a_list_shows_what_its_agent_may_call(stage: &Stage) {
    let tools =
        ["search", "billing_pay", "drop", "help"].map(|name| json!({ "name": name, "inputSchema": {} }));
    let list = json!({ "jsonrpc": "2.0", "id": 7, "result": { "tools": tools, "nextCursor": "c", "ttlMs": 3_600_000, "cacheScope": "public" } }).to_string();
    let events = format!(": ping\n\nevent: message\ndata: {list}\n\n");
    let coded = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    for way in ["relay", "library"] {
        let ejecting = |tenant: Tenant| tenant.set("health.eject_after", 1).set("health.eject_for", "1h");
        let site = server(stage).way(way).tenant(ejecting).start();
        let ask = |request: Request, method: &str| {
            let body = json!({ "id": 7, "method": method }).to_string();
            site.gateway.ask(&request.with("Accept-Encoding", "gzip").body(body.as_bytes()))
        };
        let answers = |media_type, body: &str| {
            let answer = scripts::answer("200 OK", &[("Content-Type", media_type)], body.as_bytes());
            site.upstream.on("/mcp", scripts::bytes(answer, Then::Goes));
        };
        let names = |message: &str| {
            let message: Value = serde_json::from_str(message).unwrap();
            let result = &message["result"];
            assert_eq!(
                (&result["cacheScope"], &result["ttlMs"], &result["nextCursor"]),
                (&json!("private"), &json!(60_000), &json!("c"))
            );
            let tools = result["tools"].as_array().unwrap().iter();
            tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        answers("application/json", &list);
        assert_eq!(names(&ask(post(&site, &[]), "tools/list").text()), "search help", "{way}");
        assert_eq!(site.upstream.seen().last().unwrap().header("accept-encoding"), None);
        answers("text/event-stream", &events);
        let answer = ask(post(&site, &[]), "tools/list").text();
        let (others, message) = answer.split_once("data: ").unwrap();
        assert_eq!((others, &*names(message)), (": ping\n\nevent: message\n", "search help"), "{way}");
        // The answer to another call is passed as it is.
        answers("application/json", &list);
        let answer = ask(post(&site, &[]), "tools/call/x");
        assert_eq!((answer.text(), answer.header("content-length").is_some()), (list.clone(), true), "{way}");
        assert_eq!(site.upstream.seen().last().unwrap().header("accept-encoding"), Some("gzip"));
        site.upstream.on("/mcp", scripts::bytes(scripts::answer("200 OK", &coded, b"x"), Then::Goes));
        error(&ask(post(&site, &[]), "tools/list"), 502, 502, &json!(7));
        // Nor does a client get a part of one that is no list.
        for broken in [r#"{"result":{"tools":{}}}"#, r#"{"result":{"tools":[],"tools":[]}}"#] {
            answers("application/json", broken);
            error(&ask(post(&site, &[]), "tools/list"), 502, 502, &json!(7));
        }
        // The server is well.
        let log = site.gateway.service.await_log(&["CodedList"]);
        assert!(!log.contains("takes no requests for a while"), "{way}");
    }
}

/// The list of the first id can be read, that of the second can not.
fn a_list_that_ends_with_trailers_shows_what_its_agent_may_call(stage: &Stage) {
    let upstream = H2Upstream::start(|request| {
        let tools =
            if request.text().contains("\"id\":1") { r#"{"name":"help"},{"name":"drop"}"# } else { "1" };
        let answer = Message { status: 200, ..Message::default() }.with("content-type", "application/json");
        answer.body(format!(r#"{{"id":1,"result":{{"tools":[{tools}]}}}}"#).as_bytes()).trailer("x-sum", "1")
    });
    let site = server(stage).h2c(&upstream).start();
    let ask = |id| json!({ "id": id, "method": "tools/list" }).to_string();
    let shown = r#"{"id":1,"result":{"tools":[{"name":"help"}]}}"#;
    let answer = site.gateway.ask(&post(&site, &[]).body(ask(1).as_bytes()));
    assert_eq!((answer.status, &*answer.text()), (200, shown));
    let request = Message::request(Method::POST, HOST, "/mcp").with("x-api-key", site.key());
    let request = request.with("content-type", "application/json");
    let ask = |id| h2c::ask(site.gateway.address, &request.clone().body(ask(id).as_bytes()));
    assert_eq!(ask(1).unwrap().text(), shown);
    assert!(ask(2).map_or(true, |answer| answer.status == 502), "nor is it shown as empty");
}

// threat: One client or tenant takes all places
fn a_listen_takes_the_place_of_a_stream_and_a_call_does_not(stage: &Stage) {
    let site = server(stage).tenant(|tenant| tenant.set("limits.max_streams_per_agent", 1)).start();
    let params = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": NEW[0].1 } });
    let message = json!({ "id": 7, "method": "subscriptions/listen", "params": params }).to_string();
    // By this `Accept` alone it would be no stream.
    let headers =
        [NEW[0], ("Mcp-Method", "subscriptions/listen"), ("Accept", "application/json, text/event-stream")];
    let listen = post(&site, &headers).body(message.as_bytes());
    site.upstream.on("/mcp", scripts::hang(b"HTTP/1.1 200 OK\r\n\r\n".as_slice()));
    let mut held = site.gateway.connect();
    held.send(&listen.bytes());
    assert_eq!(held.head().unwrap().status, 200);
    site.upstream.on("/mcp", scripts::echo());
    let data = error(&site.gateway.ask(&listen), 429, 429, &json!(7));
    assert_eq!(data["errorType"], json!("RATE_LIMITED"));
    assert!(data["error"].as_str().unwrap().contains("has 1 requests under way"), "{data}");
    assert_eq!(site.gateway.ask(&post(&site, &[]).body(call("search").as_bytes())).status, 200);
    drop(held);
    until("the place is free", SOON, || (site.gateway.ask(&listen).status == 200).then_some(()));
}

// threat: Huge or costly heads and bodies
fn a_message_is_read_within_bounds_before_anybody_is_asked(stage: &Stage) {
    for way in ["relay", "library"] {
        let mut site = server(stage).way(way).set("mcp.max_body", 1_024).start();
        let long = |name: &str| call(name).replace("{}", &format!("{{\"a\":\"{}\"}}", "a".repeat(2_000)));
        let of = |name| [NEW[0], NEW[1], ("Mcp-Name", name)];
        let ask = |site: &Site, headers: &[(&str, &str)], name| {
            let request = post(site, headers);
            let chunked = site.gateway.ask_raw(&chunked(&request, &long(name), 100)).status;
            (site.gateway.ask(&request.body(long(name).as_bytes())).status, chunked)
        };
        assert_eq!(ask(&site, &[], "search"), (413, 413), "{way}");
        assert_eq!(ask(&site, &of("search"), "search"), (413, 413), "{way}");
        // A client that waits for leave to send its message gets it, and another one that leaves costs nothing.
        let mut wire = site.gateway.connect();
        let bytes = post(&site, &[("Expect", "100-continue")]).body(call("search").as_bytes()).bytes();
        let (head, body) = bytes.split_at(bytes.len() - call("search").len());
        wire.send(head);
        assert_eq!(wire.head().unwrap().status, 100, "{way}");
        assert_eq!(site.upstream.seen().len(), 0);
        wire.send(body);
        assert_eq!(final_answer(&mut wire).status, 200, "{way}");
        drop(wire);
        let mut gone = site.gateway.connect();
        gone.send(&bytes[..bytes.len() - 3]);
        gone.socket().0.shutdown(std::net::Shutdown::Write).unwrap();
        gone.rest();
        assert_eq!(site.upstream.seen().len(), 1);
        site = server(stage).way(way).set("mcp.max_body", 1_024).set("mcp.large_bodies", "headers").start();
        assert_eq!(ask(&site, &[], "search").0, 400, "{way}: an older client says nothing in its headers");
        assert_eq!(ask(&site, &of("search"), "search"), (200, 413), "{way}");
        assert_eq!(ask(&site, &of("billing_pay"), "billing_pay").0, 403, "{way}");
    }
}

/// The answer behind those that are interim.
fn final_answer(wire: &mut Wire) -> Answer {
    loop {
        let head = wire.head().unwrap();
        if head.status >= 200 {
            return wire.body(head).unwrap();
        }
    }
}

// threat: Pages of other origins
fn pages_of_others_and_methods_that_no_revision_has_are_refused_for_nothing(stage: &Stage) {
    let site = server(stage).tenant(|tenant| tenant.set("cors.origins", vec!["https://app.example"])).start();
    let status = |method: &str, headers: &[(&str, &str)]| {
        let request = Request::new(method, HOST, "/mcp").key(site.key());
        let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
        let answer = site.gateway.ask(&match method {
            "POST" => request.with("Content-Type", "application/json").body(call("search").as_bytes()),
            _ => request,
        });
        (answer.status, answer.header("allow").map(str::to_owned))
    };
    for (origin, expected) in [
        ("https://app.example", 200),
        ("https://mcp.example", 200),
        ("http://mcp.example", 200),
        ("https://evil.example", 403),
        ("https://mcp.example.evil.example", 403),
        ("null", 403),
    ] {
        assert_eq!(status("POST", &[("Origin", origin)]).0, expected, "{origin}");
        assert_eq!(status("GET", &[("Origin", origin)]).0, expected, "{origin}");
    }
    assert_eq!(
        status("POST", &[("Origin", "https://mcp.example"), ("Origin", "https://mcp.example")]).0,
        403
    );
    let before = site.upstream.seen().len();
    for method in ["GET", "DELETE"] {
        assert_eq!(status(method, &[]).0, 200, "{method}");
        assert_eq!(status(method, &[NEW[0]]), (405, Some("POST".to_owned())), "{method}");
    }
    assert_eq!(status("PUT", &[]), (405, Some("POST, GET, DELETE".to_owned())));
    assert_eq!(site.upstream.seen().len() - before, 2);
    // Documents about the way in are for clients of every revision, wherever they run.
    let everywhere = Tenant::new("all", "all.example", site.upstream.address).set("mcp", true);
    site.gateway.put("all.toml", &everywhere.text());
    site.gateway.reread("applied");
    let document =
        Request::get("all.example", "/.well-known/tiergate").with("Origin", "https://evil.example");
    assert_eq!(site.gateway.ask(&document.with(NEW[0].0, NEW[0].1)).status, 200);
}

fn another_gateway_is_judged_by_headers_and_an_operator_is_told_the_route(stage: &Stage) {
    let asked = Asked::start(server(stage));
    let status = |dialect, headers: &[(&str, &str)]| {
        let original = Original::new("POST", HOST, "/mcp").key(asked.site.key());
        let original = headers.iter().fold(original, |original, (name, value)| original.with(name, value));
        asked.ask(dialect, &original).answer.status
    };
    for dialect in DIALECTS {
        for (headers, expected) in [
            (&[NEW[0], NEW[1], ("Mcp-Name", "search")][..], 200),
            (&[NEW[0], ("Mcp-Method", "ping")], 200),
            (&[NEW[0], NEW[1], ("Mcp-Name", "billing_pay")], 403),
            (&[NEW[0], NEW[1], ("Mcp-Name", "=?base64?YmlsbGluZ19wYXk=?=")], 403),
            (&[NEW[0], NEW[1]], 400),
            (&[NEW[1], ("Mcp-Name", "search")], 400),
            (&[], 400),
        ] {
            assert_eq!(status(dialect, headers), expected, "{dialect:?} {headers:?}");
        }
    }
    let agent = asked.site.agent().text();
    let explained = |tool: &str| -> Value {
        let arguments =
            ["--host", HOST, "--path", "/mcp", "--tool", tool, "--agent-id", &*agent, "-o", "json"];
        let output = asked.site.gateway.service.command("explain", &arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let pay = explained("billing_pay");
    assert_eq!(
        (&pay["route"], &pay["decision"]),
        (&json!("/mcp [tools/call billing_*]"), &json!("refused")),
        "{pay}"
    );
    let search = explained("search");
    assert_eq!((&search["route"], &search["decision"]), (&json!("/mcp"), &json!("admitted")), "{search}");
}
