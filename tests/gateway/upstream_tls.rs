//! Upstreams that speak TLS: who is believed, who the gateway says it is, and whose connection carries whose requests.

use http::Method;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::certificates::{Authority, Files, Issued};
use crate::rig::frames::{GOAWAY, RST_STREAM, frame};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::refusals::{is_upstream_error, is_upstream_timeout};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{scripts, tenants::Tenant, tunnels::Terminator, upstream::Then, upstream::Upstream};
use crate::support::time::{SOON, until};
use crate::support::{process::own_ip, wire::Request};
use crate::upgrades::{open_socket, talks, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    an_upstream_of_a_believed_authority_is_reached,
    an_upstream_that_is_not_believed_is_502_and_sees_no_request,
    an_upstream_that_wants_a_certificate_is_shown_the_tenants_own,
    a_tenant_is_not_given_a_connection_with_anothers_certificate,
    http_2_is_spoken_where_the_upstream_does,
    grpc_stays_on_http_2_when_its_upstream_has_broken_a_stream_off,
    a_client_of_http_1_0_gets_no_chunks_of_an_upstream_that_speaks_http_2_too,
    an_upstream_that_does_not_speak_the_version_that_a_client_needs_is_not_taken_out,
    a_websocket_opens_over_tls_to_the_upstream,
    changed_files_count_from_the_next_connection,
];

/// The name in the certificates of upstreams.
pub(crate) const UP: &str = "up.test";

/// An authority of upstreams, and where certificates are kept.
pub(crate) struct Trust {
    pub(crate) authority: Authority,
    files: Files,
}

impl Trust {
    pub(crate) fn new() -> Self {
        let (authority, files) = (Authority::new("the upstreams' authority"), Files::new());
        files.put("ca.crt", &authority.pem());
        Self { authority, files }
    }

    /// The site's upstream behind a certificate of the authority.
    fn before(&self, site: &SiteBuilder<'_>) -> Terminator {
        Terminator::start(site.upstream().address, &self.authority.issue(UP), None, &[])
    }

    /// A tenant of this upstream that believes the authority.
    pub(crate) fn tenant(&self, id: &str, host: &str, terminator: &Terminator) -> Tenant {
        strange_tenant(id, host, terminator).set("upstream_tls.ca", self.files.path("ca.crt"))
    }

    /// The same with a certificate of its own.
    fn tenant_who_shows(&self, id: &str, terminator: &Terminator, shown: &Issued) -> Tenant {
        let [cert, key] = self.files.put_pair(id, shown);
        let tenant = self.tenant(id, &format!("{id}.test"), terminator);
        tenant.set("upstream_tls.cert", cert).set("upstream_tls.key", key)
    }
}

#[track_caller]
fn is_refused(site: &Site, host: &str) {
    for method in ["GET", "POST"] {
        let path = public_path();
        is_upstream_error(&site.gateway.ask(&Request::new(method, host, &path).body(b"body")));
        assert_eq!(site.upstream.count_at(&path), 0);
    }
}

#[track_caller]
fn is_served(site: &Site, host: &str) {
    let path = public_path();
    let answer = site.gateway.ask(&Request::new("POST", host, &path).body(b"body"));
    assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(path)), "{}", answer.text());
    assert_eq!(site.upstream.only(&path).body, b"body");
}

/// A tenant of this upstream that believes whom the system believes.
fn strange_tenant(id: &str, host: &str, terminator: &Terminator) -> Tenant {
    let tenant = Tenant::of(id, &[host], &[&format!("https://{}", terminator.address)]).public();
    tenant.set("health.eject_after", 0).set("upstream_tls.server_name", UP)
}

// threat: Impostor upstreams, shared connections
fn an_upstream_of_a_believed_authority_is_reached(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let terminator = trust.before(&site);
    // The name of the upstream is the one expected, where no other is configured.
    let local = trust.authority.issue("localhost");
    let ip = "127.0.0.1".parse().unwrap();
    let named = Terminator::start_at(ip, site.upstream().address, &local, None, &[]);
    let url = format!("https://localhost:{}", named.address.port());
    let by_name = Tenant::of("n", &["n.test"], &[&url]).public();
    let by_name = by_name.set("upstream_tls.ca", trust.files.path("ca.crt"));
    let site = site.only(vec![trust.tenant("t", ACME, &terminator), by_name]).start();
    is_served(&site, ACME);
    until("the upstream's name is looked up", SOON, || {
        (site.gateway.ask(&Request::get("n.test", &public_path())).status == 200).then_some(())
    });
    is_served(&site, "n.test");
    for (terminator, name) in [(&terminator, UP), (&named, "localhost")] {
        let met = terminator.met();
        assert!(!met.is_empty() && met.iter().all(|met| met.name.as_deref() == Some(name)), "{met:?}");
    }
}

/// Each is a tenant's own, and nobody is given a connection that only another tenant believes.
// threat: Impostor upstreams, shared connections
// threat: A dead or broken upstream
fn an_upstream_that_is_not_believed_is_502_and_sees_no_request(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    // It calls itself the same.
    let namesake = Authority::new("the upstreams' authority");
    trust.files.put("other.crt", &namesake.pem());
    let believed = trust.before(&site);
    let upstream = site.upstream().address;
    let own = [
        ("stranger", namesake.issue(UP)),
        ("other-name", trust.authority.issue("other.test")),
        ("wildcard", trust.authority.issue("*.up.test")),
        ("expired", trust.authority.issue_within(UP, 2000, 2020)),
        ("too-early", trust.authority.issue_within(UP, 2090, 2100)),
    ];
    let behind: Vec<_> = own
        .iter()
        .flat_map(|(id, own)| {
            [("plain", &[][..]), ("h2", &["h2"])].map(|(way, protocols)| (id, own, way, protocols))
        })
        .map(|(id, own, way, protocols)| {
            (format!("{id}-{way}"), Terminator::start(upstream, own, None, protocols))
        })
        .collect();
    let in_the_clear = Upstream::start();
    in_the_clear.greet(Some(|mut stream| {
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }));
    // Connections wait in the queue of a listener that takes none.
    let stalls = std::net::TcpListener::bind((own_ip(), 0)).unwrap();
    let tls = |id: &str, address| {
        let tenant = Tenant::of(id, &[&format!("{id}.test")], &[&format!("https://{address}")]).public();
        tenant.set("health.eject_after", 0)
    };
    let of_believed = |id: &str| trust.tenant(id, &format!("{id}.test"), &believed);
    let mut tenants = vec![
        of_believed("one"),
        of_believed("no-authority").set("upstream_tls.ca", trust.files.path("other.crt")),
        of_believed("expects-another").set("upstream_tls.server_name", "other.test"),
        strange_tenant("system", "system.test", &believed),
        tls("clear", in_the_clear.address),
        tls("stalls", stalls.local_addr().unwrap()).set("timeouts.connect", "500ms"),
    ];
    tenants.extend(behind.iter().map(|(id, terminator)| trust.tenant(id, &format!("{id}.test"), terminator)));
    let site = site.only(tenants).start();
    for _ in 0..3 {
        is_served(&site, "one.test");
        for id in ["no-authority", "expects-another", "system", "clear"] {
            is_refused(&site, &format!("{id}.test"));
        }
    }
    for (id, terminator) in &behind {
        is_refused(&site, &format!("{id}.test"));
        assert_eq!(terminator.met(), [], "{id}: no handshake succeeds");
        // It was nothing but the certificate.
        terminator.show(&trust.authority.issue(UP));
        is_served(&site, &format!("{id}.test"));
    }
    is_upstream_timeout(&site.gateway.ask(&Request::get("stalls.test", &public_path())));
}

// threat: Impostor upstreams, shared connections
fn an_upstream_that_wants_a_certificate_is_shown_the_tenants_own(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let clients = Authority::new("the gateways' authority");
    let shown = clients.issue("gateway");
    let own = trust.authority.issue(UP);
    let terminator = Terminator::start(site.upstream().address, &own, Some(&clients), &[]);
    let stranger = Authority::new("somebody else").issue("gateway");
    let site = site
        .only(vec![
            trust.tenant_who_shows("one", &terminator, &shown),
            trust.tenant_who_shows("two", &terminator, &stranger),
        ])
        .start();
    for _ in 0..3 {
        is_served(&site, "one.test");
        is_refused(&site, "two.test");
    }
    let met = terminator.met();
    assert!(!met.is_empty() && met.iter().all(|met| met.certificate.as_ref() == Some(&shown.der)), "{met:?}");
}

// threat: Impostor upstreams, shared connections
fn a_tenant_is_not_given_a_connection_with_anothers_certificate(stage: &Stage) {
    let trust = Trust::new();
    let clients = Authority::new("the gateways' authority");
    let [one, two] = ["one", "two"].map(|name| clients.issue(name));
    let own = trust.authority.issue(UP);
    for protocols in [&[][..], &["h2"]] {
        let (h2, site) = (H2Upstream::start(H2Upstream::ok), Site::of(stage));
        let upstream = if protocols.is_empty() { site.upstream().address } else { h2.address };
        let terminator = Terminator::start(upstream, &own, Some(&clients), protocols);
        let site = site
            .only(vec![
                trust.tenant_who_shows("one", &terminator, &one),
                trust.tenant("none", "none.test", &terminator),
                trust.tenant_who_shows("two", &terminator, &two),
            ])
            .start();
        for _ in 0..5 {
            for host in ["one.test", "two.test"] {
                assert_eq!(
                    site.gateway.ask(&Request::get(host, &public_path())).status,
                    200,
                    "{protocols:?}"
                );
            }
            is_upstream_error(&site.gateway.ask(&Request::get("none.test", &public_path())));
        }
        let met = terminator.met();
        let count =
            |issued: &Issued| met.iter().filter(|met| met.certificate.as_ref() == Some(&issued.der)).count();
        assert!(count(&one) > 0 && count(&two) > 0, "{met:?}");
        assert_eq!(count(&one) + count(&two), met.len(), "nobody came without: {met:?}");
    }
}

fn http_2_is_spoken_where_the_upstream_does(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let own = trust.authority.issue(UP);
    let h2 = H2Upstream::start(H2Upstream::ok);
    let two = Terminator::start(h2.address, &own, None, &["h2", "http/1.1"]);
    let one = Terminator::start(site.upstream().address, &own, None, &["http/1.1"]);
    let silent = Terminator::start(site.upstream().address, &own, None, &[]);
    let site = site
        .only(vec![
            trust.tenant("two", "two.test", &two),
            trust.tenant("one", "one.test", &one),
            trust.tenant("silent", "silent.test", &silent),
        ])
        .start();
    let path = public_path();
    let request = Message::request(Method::POST, "two.test", &path).body(b"hello").trailer("x-sum", "1");
    assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().text(), "ok");
    assert_eq!(h2.only(&path).body, b"hello");
    assert_eq!(site.gateway.ask(&Request::get("two.test", &public_path())).text(), "ok");
    is_served(&site, "one.test");
    is_served(&site, "silent.test");
    for (terminator, protocol) in [(&two, Some("h2")), (&one, Some("http/1.1")), (&silent, None)] {
        let met = terminator.met();
        assert!(!met.is_empty() && met.iter().all(|met| met.protocol.as_deref() == protocol), "{met:?}");
    }
}

fn grpc_stays_on_http_2_when_its_upstream_has_broken_a_stream_off(stage: &Stage) {
    const HTTP_1_1_REQUIRED: [u8; 4] = 13_u32.to_be_bytes();
    let trust = Trust::new();
    let goes = frame(GOAWAY, 0, 0, &[[0, 0, 0, 1], [0; 4]].concat());
    let h2 = H2Upstream::that_first_says([frame(RST_STREAM, 0, 1, &HTTP_1_1_REQUIRED), goes].concat());
    let terminator = Terminator::start(h2.address, &trust.authority.issue(UP), None, &["h2", "http/1.1"]);
    let site = Site::of(stage).only(vec![trust.tenant("two", "two.test", &terminator)]).start();
    let statuses = [(); 3].map(|()| {
        let call = Message::request(Method::POST, "two.test", &public_path());
        let answer = h2c::ask(site.gateway.address, &call.with("content-type", "application/grpc"));
        answer.map(|answer| answer.header("grpc-status").map(str::to_owned)).unwrap()
    });
    assert_eq!(statuses, [Some("14".to_owned()), None, None]);
    assert!(terminator.met().iter().all(|met| met.protocol.as_deref() == Some("h2")));
}

fn a_client_of_http_1_0_gets_no_chunks_of_an_upstream_that_speaks_http_2_too(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let own = trust.authority.issue(UP);
    let both = Terminator::start(site.upstream().address, &own, None, &["h2", "http/1.1"]);
    let site = site.only(vec![trust.tenant("both", ACME, &both)]).start();
    let path = public_path();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    site.upstream.on(&path, scripts::bytes(chunked.to_owned(), Then::Closes));
    let mut wire = site.gateway.connect();
    wire.send(format!("GET {path} HTTP/1.0\r\nHost: {ACME}\r\n\r\n").as_bytes());
    let text = String::from_utf8(wire.rest()).unwrap();
    assert!(text.contains(" 200 ") && text.ends_with("\r\n\r\nok"), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding"), "{text}");
}

// threat: A sick upstream keeps its share
fn an_upstream_that_does_not_speak_the_version_that_a_client_needs_is_not_taken_out(stage: &Stage) {
    let trust = Trust::new();
    let h2 = H2Upstream::start(H2Upstream::ok);
    let terminator = Terminator::start(h2.address, &trust.authority.issue(UP), None, &["h2"]);
    let tenant = trust.tenant("two", "two.test", &terminator).set("health.eject_after", 1);
    let site = Site::of(stage).only(vec![tenant]).start();
    for _ in 0..2 {
        let mut wire = site.gateway.connect();
        wire.send(format!("GET {} HTTP/1.0\r\nHost: two.test\r\n\r\n", public_path()).as_bytes());
        assert_eq!(wire.answer().status, 502);
        assert_eq!(site.gateway.ask(&Request::get("two.test", &public_path())).text(), "ok");
    }
    assert!(!site.gateway.log_until_now().contains("takes no requests for a while"));
    // An upstream that breaks handshakes off is ejected by the same requests.
    let clear = Upstream::start();
    clear.greet(Some(drop));
    let broken = strange_tenant("clear", "clear.test", &terminator).set("health.eject_after", 1);
    site.gateway
        .put("clear.toml", &broken.set("upstreams", vec![format!("https://{}", clear.address)]).text());
    until("an upstream that breaks off is taken out", SOON, || {
        let mut wire = site.gateway.connect();
        wire.send(format!("GET {} HTTP/1.0\r\nHost: clear.test\r\n\r\n", public_path()).as_bytes());
        wire.answer();
        site.gateway.service.log().contains("takes no requests for a while").then_some(())
    });
}

// threat: Impostor upstreams, shared connections
fn a_websocket_opens_over_tls_to_the_upstream(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let clients = Authority::new("the gateways' authority");
    let own = trust.authority.issue(UP);
    let terminator = Terminator::start(site.upstream().address, &own, Some(&clients), &["h2", "http/1.1"]);
    let rest = "access = \"public\"\nupgrades = true";
    let shown = clients.issue("gateway");
    let tenants = [
        trust.tenant_who_shows("one", &terminator, &shown).route("/socket/*", rest),
        trust.tenant("none", "none.test", &terminator).route("/socket/*", rest),
        trust
            .tenant_who_shows("wrong", &terminator, &shown)
            .set("upstream_tls.server_name", "other.test")
            .route("/socket/*", rest),
    ];
    let site = site.only(tenants.into()).start();
    site.upstream.on("/socket/x", websocket_echo());
    for _ in 0..3 {
        talks(&mut open_socket(&mut site.gateway.connect(), &Request::get("one.test", "/socket/x")));
        for host in ["none.test", "wrong.test"] {
            let request = Request::get(host, "/socket/x")
                .with("Connection", "Upgrade")
                .with("Upgrade", "websocket")
                .with("Sec-WebSocket-Version", "13")
                .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
            is_upstream_error(&site.gateway.ask(&request));
        }
    }
    assert_eq!(site.upstream.count_at("/socket/x"), 3);
}

// threat: A half-applied reload, a broken next start
fn changed_files_count_from_the_next_connection(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let terminator = trust.before(&site);
    let site = site.only(vec![trust.tenant("t", ACME, &terminator)]).start();
    is_served(&site, ACME);
    let next = Authority::new("the next authority");
    trust.files.put("ca.crt", &next.pem());
    // A connection that was opened under the old authority is not used under the new one.
    until("the old authority is not believed", SOON, || {
        let path = public_path();
        (site.gateway.ask(&Request::get(ACME, &path)).status == 502).then_some(())
    });
    terminator.show(&next.issue(UP));
    is_served(&site, ACME);
    trust.files.put("ca.crt", "this is no certificate");
    site.gateway.service.await_log(&["ca.crt"]);
    is_served(&site, ACME);
}
