//! Upstreams that speak TLS: who is believed, who the gateway says it is, and whose connection carries whose requests.

use http::Method;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::certificates::{Authority, Files, Issued};
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::lab::{impatient, is_upstream_error, is_upstream_timeout};
use crate::rig::refusals::is_unseen;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::tunnels::Terminator;
use crate::rig::upstream::Upstream;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;
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
    neither_keys_nor_credentials_are_written_down,
];

/// The name in the certificates of upstreams.
const UP: &str = "up.test";

/// An authority, an upstream, and where certificates are kept.
struct Site {
    authority: Authority,
    files: Files,
    upstream: Upstream,
}

impl Site {
    fn new() -> Self {
        let (authority, files) = (Authority::new("the upstreams' authority"), Files::new());
        files.put("ca.crt", &authority.pem());
        Self { authority, files, upstream: Upstream::start() }
    }

    /// The upstream behind this certificate.
    fn behind(&self, own: &Issued) -> Terminator {
        Terminator::start(self.upstream.address, own, None, &[])
    }

    /// A tenant of this upstream that believes the authority.
    fn tenant(&self, id: &str, host: &str, terminator: &Terminator) -> Tenant {
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
    fn is_not_believed(&self, stage: &Stage, own: &Issued) {
        for protocols in [&[][..], &["h2"], &["http/1.1"]] {
            let terminator = Terminator::start(self.upstream.address, own, None, protocols);
            let gateway = Gateway::start(stage, &[self.tenant("t", ACME, &terminator)]);
            self.is_refused(&gateway, ACME);
            assert_eq!(terminator.met(), [], "no handshake succeeds");
            // It was nothing but the certificate.
            terminator.show(&self.authority.issue(UP));
            self.is_served(&gateway, ACME);
        }
    }

    #[track_caller]
    fn is_refused(&self, gateway: &Gateway, host: &str) {
        for method in ["GET", "POST"] {
            let path = public_path();
            is_upstream_error(&gateway.ask(&Request::new(method, host, &path).body(b"body")));
            is_unseen(&self.upstream, &path);
        }
    }

    #[track_caller]
    fn is_served(&self, gateway: &Gateway, host: &str) {
        let path = public_path();
        let answer = gateway.ask(&Request::new("POST", host, &path).body(b"body"));
        assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(path)), "{}", answer.text());
        assert_eq!(self.upstream.only(&path).body, b"body");
    }
}

/// A tenant of this upstream that believes whom the system believes.
fn strange_tenant(id: &str, host: &str, terminator: &Terminator) -> Tenant {
    impatient(Tenant::of(id, &[host], &[&format!("https://{}", terminator.address)]))
        .set("timeouts.connect", "5s")
        .set("timeouts.read", "5s")
        .set("upstream_tls.server_name", UP)
}

fn an_upstream_of_a_believed_authority_is_reached(stage: &Stage) {
    let site = Site::new();
    let terminator = site.behind(&site.authority.issue(UP));
    // The name of the upstream is the one expected, where no other is configured.
    let local = site.authority.issue("localhost");
    let ip = "127.0.0.1".parse().unwrap();
    let named = Terminator::start_at(ip, site.upstream.address, &local, None, &[]);
    let url = format!("https://localhost:{}", named.address.port());
    let by_name = Tenant::of("n", &["n.test"], &[&url]).public();
    let tenants =
        [site.tenant("t", ACME, &terminator), by_name.set("upstream_tls.ca", site.files.path("ca.crt"))];
    let gateway = Gateway::start(stage, &tenants);
    site.is_served(&gateway, ACME);
    until("the upstream's name is looked up", SOON, || {
        (gateway.ask(&Request::get("n.test", &public_path())).status == 200).then_some(())
    });
    site.is_served(&gateway, "n.test");
    assert!(terminator.met().iter().all(|met| met.name.as_deref() == Some(UP)), "{:?}", terminator.met());
    assert!(named.met().iter().all(|met| met.name.as_deref() == Some("localhost")), "{:?}", named.met());
    assert!(!named.met().is_empty() && !terminator.met().is_empty());
}

fn an_upstream_of_an_unknown_authority_is_502_and_sees_no_request(stage: &Stage) {
    let site = Site::new();
    // Even one that calls itself the same.
    let namesake = Authority::new("the upstreams' authority");
    site.is_not_believed(stage, &namesake.issue(UP));
}

fn an_upstream_of_another_name_is_502_and_sees_no_request(stage: &Stage) {
    let site = Site::new();
    for name in ["other.test", "*.up.test", "xup.test", "test"] {
        site.is_not_believed(stage, &site.authority.issue(name));
    }
}

fn an_upstream_whose_certificate_is_out_of_its_time_is_502_and_sees_no_request(stage: &Stage) {
    let site = Site::new();
    for (from, until) in [(2000, 2020), (2090, 2100)] {
        site.is_not_believed(stage, &site.authority.issue_within(UP, from, until));
    }
}

fn without_authorities_of_its_own_a_tenant_believes_no_strangers(stage: &Stage) {
    let site = Site::new();
    let terminator = site.behind(&site.authority.issue(UP));
    let gateway = Gateway::start(stage, &[strange_tenant("t", ACME, &terminator)]);
    site.is_refused(&gateway, ACME);
}

fn an_upstream_that_speaks_no_tls_is_502(stage: &Stage) {
    let site = Site::new();
    let url = format!("https://{}", site.upstream.address);
    let tenant = impatient(Tenant::of("t", &[ACME], &[&url])).set("timeouts.connect", "5s");
    site.upstream.greet(Some(|mut stream| {
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }));
    let gateway = Gateway::start(stage, &[tenant]);
    site.is_refused(&gateway, ACME);
}

fn an_upstream_that_stalls_its_handshake_is_504(stage: &Stage) {
    let listener = std::net::TcpListener::bind((crate::support::process::own_ip(), 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let gateway = Gateway::start(stage, &[impatient(Tenant::of("t", &[ACME], &[&url]))]);
    // Connections wait in the queue of a listener that takes none.
    is_upstream_timeout(&gateway.ask(&Request::get(ACME, &public_path())));
}

fn a_tenant_is_not_given_a_connection_that_only_another_one_believes(stage: &Stage) {
    let site = Site::new();
    let other = Authority::new("somebody else");
    site.files.put("other.crt", &other.pem());
    let terminator = site.behind(&site.authority.issue(UP));
    let gateway = Gateway::start(
        stage,
        &[
            site.tenant("one", "one.test", &terminator),
            site.tenant("two", "two.test", &terminator).set("upstream_tls.ca", site.files.path("other.crt")),
            strange_tenant("three", "three.test", &terminator),
            site.tenant("four", "four.test", &terminator).set("upstream_tls.server_name", "other.test"),
        ],
    );
    for _ in 0..5 {
        site.is_served(&gateway, "one.test");
        for host in ["two.test", "three.test", "four.test"] {
            site.is_refused(&gateway, host);
        }
    }
}

fn an_upstream_that_wants_a_certificate_is_shown_the_tenants_own(stage: &Stage) {
    let site = Site::new();
    let clients = Authority::new("the gateways' authority");
    let shown = clients.issue("gateway");
    let own = site.authority.issue(UP);
    let terminator = Terminator::start(site.upstream.address, &own, Some(&clients), &[]);
    let stranger = Authority::new("somebody else").issue("gateway");
    let gateway = Gateway::start(
        stage,
        &[
            site.tenant_who_shows("one", &terminator, &shown),
            site.tenant_who_shows("two", &terminator, &stranger),
        ],
    );
    for _ in 0..3 {
        site.is_served(&gateway, "one.test");
        site.is_refused(&gateway, "two.test");
    }
    let met = terminator.met();
    assert!(!met.is_empty() && met.iter().all(|met| met.certificate.as_ref() == Some(&shown.der)), "{met:?}");
}

fn a_tenant_is_not_given_a_connection_with_anothers_certificate(stage: &Stage) {
    let site = Site::new();
    let clients = Authority::new("the gateways' authority");
    let [one, two] = ["one", "two"].map(|name| clients.issue(name));
    let own = site.authority.issue(UP);
    for protocols in [&[][..], &["h2"]] {
        let h2 = H2Upstream::start(H2Upstream::ok);
        let upstream = if protocols.is_empty() { site.upstream.address } else { h2.address };
        let terminator = Terminator::start(upstream, &own, Some(&clients), protocols);
        let gateway = Gateway::start(
            stage,
            &[
                site.tenant_who_shows("one", &terminator, &one),
                site.tenant("none", "none.test", &terminator),
                site.tenant_who_shows("two", &terminator, &two),
            ],
        );
        for _ in 0..5 {
            for host in ["one.test", "two.test"] {
                assert_eq!(gateway.ask(&Request::get(host, &public_path())).status, 200, "{protocols:?}");
            }
            is_upstream_error(&gateway.ask(&Request::get("none.test", &public_path())));
        }
        let met = terminator.met();
        let count =
            |issued: &Issued| met.iter().filter(|met| met.certificate.as_ref() == Some(&issued.der)).count();
        assert!(count(&one) > 0 && count(&two) > 0, "{met:?}");
        assert_eq!(count(&one) + count(&two), met.len(), "nobody came without: {met:?}");
    }
}

fn http_2_is_spoken_where_the_upstream_does(stage: &Stage) {
    let site = Site::new();
    let own = site.authority.issue(UP);
    let h2 = H2Upstream::start(H2Upstream::ok);
    let two = Terminator::start(h2.address, &own, None, &["h2", "http/1.1"]);
    let one = Terminator::start(site.upstream.address, &own, None, &["http/1.1"]);
    let silent = Terminator::start(site.upstream.address, &own, None, &[]);
    let gateway = Gateway::start(
        stage,
        &[
            site.tenant("two", "two.test", &two),
            site.tenant("one", "one.test", &one),
            site.tenant("silent", "silent.test", &silent),
        ],
    );
    let path = public_path();
    let request = Message::request(Method::POST, "two.test", &path).body(b"hello").trailer("x-sum", "1");
    assert_eq!(h2c::ask(gateway.address, &request).unwrap().text(), "ok");
    assert_eq!(h2.only(&path).body, b"hello");
    assert_eq!(gateway.ask(&Request::get("two.test", &public_path())).text(), "ok");
    site.is_served(&gateway, "one.test");
    site.is_served(&gateway, "silent.test");
    for (terminator, protocol) in [(&two, Some("h2")), (&one, Some("http/1.1")), (&silent, None)] {
        let met = terminator.met();
        assert!(!met.is_empty() && met.iter().all(|met| met.protocol.as_deref() == protocol), "{met:?}");
    }
}

fn a_websocket_opens_over_tls_to_the_upstream(stage: &Stage) {
    let site = Site::new();
    let clients = Authority::new("the gateways' authority");
    let own = site.authority.issue(UP);
    let terminator = Terminator::start(site.upstream.address, &own, Some(&clients), &["h2", "http/1.1"]);
    let rest = "access = \"public\"\nupgrades = true";
    let shown = clients.issue("gateway");
    let tenants = [
        site.tenant_who_shows("one", &terminator, &shown).route("/socket/*", rest),
        site.tenant("none", "none.test", &terminator).route("/socket/*", rest),
        site.tenant_who_shows("wrong", &terminator, &shown)
            .set("upstream_tls.server_name", "other.test")
            .route("/socket/*", rest),
    ];
    let gateway = Gateway::start(stage, &tenants);
    site.upstream.on("/socket/x", websocket_echo());
    for _ in 0..3 {
        talks(&mut open_socket(&mut gateway.connect(), &Request::get("one.test", "/socket/x")));
        for host in ["none.test", "wrong.test"] {
            let request = Request::get(host, "/socket/x")
                .with("Connection", "Upgrade")
                .with("Upgrade", "websocket")
                .with("Sec-WebSocket-Version", "13")
                .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
            is_upstream_error(&gateway.ask(&request));
        }
    }
    assert_eq!(site.upstream.seen_at("/socket/x").len(), 3);
}

fn changed_files_count_from_the_next_connection(stage: &Stage) {
    let site = Site::new();
    let terminator = site.behind(&site.authority.issue(UP));
    let gateway = Gateway::start(stage, &[site.tenant("t", ACME, &terminator)]);
    site.is_served(&gateway, ACME);
    let next = Authority::new("the next authority");
    site.files.put("ca.crt", &next.pem());
    // A connection that was opened under the old authority is not used under the new one.
    until("the old authority is not believed", SOON, || {
        let path = public_path();
        (gateway.ask(&Request::get(ACME, &path)).status == 502).then_some(())
    });
    terminator.show(&next.issue(UP));
    site.is_served(&gateway, ACME);
    site.files.put("ca.crt", "this is no certificate");
    until("the log names the file", SOON, || gateway.service.log().contains("ca.crt").then_some(()));
    site.is_served(&gateway, ACME);
}

fn neither_keys_nor_credentials_are_written_down(stage: &Stage) {
    let site = Site::new();
    let clients = Authority::new("the gateways' authority");
    let shown = clients.issue("gateway");
    let terminator = Terminator::start(site.upstream.address, &site.authority.issue(UP), Some(&clients), &[]);
    let gateway = Gateway::start(
        stage,
        &[
            site.tenant_who_shows("one", &terminator, &shown),
            site.tenant_who_shows("two", &terminator, &Authority::new("x").issue("gateway")),
        ],
    );
    let key = stage.world().agent(4).generate(&gateway.service);
    for host in ["one.test", "two.test"] {
        let answer = gateway.ask(&Request::get(host, "/agents/x").key(&key));
        assert!(matches!(answer.status, 200 | 502), "{}", answer.text());
    }
    let replaced = site.files.put("one.key", &site.authority.issue("x").key_pem);
    until("the log names the file", SOON, || gateway.service.log().contains(&replaced).then_some(()));
    let told = gateway.service.log() + &gateway.service.metrics();
    assert!(!told.contains(&key.rsplit('_').next().unwrap()[..16]), "{told}");
    for pem in [shown.key_pem, std::fs::read_to_string(&replaced).unwrap()] {
        let lines: Vec<&str> =
            pem.lines().filter(|line| line.len() >= 16 && !line.starts_with('-')).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| !told.contains(line)), "{told}");
    }
    assert_eq!(site.upstream.only("/agents/x").all("x-api-key"), Vec::<&str>::new());
}
