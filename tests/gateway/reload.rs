//! Tenants come, change and go while requests run; a file with a mistake changes nothing.

use std::fs;

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_unauthenticated, refused};
use crate::rig::scripts::{self, Cue};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::{gateway::Gateway, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    a_file_that_comes_changes_and_goes_counts_without_a_signal,
    a_signal_reads_the_main_file_again,
    a_connection_that_is_open_sees_the_new_tenants_on_its_next_request,
    an_answer_under_way_ends_whole_when_its_tenant_changes_and_when_it_goes,
    a_window_outlives_a_reload,
    sections_that_need_a_restart_are_named_and_count_from_the_next_start_on,
    a_reload_that_finds_no_tenants_is_refused_unless_that_is_meant,
    a_start_that_finds_no_tenants_is_refused_unless_that_is_meant,
];

/// The status of a request for a public path of a host.
fn status(gateway: &Gateway, host: &str) -> u16 {
    gateway.ask(&Request::get(host, &public_path())).status
}

fn a_file_that_comes_changes_and_goes_counts_without_a_signal(stage: &Stage) {
    let Site { gateway, upstream, .. } = &Site::of(stage).in_files().start();
    let second = Tenant::new("second", "second.test", upstream.address);
    assert_eq!((status(gateway, ACME), status(gateway, "second.test")), (200, 404));
    gateway.put("second.toml", &second.clone().public().text());
    gateway.until_status("second.test", 200);
    let series = "tiergate_gateway_requests_total{outcome=\"forwarded\",tenant=\"second\"}";
    // A request is counted once its answer has gone.
    until("it is counted", SOON, || gateway.service.metrics().contains(series).then_some(()));
    gateway.put("second.toml", &second.text());
    gateway.until_status("second.test", 401);
    gateway.put("not-a-tenant.txt", "colour = 1");
    gateway.remove("second.toml");
    gateway.until_status("second.test", 404);
    assert_eq!(status(gateway, ACME), 200);
    assert!(!gateway.service.metrics().contains(series), "the series go with the tenant");
    assert_eq!(gateway.readings("refused"), 0.0);
}

fn a_signal_reads_the_main_file_again(stage: &Stage) {
    let Site { gateway, .. } = &Site::start(stage);
    let file = gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    for (text, statuses) in [(text.replace(ACME, "renamed.test"), [404, 200]), (text, [200, 404])] {
        fs::write(&file, text).unwrap();
        gateway.reread("applied");
        assert_eq!([ACME, "renamed.test"].map(|host| status(gateway, host)), statuses);
    }
}

fn a_connection_that_is_open_sees_the_new_tenants_on_its_next_request(stage: &Stage) {
    let Site { gateway, upstream, .. } = &Site::of(stage).in_files().start();
    let tenant = Tenant::new("t", ACME, upstream.address);
    let mut wire = gateway.connect();
    assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
    gateway.put("t.toml", &tenant.clone().route("/public/*", r#"access = "deny""#).text());
    gateway.reread("applied");
    refused(&Request::get(ACME, &public_path()).ask_on(&mut wire), 403);
    gateway.put("t.toml", &tenant.text());
    gateway.reread("applied");
    is_unauthenticated(&Request::get(ACME, &public_path()).ask_on(&mut wire));
}

fn an_answer_under_way_ends_whole_when_its_tenant_changes_and_when_it_goes(stage: &Stage) {
    let site = Site::of(stage).set("gateway.allow_empty", true).in_files().start();
    let Site { gateway, upstream, .. } = &site;
    let (path, cues) = (public_path(), [Cue::new(), Cue::new()]);
    let pieces = &["before", "changed", "gone"];
    upstream.on(&path, scripts::chunks_on_cue("HTTP/1.1 200 OK\r\n", pieces, &cues));
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    assert_eq!(wire.head().unwrap().status, 200);
    assert_eq!(wire.chunk().unwrap().unwrap(), b"before");
    gateway.put("t.toml", &Tenant::new("t", ACME, free_port(own_ip())).public().text());
    gateway.reread("applied");
    assert_eq!(status(gateway, ACME), 502);
    cues[0].give();
    assert_eq!(wire.chunk().unwrap().unwrap(), b"changed");
    gateway.remove("t.toml");
    gateway.reread("applied");
    assert_eq!(status(gateway, ACME), 404);
    cues[1].give();
    assert_eq!(wire.chunk().unwrap().unwrap(), b"gone");
    assert_eq!(wire.chunk().unwrap(), None);
}

// threat: A fresh budget, or another tenant's
fn a_window_outlives_a_reload(stage: &Stage) {
    let site = Site::of(stage).in_files().agent(1).start();
    assert_eq!(site.gateway.ask(&site.by_key()).status, 200);
    site.gateway.put("t.toml", &Tenant::new("t", ACME, site.upstream.address).text());
    site.gateway.reread("applied");
    assert_eq!(site.status(), 401);
    site.gateway.ask(&site.by_key()).is_limited(json!(site.agent().text()), json!(1), 1);
}

/// Changes the main file.
fn edit(gateway: &Gateway, change: impl FnOnce(String) -> String) {
    let file = gateway.service.folder.path().join("tiergate.toml");
    fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
}

/// The gauges about the configuration: the last reading was applied, a restart is required.
fn gauges(gateway: &Gateway) -> [f64; 2] {
    let samples = gateway.service.samples();
    ["last_reload_successful", "restart_required"].map(|name| samples.get(&format!("tiergate_config_{name}")))
}

// threat: A change that waits for a restart
fn sections_that_need_a_restart_are_named_and_count_from_the_next_start_on(stage: &Stage) {
    let site = Site::of(stage).in_files().agent(2).start();
    let gateway = &site.gateway;
    let applied = || gateway.service.samples().get("tiergate_config_last_reload_success_timestamp_seconds");
    let started = applied();
    assert_eq!(gauges(gateway), [1.0, 0.0], "they are there before any reload");
    assert!((unix_seconds() as f64 - started).abs() < 600.0, "{started}");
    let limits = "[tiers]\nrequests_per_minute = [5, 50, 500, 5000]\n";
    let second = Tenant::new("second", "second.test", site.upstream.address).text();
    gateway.put("second.toml", &second);
    edit(gateway, |text| text + limits);
    gateway.reread("applied");
    assert_eq!(gauges(gateway), [1.0, 1.0]);
    until("they are named", SOON, || {
        let log = gateway.service.log();
        let mut lines =
            log.lines().filter(|line| line.contains(" WARN ") && line.contains("a restart is needed"));
        lines.any(|line| line.contains("sections=\"tiers\"")).then_some(())
    });
    // No tenant, old or new, and not the API either has the limits of the file.
    for host in [ACME, "second.test"] {
        let answer = gateway.ask(&Request::get(host, "/x").key(site.key()));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("16")), "{host}");
    }
    assert_eq!(gateway.service.verify(site.key()).allowance().0, 16);
    gateway.put("second.toml", "broken");
    gateway.reread("refused");
    assert_eq!(gauges(gateway), [0.0, 1.0]);
    gateway.put("second.toml", &second);
    edit(gateway, |text| text.replace(limits, ""));
    gateway.reread("applied");
    assert_eq!(gauges(gateway), [1.0, 0.0], "it is as it was at the start");
    assert!(applied() >= started);
}

// threat: An unmounted volume looks empty
fn a_start_that_finds_no_tenants_is_refused_unless_that_is_meant(stage: &Stage) {
    let site = Site::of(stage).in_files().start();
    let gateway = &site.gateway;
    let folder = gateway.service.folder.path().join("tenants.d");
    let is_fine = |what: &str| {
        let checked = gateway.service.command("check", &[]);
        assert!(checked.status.success(), "{what}: {checked:?}");
    };
    let is_refused = |place: &str| {
        let why =
            format!("{place}: there is no tenant; mount the folder, or set gateway.allow_empty to true");
        for (output, code) in [(gateway.service.run_second(), 1), (gateway.service.command("check", &[]), 2)]
        {
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(code) && said.contains(&why), "{why}: {said}");
        }
    };
    is_fine("as it stands");
    fs::remove_dir_all(&folder).unwrap();
    is_refused("tenants");
    fs::create_dir(&folder).unwrap();
    is_refused("tenants.d");
    // A tenant of the main file does not hide that those of the folder are gone.
    let upstream = site.upstream.address;
    let main =
        format!("\n[[tenants]]\nid = \"main\"\nhosts = [\"main.test\"]\nupstreams = [\"{upstream}\"]\n");
    edit(gateway, |text| text + &main);
    is_refused("tenants.d");
    fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink("nowhere", &folder).unwrap();
    is_refused("tenants.d");
    fs::remove_file(&folder).unwrap();
    is_fine("there is no folder");
    edit(gateway, |text| text.replace(&main, "\n[gateway]\nallow_empty = true\n"));
    is_fine("it is meant");
}

// threat: An unmounted volume looks empty
fn a_reload_that_finds_no_tenants_is_refused_unless_that_is_meant(stage: &Stage) {
    let site = Site::of(stage).also(|upstream| Tenant::new("other", "other.test", upstream).public());
    let site = site.in_files().start();
    let gateway = &site.gateway;
    let (folder, aside) = {
        let at = |name| gateway.service.folder.path().join(name);
        (at("tenants.d"), at("aside"))
    };
    fs::rename(&folder, &aside).unwrap();
    let statuses = || [ACME, "other.test"].map(|host| status(gateway, host));
    let said = |text: &str| gateway.service.await_log(&[text]);
    for break_it in [
        (|_: &std::path::Path| ()) as fn(&std::path::Path),
        |folder| fs::create_dir(folder).unwrap(),
        |folder| {
            fs::remove_dir(folder).unwrap();
            std::os::unix::fs::symlink("nowhere", folder).unwrap();
        },
    ] {
        break_it(&folder);
        gateway.reread("refused");
        assert_eq!(statuses(), [200, 200]);
    }
    said(
        "tenants.d: there is no tenant, and there were 2 before; set gateway.allow_empty to true if that is meant",
    );
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    gateway.reread("applied");
    assert_eq!((statuses(), gauges(gateway)), ([200, 200], [1.0, 0.0]));
    // One tenant fewer is a change like any.
    gateway.remove("other.toml");
    gateway.reread("applied");
    assert_eq!(statuses(), [200, 404]);
    gateway.remove("t.toml");
    gateway.reread("refused");
    assert_eq!(statuses(), [200, 404]);
    edit(gateway, |text| format!("{text}\n[gateway]\nallow_empty = true\n"));
    gateway.reread("applied");
    assert_eq!((statuses(), gauges(gateway)), ([404, 404], [1.0, 0.0]));
}
