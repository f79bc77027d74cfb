//! A file that can't be used: it is refused by itself, at a reload and at a start, and holds up no other one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::rig::case::{Case, cases};
use crate::rig::scope::{Running, beside};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{
    certificates::Issued, gateway::Gateway, listeners::ListenerTls, site::Site, tenants::Tenant,
};
use crate::support::time::{SOON, until};
use crate::support::{client::Connection, service::Service, settings::Settings, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    a_refused_file_holds_up_no_other_and_its_former_version_stays,
    a_refused_configuration_file_holds_up_no_tenant,
    at_a_start_a_tenant_that_cannot_be_served_is_left_out_and_its_host_is_nobodys,
    a_broken_certificate_holds_up_no_other_certificate_and_no_tenant,
    a_pipe_in_the_place_of_a_file_holds_up_no_reload_and_no_start,
    a_file_that_may_be_read_again_is_applied_without_a_change_or_a_signal,
    a_tenant_comes_into_force_while_other_files_are_written_all_the_time,
    only_the_configuration_file_ends_a_start_for_good,
];

/// How many files are refused, by the metric.
fn refused(gateway: &Gateway) -> f64 {
    gateway.service.samples().get("tiergate_config_refused_files")
}

fn until_refused(gateway: &Gateway, count: f64) {
    until(&format!("{count} files are refused"), SOON, || (refused(gateway) == count).then_some(()));
}

fn until_said(gateway: &Gateway, text: &str) {
    gateway.service.await_log(&[text]);
}

/// The facts of the operator's page.
fn page(gateway: &Gateway) -> serde_json::Value {
    let mut admin = Connection::open(gateway.service.admin).unwrap();
    admin.send("GET", "/status.json", &[], None).unwrap().json()
}

fn status(gateway: &Gateway, host: &str) -> u16 {
    gateway.ask(&Request::get(host, &public_path())).status
}

/// A text for each of these tenants of one host, open to everybody below `/public/`.
fn text(site: &Site, id: &str, host: &str) -> String {
    Tenant::new(id, host, site.upstream.address).public().text()
}

fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

// threat: A key of assertions is exchanged, broken or written down
// threat: A half-applied reload, a broken next start
fn a_refused_file_holds_up_no_other_and_its_former_version_stays(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    gateway.put("t.toml", "this is not TOML");
    gateway.put("b.toml", &text(&site, "b", "b.test"));
    gateway.until_status("b.test", 200);
    until_refused(gateway, 1.0);
    assert_eq!(status(gateway, ACME), 200);
    until_said(gateway, "tenants.d/t.toml");
    // It stays refused while others come and go.
    gateway.put("c.toml", &text(&site, "c", "c.test"));
    gateway.until_status("c.test", 200);
    gateway.remove("b.toml");
    gateway.until_status("b.test", 404);
    assert_eq!((refused(gateway), status(gateway, ACME)), (1.0, 200));
    let page = page(gateway);
    let reload = &page["lastReload"];
    assert_eq!(reload["applied"], false, "{page}");
    assert!(reload["problems"][0].as_str().unwrap().contains("t.toml"), "{page}");
    // Who has a host in force keeps it until it is given up, and it is told whose it is.
    gateway.put("0-host.toml", &text(&site, "host", ACME));
    until_refused(gateway, 2.0);
    until_said(gateway, "tenants.d/0-host.toml: hosts: item 1 is \"acme.test\", a host of tenants.d/t.toml");
    // A new file that can't be used is nobody's before, and a file that is gone is no problem.
    gateway.put("d.toml", "id = \"d\"");
    until_refused(gateway, 3.0);
    gateway.remove("d.toml");
    until_refused(gateway, 2.0);
    assert_eq!(status(gateway, ACME), 200);
    gateway.put("t.toml", &text(&site, "t", "renamed.test"));
    gateway.until_status("renamed.test", 200);
    until_refused(gateway, 0.0);
    assert_eq!(status(gateway, ACME), 200);
    assert!(gateway.service.metrics().contains("tenant=\"host\""));
    gateway.remove("0-host.toml");
    gateway.until_status(ACME, 404);
}

// threat: A half-applied reload, a broken next start
fn a_refused_configuration_file_holds_up_no_tenant(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let file = gateway.service.folder.path().join("tiergate.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (number, bad) in ["colour = 1\n", "this is not TOML\n", "[[tenants]]\nid = 5\n"].iter().enumerate() {
        fs::write(&file, format!("{bad}{good}")).unwrap();
        until_refused(gateway, 1.0);
        let (id, host) = (format!("n{number}"), format!("n{number}.test"));
        gateway.put(&format!("{id}.toml"), &text(&site, &id, &host));
        gateway.until_status(&host, 200);
        assert_eq!((refused(gateway), status(gateway, ACME)), (1.0, 200));
        fs::write(&file, &good).unwrap();
        until_refused(gateway, 0.0);
    }
    fs::remove_file(&file).unwrap();
    until_refused(gateway, 1.0);
    assert_eq!(["n0.test", "n1.test", "n2.test", ACME].map(|host| status(gateway, host)), [200; 4]);
}

// threat: A half-applied reload, a broken next start
fn at_a_start_a_tenant_that_cannot_be_served_is_left_out_and_its_host_is_nobodys(stage: &Stage) {
    let wild = |upstream| Tenant::of("wild", &["*"], &[&format!("{upstream}")]).public();
    let tls = ListenerTls::new();
    let issued = tls.authority.issue("late.test");
    let late = [tls.files.path("late.crt"), tls.files.path("late.key")];
    let site = Site::of(stage).also(wild).tls(tls).in_files();
    let upstream = site.upstream().address;
    let put = |service: &Service, id: &str, text: &str| {
        fs::write(service.folder.path().join(format!("tenants.d/{id}.toml")), text).unwrap();
    };
    let tenant = |id: &str, host: &str| Tenant::new(id, host, upstream).public();
    let site = site.start_with(|service| {
        put(
            service,
            "late",
            &tenant("late", "late.test").set("tls.cert", &*late[0]).set("tls.key", &*late[1]).text(),
        );
        put(service, "one", &tenant("one", "both.test").text());
        put(service, "two", &tenant("two", "both.test").text());
        put(service, "broken", "hosts = ");
    });
    let gateway = &site.gateway;
    until_refused(gateway, 4.0);
    assert_eq!(
        [ACME, "late.test", "both.test", "other.test"].map(|host| status(gateway, host)),
        [200, 404, 404, 200]
    );
    for file in ["late.toml", "one.toml", "two.toml", "broken.toml"] {
        until_said(gateway, &format!("tenants.d/{file}"));
    }
    let page = page(gateway);
    assert_eq!(
        (&page["lastReload"]["why"], &page["lastReload"]["applied"]),
        (&"start".into(), &false.into())
    );
    // Another tool writes the certificate, and nobody has to do more. A file that was never there is watched as well.
    site.tls().files.put_pair("late", &issued);
    gateway.until_status("late.test", 200);
    assert_eq!(self::page(gateway)["lastReload"]["why"], "a file has changed");
    gateway.remove("two.toml");
    gateway.until_status("both.test", 200);
    gateway.remove("broken.toml");
    until_refused(gateway, 0.0);
}

/// A site over TLS with the tenants `a` and `b`, each with a certificate of its own in files of its name.
fn with_two_certificates(stage: &Stage) -> (Site, [Issued; 2]) {
    let tls = ListenerTls::new();
    let issued = ["a.test", "b.test"].map(|name| tls.authority.issue(name));
    let files = ["a", "b"].map(|name| tls.files.put_pair(name, &issued[usize::from(name == "b")]));
    let site = Site::of(stage).tls(tls);
    let upstream = site.upstream().address;
    let tenant = |id: &str, [cert, key]: &[String; 2]| {
        let tenant = Tenant::new(id, &format!("{id}.test"), upstream).public();
        tenant.set("tls.cert", &**cert).set("tls.key", &**key)
    };
    let tenants = vec![tenant("a", &files[0]), tenant("b", &files[1])];
    (site.only(tenants).in_files().start(), issued)
}

// threat: A half-applied reload, a broken next start
fn a_broken_certificate_holds_up_no_other_certificate_and_no_tenant(stage: &Stage) {
    let (site, [a, b]) = with_two_certificates(stage);
    let (gateway, secure) = (&site.gateway, site.tls());
    secure.until_shown("a.test", &a);
    secure.until_shown("b.test", &b);
    secure.files.put("a.crt", "this is no certificate");
    let renewed = secure.authority.issue("b.test");
    secure.files.put_pair("b", &renewed);
    gateway.put("c.toml", &text(&site, "c", "c.test"));
    secure.until_shown("b.test", &renewed);
    gateway.until_status("c.test", 200);
    until_refused(gateway, 1.0);
    until_said(gateway, &format!("{}: holds no certificate", secure.files.path("a.crt")));
    secure.until_shown("a.test", &a);
    // A new version of its tenant is applied with the certificate that it had.
    let mut tenant: toml::Table =
        fs::read_to_string(gateway.service.folder.path().join("tenants.d/a.toml")).unwrap().parse().unwrap();
    tenant.insert("hosts".to_owned(), vec!["a.test", "more.test"].into());
    gateway.put("a.toml", &tenant.to_string());
    gateway.until_status("more.test", 200);
    assert_eq!(secure.shown_to("a.test").certificate, a.der);
    let renewed = secure.authority.issue("a.test");
    secure.files.put_pair("a", &renewed);
    secure.until_shown("a.test", &renewed);
    until_refused(gateway, 0.0);
}

// threat: A half-applied reload, a broken next start
fn a_pipe_in_the_place_of_a_file_holds_up_no_reload_and_no_start(stage: &Stage) {
    let (mut site, [a, _]) = with_two_certificates(stage);
    let tenants = site.gateway.service.folder.path().join("tenants.d");
    make_pipe(Path::new(&site.tls().files.path("a.crt")));
    make_pipe(&tenants.join("pipe.toml"));
    until_refused(&site.gateway, 2.0);
    until_said(&site.gateway, "a.crt: is not a regular file");
    until_said(&site.gateway, "tenants.d/pipe.toml: is not a regular file");
    assert_eq!(site.tls().shown_to("a.test").certificate, a.der);
    site.gateway.put("c.toml", &text(&site, "c", "c.test"));
    site.gateway.until_status("c.test", 200);
    // The tenant of the certificate is left out at a start, and no other.
    site.gateway.service.kill();
    site.gateway.service.start_again("");
    site.gateway.until_status("c.test", 200);
    assert_eq!(["a.test", "b.test"].map(|host| status(&site.gateway, host)), [404, 200]);
}

// threat: A half-applied reload, a broken next start
fn a_file_that_may_be_read_again_is_applied_without_a_change_or_a_signal(stage: &Stage) {
    let site = Site::of(stage).in_files();
    // As root the process could read all.
    let site = site
        .under("log=$1; shift; set -- \"$log\" setpriv --bounding-set -dac_override,-dac_read_search \"$@\"")
        .start();
    let gateway = &site.gateway;
    gateway.put("b.toml", &text(&site, "b", "b.test"));
    gateway.until_status("b.test", 200);
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let tenants = gateway.service.folder.path().join("tenants.d");
    mode(&tenants.join("b.toml"), 0o000);
    until_refused(gateway, 1.0);
    until_said(gateway, "tenants.d/b.toml: can't be read: Permission denied");
    mode(&tenants.join("b.toml"), 0o600);
    until_refused(gateway, 0.0);
    mode(&tenants, 0o000);
    until_refused(gateway, 1.0);
    assert_eq!([ACME, "b.test"].map(|host| status(gateway, host)), [200, 200]);
    mode(&tenants, 0o700);
    until_refused(gateway, 0.0);
}

// threat: A half-applied reload, a broken next start
fn a_tenant_comes_into_force_while_other_files_are_written_all_the_time(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let tenants = gateway.service.folder.path().join("tenants.d");
    let [one, other, dotted] = ["x.toml", "y.toml", ".draft.toml"].map(|name| tenants.join(name));
    fs::write(&one, text(&site, "x", "x.test")).unwrap();
    let write = |running: &Running| {
        while running.is_on() {
            for [from, to] in [[&one, &other], [&other, &one]] {
                fs::write(&dotted, "half a ten").unwrap();
                fs::rename(from, to).unwrap();
                std::thread::yield_now();
            }
        }
    };
    beside(1, write, |_| {
        gateway.put("b.toml", &text(&site, "b", "b.test"));
        gateway.until_status("b.test", 200);
    });
}

/// A start: its name, its settings, what becomes of its files, and its exit code.
type Start<'a> = (&'a str, Settings, &'a dyn Fn(&Service), i32);

// threat: A half-applied reload, a broken next start
fn only_the_configuration_file_ends_a_start_for_good(stage: &Stage) {
    let tls = ListenerTls::new();
    let missing = tls.files.path("missing");
    let other = tls.authority.issue("listener.test");
    let pair = |settings: Settings| {
        settings
            .set("listen.tls.cert", tls.files.path("own.crt"))
            .set("listen.tls.key", tls.files.put("k.key", &other.key_pem))
    };
    let bad_tenant = |service: &Service| {
        fs::create_dir(service.folder.path().join("tenants.d")).unwrap();
        fs::write(service.folder.path().join("tenants.d/a.toml"), "id = ").unwrap();
    };
    let as_it_is = |_: &Service| ();
    let cases: [Start<'_>; 7] = [
        ("a wrong key", stage.settings().set("surprise", 1), &as_it_is, 2),
        (
            "not TOML",
            stage.settings(),
            &|service| fs::write(service.folder.path().join("tiergate.toml"), "x").unwrap(),
            2,
        ),
        (
            "no file",
            stage.settings(),
            &|service| fs::remove_file(service.folder.path().join("tiergate.toml")).unwrap(),
            1,
        ),
        ("a certificate of another key", pair(stage.settings()), &as_it_is, 1),
        (
            "a missing password",
            stage.settings().redis("redis://127.0.0.1:1").set("store.redis.password_file", missing),
            &as_it_is,
            1,
        ),
        ("a tenant, strictly", stage.settings().set("gateway.strict_tenants", true), &bad_tenant, 1),
        (
            "no folder",
            stage.settings(),
            &|service| fs::write(service.folder.path().join("tenants.d"), "").unwrap(),
            1,
        ),
    ];
    for (case, settings, change, code) in cases {
        let service = Service::prepare(settings);
        change(&service);
        let output = service.command("run", &[]);
        assert_eq!(output.status.code(), Some(code), "{case}: {output:?}");
    }
}
