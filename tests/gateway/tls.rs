//! Listeners that speak TLS: which certificate is shown, what is spoken over it, and who is hurt by those who break it.

use http::Method;
use rustls::version::{TLS12, TLS13};

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::listeners::{HTTP_1, HTTP_2, LISTENER, ListenerTls};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tunnels::{Greeting, Tunnel};
use crate::rig::{certificates::Issued, tenants::Tenant};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    a_stalled_handshake_ends_and_hurts_nobody,
    both_versions_of_http_are_spoken_as_the_client_prefers,
    both_doors_speak_tls_1_2_and_1_3,
    a_client_is_shown_the_certificate_of_the_host_that_it_names,
    an_upstream_is_told_that_the_client_came_over_tls,
    a_changed_certificate_is_shown_to_the_next_handshake_and_open_connections_go_on,
    a_certificate_that_comes_after_its_tenant_is_found,
    the_listeners_certificate_may_move_and_tls_stays_until_a_restart,
    plain_text_and_garbage_hurt_nobody,
    private_keys_are_not_written_down,
];

fn both_versions_of_http_are_spoken_as_the_client_prefers(stage: &Stage) {
    let site = stage.secure();
    let (secure, upstream, agent, key) = (site.tls(), &site.upstream, site.agent(), site.key());
    let (one, two) = (agents_path(), agents_path());
    assert_eq!(site.gateway.ask(&Request::get(ACME, &one).key(key)).status, 200);
    let request = Message::request(Method::POST, ACME, &two).with("x-api-key", key).body(b"hello");
    let answer = h2c::ask(secure.http_2.address, &request).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(upstream.only(&two).body, b"hello");
    for path in [&one, &two] {
        assert_eq!(upstream.only(path).header("x-agent-id"), Some(agent.text().as_str()));
    }
    for (tunnel, protocol) in [(&secure.http_1, "http/1.1"), (&secure.http_2, "h2")] {
        let shown = tunnel.shown();
        assert!(!shown.is_empty());
        assert!(shown.iter().all(|shown| shown.protocol.as_deref() == Some(protocol)), "{shown:?}");
    }
    let meet = |protocols: &[&str]| {
        Greeting::new(&secure.authority, LISTENER, protocols)
            .meet(secure.address)
            .map(|shown| shown.protocol.unwrap_or_default())
    };
    assert_eq!(meet(&["h2", "http/1.1"]).unwrap(), "h2");
    assert_eq!(meet(&["http/1.1", "h2"]).unwrap(), "h2", "the server chooses");
    assert_eq!(meet(&[]).unwrap(), "");
    assert!(meet(&["spdy/3"]).is_err(), "nothing in common");
    // Whoever agrees on nothing speaks HTTP/1.1, and an HTTP/2 that was not agreed on is no request.
    let silent = Tunnel::to(secure.address, Greeting::new(&secure.authority, LISTENER, &[]));
    let path = public_path();
    assert_eq!(Request::get(ACME, &path).ask(silent.address).status, 200);
    assert!(h2c::ask(silent.address, &Message::request(Method::GET, ACME, &public_path())).is_err());
    upstream.only(&path);
}

fn both_doors_speak_tls_1_2_and_1_3(stage: &Stage) {
    let site = stage.secure();
    let secure = site.tls();
    for version in [&TLS12, &TLS13] {
        for offered in [HTTP_1, HTTP_2] {
            let greeting = Greeting::of_versions(&secure.authority, LISTENER, offered, &[version]);
            let shown = greeting.meet(secure.address).unwrap();
            assert_eq!(shown.protocol.as_deref(), Some(offered[0]), "{version:?}");
        }
        let greeting = Greeting::of_versions(&secure.authority, LISTENER, HTTP_1, &[version]);
        let shown = greeting.meet(secure.api).unwrap();
        assert_eq!(
            (shown.certificate, shown.protocol.as_deref()),
            (secure.own.der.clone(), Some("http/1.1"))
        );
        let tunnel = Tunnel::to(secure.api, greeting);
        until("it is ready, as is said over TLS", SOON, || {
            let mut api = crate::support::client::Connection::open(tunnel.address).unwrap();
            (api.send("GET", "/readyz", &[], None).unwrap().status == 200).then_some(())
        });
    }
    let both = Greeting::new(&secure.authority, LISTENER, &["h2", "http/1.1"]).meet(secure.api).unwrap();
    assert_eq!(both.protocol.as_deref(), Some("http/1.1"), "the API has no HTTP/2");
    assert!(Greeting::new(&secure.authority, LISTENER, HTTP_2).meet(secure.api).is_err());
    // The admin listener speaks no TLS: metrics are read in the clear.
    assert!(site.gateway.service.metrics().contains("tiergate_"));
}

// threat: Gate and upstream see different paths or hosts
fn a_client_is_shown_the_certificate_of_the_host_that_it_names(stage: &Stage) {
    let (mut site, tls) = (Site::of(stage).only(Vec::new()), ListenerTls::new());
    let names = [("a", "a.test"), ("wide", "*.wide.test"), ("exact", "exact.wide.test")];
    let mut issued: Vec<Issued> = Vec::new();
    for (id, host) in names {
        issued.push(tls.authority.issue(host));
        let [cert, key] = tls.files.put_pair(id, issued.last().unwrap());
        let tenant = |upstream| Tenant::new(id, host, upstream).public();
        site = site.also(|upstream| tenant(upstream).set("tls.cert", cert).set("tls.key", key));
    }
    let site = site.also(|upstream| Tenant::new("plain", "plain.wide.test", upstream).public());
    let site = site.tls(tls).start();
    let (secure, upstream) = (site.tls(), &site.upstream);
    let [own_cert, wide_cert, exact_cert] = [&issued[0], &issued[1], &issued[2]];
    for (name, wanted) in [
        ("a.test", own_cert),
        ("A.Test", own_cert),
        ("x.wide.test", wide_cert),
        ("exact.wide.test", exact_cert),
        (LISTENER, &secure.own),
    ] {
        assert_eq!(secure.shown_to(name).certificate, wanted.der, "{name}");
    }
    site.gateway
        .service
        .await_log(&["warning", "own.crt: the certificate is not for the host plain.wide.test"]);
    site.gateway.hang_up();
    let log = site.gateway.service.await_log(&["the tenants were read again"]);
    assert_eq!(log.matches("is not for the host plain.wide.test").count(), 1, "{log}");
    // A tenant without a certificate, a stranger's name, and no name at all get the listener's: what is expected there
    // is not what is shown.
    for name in ["plain.wide.test", "stranger.test", "wide.test"] {
        assert!(Greeting::new(&secure.authority, name, HTTP_1).meet(secure.address).is_err(), "{name}");
    }
    let silent = Greeting::new(&secure.authority, LISTENER, HTTP_1).without_saying_the_name();
    assert_eq!(silent.meet(secure.address).unwrap().certificate, secure.own.der);
    let silent = Greeting::new(&secure.authority, "a.test", HTTP_1).without_saying_the_name();
    assert!(silent.meet(secure.address).is_err());
    // The certificate opens no entry point: the request's own host does.
    let tunnel = Tunnel::to(secure.address, Greeting::new(&secure.authority, "a.test", HTTP_1));
    for host in ["a.test", "exact.wide.test", "plain.wide.test"] {
        let path = public_path();
        assert_eq!(Request::get(host, &path).ask(tunnel.address).status, 200);
        assert_eq!(upstream.only(&path).all("host"), [host]);
    }
    Request::get("stranger.test", &public_path()).ask(tunnel.address).error(404, "NOT_FOUND");
}

fn an_upstream_is_told_that_the_client_came_over_tls(stage: &Stage) {
    let site = stage.secure();
    let (secure, upstream) = (site.tls(), &site.upstream);
    let (one, two) = (public_path(), public_path());
    let forged = Request::get(ACME, &one)
        .with("X-Forwarded-Proto", "http")
        .with("Forwarded", "for=198.51.100.1;proto=http");
    assert_eq!(site.gateway.ask(&forged).status, 200);
    let request = Message::request(Method::GET, ACME, &two).with("x-forwarded-proto", "http");
    assert_eq!(h2c::ask(secure.http_2.address, &request).unwrap().status, 200);
    for path in [one, two] {
        let seen = upstream.only(&path);
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
        let forwarded = seen.header("forwarded").unwrap();
        assert!(forwarded.contains("proto=https") && !forwarded.contains("198.51.100.1"), "{forwarded}");
    }
}

/// A site with a tenant that has a certificate of its own, in `a.crt` and `a.key`.
fn with_certificate(stage: &Stage) -> (SiteBuilder<'_>, Issued) {
    let tls = ListenerTls::new();
    let issued = tls.authority.issue("a.test");
    let [cert, key] = tls.files.put_pair("a", &issued);
    let own = |tenant: Tenant| tenant.set("tls.cert", cert).set("tls.key", key).set("hosts", vec!["a.test"]);
    (Site::of(stage).tenant(own).tls(tls), issued)
}

// threat: A half-applied reload, a broken next start
fn a_changed_certificate_is_shown_to_the_next_handshake_and_open_connections_go_on(stage: &Stage) {
    let (site, first) = with_certificate(stage);
    let site = site.start();
    let secure = site.tls();
    secure.until_shown("a.test", &first);
    let tunnel = Tunnel::to(secure.address, Greeting::new(&secure.authority, "a.test", HTTP_1));
    let mut open = Wire::open(tunnel.address);
    let request = || Request::get("a.test", &public_path());
    assert_eq!(request().ask_on(&mut open).status, 200);
    for (file, name) in [("a", "a.test"), ("own", LISTENER)] {
        let next = secure.authority.issue(name);
        secure.files.put_pair(file, &next);
        secure.until_shown(name, &next);
        assert_eq!(request().ask_on(&mut open).status, 200);
        assert_eq!(request().ask(tunnel.address).status, 200);
    }
    // The API shows the listener's too.
    site.gateway.service.await_ready();
    let shown = Greeting::new(&secure.authority, LISTENER, HTTP_1).meet(secure.api).unwrap();
    assert_eq!(shown.certificate, secure.shown_to(LISTENER).certificate);
}

/// Tenants and certificates are often written by different hands, in either order.
// threat: A half-applied reload, a broken next start
fn a_certificate_that_comes_after_its_tenant_is_found(stage: &Stage) {
    let site = Site::of(stage).tls(ListenerTls::new()).start();
    let secure = site.tls();
    let tenant = Tenant::new("late", "late.test", site.upstream.address)
        .public()
        .set("tls.cert", secure.files.path("late.crt"))
        .set("tls.key", secure.files.path("late.key"));
    site.gateway.put("late.toml", &tenant.text());
    site.gateway.service.await_log(&["late.crt"]);
    let late = secure.authority.issue("late.test");
    secure.files.put_pair("late", &late);
    until("the tenant is served", SOON, || {
        let greeting = Greeting::new(&secure.authority, "late.test", HTTP_1);
        greeting.meet(secure.address).is_ok_and(|shown| shown.certificate == late.der).then_some(())
    });
    secure.files.put_pair("late", &secure.authority.issue("other.test"));
    site.gateway.service.await_log(&["warning", "late.crt: the certificate is not for the host late.test"]);
}

// threat: A change that waits for a restart
fn the_listeners_certificate_may_move_and_tls_stays_until_a_restart(stage: &Stage) {
    let (site, own) = with_certificate(stage);
    let site = site.start();
    let secure = site.tls();
    let file = site.gateway.service.folder.path().join("tiergate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let [cert, key] = ["own.crt", "own.key"].map(|name| secure.files.path(name));
    let moved = secure.authority.issue(LISTENER);
    let [moved_cert, moved_key] = secure.files.put_pair("moved", &moved);
    let restart_required = || site.gateway.service.samples().get("tiergate_config_restart_required");
    std::fs::write(&file, text.replace(&cert, &moved_cert).replace(&key, &moved_key)).unwrap();
    std::fs::remove_file(&cert).unwrap();
    secure.until_shown(LISTENER, &moved);
    secure.until_shown("a.test", &own);
    assert_eq!(restart_required(), 0.0);
    // Without TLS in the file it goes on with the files that it began with, which are still followed.
    let mut table: toml::Table = text.parse().unwrap();
    table["listen"].as_table_mut().unwrap().remove("tls").unwrap();
    table["tenants"][0].as_table_mut().unwrap().remove("tls").unwrap();
    std::fs::write(&file, table.to_string()).unwrap();
    until("it is read", SOON, || (restart_required() == 1.0).then_some(()));
    for (name, shown) in [(LISTENER, &moved), ("a.test", &own)] {
        assert_eq!(secure.shown_to(name).certificate, shown.der);
    }
    for (file, name) in [("moved", LISTENER), ("a", "a.test")] {
        let next = secure.authority.issue(name);
        secure.files.put_pair(file, &next);
        secure.until_shown(name, &next);
    }
    let samples = site.gateway.service.samples();
    assert_eq!(samples.series().filter(|series| series.contains("certificate_expiry")).count(), 2);
    assert_eq!(site.gateway.ask(&Request::get("a.test", &public_path())).status, 200);
}

/// What is no handshake, or only the beginning of one.
const NO_HANDSHAKES: &[&[u8]] = &[
    b"GET /public/x HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x16\x03\x01\xff\xff\x01\xff\xff\xff",
    b"\x16\x03\x01\0\x05hello",
    b"\x15\x03\x01\0\x02\x02\x28",
    b"\x17\x03\x03\0\x05hello",
    b"SSH-2.0-OpenSSH_9.9\r\n",
];

// threat: Slow clients hold everything
fn plain_text_and_garbage_hurt_nobody(stage: &Stage) {
    let site = Site::of(stage).tls(ListenerTls::new()).start();
    let (secure, upstream) = (site.tls(), &site.upstream);
    let mut open = site.gateway.connect();
    let mut held = Vec::new();
    for garbage in NO_HANDSHAKES {
        for server in [secure.address, secure.api] {
            for _ in 0..10 {
                let mut wire = Wire::open(server);
                let _ = wire.write(garbage);
                held.push(wire);
            }
        }
        assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut open).status, 200);
        assert_eq!(site.gateway.ask(&Request::get(ACME, &public_path())).status, 200);
        site.gateway.service.get("/livez").success(200);
    }
    // A request in the clear is not answered as one.
    let mut wire = Wire::open(secure.address);
    wire.send(NO_HANDSHAKES[0]);
    let rest = wire.rest();
    assert!(!rest.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(upstream.count_at("/public/x"), 0);
    for wire in &mut held {
        wire.rest();
    }
    // The log is written in order: with this line in it, all is there that came before.
    site.gateway.hang_up();
    let log = site.gateway.service.await_log(&["the tenants were read again"]);
    // Without what has to be asked for.
    let asked_for = |line: &&str| line.contains("DEBUG") || line.contains(" access: ");
    let count = log.lines().filter(|line| !asked_for(line)).count();
    assert!(count < 100, "strangers fill no log: {log}");
}

// threat: Slow clients hold everything
fn a_stalled_handshake_ends_and_hurts_nobody(stage: &Stage) {
    let site = stage.secure();
    let secure = site.tls();
    // The first record of a handshake is announced and never comes whole.
    let mut stalled: Vec<Wire> = (0..100)
        .map(|at| {
            let mut wire = Wire::open(secure.address);
            wire.send(&b"\x16\x03\x01\x02\0\x01\0"[..at % 8]);
            wire
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(site.gateway.ask(&Request::get(ACME, &public_path())).status, 200);
        site.gateway.service.get("/livez").success(200);
    }
    for wire in &mut stalled {
        wire.rest();
    }
    assert_eq!(site.gateway.ask(&Request::get(ACME, &public_path())).status, 200);
}

// threat: Credentials upstream, in logs, metrics or traces
fn private_keys_are_not_written_down(stage: &Stage) {
    let site = Site::of(stage).tls(ListenerTls::new()).under("export TIERGATE__LOG__LEVEL=trace").start();
    let secure = site.tls();
    assert_eq!(site.status(), 200);
    let refused = secure.files.put("own.key", &secure.authority.issue(LISTENER).key_pem);
    are_not_in(&site, &refused, &[&secure.own.key_pem, &std::fs::read_to_string(&refused).unwrap()]);
}

/// Waits until the log names a file, and looks for these private keys in all that is written down.
pub(crate) fn are_not_in(site: &Site, named: &str, keys: &[&str]) {
    let written = site.gateway.service.await_log(&[named]) + &site.gateway.service.metrics();
    assert!(written.contains(" TRACE "), "all that can be is written down");
    for pem in keys {
        let lines = pem.lines().filter(|line| line.len() >= 16 && !line.starts_with('-'));
        assert!(
            lines.clone().count() > 0 && lines.into_iter().all(|line| !written.contains(line)),
            "{written}"
        );
    }
}
