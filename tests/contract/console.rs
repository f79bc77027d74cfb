//! `[console]`: the owner's page, its files and their headers; nothing of it where it is off.

use serde_json::{Value, json};

use crate::support::client::{Answer, Connection};
use crate::support::harness::{Case, cases};
use crate::support::{service::Service, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    without_the_setting_there_is_no_page,
    the_page_and_its_files_are_served_under_a_strict_policy,
    the_page_is_told_the_chain_the_gateway_and_that_images_may_be_loaded,
];

const FILES: [(&str, &str); 3] = [
    ("/console", "text/html; charset=utf-8"),
    ("/console/style.css", "text/css; charset=utf-8"),
    ("/console/settings.json", "application/json"),
];

fn without_the_setting_there_is_no_page(world: &World) {
    for (path, _) in FILES {
        for method in ["GET", "POST"] {
            let body: Option<&[u8]> = (method == "POST").then_some(b"{}".as_slice());
            world.service().request(method, path, &[], body).is_error(404, "NOT_FOUND", Value::Null);
        }
    }
}

/// The headers of every file of the page, for a page that may connect to these origins beside its own.
#[track_caller]
fn is_guarded(answer: &Answer, origins: &str) {
    loads_images(answer, origins, "");
}

/// The same for a page that may load images from these sources too.
#[track_caller]
fn loads_images(answer: &Answer, origins: &str, images: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'{origins}; \
         img-src 'self' data:{images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    for (name, value) in [
        ("content-security-policy", policy.as_str()),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    let shares = answer.headers.iter().any(|(name, _)| name.to_lowercase().starts_with("access-control"));
    assert!(!shares, "{answer:?}");
}

// threat: The owner's page is framed, runs a text, or keeps a key
fn the_page_and_its_files_are_served_under_a_strict_policy(world: &World) {
    let service = Service::start(world.settings().set("console.enabled", true));
    for (path, kind) in FILES {
        let answer = service.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        is_guarded(&answer, "");
        let head = service.request("HEAD", path, &[], None);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), answer.header("content-length"), "{path}");
        let refused = service.request("POST", path, &[], None);
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")), "{path}");
        assert_eq!(service.get(&format!("{path}?x=1")).body, answer.body, "{path}");
    }
    assert!(service.get("/console").text().contains("<!doctype html>"));
    for path in ["/console/", "/consoles", "/console/index.html", "/console/../verify", "/console//style.css"]
    {
        service.get(path).is_error(404, "NOT_FOUND", Value::Null);
    }
    let usual = json!({
        "title": "Tiergate",
        "chain": null,
        "gateway": null,
        "images": false,
        "developmentRpcUrl": null,
    });
    assert_eq!(service.get("/console/settings.json").success(200), usual);
    assert!(service.samples().sum("tiergate_requests_total", &["endpoint=\"/console\""]) > 10.0);
    let mut admin = Connection::open(service.admin).unwrap();
    let shown = admin.send("GET", "/configuration.json", &[], None).unwrap().json();
    let values = shown["values"].as_array().unwrap();
    assert!(
        values.iter().any(|value| value["key"] == "console.enabled" && value["value"] == "true"),
        "{shown}"
    );
}

// threat: The owner's page is framed, runs a text, or keeps a key
fn the_page_is_told_the_chain_the_gateway_and_that_images_may_be_loaded(world: &World) {
    let settings = world
        .settings()
        .set("signature.chain_id", 31_337)
        .set("console.enabled", true)
        .set("console.title", "Agents of \"Example\"")
        .set("console.rpc_url", "https://rpc.example/v2/public?x=1")
        .set("console.chain_name", "Example chain")
        .set("console.currency", "EXA")
        .set("console.gateway_url", "https://gate.example:8443/below/")
        .set("console.sample_path", "/v1/forecast?days=3")
        .set("console.images", true)
        .set("console.development_rpc_url", "http://127.0.0.1:8545/node");
    let service = Service::start(settings);
    let expected = json!({
        "title": "Agents of \"Example\"",
        "chain": {
            "chainId": "0x7a69",
            "chainName": "Example chain",
            "rpcUrls": ["https://rpc.example/v2/public?x=1"],
            "nativeCurrency": { "name": "EXA", "symbol": "EXA", "decimals": 18 },
        },
        "gateway": { "url": "https://gate.example:8443/below", "path": "/v1/forecast?days=3", "mcp": false },
        "images": true,
        "developmentRpcUrl": "http://127.0.0.1:8545/node",
    });
    let answer = service.get("/console/settings.json");
    assert_eq!(answer.success(200), expected);
    let origins = " https://gate.example:8443 http://127.0.0.1:8545";
    loads_images(&answer, origins, " https:");
    loads_images(&service.get("/console"), origins, " https:");
}
