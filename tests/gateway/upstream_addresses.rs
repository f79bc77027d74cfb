//! No tenant's upstream is a listener of the process itself, a link-local address, or anything outside of the tenant's rule:
//! neither as it is written nor by where its name leads.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use toml::{Table, Value};

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{gateway::Gateway, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{service::Service, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    an_own_listener_is_no_upstream_at_check_start_and_reload,
    a_name_that_leads_to_an_own_listener_gets_no_request,
    the_listeners_of_the_start_are_no_upstreams_whatever_is_written_since,
    a_link_local_address_is_no_upstream_unless_that_is_allowed,
    a_tenant_under_a_rule_reaches_nothing_outside_of_it,
];

/// The host of a tenant whose upstream is none of its business.
const LEAK: &str = "leak.test";

/// An address as a name that is looked up like any other: resolvers read one number as an IPv4 address.
fn as_name(address: SocketAddr) -> String {
    let IpAddr::V4(ip) = address.ip() else { panic!("{address}") };
    format!("{}:{}", ip.to_bits(), address.port())
}

/// A tenant that shows everything of its upstream to everybody.
fn leaking(upstream: &str) -> Tenant {
    let tenant = Tenant::of("leak", &[LEAK], &[upstream]).set("host_header", "upstream");
    tenant.route("/*", "access = \"public\"")
}

#[track_caller]
fn logs(gateway: &Gateway, expected: &str) {
    gateway.service.await_log(&[expected]);
}

/// Checks that nothing of an own listener is shown at the leaking tenant's host, and that the log says why.
#[track_caller]
fn is_closed(gateway: &Gateway, why: &str) {
    logs(gateway, why);
    for path in ["/metrics", "/status", "/livez", "/"] {
        let answer = gateway.ask(&Request::get(LEAK, path));
        assert_eq!(answer.status, 502, "{path}: {answer:?}");
    }
}

// threat: Own listeners or cloud metadata as upstreams
fn an_own_listener_is_no_upstream_at_check_start_and_reload(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let mapped = |listener: SocketAddr| format!("[::ffff:{}]:{}", listener.ip(), listener.port());
    let (api, admin, own) = (gateway.service.api, gateway.service.admin, gateway.address);
    for (listener, written) in
        [(api, api.to_string()), (admin, mapped(admin)), (own, format!("https://{own}"))]
    {
        gateway.put("leak.toml", &leaking(&written).text());
        let problem = format!("where this gateway itself listens ({listener}); write the service behind it");
        let output = gateway.service.command("check", &[]);
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("tenants.d/leak.toml") && said.contains(&problem), "{said}");
    }
    gateway.reread("refused");
    assert_eq!(gateway.ask(&Request::get(LEAK, "/metrics")).status, 404);
    assert_eq!(site.status(), 200);
    let second = Service::prepare(stage.settings());
    let tenant = leaking(&second.admin.to_string()).value();
    let file = second.folder.path().join("tiergate.toml");
    let mut text: Table = fs::read_to_string(&file).unwrap().parse().unwrap();
    text.insert("tenants".to_owned(), Value::Array(vec![tenant]));
    fs::write(&file, text.to_string()).unwrap();
    let output = second.command("run", &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

// threat: Own listeners or cloud metadata as upstreams
fn a_name_that_leads_to_an_own_listener_gets_no_request(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    for listener in [gateway.service.admin, gateway.service.api, gateway.address] {
        let upstream = as_name(listener);
        gateway.put("leak.toml", &leaking(&upstream).text());
        let output = gateway.service.command("check", &["--online"]);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let found = format!("its name leads to {listener}, where this gateway itself listens ({listener})");
        assert!(said.contains(&format!("tenant leak upstream http://{upstream}: {found}")), "{said}");
        gateway.reread("applied");
        is_closed(gateway, &format!("where this gateway itself listens ({listener})"));
    }
    // Another name of the same machine leads where it should.
    let own = site.upstream.address;
    gateway.put("leak.toml", &leaking(&as_name(own)).text());
    until("the upstream answers", SOON, || {
        (gateway.ask(&Request::get(LEAK, &public_path())).status == 200).then_some(())
    });
}

// threat: Own listeners or cloud metadata as upstreams
fn the_listeners_of_the_start_are_no_upstreams_whatever_is_written_since(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let (admin, other) = (gateway.service.admin, free_port(own_ip()));
    let file = gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&admin.to_string(), &other.to_string())).unwrap();
    for upstream in [admin.to_string(), as_name(admin)] {
        gateway.put("leak.toml", &leaking(&upstream).text());
        gateway.reread("applied");
        is_closed(gateway, &format!("where this gateway itself listens ({admin})"));
    }
}

// threat: Own listeners or cloud metadata as upstreams
fn a_link_local_address_is_no_upstream_unless_that_is_allowed(stage: &Stage) {
    let metadata: SocketAddr = "169.254.169.254:80".parse().unwrap();
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let check = || {
        let output = gateway.service.command("check", &[]);
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    gateway.put("leak.toml", &leaking("169.254.169.254:80").text());
    let (is_right, said) = check();
    assert!(!is_right && said.contains("a link-local or metadata address"), "{said}");
    gateway.reread("refused");
    gateway.put("leak.toml", &leaking(&as_name(metadata)).text());
    gateway.reread("applied");
    is_closed(gateway, "a link-local or metadata address");

    let file = gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\n[gateway]\nallow_link_local = true\n")).unwrap();
    gateway.put("leak.toml", &leaking("169.254.169.254:80").text());
    let (is_right, said) = check();
    assert!(is_right, "{said}");
    gateway.reread("applied");
}

// threat: A tenant takes what is another's or shared
fn a_tenant_under_a_rule_reaches_nothing_outside_of_it(stage: &Stage) {
    let rule = |tenants: &str, hosts: &str| -> Table {
        format!("tenants = \"{tenants}\"\nhosts = [\"{hosts}\"]\nupstreams = [\"*\"]\nnetworks = [\"127.0.0.0/8\"]")
            .parse()
            .unwrap()
    };
    let rules = vec![rule("t", ACME), rule("leak*", LEAK)];
    let site = Site::of(stage).set("tenants_rules", rules).in_files().start();
    let gateway = &site.gateway;
    assert_eq!(site.status(), 200);
    // What else a rule refuses of a file is in `config::tests::tenants::rules`.
    let upstream = site.upstream.address.to_string();
    let leak = || Tenant::of("leak", &[LEAK], &[&upstream]).public();
    gateway.put("leak.toml", &leak().set("hosts", vec!["*"]).text());
    gateway.reread("refused");
    logs(
        gateway,
        "tenants.d/leak.toml: hosts: item 1 is \"*\", outside of what [[tenants_rules]] allow this file",
    );
    assert_eq!(site.status(), 200);
    gateway.put("leak.toml", &leak().text());
    gateway.reread("applied");
    assert_eq!(gateway.ask(&Request::get(LEAK, &public_path())).status, 200);
    let far: SocketAddr = "192.0.2.1:80".parse().unwrap();
    gateway.put("leak.toml", &leaking(&as_name(far)).text());
    gateway.reread("applied");
    is_closed(gateway, "outside of the networks that [[tenants_rules]] allow");
    assert_eq!(site.status(), 200);
}
