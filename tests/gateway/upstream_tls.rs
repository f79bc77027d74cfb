//! Upstreams that speak TLS: who is believed, who the gateway says it is, and whose connection carries whose requests.

use http::Method;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::certificates::{Authority, Files, Issued};
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::refusals::{is_upstream_error, is_upstream_timeout};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::tunnels::Terminator;
use crate::support::process::own_ip;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;
use crate::tls::are_not_in;
use crate::upgrades::{open_socket, talks, websocket_echo};

pub(crate) const CASES: &[Case] = cases![
    an_upstream_of_a_believed_authority_is_reached,
    an_upstream_of_an_unknown_authority_is_502_and_sees_no_request,
    an_upstream_of_another_name_is_502_and_sees_no_request,
    an_upstream_whose_certificate_is_out_of_its_time_is_502_and_sees_no_request,
    without_authorities_of_its_own_a_tenant_believes_no_strangers,
    an_upstream_that_speaks_no_tls_is_502,
    an_upstream_that_stalls_its_handshake_is_504,
    a_tenant_is_not_given_a_connection_that_only_another_one_believes,
    an_upstream_that_wants_a_certificate_is_shown_the_tenants_own,
    a_tenant_is_not_given_a_connection_with_anothers_certificate,
    http_2_is_spoken_where_the_upstream_does,
    a_websocket_opens_over_tls_to_the_upstream,
    changed_files_count_from_the_next_connection,
    private_keys_are_not_written_down,
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

    /// The upstream behind this certificate is not believed, in both versions of HTTP, and sees nothing.
    #[track_caller]
    fn does_not_believe(&self, stage: &Stage, own: &Issued) {
        for protocols in [&[][..], &["h2"], &["http/1.1"]] {
            let site = Site::of(stage);
            let terminator = Terminator::start(site.upstream().address, own, None, protocols);
            let site = site.only(vec![self.tenant("t", ACME, &terminator)]).start();
            is_refused(&site, ACME);
            assert_eq!(terminator.met(), [], "no handshake succeeds");
            // It was nothing but the certificate.
            terminator.show(&self.authority.issue(UP));
            is_served(&site, ACME);
        }
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

fn an_upstream_of_an_unknown_authority_is_502_and_sees_no_request(stage: &Stage) {
    // Even one that calls itself the same.
    let namesake = Authority::new("the upstreams' authority");
    Trust::new().does_not_believe(stage, &namesake.issue(UP));
}

fn an_upstream_of_another_name_is_502_and_sees_no_request(stage: &Stage) {
    let trust = Trust::new();
    for name in ["other.test", "*.up.test", "xup.test", "test"] {
        trust.does_not_believe(stage, &trust.authority.issue(name));
    }
}

fn an_upstream_whose_certificate_is_out_of_its_time_is_502_and_sees_no_request(stage: &Stage) {
    let trust = Trust::new();
    for (from, until) in [(2000, 2020), (2090, 2100)] {
        trust.does_not_believe(stage, &trust.authority.issue_within(UP, from, until));
    }
}

fn without_authorities_of_its_own_a_tenant_believes_no_strangers(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let terminator = trust.before(&site);
    is_refused(&site.only(vec![strange_tenant("t", ACME, &terminator)]).start(), ACME);
}

fn an_upstream_that_speaks_no_tls_is_502(stage: &Stage) {
    let site = Site::of(stage);
    let url = format!("https://{}", site.upstream().address);
    site.upstream().greet(Some(|mut stream| {
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }));
    is_refused(&site.tenant(|tenant| tenant.set("upstreams", vec![url])).start(), ACME);
}

fn an_upstream_that_stalls_its_handshake_is_504(stage: &Stage) {
    // Connections wait in the queue of a listener that takes none.
    let listener = std::net::TcpListener::bind((own_ip(), 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let stalled = |tenant: Tenant| tenant.set("upstreams", vec![url]).set("timeouts.connect", "500ms");
    let site = Site::of(stage).tenant(stalled).start();
    is_upstream_timeout(&site.gateway.ask(&Request::get(ACME, &public_path())));
}

fn a_tenant_is_not_given_a_connection_that_only_another_one_believes(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let other = Authority::new("somebody else");
    trust.files.put("other.crt", &other.pem());
    let terminator = trust.before(&site);
    let site = site
        .only(vec![
            trust.tenant("one", "one.test", &terminator),
            trust
                .tenant("two", "two.test", &terminator)
                .set("upstream_tls.ca", trust.files.path("other.crt")),
            strange_tenant("three", "three.test", &terminator),
            trust.tenant("four", "four.test", &terminator).set("upstream_tls.server_name", "other.test"),
        ])
        .start();
    for _ in 0..5 {
        is_served(&site, "one.test");
        for host in ["two.test", "three.test", "four.test"] {
            is_refused(&site, host);
        }
    }
}

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
    until("the log names the file", SOON, || site.gateway.service.log().contains("ca.crt").then_some(()));
    is_served(&site, ACME);
}

fn private_keys_are_not_written_down(stage: &Stage) {
    let (trust, site) = (Trust::new(), Site::of(stage));
    let clients = Authority::new("the gateways' authority");
    let (shown, own) = (clients.issue("gateway"), trust.authority.issue(UP));
    let terminator = Terminator::start(site.upstream().address, &own, Some(&clients), &[]);
    let tenants = vec![trust.tenant_who_shows("one", &terminator, &shown)];
    let site = site.only(tenants).under("export TIERGATE__LOG__LEVEL=trace").start();
    is_served(&site, "one.test");
    let replaced = trust.files.put("one.key", &trust.authority.issue("x").key_pem);
    are_not_in(&site, &replaced, &[&shown.key_pem, &std::fs::read_to_string(&replaced).unwrap()]);
}
