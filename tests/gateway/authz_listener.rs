//! The listener for other gateways: who may ask, over which TLS, for which tenants, how long a decision takes, and what
//! operators see of it.

use std::{net::SocketAddr, time::Duration};

use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::access_log::line_of;
use crate::rig::authz::{Asked, DIALECTS, Decision, Dialect, Original, SERVICE, decision};
use crate::rig::case::{Case, cases};
use crate::rig::certificates::{Authority, Files};
use crate::rig::listeners::{HTTP_1, HTTP_2};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tunnels::{Greeting, Tunnel};
use crate::rig::{credentials::signed, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::relay::{Behaviour, Relay};
use crate::support::time::{SOON, quickest, until};
use crate::support::wire::{Request, Wire};
use crate::support::{redis::Redis, secrets, service::Service};
use crate::traces::{collector, trace_of, traced};

pub(crate) const CASES: &[Case] = cases![
    a_gateway_without_one_of_the_secrets_is_refused,
    a_secret_of_a_tenant_opens_no_other_tenant,
    with_an_authority_only_its_clients_ask_and_the_certificate_is_read_again,
    a_tenant_without_hosts_and_upstreams_is_asked_for,
    tenants_are_asked_for_without_a_gateway_of_ours,
    a_frozen_chain_is_503_in_time_and_spends_nothing,
    an_assertion_is_the_same_in_every_dialect,
    operators_see_who_was_asked,
];

/// Cases of a Redis of their own.
pub(crate) const OF_REDIS: &[Case] = cases![a_frozen_store_is_500_in_time_and_lets_nobody_pass];

fn public(tenant: &str) -> Original {
    Original::get(ACME, &public_path()).of_tenant(tenant)
}

/// Asks with these headers of the gateway's own.
#[track_caller]
fn ask_as(authz: SocketAddr, dialect: Dialect, original: &Original, own: &[(&str, &str)]) -> Decision {
    if dialect == Dialect::Grpc {
        let check = own.iter().fold(original.check(), |check, (name, value)| check.header(name, value));
        return check.ask(authz).decision();
    }
    let call = own.iter().fold(original.call(dialect), |call, (name, value)| call.with(name, value));
    decision(dialect, &original.tenant, call.ask(authz))
}

// threat: A stranger asks in a gateway's name
fn a_gateway_without_one_of_the_secrets_is_refused(stage: &Stage) {
    const NAME: &str = "X-Authz-Secret";
    let (one, other) = ("first-of-two-secrets", "second-of-two-secrets");
    [one, other].iter().for_each(|secret| secrets::keep(secret));
    let files = Files::new();
    let file = files.put("secrets", &format!("{one}\n\n{other}\r\n\n"));
    let asked = Asked::start(Site::of(stage).set("authz.secret_file", file));
    for dialect in DIALECTS {
        for own in [&[(NAME, one)][..], &[(NAME, other)], &[("x-authz-secret", one)]] {
            ask_as(asked.authz, dialect, &public("t"), own).passes();
        }
        for own in [
            &[][..],
            &[(NAME, "")],
            &[(NAME, "first-of-two-secret")],
            &[(NAME, "first-of-two-secrets2")],
            &[(NAME, "First-of-two-secrets")],
            &[(NAME, "first-of-two-secrets, second-of-two-secrets")],
            &[(NAME, one), (NAME, one)],
            &[(NAME, one), (NAME, other)],
            &[(NAME, one), (NAME, "")],
            &[("X_Authz_Secret", one)],
            &[("Authorization", one)],
        ] {
            for original in [public("t"), public("nobody")] {
                let said = ask_as(asked.authz, dialect, &original, own);
                assert_eq!(said.error(), (503, "OVERLOADED".to_owned()), "{dialect:?} {own:?}");
            }
        }
    }
    asked.site.gateway.service.await_log(&["without the secret of [authz]"]);
}

// threat: One tenant's gateway asks for another tenant
fn a_secret_of_a_tenant_opens_no_other_tenant(stage: &Stage) {
    const NAME: &str = "X-Authz-Secret";
    let (one, other, all) = ("of-the-first:tenant", "of-the-second-tenant", "of-each-of-the-tenants");
    [one, other, all].iter().for_each(|secret| secrets::keep(secret));
    let file = Files::new();
    let lines =
        file.put("secrets", &format!("t:{one}\nelsewhere:{other}\n{all}\nnobody:of-a-tenant-to-come\n"));
    let site = Site::of(stage).also(|_| Tenant::asked("elsewhere").public());
    let asked = Asked::start(site.set("authz.secret_file", lines.clone()));
    let warning = format!("configuration warning: authz.secret_file: {lines}: line 4 is neither");
    let log = asked.site.gateway.service.await_log(&[&warning]);
    assert!(!log.contains("to-come"), "{log}");
    for dialect in DIALECTS {
        for (tenant, secret, passes) in [
            ("t", one, true),
            ("elsewhere", other, true),
            ("t", all, true),
            ("elsewhere", all, true),
            ("t", other, false),
            ("elsewhere", one, false),
            ("t", "t:of-the-first:tenant", false),
            ("t", "tenant", false),
            ("elsewhere", "", false),
            ("nobody", one, false),
            ("nobody", "", false),
            ("", one, false),
        ] {
            let said = ask_as(asked.authz, dialect, &public(tenant), &[(NAME, secret)]);
            assert_eq!(said.passes, passes, "{dialect:?} {tenant} {secret}: {said:?}");
            assert!(passes || tenant.is_empty() || said.error().0 == 503, "{dialect:?} {tenant} {secret}");
        }
    }
}

// threat: A gateway takes a refusal for leave
// threat: A stranger asks in a gateway's name
fn with_an_authority_only_its_clients_ask_and_the_certificate_is_read_again(stage: &Stage) {
    let (ours, theirs) =
        (Authority::new("the service's authority"), Authority::new("the gateways' authority"));
    let files = Files::new();
    let own = ours.issue(SERVICE);
    let [cert, key] = files.put_pair("own", &own);
    let site = Site::of(stage).set("authz.tls.cert", cert).set("authz.tls.key", key);
    let site = site.set("authz.tls.client_ca", files.put("ca", &theirs.pem()));
    let asked = Asked::start(site);
    let greeting = |protocols| Greeting::new(&ours, SERVICE, protocols);
    let gateway = theirs.issue("gateway.test");
    let tunnel = |greeting| Tunnel::to(asked.authz, greeting);
    let tunnels = [HTTP_1, HTTP_2].map(|protocols| tunnel(greeting(protocols).showing(&gateway)));
    for dialect in DIALECTS {
        let tunnel = &tunnels[usize::from(dialect == Dialect::Grpc)];
        public("t").ask(dialect, tunnel.address).passes();
        let closed = Original::get(ACME, &agents_path()).of_tenant("t");
        assert_eq!(closed.ask(dialect, tunnel.address).error().0, 401);
    }
    for refused in [
        greeting(HTTP_1),
        greeting(HTTP_1).showing(&ours.issue("gateway.test")),
        greeting(HTTP_1).showing(&theirs.issue_within("gateway.test", 2020, 2021)),
    ] {
        let tunnel = tunnel(refused);
        let mut wire = Wire::open(tunnel.address);
        let _ = wire.write(&public("t").call(Dialect::Forward).bytes());
        assert_ne!(wire.try_answer().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "it is not closed");
    }
    let mut plain = Wire::open(asked.authz);
    plain.send(&public("t").call(Dialect::Forward).bytes());
    assert!(!matches!(plain.try_answer(), Ok(answer) if answer.status < 400));

    // A client that offers both asks over HTTP, and gets no answer of gRPC.
    let both = greeting(&["h2", "http/1.1"]).showing(&gateway);
    assert_eq!(both.meet(asked.authz).unwrap().protocol.as_deref(), Some("http/1.1"));
    public("t").ask(Dialect::Forward, tunnel(both.clone()).address).passes();

    let next = ours.issue(SERVICE);
    files.put_pair("own", &next);
    asked.site.gateway.hang_up();
    until("the new certificate is shown", SOON, || {
        (both.meet(asked.authz).unwrap().certificate == next.der).then_some(())
    });
    public("t").ask(Dialect::Grpc, tunnels[1].address).passes();
}

fn a_tenant_without_hosts_and_upstreams_is_asked_for(stage: &Stage) {
    let asked = Asked::start(Site::of(stage).agent(4).also(|_| Tenant::asked("elsewhere").public()));
    let (key, agent) = (asked.site.key(), asked.site.agent());
    let original = |host: &str| Original::get(host, &agents_path()).of_tenant("elsewhere");
    for dialect in DIALECTS {
        asked.ask(dialect, &public("elsewhere")).passes();
        for host in ["any.test", ACME, "192.0.2.1:8080"] {
            let decision = asked.ask(dialect, &original(host).key(key));
            assert_eq!(decision.passes().identity[0].1, agent.text());
        }
        asked.ask(dialect, &original("any.test").with_all(&signed(&agent.draft()))).passes();
        assert_eq!(asked.ask(dialect, &original("any.test")).error().0, 401);
    }
    assert_eq!(asked.site.status(), 200, "the other tenant is served as before");
    assert_eq!(asked.site.gateway.ask(&Request::get("any.test", &public_path())).status, 404);
    asked.site.gateway.reread("applied");
    asked.ask(Dialect::Nginx, &public("elsewhere")).passes();
}

fn tenants_are_asked_for_without_a_gateway_of_ours(stage: &Stage) {
    let authz = free_port(own_ip());
    let settings = stage.settings().set("listen.authz", vec![authz.to_string()]);
    let service = Service::start(settings.set("tenants", vec![Tenant::asked("alone").public().value()]));
    let agent = stage.world().agent(4);
    let key = agent.generate(&service);
    for dialect in DIALECTS {
        let original = || Original::get("any.test", &agents_path()).of_tenant("alone");
        original().key(&key).ask(dialect, authz).passes();
        original().with_all(&signed(&agent.draft())).ask(dialect, authz).passes();
        assert_eq!(original().ask(dialect, authz).error().0, 401);
        public("alone").ask(dialect, authz).passes();
    }
}

/// Fails when an answer takes more than twice as long as is set. A busy machine delays one of three.
#[track_caller]
fn comes_in_time(limit: Duration, ask: impl FnMut()) {
    let time = quickest(3, ask);
    assert!(time < 2 * limit, "{time:?}");
}

// threat: A gateway does not wait for the verdict
fn a_frozen_chain_is_503_in_time_and_spends_nothing(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let site = Site::of(stage).set("chain.rpc_urls", vec![format!("http://{}", relay.address)]);
    // All dialects ask before the node's own limit of five seconds ends the wait.
    let limit = Duration::from_secs(1);
    let asked = Asked::start(site.set("authz.timeout", "1s").agent(4));
    let original =
        Original::get(ACME, &agents_path()).of_tenant("t").with_all(&signed(&asked.site.agent().draft()));
    let by_key = Original::get(ACME, &agents_path()).of_tenant("t").key(asked.site.key());
    // A profile that was never read may take longer than the limit on a busy machine.
    until("the agent passes", SOON, || asked.ask(Dialect::Grpc, &by_key).passes.then_some(()));
    relay.behave(Behaviour::Hang);
    for dialect in DIALECTS {
        comes_in_time(limit, || assert_eq!(asked.ask(dialect, &original).error().0, 503, "{dialect:?}"));
        asked.ask(dialect, &public("t")).passes();
    }
    relay.behave(Behaviour::Honest);
    until("the chain is read again", SOON, || asked.ask(Dialect::Forward, &by_key).passes.then_some(()));
    let until_read = until("the nonce is accepted", SOON, || {
        let said = asked.ask(Dialect::Grpc, &original);
        said.passes.then_some(said)
    });
    assert_eq!(until_read.identity[0].1, asked.site.agent().text());
}

fn a_frozen_store_is_500_in_time_and_lets_nobody_pass(stage: &Stage) {
    let redis = Redis::start(&[]);
    let site = Site::of(stage).set("store.redis.url", redis.database()).set("store.redis.timeout", "1s");
    // Nothing else ends the wait.
    let asked = Asked::start(site.agent(4));
    let by_key = Original::get(ACME, &agents_path()).of_tenant("t").key(asked.site.key());
    until("the agent passes", SOON, || asked.ask(Dialect::Grpc, &by_key).passes.then_some(()));
    redis.freeze(true);
    for dialect in DIALECTS {
        comes_in_time(Duration::from_secs(1), || {
            let said = asked.ask(dialect, &by_key).error();
            assert_eq!(said, (500, "INTERNAL_ERROR".to_owned()), "{dialect:?}");
        });
        asked.ask(dialect, &public("t")).passes();
    }
    redis.freeze(false);
    until("agents pass", SOON, || asked.ask(Dialect::Forward, &by_key).passes.then_some(()));
}

// threat: Forged identity passes beside ours
fn an_assertion_is_the_same_in_every_dialect(stage: &Stage) {
    const NAME: &str = "x-agent-assertion";
    let (files, key) = (Files::new(), KeyPair::generate().unwrap().serialize_pem());
    key.lines().nth(2).map(secrets::keep);
    let site = Site::of(stage).set("assertion.issuer", "https://gate.example");
    let site = site.set("assertion.key_file", files.put("keys.pem", &key));
    let asked = Asked::start(site.tenant(|tenant| tenant.set("assertion", true)).agent(4));
    let path = agents_path();
    assert_eq!(asked.site.gateway.ask(&Request::get(ACME, &path).key(asked.site.key())).status, 200);
    let seen = asked.site.upstream.only(&path);
    let ours = seen.header(NAME).unwrap();
    let original =
        Original::get(ACME, &path).of_tenant("t").with(NAME, "forged").with("x_agent_assertion", "forged");
    for dialect in [Dialect::Envoy, Dialect::Grpc] {
        let decision = asked.ask(dialect, &original.clone().key(asked.site.key()));
        assert_eq!(decision.passes().identity[5], (NAME.to_owned(), ours.to_owned()), "{dialect:?}");
        let public = asked.ask(dialect, &Original { target: public_path(), ..original.clone() });
        assert!(public.passes().stripped.iter().any(|name| name == NAME), "{dialect:?}");
    }
    for dialect in [Dialect::Forward, Dialect::Nginx] {
        let original = Original::get(ACME, &path).of_tenant("t").with(NAME, "forged").key(asked.site.key());
        assert_eq!(asked.ask(dialect, &original).passes().identity[5].1, ours, "{dialect:?}");
    }
}

fn operators_see_who_was_asked(stage: &Stage) {
    let collector = collector();
    let site = traced(stage, &collector, 1).set("log.access", true).set("log.format", "json");
    let asked = Asked::start(site.agent(4));
    for dialect in DIALECTS {
        let id = format!("asked-{dialect:?}");
        let original = Original::get("shown.test", "/agents/x?secret").of_tenant("t").key(asked.site.key());
        let original = original.with("X-Request-Id", &id).from("198.51.100.9".parse().unwrap());
        let decision = asked.ask(dialect, &original);
        assert_eq!(decision.passes().answer.header("x-request-id"), Some(&*id));
        let line = line_of(&asked.site.gateway, "request_id", &id);
        let expected = json!({
            "listener": "authz", "client": "198.51.100.9", "tenant": "t", "host": "shown.test", "credential": "api_key",
            "agent": asked.site.agent().text(), "tier": 4, "min_tier": 1, "decision": "admitted", "method": "GET",
            "path": "/agents/x", "status": 200,
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&line[name], value, "{dialect:?}: {name} in {line}");
        }
        assert_eq!(trace_of(&collector, &id)[0].name, "GET", "{dialect:?}");

        let refused = original.clone().with("X-Agent-Nonce", "1").with("X-Request-Id", "x");
        let refused =
            Original { headers: refused.headers[..0].to_vec(), target: format!("/agents/{id}"), ..refused };
        assert_eq!(asked.ask(dialect, &refused).error().0, 401);
        let line = line_of(&asked.site.gateway, "path", &format!("/agents/{id}"));
        let (decision, error_type) = (json!("refused"), json!("INVALID_API_KEY"));
        assert_eq!(
            (&line["listener"], &line["decision"], &line["error_type"]),
            (&json!("authz"), &decision, &error_type)
        );
    }
    let wrong = Request::get(SERVICE, "/forward/t").ask(asked.authz);
    assert_eq!(wrong.status, 400);
    let line = line_of(&asked.site.gateway, "path", "/forward/t");
    assert_eq!((&line["listener"], &line["status"]), (&json!("authz"), &Value::from(400)), "{line}");
    let samples = asked.site.gateway.service.samples();
    assert_eq!(samples.get("tiergate_denials_total{error_type=\"INVALID_API_KEY\",listener=\"authz\"}"), 4.0);
    assert!(samples.sum("tiergate_denials_total", &["listener=\"gateway\""]).abs() < f64::EPSILON);
}
