//! Credentials go no further than the gateway: to no upstream, no log and no metric.

use alloy::primitives::hex;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::signed;
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::support::process::{free_port, own_ip};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    no_credential_is_written_to_log_or_metrics,
    credentials_never_reach_the_upstream,
    credentials_never_reach_the_upstream_over_http_2,
];

fn no_credential_is_written_to_log_or_metrics(stage: &Stage) {
    let settings = stage.settings();
    let tenant = Tenant::new("t", ACME, free_port(own_ip())).public();
    let gateway = Gateway::start_with(settings, &[tenant], &[]);
    let agent = stage.world().agent(4);
    let key = agent.generate(&gateway.service);
    let (draft, bearer) = (agent.draft(), format!("Bearer {key}"));
    let signature = hex::encode(draft.signature());
    for path in [agents_path(), public_path(), "/denied\0".to_owned(), "/%zz".to_owned()] {
        let request = Request::get(ACME, &path);
        for request in [
            request.clone().key(&key),
            request.clone().with("Authorization", &bearer),
            request.clone().key(&key).key(&key),
            request.clone().key(&format!("{key}0")),
            request.clone().with_all(&signed(&draft)),
            request.clone().with_all(&signed(&draft)).with("Content-Length", "x"),
            request.key(&key).with("Transfer-Encoding", "x"),
        ] {
            assert!(gateway.ask(&request).status >= 400, "there is no upstream");
        }
    }
    let mut wire = gateway.connect();
    wire.send(format!("GET / HTTP/9\r\nX-API-Key: {key}\r\n\r\n").as_bytes());
    wire.rest();
    let told = gateway.service.log() + &gateway.service.metrics();
    let secret = key.rsplit('_').next().unwrap();
    assert!(!told.contains(&secret[..16]) && !told.contains(&signature[..16]), "{told}");
    assert!(told.contains("tiergate"), "there is something to look at");
}

fn credentials_never_reach_the_upstream(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let house = stage.house();
    let secret = key.rsplit('_').next().unwrap();
    let draft = agent.draft();
    let signature = hex::encode(draft.signature());
    let bearer = format!("Bearer {key}");
    for (path, request) in [agents_path(), public_path()].into_iter().flat_map(|path| {
        let request = Request::get(ACME, &path);
        [
            (path.clone(), request.clone().key(&key)),
            (path.clone(), request.clone().with("Authorization", &bearer)),
            (path.clone(), request.clone().with("authorization", &bearer.to_lowercase())),
            (path.clone(), request.clone().with_all(&signed(&draft))),
            (path, request.key(&key).with("X-Api-Key", &key).with("Authorization", &bearer)),
        ]
    }) {
        let answer = house.gateway.ask(&request);
        assert!(matches!(answer.status, 200 | 400 | 401), "{path}: {}", answer.text());
    }
    let seen = house.upstream.seen();
    assert!(!seen.is_empty());
    for seen in seen {
        let head = String::from_utf8_lossy(&seen.head).to_lowercase();
        assert!(!head.contains(secret) && !head.contains(&signature), "{head}");
    }
}

fn credentials_never_reach_the_upstream_over_http_2(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let tenant = Tenant::of("t", &["t.test"], &[&format!("h2c://{}", upstream.address)]).public();
    let gateway = Gateway::start(stage, &[tenant]);
    let agent = stage.world().agent(4);
    let key = agent.generate(&gateway.service);
    for path in [agents_path(), public_path()] {
        let request = Message::request(http::Method::GET, "t.test", &path);
        for request in [
            request.clone().with("x-api-key", &key),
            request.clone().with("authorization", &format!("Bearer {key}")),
            request
                .with("x-api-key", &key)
                .body(b"x")
                .trailer("x-api-key", &key)
                .trailer("authorization", &key),
        ] {
            assert_eq!(h2c::ask(gateway.address, &request).unwrap().status, 200);
        }
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 6);
    for seen in seen {
        assert!(!format!("{:?} {:?}", seen.headers, seen.trailers).contains(&key), "{seen:?}");
    }
}
