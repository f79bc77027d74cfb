//! The log in JSON and at another level, the access log, and the audit log.

use std::fs::{self, OpenOptions};
use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::service::{KEY_ENDPOINTS, Service, status_of};
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::{client::with, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_changed_level_counts_without_a_restart,
    every_request_to_the_api_has_a_line,
    every_key_operation_is_recorded_with_who_what_when_where_from_and_its_outcome,
    a_place_that_hangs_holds_up_no_reload,
    an_audit_log_that_cannot_be_opened_keeps_the_service_from_starting,
    with_a_required_audit_log_no_key_is_changed_without_a_line,
];

/// The whole lines of a text, as JSON.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The line of the access log with this id.
fn line_of(service: &Service, id: &str) -> Value {
    until("the request is in the access log", SOON, || {
        lines(&service.log()).into_iter().find(|line| line["target"] == "access" && line["request_id"] == id)
    })
}

/// Changes the configuration in one step.
fn change(service: &Service, from: &str, to: &str) {
    let [file, draft] = ["tiergate.toml", "draft"].map(|name| service.folder.path().join(name));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&draft, text.replace(from, to)).unwrap();
    fs::rename(draft, file).unwrap();
}

fn hang_up(service: &Service) {
    let pid: i32 = service.process.as_ref().unwrap().pid.try_into().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::HUP).unwrap();
}

fn a_changed_level_counts_without_a_restart(world: &World) {
    let service = Service::start(world.settings().set("log.level", "info").set("log.access", false));
    let is_refused_said = || {
        service.get("/nowhere").error(404, "NOT_FOUND");
        service.log().contains("refused request_id")
    };
    let is_access_said = || {
        service.get("/livez").success(200);
        service.log().contains(" access: ")
    };
    let early = [("X-Request-Id", "before-the-change")];
    service.request("GET", "/nowhere", &early, None).error(404, "NOT_FOUND");
    change(&service, "level = \"info\"", "level = \"tiergate=debug,info\"");
    change(&service, "access = false", "access = true");
    hang_up(&service);
    until("requests are logged", SOON, || is_access_said().then_some(()));
    until("refusals are logged", SOON, || is_refused_said().then_some(()));
    assert!(!service.log().contains(early[0].1), "{}", service.log());
    change(&service, "level = \"tiergate=debug,info\"", "level = \"off\"");
    hang_up(&service);
    until("nothing is logged but requests", SOON, || {
        let before = service.log();
        is_refused_said();
        is_access_said();
        let after = service.log();
        let new = after.strip_prefix(&before).unwrap();
        (new.contains(" access: ") && !new.contains("DEBUG")).then_some(())
    });
}

fn every_request_to_the_api_has_a_line(world: &World) {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let settings = world.settings().set("log.access", true).set("log.format", "json");
    let service = Service::start(settings.set("log.audit", "stdout"));
    let agent = world.agent(2);
    let key = agent.generate(&service);
    until("the operation is recorded beside them", SOON, || {
        lines(&service.log()).into_iter().find(|line| line["operation"] == "generate")
    });
    let verify = json!({ "apiKey": key }).to_string();
    let unknown = json!({ "apiKey": crate::support::agents::unknown_key(7) }).to_string();
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-00");
    for (id, method, path, body, expected) in [
        (
            "id-1",
            "POST",
            "/verify?x",
            Some(&verify),
            json!({
                "status": 200, "route": "/verify", "credential": "api_key", "decision": "admitted", "tier": 2,
                "agent": agent.text(), "limit": 16, "remaining": 15, "path": "/verify", "received": verify.len(),
                "trace_id": TRACE, "error_type": null,
            }),
        ),
        (
            "id-2",
            "POST",
            "/verify",
            Some(&unknown),
            json!({
                "status": 401, "decision": "refused", "error_type": "INVALID_API_KEY", "agent": null,
            }),
        ),
        (
            "id-3",
            "GET",
            "/livez",
            None,
            json!({
                "status": 200, "decision": "public", "credential": "none", "received": 0,
            }),
        ),
        ("id-4", "HEAD", "/livez", None, json!({ "status": 200, "sent": 0 })),
        ("id-5", "GET", "/a b", None, json!({ "status": 400, "request_id": null })),
        (
            "id-6",
            "GET",
            "/nowhere",
            None,
            json!({
                "status": 404, "decision": "refused", "route": null, "error_type": "NOT_FOUND", "path": "/nowhere",
            }),
        ),
    ] {
        let headers = [("X-Request-Id", id), ("traceparent", &traceparent)];
        let mut connection = service.connect();
        let answer = connection.send(method, path, &headers, body.map(String::as_bytes));
        if path.contains(' ') {
            // The shell refuses it before it has an id.
            let line = until("the refusal is in the access log", SOON, || {
                lines(&service.log()).into_iter().find(|line| line["status"] == 400)
            });
            assert_eq!((&line["listener"], line.get("request_id")), (&json!("api"), None), "{line}");
            continue;
        }
        let answer = answer.unwrap();
        assert_eq!(answer.header("x-request-id"), Some(id));
        let line = line_of(&service, id);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(line.get(name).unwrap_or(&Value::Null), value, "{name} in {line}");
        }
        let host = service.api.to_string();
        for (name, value) in
            [("listener", "api"), ("method", method), ("protocol", "HTTP/1.1"), ("host", &host)]
        {
            assert_eq!(line[name], value, "{name} in {line}");
        }
        assert!(line["client"].as_str().unwrap().starts_with("127.") && line["micros"].is_u64(), "{line}");
        assert!(line["micros"] == line["own_micros"] && line.get("upstream_micros").is_none(), "{line}");
    }
    // A request without an id has one all the same, which its client is told.
    let answer = service.get("/livez");
    line_of(&service, answer.header("x-request-id").unwrap());
}

/// The audit log, once it has so many lines.
fn record(path: &Path, count: usize) -> Vec<Value> {
    until("the operations are recorded", SOON, || {
        let lines = lines(&fs::read_to_string(path).unwrap_or_default());
        (lines.len() >= count).then_some(lines)
    })
}

// threat: Nobody knows who changed a key
fn every_key_operation_is_recorded_with_who_what_when_where_from_and_its_outcome(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let settings = world.settings().set("log.audit", path.to_str().unwrap());
    let settings = settings.set("listen.trusted_proxies", vec!["127.0.0.0/8"]).set("log.level", "off");
    let service = Service::start(settings);
    let agent = world.agent(1);
    let (alice, bob) = (ALICE.address.to_checksum(None), BOB.address.to_checksum(None));
    let mut expected = Vec::new();
    let mut ask = |endpoint: (&'static str, &str), body: &[u8], status: u16, more: Value| {
        let id = format!("id-{}", expected.len());
        let headers = [("X-Request-Id", id.as_str()), ("X-Forwarded-For", "192.0.2.7")];
        let (method, path) = endpoint;
        assert_eq!(service.request(method, path, &headers, Some(body)).status, status);
        let operation =
            ["generate", "rotate", "revoke"][KEY_ENDPOINTS.iter().position(|one| *one == endpoint).unwrap()];
        let outcome = if status < 400 { "done" } else { "refused" };
        let mut line =
            json!({ "operation": operation, "outcome": outcome, "client": "192.0.2.7", "request_id": id });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        expected.push(line);
    };
    let who = json!({ "agent": agent.text(), "owner": alice, "signer": alice });
    for endpoint in KEY_ENDPOINTS {
        ask(endpoint, agent.signed().to_string().as_bytes(), status_of(endpoint), who.clone());
        let forged = agent.draft().by(BOB).body().to_string();
        let error = json!({ "agent": agent.text(), "owner": alice, "signer": bob, "error_type": "SIGNATURE_INVALID" });
        ask(endpoint, forged.as_bytes(), 401, error);
        ask(endpoint, b"{}", 400, json!({ "error_type": "VALIDATION_ERROR" }));
    }
    let generate = KEY_ENDPOINTS[0];
    ask(generate, agent.signed().to_string().as_bytes(), 201, who);
    let error = json!({ "agent": agent.text(), "key": "ci", "owner": alice, "signer": alice, "error_type": "KEY_ALREADY_EXISTS" });
    ask(generate, with(&agent.signed(), "name", json!("ci")).to_string().as_bytes(), 409, error);
    let stale = agent.draft().timestamp(1).body().to_string();
    let error = json!({ "agent": agent.text(), "error_type": "REPLAY_DETECTED" });
    ask(generate, stale.as_bytes(), 400, error);
    service.verify_signature(&agent.signed());
    service.status(&agent.text()).success(200);
    let mut lines = record(&path, expected.len());
    for line in &mut lines {
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        let time = humantime::parse_rfc3339(time.as_str().unwrap()).unwrap();
        let age = crate::support::time::unix_seconds()
            .abs_diff(time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs());
        assert!(age < 120, "{age}");
    }
    assert_eq!(lines, expected, "other requests are not recorded");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A pipe that nobody reads can't be opened.
// threat: Nobody knows who changed a key
fn a_place_that_hangs_holds_up_no_reload(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let settings = world.settings().set("log.level", "info").set("log.access", false);
    let service = Service::start(settings.set("log.audit", path.to_str().unwrap()));
    drop(reader);
    change(&service, "access = false", "access = true");
    hang_up(&service);
    until("requests are logged", SOON, || {
        service.get("/livez").success(200);
        service.log().contains(" access: ").then_some(())
    });
}

fn an_audit_log_that_cannot_be_opened_keeps_the_service_from_starting(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/audit");
    let service = Service::prepare(world.settings().set("log.audit", path.to_str().unwrap()));
    let output = service.command("run", &[]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("(log.audit)") && told.contains(path.to_str().unwrap()), "{told}");
}

// threat: Nobody knows who changed a key
fn with_a_required_audit_log_no_key_is_changed_without_a_line(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let settings = world.settings().set("log.audit", path.to_str().unwrap()).set("log.audit_required", true);
    let service = Service::start(settings);
    let agent = world.agent(1);
    let signed = agent.signed();
    service.generate(&signed).error(500, "INTERNAL_ERROR");
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], false);
    service.generate(&agent.draft().by(BOB).body()).error(401, "SIGNATURE_INVALID");
    service.await_log(&["no key is changed: No space left"]);
    service.await_ready();
    fs::remove_file(&path).unwrap();
    hang_up(&service);
    until("there is a file", SOON, || path.exists().then_some(()));
    // The same request: its nonce was not used.
    service.generate(&signed).success(201);
    service.revoke(&agent.signed()).success(200);
    // The line of the refusal may have waited for the new file, and come before or between them.
    let mut lines = until("the changes are recorded", SOON, || {
        let mut lines = record(&path, 4);
        lines.retain(|line| line["outcome"] != "refused");
        (lines.len() >= 4).then_some(lines)
    });
    // A change begins when its line is in the file, and is answered before the line of its end is.
    lines.sort_by_key(|line| line["request_id"].to_string());
    let is = |line: &Value, operation: &str, outcome: &str| {
        line["operation"] == operation
            && line["outcome"] == outcome
            && line["owner"] == ALICE.address.to_checksum(None)
    };
    for (place, (operation, outcome)) in
        [("generate", "begun"), ("generate", "done"), ("revoke", "begun"), ("revoke", "done")]
            .into_iter()
            .enumerate()
    {
        assert!(is(&lines[place], operation, outcome), "{lines:?}");
    }
    assert_eq!(lines[0]["request_id"], lines[1]["request_id"]);
}
