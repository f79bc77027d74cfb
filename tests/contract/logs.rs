//! What an operator is told: the log in JSON and at another level and the access log.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::harness::{Case, cases};
use crate::support::service::Service;
use crate::support::time::{SOON, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    a_changed_level_counts_without_a_restart_unless_the_variable_says_another,
    every_request_to_the_api_has_a_line,
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
    let pid = service.process.as_ref().unwrap().pid.to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().unwrap().success());
}

fn a_changed_level_counts_without_a_restart_unless_the_variable_says_another(world: &World) {
    let settings = world.settings().set("log.level", "info").set("log.access", false);
    for variable in ["unset TIERGATE_LOG", "export TIERGATE_LOG=info"] {
        let mut service = Service::prepare(settings.clone());
        service.start_again(variable);
        let is_refused_said = || {
            service.get("/nowhere").error(404, "NOT_FOUND");
            service.log().contains("refused request_id")
        };
        let is_access_said = || {
            service.get("/livez").success(200);
            service.log().contains(" access: ")
        };
        assert!(!is_refused_said() && !is_access_said());
        change(&service, "level = \"info\"", "level = \"tiergate=debug,info\"");
        change(&service, "access = false", "access = true");
        hang_up(&service);
        until("requests are logged", SOON, || is_access_said().then_some(()));
        if variable.starts_with("unset") {
            until("refusals are logged", SOON, || is_refused_said().then_some(()));
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
        } else {
            let warning = "log.level is not applied: TIERGATE_LOG is set";
            until("the log says why not", SOON, || service.log().contains(warning).then_some(()));
            assert!(!is_refused_said());
        }
    }
}

fn every_request_to_the_api_has_a_line(world: &World) {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let settings = world.settings().set("log.access", true).set("log.format", "json");
    let service = Service::start(settings);
    let agent = world.agent(2);
    let key = agent.generate(&service);
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
        ("id-4", "HEAD", "/readyz", None, json!({ "status": 200, "sent": 0 })),
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
