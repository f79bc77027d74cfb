//! The manifests as kubectl applies them, one after the other, to an API of Kubernetes that is simulated: every object finds
//! what it refers to, and a tenant more or less changes no pod.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::packaging::rendered_with;
use super::{read, tool};

/// Group and version, name in paths, and kind.
const KINDS: [(&str, &str, &str); 8] = [
    ("v1", "configmaps", "ConfigMap"),
    ("v1", "services", "Service"),
    ("v1", "serviceaccounts", "ServiceAccount"),
    ("apps/v1", "deployments", "Deployment"),
    ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
    ("monitoring.coreos.com/v1", "podmonitors", "PodMonitor"),
];

/// The simulated API, for as long as the test's process lives.
struct Api {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By their paths.
    objects: BTreeMap<String, Value>,
    /// The paths of those that were made or changed, in this order.
    changed: Vec<String>,
}

impl Api {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&api.state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&state);
                thread::spawn(move || serve(&stream.unwrap(), &state));
            }
        });
        api
    }

    /// Applies manifests, and says which objects were made or changed; `None` without kubectl.
    fn apply(&self, manifests: &str) -> Option<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifests.yaml");
        fs::write(&file, manifests).unwrap();
        let (server, cache) = (format!("http://{}", self.address), folder.path().join("cache"));
        let (cache, file) = (cache.to_str().unwrap(), file.to_str().unwrap());
        let arguments = ["--server", &server, "--cache-dir", cache, "apply", "--validate=false", "-f", file];
        let output = tool("kubectl", &arguments, folder.path())?;
        assert!(output.status.success(), "{output:?}");
        let changed = std::mem::take(&mut self.state.lock().unwrap().changed);
        // kubectl sends the selector of a budget each time.
        let changed =
            changed.into_iter().map(|path| path.rsplitn(3, '/').take(2).collect::<Vec<_>>().join(" of "));
        Some(changed.filter(|object| !object.ends_with("of poddisruptionbudgets")).collect())
    }
}

/// Answers one request.
fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut next = |reader: &mut BufReader<&TcpStream>| {
        line.clear();
        reader.read_line(&mut line).unwrap();
        line.trim().to_ascii_lowercase()
    };
    let mut words = String::new();
    reader.read_line(&mut words).unwrap();
    let mut length = 0;
    loop {
        let field = next(&mut reader);
        if field.is_empty() {
            break;
        }
        length = field.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let Some((method, target)) = words.split_once(' ') else { return };
    let path = target.split([' ', '?']).next().unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = state.lock().unwrap().answer(method, path, body);
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    let _ = (&mut { stream }).write_all((head + &answer).as_bytes());
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message,
    });
    (code, status)
}

fn name_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

fn path_of(group: &str) -> String {
    if group == "v1" { "/api/v1".to_owned() } else { format!("/apis/{group}") }
}

impl State {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        match method {
            "GET" => self.get(path),
            "POST" => {
                let path = format!("{path}/{}", name_at(&body, "/metadata/name").unwrap());
                let missing = self.missing(&body);
                if !missing.is_empty() {
                    return failure(422, "Invalid", &format!("{path} refers to {missing:?}"));
                }
                self.changed.push(path.clone());
                self.objects.insert(path, body.clone());
                (201, body)
            }
            "PATCH" => {
                let object = self.objects.get_mut(path).unwrap();
                merge(object, body);
                self.changed.push(path.to_owned());
                (200, object.clone())
            }
            other => failure(405, "MethodNotAllowed", other),
        }
    }

    fn get(&self, path: &str) -> (u16, Value) {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        if path == "/api" {
            return (200, json!({ "kind": "APIVersions", "versions": ["v1"] }));
        }
        if path == "/apis" {
            let groups = KINDS.iter().filter_map(|(group, _, _)| group.split_once('/'));
            let groups = groups.map(|(name, version)| {
                let versioned = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
                json!({ "name": name, "versions": [versioned], "preferredVersion": versioned })
            });
            let groups: Vec<Value> = groups.collect();
            return (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }));
        }
        let of_group = KINDS.iter().filter(|(group, _, _)| path_of(group) == path);
        let resources: Vec<Value> = of_group
            .map(|(_, name, kind)| {
                let verbs = ["get", "create", "patch"];
                json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs })
            })
            .collect();
        if resources.is_empty() {
            return failure(404, "NotFound", path);
        }
        let group = path.trim_start_matches("/apis/").trim_start_matches("/api/");
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources,
        });
        (200, list)
    }

    /// The objects that one refers to and that are not there.
    fn missing(&self, object: &Value) -> Vec<String> {
        let volumes = object.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let maps = volumes.into_iter().flatten().filter_map(|volume| name_at(volume, "/configMap/name"));
        let maps = maps.map(|name| format!("/api/v1/namespaces/default/configmaps/{name}"));
        let account = name_at(object, "/spec/template/spec/serviceAccountName");
        let account = account.map(|name| format!("/api/v1/namespaces/default/serviceaccounts/{name}"));
        let scaled = name_at(object, "/spec/scaleTargetRef/name");
        let scaled = scaled.map(|name| format!("/apis/apps/v1/namespaces/default/deployments/{name}"));
        maps.chain(account).chain(scaled).filter(|path| !self.objects.contains_key(path)).collect()
    }
}

/// A patch over an object: null removes, and objects are merged.
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *object = patch;
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(&name);
        } else if value.is_object() && object[&name].is_object() {
            merge(&mut object[&name], value);
        } else {
            object[&name] = value;
        }
    }
}

#[test]
fn the_chart_is_applied_in_order_and_a_tenant_more_or_less_changes_its_config_map_alone() {
    let (Some(first), api) = (rendered_with(""), Api::start()) else { return };
    let Some(made) = api.apply(&first) else { return };
    assert_eq!(made.len(), first.matches("\nkind: ").count() - 1, "all but the budget: {made:?}");
    assert!(made.contains(&"agents of deployments".to_owned()), "{made:?}");
    assert_eq!(api.apply(&first).unwrap(), [""; 0], "the same again changes nothing");
    for tenants in
        ["tenants: {third: \"id = 'third'\"}", "tenants: {vault: null}", "tenants: {vault: \"id = 'x'\"}"]
    {
        let changed = api.apply(&rendered_with(tenants).unwrap()).unwrap();
        assert_eq!(changed, ["agents-tenants of configmaps"], "{tenants}");
    }
    assert_eq!(api.apply(&first).unwrap(), ["agents-tenants of configmaps"]);
    let config = "config: \"[store]\\nkind = 'redis'\"";
    let changed = api.apply(&rendered_with(config).unwrap()).unwrap();
    assert_eq!(changed, ["agents of configmaps", "agents of deployments"]);
}

#[test]
fn the_sidecar_is_applied_in_order() {
    let made = Api::start().apply(&read("deploy/kubernetes/sidecar.yaml"));
    let expected = ["configmaps", "deployments", "services", "networkpolicies"];
    let expected = expected
        .map(|kind| format!("weather{} of {kind}", if kind == "configmaps" { "-tiergate" } else { "" }));
    assert!(made.is_none_or(|made| made == expected));
}
