//! Credentials go no further than the gateway: to no upstream, no log and no metric.

use alloy::primitives::hex;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path, unique};
use crate::rig::{
    credentials::signed, gateway::Gateway, refusals::is_upstream_error, site::Site, tenants::Tenant,
};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] =
    cases![no_credential_is_written_to_log_or_metrics, credentials_never_reach_the_upstream,];

/// The host of a tenant whose upstream is not there.
const GONE: &str = "gone.test";

/// A site whose gateway logs everything that it can log.
fn talkative(stage: &Stage) -> Site {
    let site = Site::of(stage).also(|_| Tenant::new("gone", GONE, free_port(own_ip())).public());
    site.under("export TIERGATE__LOG__LEVEL=trace,access=info").agent(4).start()
}

/// The log, once the requests with these ids stand there.
fn log_of(gateway: &Gateway, ids: &[String]) -> String {
    until("every request is in the access log", SOON, || {
        let log = gateway.service.log();
        ids.iter().all(|id| log.contains(&format!("access: request_id=\"{id}\""))).then_some(log)
    })
}

// threat: Credentials upstream, in logs, metrics or traces
fn no_credential_is_written_to_log_or_metrics(stage: &Stage) {
    let site = talkative(stage);
    let (gateway, key) = (&site.gateway, site.key());
    let (draft, bearer) = (site.agent().draft(), format!("Bearer {key}"));
    let mut ids = Vec::new();
    let mut named = |request: Request| {
        ids.push(unique());
        request.with("X-Request-Id", &ids[ids.len() - 1])
    };
    for (host, path) in
        [(ACME, agents_path()), (ACME, public_path()), (ACME, "/%zz".to_owned()), (GONE, public_path())]
    {
        let request = Request::get(host, &path);
        for request in [
            request.clone().key(key),
            request.clone().with("Authorization", &bearer),
            request.clone().key(key).key(key),
            request.clone().key(&format!("{key}0")),
            request.with_all(&signed(&draft)),
        ] {
            gateway.ask(&named(request));
        }
    }
    is_upstream_error(&gateway.ask(&named(Request::get(GONE, &public_path()).key(key))));
    ids.push(unique());
    let request = Message::request(http::Method::GET, ACME, &agents_path()).with("x-api-key", key);
    let answer = h2c::ask(gateway.address, &request.with("x-request-id", &ids[ids.len() - 1])).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    for malformed in [
        Request::get(ACME, "/").with_all(&signed(&draft)).with("Content-Length", "x"),
        Request::get(ACME, "/").key(key).with("Transfer-Encoding", "x"),
        Request::get(ACME, "/\0").key(key),
    ] {
        assert_eq!(gateway.ask(&malformed).status, 400);
    }
    // The log is written in order: with this request in it, all is there that came before.
    ids.push(unique());
    let last = Request::get(ACME, &public_path()).with("X-Request-Id", &ids[ids.len() - 1]);
    assert_eq!(gateway.ask(&last).status, 200);
    let log = log_of(gateway, &ids);
    assert!(log.contains("failed at"), "the fault of the upstream that is gone: {log}");
    let metrics = gateway.service.metrics();
    assert!(metrics.contains("tiergate_malformed_requests_total{listener=\"gateway\"} 3"), "{metrics}");
    let written = (log + &metrics).to_lowercase();
    for secret in [key.rsplit('_').next().unwrap(), &hex::encode(draft.signature())] {
        assert!(!written.contains(&secret[..16]), "{written}");
    }
}

// threat: Credentials upstream, in logs, metrics or traces
fn credentials_never_reach_the_upstream(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let site = stage.site();
    let draft = agent.draft();
    let secrets = [key.rsplit('_').next().unwrap().to_owned(), hex::encode(draft.signature())];
    let bearer = format!("Bearer {key}");
    for (new_path, status_of_two) in [(agents_path as fn() -> String, 401), (public_path, 200)] {
        let request = |path: &str| Request::get(ACME, path).with("X-Note", "stays");
        for (request, status) in [
            ((&|path: &str| request(path).key(&key)) as &dyn Fn(&str) -> Request, 200),
            (&|path| request(path).with("Authorization", &bearer), 200),
            (&|path| request(path).with("authorization", &bearer.to_lowercase()), 200),
            (&|path| request(path).with_all(&signed(&draft)), 200),
            (&|path| request(path).key(&key).key(&key).with("Authorization", &bearer), status_of_two),
        ] {
            let path = new_path();
            let answer = site.gateway.ask(&request(&path));
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
            if status != 200 {
                site.is_unseen(&path);
                continue;
            }
            let head = String::from_utf8_lossy(&site.upstream.only(&path).head).to_lowercase();
            assert!(head.contains("\r\nx-note: stays\r\n"), "{head}");
            assert!(!secrets.iter().any(|secret| head.contains(secret)), "{head}");
        }
    }
}
